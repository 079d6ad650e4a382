"""The YAML form of a hardware profile: edge units in the key names, a source in every group.

``hardware_profiles/h100_sxm.yaml`` is the example to copy. :func:`to_hardware` turns a validated
profile into the SI form of :mod:`simspec.hardware.profile`, and
:func:`simspec.hardware.describe.describe` turns that back into edge units for people.

The ranges refuse what no device can be: an efficiency above 1 would beat the data sheet, a
bandwidth of 3.35 GB/s is one written in the wrong unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simspec.core.errors import nearest
from simspec.core.units import (
    from_gb,
    from_gb_s,
    from_ns,
    from_tflops,
    from_us,
)
from simspec.hardware.kernel_schema import (
    Algorithm,
    AllReduceEntry,
    ComputeDtype,
    DecodeEntry,
    ElementwiseEntry,
    Evidence,
    GemmEntry,
    GemmKey,
    KernelEntry,
    KvDtype,
    LinkGbS,
    Microseconds,
    PrefillEntry,
    ProfileGroup,
    SourcedGroup,
)
from simspec.hardware.profile import (
    AllReduceFit,
    FitError,
    Hardware,
    InterNodeLink,
    KernelFit,
    KernelSet,
    KvReads,
    Link,
    Power,
    Price,
)
from simspec.hardware.uncertainty import KernelKind, fit_error


class MemoryGroup(SourcedGroup):
    """Device memory."""

    capacity_gb: Annotated[float, Field(ge=0.5, le=10_000.0)]
    """What programs see, in 10**9 bytes: an engine's memory fraction is a share of this."""
    bandwidth_gb_s: Annotated[float, Field(ge=10.0, le=100_000.0)]
    """Nominal, of the data sheet."""
    nominal_gb: Annotated[float, Field(ge=0.5, le=10_000.0)] | None = None
    """The size in the product's name, for people."""
    l2_mb: Annotated[float, Field(ge=0.1, le=10_000.0)] | None = None
    """Last-level cache, in 10**6 bytes; only calibration asks, to leave out cached rows."""


class ComputeGroup(SourcedGroup):
    """Arithmetic rates."""

    dense_peak_tflops: Annotated[
        dict[ComputeDtype, Annotated[float, Field(ge=0.1, le=100_000.0)]], Field(min_length=1)
    ]
    """Without structured sparsity, by compute data type."""
    multiprocessors: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Needed where a fit of matrix products counts waves of tiles."""


class FittedGroup(SourcedGroup):
    """Whether and on what coefficients were fitted."""

    calibrated: bool
    """Whether the coefficients were fitted on measurements of this very device."""
    efficiencies_of: Annotated[str, Field(max_length=100)] = ""
    """The profile that stands in where they were not."""
    fitted_on: str | None = None
    """Date, engine and table of the fit."""


class EngineKernelsGroup(FittedGroup):
    """Kernels that one engine brings; what is absent is as in the group around it."""

    kv_reads: KvReads | None = None
    gemm: Annotated[dict[GemmKey, GemmEntry], Field(min_length=1)] | None = None
    decode_attention: Annotated[dict[KvDtype, DecodeEntry], Field(min_length=1)] | None = None
    prefill_attention: Annotated[dict[KvDtype, PrefillEntry], Field(min_length=1)] | None = None
    elementwise: ElementwiseEntry | None = None
    all_reduce: dict[Algorithm, AllReduceEntry] | None = None
    """Its collectives over the device's link."""


class KernelsGroup(FittedGroup):
    """How much of the peaks kernels reach."""

    kv_reads: KvReads = "once_per_pass"
    gemm: Annotated[dict[GemmKey, GemmEntry], Field(min_length=1)]
    decode_attention: Annotated[dict[KvDtype, DecodeEntry], Field(min_length=1)]
    prefill_attention: Annotated[dict[KvDtype, PrefillEntry], Field(min_length=1)]
    elementwise: ElementwiseEntry
    engines: dict[str, EngineKernelsGroup] = Field(default_factory=dict)
    """Engines with kernels of their own, by the ``kernels`` of their engine profile."""


