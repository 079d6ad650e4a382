"""Latencies of single kernels, as aiconfigurator publishes them: one Parquet file a kind.

``HARDWARE/KIND.ENGINE.parquet``: the device is the name of the folder (or a column
``hardware``), the kind shows in the columns. Rows are left out by what they are:

* *suspect*: timed from the cache (the benchmark repeats a kernel on few buffers, see
  :mod:`simspec.calibration.kernel_tables`), or timed with the host in it (vLLM's ``fp8_block``
  products, all-reduces outside a captured graph);
* *refuted*: faster than the data sheet's bandwidth or peak;
* *unsupported*: no profile, data type or collective of that kind.

What a fit used is known: the coefficients of a profile come from one half of the shapes of one
engine's tables, dealt by a hash of the shape (:func:`simspec.calibration.robust.halves`). Those
rows are ``fitted``; the other half, and all rows of other engines, are ``held_out``. Shapes the
fit never saw on principle (a side below 1024, windows, other head sizes, more than 512 sequences)
are judged in a group of their own, ``outside``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from simspec.calibration import kernel_tables as fits
from simspec.core.units import format_bytes, ms
from simspec.cost.collectives._base import CollectiveKind
from simspec.cost.work import RowKind
from simspec.hardware.load import hardware_names, load_hardware, load_hardware_config
from simspec.models.dtypes import bytes_per_value
from simspec.scenarios.uncertainty import Z_95
from simspec.validation._base import Comparison, LeftOut, MeasurementTable, unknown
from simspec.validation._names import hardware_of
from simspec.validation.tables import _kernel_times as times
from simspec.validation.tables._kernel_table import KernelTable, Mask, Row

COLUMNS = frozenset({"kernel_source", "latency_ms", "engine", "engine_version"})
DESCRIPTION = "latencies of single kernels: products, attention, all-reduce"

_SIZES = {
    "gemm": ("m", "n", "k"),
    "attention": ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim"),
    "collective": ("num_gpus", "message_elements"),
}
_NEEDS = {"gemm": ("gemm_dtype",), "attention": ("kv_cache_dtype",), "collective": ()}
NUMBERS = frozenset({"latency_ms", "window_size"}.union(*_SIZES.values()))
_TEXT = frozenset(
    {"engine", "engine_version", "gemm_dtype", "kv_cache_dtype", "attn_dtype", "backend", "dtype"}
    | {"collective", "kernel_source", "allreduce_dtype"}
)

_WEIGHTS = {
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "int8_wo": "int8_weight_only",
    "int4_wo": "int4_g128",
    "sq": "int8",
    "nvfp4": "nvfp4",
}
"""Data type of simspec by that of the tables; ``sq`` is SmoothQuant, W8A8."""
_KV = {"bfloat16": "bf16", "fp8": "fp8"}
_ELEMENT_BYTES = {"half": 2.0, "bfloat16": 2.0, "int8": 1.0}
_COLLECTIVES: dict[str, CollectiveKind] = {"all_reduce": "all_reduce", "all_gather": "all_gather"}
_HOST_IN_IT = "timed with the host in it: vLLM's fp8_block products carry its launch floor"
_EAGER = "timed outside a captured graph, with the launch in it"


def compare(table: MeasurementTable) -> Iterator[Comparison | LeftOut]:
    """Yield every kernel, compared with the profile of its device."""
    frame = table.frame
    lines = np.array([table.line(index) for index in range(len(frame))])
    devices = [Path(table.path).resolve().parent.name] * len(frame)
    if "hardware" in frame:
        devices = _text(frame, "hardware")
    parts: dict[tuple[str, str], list[int]] = {}
    for index, key in enumerate(zip(devices, _text(frame, "engine"), strict=True)):
        parts.setdefault(key, []).append(index)
    found: dict[int, Comparison | LeftOut] = {}
    for (device, engine), rows in parts.items():
        judged = _of_device(frame.iloc[rows], lines[rows], device, engine)
        if len(parts) == 1:
            yield from judged
        else:
            found.update(zip(rows, judged, strict=True))
    for index in sorted(found):
        yield found[index]


def _text(frame: pd.DataFrame, name: str) -> list[str]:
    return [str(value) for value in frame[name].astype(object).fillna("")]


def _of_device(
    frame: pd.DataFrame, lines: npt.NDArray[np.int64], device: str, engine: str
) -> Iterator[Comparison | LeftOut]:
    """Yield the rows of one device and engine, in order."""
    kind = _kind(frame)
    reason = "its columns are those of no known kernel" if kind is None else None
    profile = hardware_of(device)
    if profile is None:
        reason = unknown("hardware profile", device, hardware_names())
    if kind is None or profile is None:
        subject = {"hardware": device, "engine": engine}
        for line in lines.tolist():
            yield LeftOut(line, "unsupported", str(reason), subject)
        return
    hardware = load_hardware(profile).with_kernels(engine)
    judged = KernelTable(frame, hardware, load_hardware_config(profile), engine)
    usable = _usable(judged, kind)
    with np.errstate(all="ignore"):
        _JUDGES[kind](judged, usable)
    yield from _rows(judged, lines)


def _kind(frame: pd.DataFrame) -> str | None:
    columns = set(frame.columns)
    for kind, needed in _NEEDS.items():
        if columns >= {*_SIZES[kind], *needed}:
            return kind
    return None


def _usable(table: KernelTable, kind: str) -> Mask:
    """Return the rows whose sizes are all given, and leave the others out."""
    usable = table.everywhere()
    for name in _SIZES[kind]:
        values = table.number(name)
        least = 0.0 if name == "step" else 1.0
        good = np.isfinite(values) & (np.nan_to_num(values) >= least)
        table.leave_out(~good, "unsupported", f"{name} is missing or no size")
        usable &= good
    return usable


def _judge_gemm(table: KernelTable, usable: Mask) -> None:
    written = table.text("gemm_dtype")
    n, k = table.number("n"), table.number("k")
    table.is_outside = np.minimum(n, k) < fits.MIN_SIDE
    cached = (
        f"timed from the cache: all {fits.GEMM_WEIGHT_COPIES} weights the benchmark cycles "
        f"through fit in {format_bytes(table.cache_bytes)}"
    )
    for name in sorted(set(written)):
        chosen = usable & (written == name)
        table.label(chosen, f"gemm {name}")
        dtype = _WEIGHTS.get(name)
        if dtype is None:
            reason = unknown("weight format", name, tuple(_WEIGHTS))
            table.leave_out(chosen, "unsupported", reason)
            continue
        if name == "fp8_block" and table.engine == "vllm":
            table.leave_out(chosen, "suspect", _HOST_IN_IT)
        weights = k * n * times.gemm_format(table.hardware, dtype).weight_bytes
        is_cached = fits.GEMM_WEIGHT_COPIES * weights <= table.cache_bytes
        table.leave_out(chosen & is_cached, "suspect", cached)
        times.predict_gemm(table, chosen, dtype)
        key = next((key for key, (known, _) in fits.GEMM_DTYPES.items() if known == name), "")
        if key in table.hardware.gemm:
            inside = chosen & ~table.is_outside
            table.mark_fitted(inside, ("n", "k"), "gemm", (table.hardware.gemm[key],))


def _judge_attention(table: KernelTable, usable: Mask) -> None:
    kind: RowKind = "decode" if bool((table.number("isl")[usable] == 1.0).all()) else "prefill"
    stored = table.text("kv_cache_dtype")
    # Tables of engines without sliding windows have no such column.
    windows = np.zeros(len(stored))
    if "window_size" in table.frame:
        windows = np.nan_to_num(table.number("window_size"))
    table.is_outside = (
        (table.number("isl") + table.number("step") < fits.MIN_CONTEXT)
        | (table.number("batch_size") > fits.MAX_BATCH)
        | (table.number("head_dim") != fits.HEAD_DIM)
        | (windows > 0)
    )
    for name in sorted(set(stored)):
        chosen = usable & (stored == name)
        table.label(chosen, f"{kind}_attention {name}")
        kv_dtype = _KV.get(name)
        if kv_dtype is None:
            reason = unknown("KV data type of kernels", name, tuple(_KV))
            table.leave_out(chosen, "unsupported", reason)
            continue
        if "attn_dtype" in table.frame:
            eight_bit = chosen & (table.text("attn_dtype") == "fp8")
            table.leave_out(eight_bit, "unsupported", "no attention that multiplies in fp8")
        if kind == "decode":
            _leave_out_cached_kv(table, chosen, kv_dtype)
        for window in sorted(set(windows[chosen].tolist())):
            times.predict_attention(
                table,
                chosen & (windows == window),
                kind=kind,
                kv_dtype=kv_dtype,
                window=int(window) or None,
            )
        fit = getattr(table.hardware, f"{kind}_attention").get(kv_dtype)
        if fit is not None:
            shape = ("num_heads", "num_key_value_heads", "batch_size")
            inside = chosen & ~table.is_outside
            table.mark_fitted(inside, shape, f"{kind}_attention", (fit,))


def _leave_out_cached_kv(table: KernelTable, chosen: Mask, kv_dtype: str) -> None:
    tokens = table.number("batch_size") * (table.number("step") + 1.0)
    values = 2.0 * table.number("num_key_value_heads") * table.number("head_dim")
    kv_bytes = tokens * values * bytes_per_value(kv_dtype)
    takes_s = kv_bytes / table.hardware.memory_bandwidth_bytes_per_s
    is_cached = (kv_bytes <= table.cache_bytes) & (takes_s > fits.NO_CACHE_EFFECT_S)
    reason = f"timed from the cache: its whole KV fits in {format_bytes(table.cache_bytes)}"
    table.leave_out(chosen & is_cached, "suspect", reason)


def _judge_collective(table: KernelTable, usable: Mask) -> None:
    frame = table.frame
    is_all_reduce = "collective" not in frame
    what = np.full(len(frame), "all_reduce") if is_all_reduce else table.text("collective")
    dtypes = table.text("allreduce_dtype" if is_all_reduce else "dtype")
    width = np.array([_ELEMENT_BYTES.get(name, np.nan) for name in dtypes])
    table.leave_out(~np.isfinite(width), "unsupported", "no width of its data type")
    if "backend" in frame:
        captured = np.array([str(name).endswith("_graph") for name in table.text("backend")])
        table.leave_out(~captured, "suspect", _EAGER)
    ranks = table.number("num_gpus")
    message_bytes = table.number("message_elements") * width
    for name in sorted(set(what)):
        of_kind = usable & (what == name)
        table.label(of_kind, name if is_all_reduce else f"nccl_{name}")
        if name not in _COLLECTIVES:
            reason = f"no collective {name!r} in the forward pass of a model"
            table.leave_out(of_kind, "unsupported", reason)
            continue
        table.leave_out(of_kind & (ranks < 2), "unsupported", "one rank exchanges nothing")
        for tp in sorted(set(ranks[of_kind & (ranks >= 2)].tolist())):
            chosen = of_kind & (ranks == tp)
            times.predict_collective(
                table, chosen, message_bytes[chosen], kind=_COLLECTIVES[name], tp=int(tp)
            )
    if is_all_reduce or table.engine in table.config.kernels.engines:
        link = table.hardware.link
        algorithms = () if link is None else tuple(link.all_reduce.values())
        table.mark_fitted(usable, ("num_gpus", "message_elements"), "all_reduce", algorithms)


_JUDGES = {"gemm": _judge_gemm, "attention": _judge_attention, "collective": _judge_collective}


def _rows(judged: KernelTable, lines: npt.NDArray[np.int64]) -> Iterator[Comparison | LeftOut]:
    frame, device, engine = judged.frame, judged.hardware.name, judged.engine
    subjects: dict[str, list[Any]] = {"hardware": [device] * len(frame)}
    for name in frame.columns:
        if name in NUMBERS and name != "latency_ms":
            subjects[name] = judged.number(name).tolist()
        elif name in _TEXT:
            subjects[name] = judged.text(name).tolist()
    parts = {name: values.tolist() for name, values in judged.parts.items()}
    measured = frame["latency_ms"].tolist()
    predicted = ms(judged.predicted_s).tolist()
    half = np.exp(Z_95 * judged.sigma).tolist()
    outside, fitted = judged.is_outside.tolist(), judged.is_fitted.tolist()
    groups: dict[tuple[str, bool], tuple[str, str]] = {}
    for index, (label, line) in enumerate(zip(judged.labels, lines.tolist(), strict=True)):
        key = (label, outside[index])
        if key not in groups:
            end = ", outside" if outside[index] else ""
            what = label.removeprefix(f"{engine}_")
            groups[key] = (f"{device} / {engine} / {what}{end}", label.split()[0] + end)
        group, family = groups[key]
        subject = Row(subjects, index)
        if index in judged.reasons:
            cause, reason = judged.reasons[index]
            yield LeftOut(line, cause, reason, subject, group)
            continue
        yield Comparison(
            "latency_ms",
            measured[index],
            predicted[index],
            group,
            line,
            subject,
            "fitted" if fitted[index] else "held_out",
            _interval(predicted[index], half[index]),
            Row(parts, index),
            family,
        )


def _interval(value: float, factor: float) -> tuple[float, float] | None:
    return None if math.isnan(factor) else (value / factor, value * factor)
