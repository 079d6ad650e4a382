"""Fit a device's roofline coefficients to measured kernels.

For each kind of kernel and data type the form of :class:`simspec.hardware.profile.KernelFit`,
``smooth_max(flop / (peak e_f), bytes / (bandwidth e_b); s) + overhead``, for matrix products with
the terms of :mod:`simspec.calibration.products`, and for all-reduce the faster of a one-shot and
a ring, is fitted to one half of the shapes and judged on the other
(:mod:`simspec.calibration.robust`); which rows take part is decided in
:mod:`simspec.calibration.kernel_tables`. Decode attention is fitted with the plain maximum and
the prefill kernel's FLOP efficiency: its time does not change with the number of query heads
that share a KV head (8 to 64 of them within 1 % on an H100), so the rows say nothing about
FLOP, and a smooth maximum would charge a verify pass for query tokens that cost nothing.

Attention has one more term for each KV head: of a decode, per sequence, since each is a piece of
work that some multiprocessor sets up (15 to 27 ns of all of an H100's together, 2 to 4 us of
one's); of a prefill, per token, whose keys and values are new and go into the cache first.

``simspec calibrate kernels TABLES PROFILE`` prints the YAML to paste into a profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from simspec.calibration import kernel_tables as tables
from simspec.calibration.collectives import fit_all_reduce, fit_nccl
from simspec.calibration.fitted import Fitted, fit_named, yaml_table
from simspec.calibration.products import fit_product
from simspec.calibration.robust import Array, Coefficient, Mask
from simspec.core.errors import CalibrationError
from simspec.core.units import from_ns, from_us
from simspec.cost.roofline import smooth_max
from simspec.hardware.load import load_hardware_config
from simspec.hardware.profile import Hardware
from simspec.hardware.schema import HardwareConfig, to_hardware

_EFFICIENCY = (0.01, 1.0)
_FLOP_EFFICIENCY = Coefficient("flop_efficiency", *_EFFICIENCY, start=0.7)
_BANDWIDTH_EFFICIENCY = Coefficient("bandwidth_efficiency", *_EFFICIENCY, start=0.8)
# No kernel of a captured graph is over sooner than about a microsecond after its predecessor.
_OVERHEAD = Coefficient("overhead_us", 1.0, 1000.0, start=5.0)
_SHARPNESS = Coefficient("sharpness", 1.0, 50.0, start=3.0)
_SEQUENCE = Coefficient("sequence_ns", 0.0, 1000.0, start=10.0)
_TOKEN = Coefficient("token_ns", 0.0, 100.0, start=0.2)


@dataclass(frozen=True, slots=True)
class DeviceFit:
    """All fits of one device; kernels by data type, all-reduce by algorithm."""

    device: str
    engine: str
    gemm: Mapping[str, Fitted]
    decode_attention: Mapping[str, Fitted]
    prefill_attention: Mapping[str, Fitted]
    all_reduce: Mapping[str, Fitted]

    def yaml(self) -> str:
        """Return the fragments ``kernels`` and ``link`` of the device's profile."""
        kinds = [k for k in ("gemm", "decode_attention", "prefill_attention") if getattr(self, k)]
        if not kinds:
            groups = ["kernels:", "  engines:", f"    {self.engine}:"]
            lines = [*groups, *yaml_table("all_reduce", self.all_reduce, indent=6)]
            return "\n".join(lines) + "\n"
        lines = ["kernels:"]
        for kind in kinds:
            lines += yaml_table(kind, getattr(self, kind), indent=2)
        if self.all_reduce:
            lines += ["link:", *yaml_table("all_reduce", self.all_reduce, indent=2)]
        return "\n".join(lines) + "\n"


def fit_device(folder: Path, engine: str, *, profile: str | None = None) -> DeviceFit:
    """Fit every kind of kernel a folder of tables has for an engine.

    Parameters
    ----------
    folder : Path
        Tables ``KIND.ENGINE.parquet``.
    engine : str
        ``"vllm"`` or ``"trtllm"``: whose kernels. All-reduce falls back to the other engine's
        table where the first has none. ``"nccl"``: its collectives alone.
    profile : str, optional
        Hardware profile with the device's peaks, bandwidth and cache; its efficiencies are not
        read. Default: the profile named like the folder.

    Raises
    ------
    CalibrationError
        A table is missing or holds too few rows.
    ProfileError
        The profile is missing or wrong.
    """
    config = load_hardware_config(profile or folder.name)
    device = to_hardware(config)
    if engine == "nccl":
        table = tables.read_table(folder, "nccl", engine)
        collectives = fit_nccl(tables.nccl_rows(table), what=f"{config.name} NCCL")
        return DeviceFit(config.name, engine, {}, {}, {}, collectives)
    l2_bytes = _l2_bytes(config)
    prefill = _fit_prefill(folder, engine, device)
    return DeviceFit(
        device=config.name,
        engine=engine,
        gemm=_fit_gemm(folder, engine, device, l2_bytes),
        decode_attention=_fit_decode(folder, engine, device, l2_bytes, prefill),
        prefill_attention=prefill,
        all_reduce=fit_all_reduce(
            tables.all_reduce_rows(tables.read_all_reduce_table(folder, engine)),
            has_switch=_has_switch(config),
            what=f"{config.name} all-reduce",
        ),
    )