class LinkGroup(SourcedGroup):
    """The connection between the devices of a node."""

    name: str
    bandwidth_gb_s: LinkGbS
    """One direction, per device."""
    max_devices: Annotated[int, Field(ge=2, le=1024)]
    all_reduce: dict[Algorithm, AllReduceEntry] = Field(default_factory=dict)


class HostLinkGroup(SourcedGroup):
    """The connection between a device and its host."""

    name: str
    bandwidth_gb_s: LinkGbS


class InterNodeLinkGroup(SourcedGroup):
    """The network between nodes, one direction, as one device sees it."""

    name: str
    bandwidth_gb_s: LinkGbS
    """One direction, per device."""
    latency_us: Microseconds
    """Of one message, whatever its size."""


class PowerGroup(SourcedGroup):
    """Watts of one device."""

    tdp_w: Annotated[float, Field(ge=1.0, le=10_000.0)]
    idle_w: Annotated[float, Field(ge=0.0, le=10_000.0)]

    @model_validator(mode="after")
    def _idle_below_full_load(self) -> PowerGroup:
        if self.idle_w > self.tdp_w:
            raise PydanticCustomError(
                "idle_above_tdp",
                "idle_w {idle} is above tdp_w {tdp}; give idle_w of at most {tdp}",
                {"idle": self.idle_w, "tdp": self.tdp_w},
            )
        return self


class PriceGroup(SourcedGroup):
    """Rent of one device."""

    usd_per_hour: Annotated[float, Field(gt=0.0, le=1000.0)]
    as_of: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    """Date the price was read, ``YYYY-MM-DD``."""


