"""Per-layer profiles of a whole model, as rows a roofline can be fitted to.

Two formats, both from engines running real layers, so that nothing is cache-resident:

* LLMServingSim (github.com/casys-kaist/LLMServingSim, MIT): ``dense.csv`` (layer, tokens,
  time_us), ``per_sequence.csv`` (layer, sequences, time_us), ``attention.csv`` (prefill_chunk,
  kv_prefill, n_decode, kv_decode, time_us) of one layer, with sub-microsecond times;
* Vidur (github.com/microsoft/vidur, MIT): operators of one layer of several models, times in
  whole microseconds, of which the elementwise ones are used.

Bytes are those :mod:`simspec.cost.operators` counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from simspec.calibration.fitted import LOSS_SCALE, Fitted, finite_errors
from simspec.calibration.kernel_tables import MAX_BATCH, MIN_CONTEXT, KernelRows
from simspec.calibration.kernels import DeviceFit, fit_kernel
from simspec.calibration.robust import Array, Coefficient, fit_and_judge
from simspec.core.errors import CalibrationError
from simspec.core.units import from_us, us
from simspec.hardware.load import load_hardware
from simspec.models.arch import Architecture

_ACTIVATION_BYTES = 2.0
_RESOLUTION_MARGIN_S = 5e-6
"""Vidur's clock ticks in microseconds: below this the rounding is a tenth of the time."""
_FEW_TOKENS = 16
"""So few rows that an elementwise kernel is all overhead."""


@dataclass(frozen=True, slots=True)
class ElementwiseRows:
    """Measured memory-bound kernels: bytes, seconds and the shape they belong to."""

    num_bytes: Array
    measured_s: Array
    groups: tuple[str, ...]


def fit_layer_profile(folder: Path, architecture: Architecture, profile: str) -> DeviceFit:
    """Fit GEMM and attention of one device to an LLMServingSim profile in 16 bit.

    Parameters
    ----------
    folder : Path
        With ``dense.csv``, ``per_sequence.csv`` and ``attention.csv``, measured at tp 1.
    architecture : Architecture
        The model that was profiled.
    profile : str
        Hardware profile with the device's peaks and bandwidth.

    Raises
    ------
    CalibrationError
        A file is missing or holds too few rows.
    """
    hardware = load_hardware(profile)
    peak, bandwidth = hardware.peak_flop_per_s["bf16"], hardware.memory_bandwidth_bytes_per_s
    gemm = fit_kernel(
        _gemm_rows(folder, architecture), peak, bandwidth, what=f"{profile} bf16 GEMM"
    )
    attention = _read(folder / "attention.csv")
    prefill = fit_kernel(
        _prefill_rows(attention, architecture),
        peak,
        bandwidth,
        what=f"{profile} bf16 prefill attention",
    )
    decode = fit_kernel(
        _decode_rows(attention, architecture),
        peak,
        bandwidth,
        flop_efficiency=prefill.values["flop_efficiency"],
        what=f"{profile} bf16 decode attention",
    )
    return DeviceFit(
        device=profile,
        engine="vllm",
        gemm={"bf16": gemm},
        decode_attention={"bf16": decode},
        prefill_attention={"bf16": prefill},
        all_reduce={},
    )


def elementwise_overhead_us(folder: Path) -> float:
    """Return the floor of an elementwise kernel: the median time at a handful of tokens."""
    rows = _read(folder / "dense.csv")
    names = ["layernorm", "rotary_emb", "act_fn"]
    few = rows[rows["layer"].isin(names) & (rows["tokens"] <= _FEW_TOKENS)]
    return float(few["time_us"].median())


