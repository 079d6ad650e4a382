"""A hardware profile in edge units again, for people."""

from __future__ import annotations

from collections.abc import Mapping

from simspec.core.units import gb, gb_s, ns, tflops, us
from simspec.hardware.profile import AllReduceFit, Hardware, KernelFit, KernelSet, Link


def describe(hardware: Hardware) -> tuple[dict[str, float | str | bool], dict[str, str]]:
    """Return the numbers of a profile in edge units, and the source of each group.

    Returns
    -------
    values : dict
        By ``group.key_unit``, in the order of the YAML.
    sources : dict
        By group.
    """
    values: dict[str, float | str | bool] = {
        "description": hardware.description,
        "memory.capacity_gb": _short(gb(hardware.memory_capacity_bytes)),
        "memory.bandwidth_gb_s": _short(gb_s(hardware.memory_bandwidth_bytes_per_s)),
    }
    for dtype, peak in hardware.peak_flop_per_s.items():
        values[f"compute.dense_peak_tflops.{dtype}"] = _short(tflops(peak))
    if hardware.multiprocessors:
        values["compute.multiprocessors"] = hardware.multiprocessors
    values["kernels.calibrated"] = hardware.calibrated
    if hardware.efficiencies_of:
        values["kernels.efficiencies_of"] = hardware.efficiencies_of
    values["kernels.kv_reads"] = hardware.kv_reads
    kinds = {
        "gemm": hardware.gemm,
        "decode_attention": hardware.decode_attention,
        "prefill_attention": hardware.prefill_attention,
    }
    for kind, fits in kinds.items():
        for dtype, fit in fits.items():
            values |= _describe_fit(f"kernels.{kind}.{dtype}", fit)
    values["kernels.elementwise.bandwidth_efficiency"] = hardware.elementwise.bandwidth_efficiency
    values["kernels.elementwise.overhead_us"] = _short(us(hardware.elementwise.overhead_s))
    for name, kernels in hardware.kernel_sets.items():
        values |= _describe_set(f"kernels.engines.{name}", kernels)
    for key, link in (("link", hardware.link), ("host_link", hardware.host_link)):
        if link is not None:
            values |= _describe_link(key, link)
    if (network := hardware.inter_node_link) is not None:
        values["inter_node_link.name"] = network.name
        values["inter_node_link.bandwidth_gb_s"] = _short(gb_s(network.bandwidth_bytes_per_s))
        values["inter_node_link.latency_us"] = _short(us(network.latency_s))
    if hardware.power is not None:
        values["power.tdp_w"] = hardware.power.tdp_w
        values["power.idle_w"] = hardware.power.idle_w
    if hardware.price is not None:
        values["price.usd_per_hour"] = hardware.price.usd_per_hour
        values["price.as_of"] = hardware.price.as_of
    return values, dict(hardware.sources)


def _describe_fit(key: str, fit: KernelFit) -> dict[str, float | str | bool]:
    values: dict[str, float | str | bool] = {
        f"{key}.flop_efficiency": fit.flop_efficiency,
        f"{key}.bandwidth_efficiency": fit.bandwidth_efficiency,
        f"{key}.overhead_us": _short(us(fit.overhead_s)),
    }
    # JSON has no infinity: the plain maximum is said by leaving the exponent out.
    if fit.sharpness != float("inf"):
        values[f"{key}.sharpness"] = fit.sharpness
    if fit.vector_rows:
        values[f"{key}.vector.max_rows"] = fit.vector_rows
        values[f"{key}.vector.flop_efficiency"] = fit.vector_flop_efficiency
        values[f"{key}.vector.sharpness"] = fit.vector_sharpness
    if fit.tile_rows != 1:
        tiles = fit.tile_rows if isinstance(fit.tile_rows, tuple) else (fit.tile_rows,)
        values[f"{key}.tile_rows"] = ", ".join(map(str, tiles))
        values[f"{key}.padding_cost"] = fit.padding_cost
    if fit.depth_s:
        values[f"{key}.depth_ns"] = _short(ns(fit.depth_s))
    if fit.quantise_s:
        values[f"{key}.quantise_ns"] = _short(ns(fit.quantise_s))
    if fit.tile_columns:
        values[f"{key}.tile_columns"] = fit.tile_columns
        values[f"{key}.idle_cost"] = fit.idle_cost
        values[f"{key}.wave_us"] = _short(us(fit.wave_s))
    if fit.sequence_s:
        values[f"{key}.sequence_ns"] = _short(ns(fit.sequence_s))
    if fit.token_s:
        values[f"{key}.token_ns"] = _short(ns(fit.token_s))
    return values


def _describe_set(key: str, kernels: KernelSet) -> dict[str, float | str | bool]:
    values: dict[str, float | str | bool] = {f"{key}.calibrated": kernels.calibrated}
    if kernels.efficiencies_of:
        values[f"{key}.efficiencies_of"] = kernels.efficiencies_of
    if kernels.kv_reads is not None:
        values[f"{key}.kv_reads"] = kernels.kv_reads
    kinds = {
        "gemm": kernels.gemm,
        "decode_attention": kernels.decode_attention,
        "prefill_attention": kernels.prefill_attention,
    }
    for kind, fits in kinds.items():
        for dtype, fit in (fits or {}).items():
            values |= _describe_fit(f"{key}.{kind}.{dtype}", fit)
    if kernels.elementwise is not None:
        fit = kernels.elementwise
        values[f"{key}.elementwise.bandwidth_efficiency"] = fit.bandwidth_efficiency
        values[f"{key}.elementwise.overhead_us"] = _short(us(fit.overhead_s))
    values |= _describe_all_reduce(key, kernels.all_reduce or {})
    return values


def _describe_all_reduce(
    key: str, fits: Mapping[str, AllReduceFit]
) -> dict[str, float | str | bool]:
    values: dict[str, float | str | bool] = {}
    for algorithm, fit in fits.items():
        place = f"{key}.all_reduce.{algorithm}"
        if fit.sharing_per_rank:
            values[f"{place}.sharing_per_rank"] = fit.sharing_per_rank
        values[f"{place}.latency_us"] = _short(us(fit.latency_s))
        values[f"{place}.latency_per_peer_us"] = _short(us(fit.latency_per_peer_s))
        values[f"{place}.bandwidth_gb_s"] = _short(gb_s(fit.bandwidth_bytes_per_s))
    return values


def _describe_link(key: str, link: Link) -> dict[str, float | str | bool]:
    values: dict[str, float | str | bool] = {
        f"{key}.name": link.name,
        f"{key}.bandwidth_gb_s": _short(gb_s(link.bandwidth_bytes_per_s)),
    }
    if link.max_devices > 1:
        values[f"{key}.max_devices"] = link.max_devices
    values |= _describe_all_reduce(key, link.all_reduce)
    return values


def _short(value: float) -> float:
    """Undo the rounding noise of the way to SI units and back."""
    return float(f"{value:.10g}")
