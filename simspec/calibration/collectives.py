"""Fit the all-reduce of a link: latency and bandwidth of each algorithm, and where they cross."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from simspec.calibration.fitted import LOSS_SCALE, Fitted, finite_errors
from simspec.calibration.kernel_tables import AllReduceRows, NcclRows
from simspec.calibration.robust import Array, Coefficient, Mask, fit_and_judge
from simspec.core.units import from_gb_s, from_us
from simspec.cost.collectives import one_shot, ring

_NAMES = ("latency_us", "latency_per_peer_us", "bandwidth_gb_s")
_MAX_RING_LATENCY_US = 25.0
"""NCCL's own floor stays below it on every node measured (6 to 16 µs for 2 to 8 ranks on an
H100, 10 to 23 µs on an A100). Without the bound the fit would explain by latency that engines
leave their custom kernels at 8 MB, which is a limit of their buffers."""


def fit_all_reduce(rows: AllReduceRows, *, has_switch: bool, what: str) -> dict[str, Fitted]:
    """Fit the algorithms of a link together: the faster one explains each row.

    With a switch, every pair of ranks has its own path: a one-shot for small messages and a
    ring for large ones, crossing where they are equally fast. The ring stands for everything
    that sends no byte twice, two-shot kernels included; it has one latency whatever the number
    of ranks, as the rows cannot tell more. Without a switch all traffic shares the host's
    bridge: the one-shot form alone describes it, with a rate that falls with each rank beyond a
    pair (two cards behind one PCIe switch exchange at twice the rate of four).

    Returns
    -------
    dict
        By algorithm.

    Raises
    ------
    CalibrationError
        Too few rows, or no convergence.
    """
    peers = rows.ranks - 1.0
    one_shot_bytes = rows.message_bytes * _wires(one_shot.all_reduce_wire, rows.ranks)
    ring_bytes = rows.message_bytes * _wires(ring.all_reduce_wire, rows.ranks)

    def predict(values: Array, chosen: Mask) -> Array:
        latency_us, per_peer_us, rate_gb_s = values[:3]
        seconds = from_us(latency_us + per_peer_us * peers[chosen])
        shared = 1.0 if has_switch else 1.0 + values[3] * np.maximum(peers[chosen] - 1.0, 0.0)
        seconds = seconds + one_shot_bytes[chosen] * shared / from_gb_s(float(rate_gb_s))
        if has_switch:
            latency_us, rate_gb_s = values[3:]
            ring_s = from_us(float(latency_us)) + ring_bytes[chosen] / from_gb_s(float(rate_gb_s))
            seconds = np.minimum(seconds, ring_s)
        return np.asarray(seconds, dtype=np.float64)

    estimate, judged, num_rows = fit_and_judge(
        predict,
        _coefficients(has_switch=has_switch),
        rows.measured_s,
        groups=rows.groups,
        loss_scale=LOSS_SCALE,
        what=what,
    )
    values, errors = estimate.values, estimate.standard_error

    def fitted(names: Sequence[str], numbers: Array, spread: Array) -> Fitted:
        named = dict(zip(names, map(float, numbers), strict=True))
        return Fitted(named, finite_errors(names, spread), num_rows, judged)

    if not has_switch:
        return {"one_shot": fitted((*_NAMES, "sharing_per_rank"), values, errors)}
    ring_numbers = np.insert(values[3:], 1, 0.0), np.insert(errors[3:], 1, np.nan)
    return {
        "one_shot": fitted(_NAMES, values[:3], errors[:3]),
        "ring": fitted(_NAMES, *ring_numbers),
    }


def fit_nccl(rows: NcclRows, *, what: str) -> dict[str, Fitted]:
    """Fit NCCL's ring over a switch: two protocols, the faster one explains each row.

    All-reduces and gathers share the coefficients, ``alpha + step n + wire / beta`` of each
    protocol with ``n`` steps of the ring.

    Returns
    -------
    dict
        By algorithm.

    Raises
    ------
    CalibrationError
        Too few rows, or no convergence.
    """
    wire_bytes = rows.message_bytes * rows.wire

    def predict(values: Array, chosen: Mask) -> Array:
        times = [
            from_us(latency_us + step_us * rows.steps[chosen])
            + wire_bytes[chosen] / from_gb_s(float(rate_gb_s))
            for latency_us, step_us, rate_gb_s in (values[:3], values[3:])
        ]
        return np.asarray(np.minimum(*times), dtype=np.float64)

    estimate, judged, num_rows = fit_and_judge(
        predict,
        [
            Coefficient("latency_us", 0.0, 100.0, start=5.0),
            Coefficient("latency_per_peer_us", 0.0, 50.0, start=1.0),
            Coefficient("bandwidth_gb_s", 0.1, 2000.0, start=100.0),
            Coefficient("latency_us", 0.0, 100.0, start=20.0),
            Coefficient("latency_per_peer_us", 0.0, 50.0, start=0.5),
            Coefficient("bandwidth_gb_s", 0.1, 2000.0, start=300.0),
        ],
        rows.measured_s,
        groups=rows.groups,
        loss_scale=LOSS_SCALE,
        what=what,
    )
    found = {}
    for name, own in (("nccl_low_latency", slice(0, 3)), ("nccl_simple", slice(3, 6))):
        values = dict(zip(_NAMES, map(float, estimate.values[own]), strict=True))
        errors = finite_errors(_NAMES, estimate.standard_error[own])
        found[name] = Fitted(values, errors, num_rows, judged)
    return found


def _wires(wire: Callable[[int], float], ranks: Array) -> Array:
    return np.array([wire(int(tp)) for tp in ranks])


def _coefficients(*, has_switch: bool) -> list[Coefficient]:
    coefficients = [
        Coefficient("latency_us", 0.0, 1000.0, start=5.0),
        Coefficient("latency_per_peer_us", 0.0, 1000.0, start=0.2),
        Coefficient("bandwidth_gb_s", 0.1, 1000.0, start=200.0 if has_switch else 10.0),
    ]
    if has_switch:
        coefficients += [
            Coefficient("latency_us", 0.0, _MAX_RING_LATENCY_US, start=10.0),
            Coefficient("bandwidth_gb_s", 0.1, 1000.0, start=300.0),
        ]
    else:
        coefficients.append(Coefficient("sharing_per_rank", 0.0, 10.0, start=0.3))
    return coefficients