def _fit_gemm(folder: Path, engine: str, device: Hardware, l2_bytes: float) -> dict[str, Fitted]:
    table = tables.read_table(folder, "gemm", engine)
    return {
        dtype: fit_product(
            tables.gemm_rows(table, dtype, l2_bytes=l2_bytes),
            device.peak_flop_per_s[dtype],
            device.memory_bandwidth_bytes_per_s,
            is_quantised=dtype not in ("bf16", "fp16"),
            # The dispatch by tiles is vLLM's own; the vendors' libraries pick among many.
            multiprocessors=(device.multiprocessors or None) if engine == "vllm" else None,
            what=f"{device.name} {dtype} GEMM",
        )
        for dtype in tables.gemm_dtypes(table)
        if dtype in device.peak_flop_per_s
    }


def _fit_prefill(folder: Path, engine: str, device: Hardware) -> dict[str, Fitted]:
    table = tables.read_table(folder, "prefill_attention", engine)
    return {
        dtype: fit_kernel(
            tables.prefill_rows(table, dtype),
            device.peak_flop_per_s["bf16"],
            device.memory_bandwidth_bytes_per_s,
            per_head=_TOKEN,
            what=f"{device.name} {dtype} prefill attention",
        )
        for dtype in tables.kv_dtypes(table)
    }


def _fit_decode(
    folder: Path, engine: str, device: Hardware, l2_bytes: float, prefill: Mapping[str, Fitted]
) -> dict[str, Fitted]:
    table = tables.read_table(folder, "decode_attention", engine)
    bandwidth = device.memory_bandwidth_bytes_per_s
    return {
        dtype: fit_kernel(
            tables.decode_rows(table, dtype, l2_bytes=l2_bytes, bandwidth_bytes_per_s=bandwidth),
            device.peak_flop_per_s["bf16"],
            bandwidth,
            flop_efficiency=prefill[dtype].values["flop_efficiency"],
            per_head=_SEQUENCE,
            what=f"{device.name} {dtype} decode attention",
        )
        for dtype in tables.kv_dtypes(table)
        if dtype in prefill
    }


def _l2_bytes(config: HardwareConfig) -> float:
    if config.memory.l2_mb is None:
        raise CalibrationError(
            f"{config.name}: memory.l2_mb is missing; add the size of the last-level cache, "
            "without which cached rows cannot be told from others"
        )
    return config.memory.l2_mb * 1e6


def _has_switch(config: HardwareConfig) -> bool:
    return config.link is not None and "NVLink" in config.link.name


def fit_kernel(
    rows: tables.KernelRows,
    peak_flop_per_s: float,
    bandwidth_bytes_per_s: float,
    *,
    what: str,
    flop_efficiency: float | None = None,
    per_head: Coefficient | None = None,
) -> Fitted:
    """Fit a kernel to one half of its groups of rows and judge it on the other.

    Parameters
    ----------
    rows : KernelRows
        Measurements; resident rows are left out of both halves.
    peak_flop_per_s, bandwidth_bytes_per_s : float
        What an efficiency of 1 means.
    what : str
        For messages.
    flop_efficiency : float, optional
        Held at this value, with the plain maximum; only bandwidth and overhead are fitted.
    per_head : Coefficient, optional
        Nanoseconds added for each of ``rows.heads``, as one more coefficient.

    Raises
    ------
    CalibrationError
        Too few rows, or no convergence.
    """
    keep = ~rows.is_resident
    compute_s = rows.flop[keep] / peak_flop_per_s
    memory_s = rows.num_bytes[keep] / bandwidth_bytes_per_s
    coefficients = [_BANDWIDTH_EFFICIENCY, _OVERHEAD]
    if flop_efficiency is None:
        coefficients = [_FLOP_EFFICIENCY, *coefficients, _SHARPNESS]
    coefficients += [] if per_head is None else [per_head]
    heads = np.zeros_like(compute_s) if rows.heads is None else rows.heads[keep]

    def price(named: Mapping[str, float], chosen: Mask) -> Array:
        head_ns = 0.0 if per_head is None else named[per_head.name]
        roof = smooth_max(
            compute_s[chosen] / named["flop_efficiency"],
            memory_s[chosen] / named["bandwidth_efficiency"],
            named.get("sharpness", np.inf),
        )
        beside_s = from_us(named["overhead_us"]) + from_ns(head_ns) * heads[chosen]
        return np.asarray(roof + beside_s, dtype=np.float64)

    fitted = fit_named(
        price,
        coefficients,
        rows.measured_s[keep],
        groups=[group for group, kept in zip(rows.groups, keep, strict=True) if kept],
        what=what,
        held=None if flop_efficiency is None else {"flop_efficiency": flop_efficiency},
    )
    return replace(fitted, num_resident=int(rows.is_resident.sum()))


def tables_of(folder: Path, profile: str) -> Path:
    """Return the folder with the tables: ``folder``, or the one in it named like the profile."""
    return folder if list(folder.glob("*.parquet")) else folder / profile
