"""Collectives between ranks: what an algorithm file offers, and the faster one wins.

Each module of this package says how many bytes a rank puts on the wire for each byte of the
message: ``all_reduce_wire(tp)``, ``all_gather_wire(tp)`` and ``reduce_scatter_wire(tp)``. Where a
wait for each peer is not all there is, ``all_reduce_steps(tp)`` and so on count the waits. Its
latency and bandwidth come from the link of the hardware profile, under the module's name. Small
messages are bound by latency, large ones by bandwidth, and that is why a small draft model at a
high degree is slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from simspec.core.errors import ConfigError, ProfileError
from simspec.core.registry import Registry
from simspec.cost.operators._pairs import Work
from simspec.cost.roofline import Bound, smaller
from simspec.cost.work import Quantity
from simspec.hardware.profile import AllReduceFit, Hardware, Link

ALGORITHMS = Registry("simspec.cost.collectives", "collective algorithm")

CollectiveKind: TypeAlias = Literal["all_reduce", "all_gather", "reduce_scatter"]


@dataclass(frozen=True, slots=True)
class Collective:
    """A row kernel that exchanges ``bytes_per_row`` between the ranks of a stack."""

    name: str
    bytes_per_row: float
    """Of the message: the whole tensor, once."""
    tp: int
    algorithms: tuple[tuple[AllReduceFit, float, float], ...]
    """Fit, wire bytes per message byte and waits of every algorithm the link has."""
    is_network: bool = True
    is_gathered: bool = False

    def work(self, rows: Quantity) -> Work:
        """Return no FLOP and the bytes of the message."""
        return Work(0.0, rows * self.bytes_per_row)

    def seconds(self, rows: Quantity) -> Quantity:
        """Return the time of the fastest algorithm for ``rows`` rows."""
        message = rows * self.bytes_per_row
        times = [
            collective_seconds(message * wire, tp=self.tp, fit=fit, steps=steps)
            for fit, wire, steps in self.algorithms
        ]
        best = times[0]
        for other in times[1:]:
            best = smaller(best, other)
        return best

    def bound(self, rows: float) -> Bound:
        """Return ``"network"``."""
        return "network"


def collective_seconds(
    wire_bytes: Quantity, *, tp: int, fit: AllReduceFit, steps: float | None = None
) -> Quantity:
    """Return ``latency + latency_per_peer steps + wire_bytes / bandwidth`` in seconds.

    The alpha-beta model of Hockney, "The communication challenge for MPP", Parallel Computing
    20(3), 1994, with an alpha that grows with the steps (one for each peer unless given), and a
    beta that grows with the peers beyond a pair where all share the host's bridge:
    ``(1 + sharing (tp - 2)) / bandwidth``.
    """
    alpha = fit.latency_s + fit.latency_per_peer_s * (tp - 1.0 if steps is None else steps)
    shared = 1.0 + fit.sharing_per_rank * max(tp - 2, 0)
    return alpha + wire_bytes / (fit.bandwidth_bytes_per_s / shared)


def collective(
    kind: CollectiveKind,
    name: str,
    *,
    bytes_per_row: float,
    tp: int,
    hardware: Hardware,
    is_gathered: bool = False,
) -> Collective:
    """Return the kernel of one collective over the device link.

    Raises
    ------
    ProfileError
        The link names an algorithm that has no file, or has none at all.
    """
    link = device_link(hardware, tp)
    if not link.all_reduce:
        raise ProfileError(
            f"hardware {hardware.name!r}: link {link.name!r} has no all-reduce times, which tp "
            f"{tp} needs; use tp 1 or add one of: {', '.join(ALGORITHMS.names())}"
        )
    algorithms = []
    for algorithm, fit in sorted(link.all_reduce.items()):
        module = ALGORITHMS.module(algorithm)
        wire = getattr(module, f"{kind}_wire")(tp)
        steps = getattr(module, f"{kind}_steps", _one_for_each_peer)(tp)
        algorithms.append((fit, float(wire), float(steps)))
    return Collective(name, bytes_per_row, tp, tuple(algorithms), is_gathered=is_gathered)


def _one_for_each_peer(tp: int) -> float:
    return tp - 1.0


def device_link(hardware: Hardware, tp: int, *, attention_dp: int = 1) -> Link:
    """Return the link that ``tp * attention_dp`` ranks talk over.

    Raises
    ------
    ConfigError
        There is none, or it joins fewer devices.
    """
    link = hardware.link
    if link is None:
        raise ConfigError(
            f"tp {tp}: hardware {hardware.name!r} has no link between devices; use tp 1", field="tp"
        )
    if attention_dp > 1 and tp * attention_dp > link.max_devices:
        raise ConfigError(
            f"{attention_dp} groups of {tp} devices are more than the {link.max_devices} that "
            f"link {link.name!r} of hardware {hardware.name!r} joins",
            field="attention_data_parallel",
        )
    if tp > link.max_devices:
        raise ConfigError(
            f"tp {tp}: link {link.name!r} of hardware {hardware.name!r} joins at most "
            f"{link.max_devices} devices; use tp {link.max_devices} or less",
            field="tp",
        )
    return link