def fit_elementwise(
    rows: ElementwiseRows, bandwidth_bytes_per_s: float, *, overhead_us: float, what: str
) -> Fitted:
    """Fit the share of the bandwidth that elementwise kernels reach, at a known overhead.

    Raises
    ------
    CalibrationError
        Too few rows, or no convergence.
    """
    memory_s = rows.num_bytes / bandwidth_bytes_per_s
    overhead_s = from_us(overhead_us)
    estimate, judged, num_rows = fit_and_judge(
        lambda values, chosen: memory_s[chosen] / values[0] + overhead_s,
        [Coefficient("bandwidth_efficiency", 0.01, 1.0, start=0.7)],
        rows.measured_s,
        groups=rows.groups,
        loss_scale=LOSS_SCALE,
        what=what,
    )
    return Fitted(
        values={
            "bandwidth_efficiency": float(estimate.values[0]),
            "overhead_us": us(overhead_s),
        },
        standard_error=finite_errors(["bandwidth_efficiency"], estimate.standard_error),
        rows=num_rows,
        judged=judged,
    )


def serving_sim_elementwise(folder: Path, architecture: Architecture) -> ElementwiseRows:
    """Return the norm, rotary and activation kernels of an LLMServingSim profile.

    Norms read input and residual and write both; the rotary kernel reads and writes queries
    and keys; the activation reads gate and up and writes their product.
    """
    block = architecture.blocks[0]
    heads = block.num_heads + block.num_kv_heads
    values = {
        "layernorm": 4.0 * block.hidden_size,
        "rotary_emb": 2.0 * heads * block.head_dim,
        "act_fn": 3.0 * block.intermediate_size,
    }
    rows = _read(folder / "dense.csv")
    rows = rows[rows["layer"].isin(list(values))]
    tokens = rows["tokens"].to_numpy(dtype=np.float64)
    per_token = rows["layer"].map(values).to_numpy(dtype=np.float64)
    layers = rows["layer"].tolist()
    return ElementwiseRows(
        num_bytes=np.asarray(tokens * per_token * _ACTIVATION_BYTES, dtype=np.float64),
        measured_s=rows["time_us"].to_numpy(dtype=np.float64) * 1e-6,
        groups=tuple(f"{layer} {int(t)}" for layer, t in zip(layers, tokens, strict=True)),
    )


def vidur_elementwise(
    path: Path, device: str, models: dict[str, Architecture], bandwidth_bytes_per_s: float
) -> ElementwiseRows:
    """Return the elementwise kernels of a Vidur table that its clock can resolve.

    Parameters
    ----------
    path : Path
        CSV with ``hw``, ``model``, ``num_tokens``, ``tp`` and one ``*_ms`` column per operator.
    device : str
        Value of ``hw``.
    models : dict
        Architecture of each model name in the table; others are left out.
    bandwidth_bytes_per_s : float
        Nominal; rows whose bytes take less than 5 µs at it are left out.
    """
    table = _read(path)
    parts: list[tuple[Array, Array, list[str]]] = []
    for name, architecture in models.items():
        rows = table[(table["hw"] == device) & (table["model"] == name)]
        tokens = rows["num_tokens"].to_numpy(dtype=np.float64)
        tp = rows["tp"].to_numpy(dtype=np.float64)
        for column, per_token in _vidur_values(architecture, tp).items():
            num_bytes = tokens * per_token * _ACTIVATION_BYTES
            measured_s = rows[column].to_numpy(dtype=np.float64) * 1e-3
            keep = (num_bytes / bandwidth_bytes_per_s > _RESOLUTION_MARGIN_S) & (measured_s > 0)
            labels = [f"{name} {column} {int(t)}" for t in tp[keep]]
            parts.append((num_bytes[keep], measured_s[keep], labels))
    if not parts:
        raise CalibrationError(f"{path}: no rows of {device!r} for the models given")
    return ElementwiseRows(
        num_bytes=np.concatenate([part[0] for part in parts]),
        measured_s=np.concatenate([part[1] for part in parts]),
        groups=tuple(label for part in parts for label in part[2]),
    )