class HardwareConfig(ProfileGroup):
    """A whole profile."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    description: Annotated[str, Field(min_length=1, max_length=500)]
    memory: MemoryGroup
    compute: ComputeGroup
    kernels: KernelsGroup
    link: LinkGroup | None = None
    host_link: HostLinkGroup | None = None
    inter_node_link: InterNodeLinkGroup | None = None
    power: PowerGroup | None = None
    price: PriceGroup | None = None

    @model_validator(mode="after")
    def _gemm_has_a_peak(self) -> HardwareConfig:
        peaks = self.compute.dense_peak_tflops
        for dtype in self.kernels.gemm:
            if dtype in get_args(ComputeDtype) and dtype not in peaks:
                raise PydanticCustomError(
                    "gemm_without_peak",
                    "kernels.gemm.{dtype}: there is no peak for '{dtype}' in "
                    "compute.dense_peak_tflops; {choices}",
                    {"dtype": dtype, "choices": nearest(dtype, peaks)},
                )
        return self

    @model_validator(mode="after")
    def _waves_have_multiprocessors(self) -> HardwareConfig:
        sets = {"kernels": self.kernels.gemm} | {
            f"kernels.engines.{name}": group.gemm or {}
            for name, group in self.kernels.engines.items()
        }
        for place, entries in sets.items():
            for dtype, entry in entries.items():
                if entry.tile_columns is not None and self.compute.multiprocessors is None:
                    raise PydanticCustomError(
                        "waves_of_nothing",
                        "{place}.gemm.{dtype}.tile_columns counts waves of tiles over the "
                        "multiprocessors; give compute.multiprocessors",
                        {"place": place, "dtype": dtype},
                    )
        return self


def to_hardware(config: HardwareConfig) -> Hardware:
    """Return a profile in SI units."""
    kernels, calibrated = config.kernels, config.kernels.calibrated
    return Hardware(
        name=config.name,
        description=config.description,
        memory_capacity_bytes=from_gb(config.memory.capacity_gb),
        memory_bandwidth_bytes_per_s=from_gb_s(config.memory.bandwidth_gb_s),
        peak_flop_per_s={
            dtype: from_tflops(peak) for dtype, peak in config.compute.dense_peak_tflops.items()
        },
        gemm=_fits("gemm", kernels.gemm, calibrated),
        decode_attention=_fits("decode_attention", kernels.decode_attention, calibrated),
        prefill_attention=_fits("prefill_attention", kernels.prefill_attention, calibrated),
        elementwise=_elementwise_fit(kernels.elementwise, calibrated),
        kv_reads=kernels.kv_reads,
        link=_link(config.link),
        multiprocessors=config.compute.multiprocessors or 0,
        host_link=_host_link(config.host_link),
        power=_power(config.power),
        price=_price(config.price),
        calibrated=calibrated,
        sources=_sources(config),
        efficiencies_of=kernels.efficiencies_of,
        kernel_sets={name: _kernel_set(group) for name, group in kernels.engines.items()},
        inter_node_link=_inter_node_link(config.inter_node_link),
    )


def _fits(
    kind: KernelKind, entries: Mapping[Any, KernelEntry], calibrated: bool
) -> dict[str, KernelFit]:
    return {name: _kernel_fit(kind, entry, calibrated) for name, entry in entries.items()}


def _fit_error(kind: KernelKind, entry: Evidence, calibrated: bool) -> FitError:
    judged = None if entry.held_out_error is None else entry.held_out_error.median
    errors = tuple(_in_si(*item) for item in entry.standard_error.items())
    return fit_error(kind, judged, errors, calibrated=calibrated)


def _in_si(name: str, value: float) -> tuple[str, float]:
    """Return a coefficient of the YAML as the field of the SI form, whose names share a stem."""
    units: dict[str, tuple[str, Callable[[float], float]]] = {
        "_us": ("_s", from_us),
        "_ns": ("_s", from_ns),
        "_gb_s": ("_bytes_per_s", from_gb_s),
    }
    for suffix, (si_suffix, to_si) in units.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix) + si_suffix, to_si(value)
    return name, value


def _kernel_fit(kind: KernelKind, entry: KernelEntry, calibrated: bool) -> KernelFit:
    vector = entry.vector if isinstance(entry, GemmEntry) else None
    product = entry if isinstance(entry, GemmEntry) else None
    tile_rows = 1 if product is None else product.tile_rows or 1
    padding = None if product is None else product.padding_cost
    return KernelFit(
        flop_efficiency=entry.flop_efficiency,
        bandwidth_efficiency=entry.bandwidth_efficiency,
        overhead_s=from_us(entry.overhead_us),
        sharpness=float("inf") if entry.sharpness is None else entry.sharpness,
        vector_rows=0 if vector is None else vector.max_rows,
        vector_flop_efficiency=1.0 if vector is None else vector.flop_efficiency,
        vector_sharpness=1.0 if vector is None else vector.sharpness,
        tile_rows=tuple(tile_rows) if isinstance(tile_rows, list) else tile_rows,
        padding_cost=1.0 if padding is None else padding,
        depth_s=0.0 if product is None else from_ns(product.depth_ns or 0.0),
        quantise_s=0.0 if product is None else from_ns(product.quantise_ns or 0.0),
        tile_columns=0 if product is None else product.tile_columns or 0,
        idle_cost=0.0 if product is None else product.idle_cost or 0.0,
        wave_s=0.0 if product is None else from_us(product.wave_us or 0.0),
        sequence_s=from_ns(entry.sequence_ns or 0.0) if isinstance(entry, DecodeEntry) else 0.0,
        token_s=from_ns(entry.token_ns or 0.0) if isinstance(entry, PrefillEntry) else 0.0,
        error=_fit_error(kind, entry, calibrated),
    )


def _elementwise_fit(entry: ElementwiseEntry, calibrated: bool) -> KernelFit:
    # No FLOP are counted for these kernels, so their efficiency never matters.
    return KernelFit(
        flop_efficiency=1.0,
        bandwidth_efficiency=entry.bandwidth_efficiency,
        overhead_s=from_us(entry.overhead_us),
        error=_fit_error("elementwise", entry, calibrated),
    )


def _kernel_set(group: EngineKernelsGroup) -> KernelSet:
    own, decode, prefill = group.calibrated, group.decode_attention, group.prefill_attention
    return KernelSet(
        gemm=None if group.gemm is None else _fits("gemm", group.gemm, own),
        decode_attention=None if decode is None else _fits("decode_attention", decode, own),
        prefill_attention=None if prefill is None else _fits("prefill_attention", prefill, own),
        elementwise=(
            None if group.elementwise is None else _elementwise_fit(group.elementwise, own)
        ),
        kv_reads=group.kv_reads,
        calibrated=group.calibrated,
        efficiencies_of=group.efficiencies_of,
        all_reduce=None if group.all_reduce is None else _all_reduce(group.all_reduce, own),
    )


def _all_reduce(
    entries: Mapping[Algorithm, AllReduceEntry], calibrated: bool
) -> dict[str, AllReduceFit]:
    return {
        algorithm: AllReduceFit(
            latency_s=from_us(entry.latency_us),
            latency_per_peer_s=from_us(entry.latency_per_peer_us),
            bandwidth_bytes_per_s=from_gb_s(entry.bandwidth_gb_s),
            sharing_per_rank=entry.sharing_per_rank or 0.0,
            error=_fit_error("all_reduce", entry, calibrated=calibrated),
        )
        for algorithm, entry in entries.items()
    }


def _link(config: LinkGroup | None) -> Link | None:
    if config is None:
        return None
    return Link(
        name=config.name,
        bandwidth_bytes_per_s=from_gb_s(config.bandwidth_gb_s),
        max_devices=config.max_devices,
        all_reduce=_all_reduce(config.all_reduce, calibrated=True),
    )


def _host_link(config: HostLinkGroup | None) -> Link | None:
    if config is None:
        return None
    return Link(config.name, from_gb_s(config.bandwidth_gb_s), max_devices=1)


def _inter_node_link(config: InterNodeLinkGroup | None) -> InterNodeLink | None:
    if config is None:
        return None
    rate, latency_s = from_gb_s(config.bandwidth_gb_s), from_us(config.latency_us)
    return InterNodeLink(config.name, rate, latency_s)


def _power(config: PowerGroup | None) -> Power | None:
    return None if config is None else Power(config.tdp_w, config.idle_w)


def _price(config: PriceGroup | None) -> Price | None:
    return None if config is None else Price(config.usd_per_hour, config.as_of, config.source)


def _sources(config: HardwareConfig) -> dict[str, str]:
    groups: dict[str, SourcedGroup | None] = {
        "memory": config.memory,
        "compute": config.compute,
        "kernels": config.kernels,
        "link": config.link,
        "host_link": config.host_link,
        "inter_node_link": config.inter_node_link,
        "power": config.power,
        "price": config.price,
    }
    sources = {name: group.source for name, group in groups.items() if group is not None}
    errors = _error_summary(config.kernels)
    sources["kernels"] = f"{sources['kernels']} {errors}".rstrip()
    for name, kernel_set in config.kernels.engines.items():
        said = f"{kernel_set.source} {_error_summary(kernel_set)}".rstrip()
        sources[f"kernels.engines.{name}"] = said
    return sources


def _error_summary(kernels: KernelsGroup | EngineKernelsGroup) -> str:
    """Return the held-out errors in one sentence; empty when nothing was fitted."""
    entries: dict[str, Evidence] = {}
    if kernels.elementwise is not None:
        entries["elementwise"] = kernels.elementwise
    entries |= {f"{dtype} GEMM": entry for dtype, entry in (kernels.gemm or {}).items()}
    decode, prefill = kernels.decode_attention or {}, kernels.prefill_attention or {}
    entries |= {f"{d} decode attention": e for d, e in decode.items()}
    entries |= {f"{d} prefill attention": e for d, e in prefill.items()}
    errors = [
        f"{name} {100 * entry.held_out_error.median:.1f} % ({entry.held_out_error.rows} rows)"
        for name, entry in sorted(entries.items())
        if entry.held_out_error is not None
    ]
    return f"Median error on held-out rows: {', '.join(errors)}." if errors else ""