def _vidur_values(architecture: Architecture, tp: Array) -> dict[str, Array]:
    """Return the activations each operator reads and writes per token, on one rank."""
    block = architecture.blocks[0]
    kv_heads = np.maximum(block.num_kv_heads / tp, 1.0)
    return {
        # Not fused with the residual there: one read and one write.
        "input_layernorm_ms": np.full(tp.shape, 2.0 * block.hidden_size),
        "add_ms": np.full(tp.shape, 3.0 * block.hidden_size),
        "attn_rope_ms": 2.0 * (block.num_heads / tp + kv_heads) * block.head_dim,
        "mlp_act_ms": 3.0 * block.intermediate_size / tp,
    }


def _gemm_rows(folder: Path, architecture: Architecture) -> KernelRows:
    block, d = architecture.blocks[0], architecture.hidden_size
    query = block.num_heads * block.head_dim
    key_value = 2 * block.num_kv_heads * block.head_dim
    shapes = {
        "qkv_proj": (d, query + key_value),
        "o_proj": (query, d),
        "gate_up_proj": (d, 2 * block.intermediate_size),
        "down_proj": (block.intermediate_size, d),
        "lm_head": (d, architecture.vocab_size),
    }
    dense = _read(folder / "dense.csv").rename(columns={"tokens": "rows"})
    heads = _read(folder / "per_sequence.csv").rename(columns={"sequences": "rows"})
    rows = pd.concat([dense, heads])
    rows = rows[rows["layer"].isin(list(shapes))]
    m = rows["rows"].to_numpy(dtype=np.float64)
    k, n = np.array([shapes[layer] for layer in rows["layer"]], dtype=np.float64).T
    return KernelRows(
        flop=2.0 * m * k * n,
        num_bytes=k * n * 2.0 + m * (k + n) * _ACTIVATION_BYTES,
        measured_s=rows["time_us"].to_numpy(dtype=np.float64) * 1e-6,
        # One layer has five shapes, too few to deal out whole; rows of one size go together.
        groups=tuple(f"{int(a)}x{int(b)}x{int(c)}" for a, b, c in zip(n, k, m, strict=True)),
        is_resident=np.zeros(len(rows), dtype=np.bool_),
    )


def _decode_rows(table: pd.DataFrame, architecture: Architecture) -> KernelRows:
    rows = table[
        (table["prefill_chunk"] == 0)
        & (table["n_decode"].between(1, MAX_BATCH))
        & (table["kv_decode"] + 1 >= MIN_CONTEXT)
    ]
    batch = rows["n_decode"].to_numpy(dtype=np.float64)
    context = rows["kv_decode"].to_numpy(dtype=np.float64)
    return _attention_rows(
        rows, architecture, batch, batch * (context + 1.0), batch * (context + 1.0), batch
    )


def _prefill_rows(table: pd.DataFrame, architecture: Architecture) -> KernelRows:
    rows = table[(table["n_decode"] == 0) & (table["prefill_chunk"] >= MIN_CONTEXT)]
    chunk = rows["prefill_chunk"].to_numpy(dtype=np.float64)
    context = rows["kv_prefill"].to_numpy(dtype=np.float64)
    pairs = chunk * (context + (chunk + 1.0) / 2.0)
    return _attention_rows(rows, architecture, chunk, context + chunk, pairs, chunk, context)


def _attention_rows(
    rows: pd.DataFrame,
    architecture: Architecture,
    new_tokens: Array,
    kv_tokens: Array,
    pairs: Array,
    *names: Array,
) -> KernelRows:
    block = architecture.blocks[0]
    query = block.num_heads * block.head_dim
    kv_bytes_per_token = 2.0 * block.num_kv_heads * block.head_dim * 2.0
    labels = np.stack(names, axis=1).astype(int)
    return KernelRows(
        flop=4.0 * query * pairs,
        num_bytes=kv_tokens * kv_bytes_per_token + new_tokens * 2.0 * query * _ACTIVATION_BYTES,
        measured_s=rows["time_us"].to_numpy(dtype=np.float64) * 1e-6,
        groups=tuple("x".join(map(str, row)) for row in labels),
        is_resident=np.zeros(len(rows), dtype=np.bool_),
    )


def _read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise CalibrationError(f"{path}: no such table; give the folder the profiler wrote")
    return pd.read_csv(path)
