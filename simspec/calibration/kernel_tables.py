"""Tables of measured kernels, as rows a roofline can be fitted to.

The tables are those of aiconfigurator (github.com/ai-dynamo/aiconfigurator, Apache-2.0), one
parquet file per kind of kernel and engine: ``gemm.vllm.parquet`` and so on. FLOP and bytes are
counted exactly as :mod:`simspec.cost.operators` counts them, which a test holds to.

Rows are left out by what they *are*, never by how badly a model fits them:

* *outside the domain*: shapes no serving step contains (weights with a side below 1024,
  contexts below 128 tokens, more than 512 sequences, sliding windows, head sizes other than 128);
* *cache-resident*: the benchmark repeats a kernel on the same few buffers. When all of them fit
  in the last-level cache it times the cache, and a real step, which passes over the whole model
  in between, never runs from there. GEMM rows come from six rotating weights, attention rows
  from one KV cache. Attention rows whose bytes take less than 1 µs from memory stay: there the
  cache cannot matter, and they carry the overhead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from simspec.calibration.robust import Array, Mask
from simspec.core.errors import CalibrationError
from simspec.core.parquet import read_frame

GEMM_WEIGHT_COPIES = 6
"""Linear layers the benchmark cycles through (aiconfigurator collector/vllm/collect_gemm.py)."""
MIN_SIDE = 1024
MIN_CONTEXT = 128
MAX_BATCH = 512
HEAD_DIM = 128
NO_CACHE_EFFECT_S = 1e-6

GEMM_DTYPES = {"bf16": ("bfloat16", 2.0), "fp8": ("fp8", 1.0), "fp4": ("nvfp4", 0.5625)}
"""Table name and bytes of a weight, and of an activation entering the product."""
_KV_DTYPES = {"bf16": ("bfloat16", 2.0), "fp8": ("fp8", 1.0)}
_ACTIVATION_BYTES = 2.0
NCCL_BYTES = {"half": 2.0, "int8": 1.0}


@dataclass(frozen=True, slots=True)
class KernelRows:
    """Measured kernels of one kind and data type, as arrays of equal length.

    Attributes
    ----------
    flop, num_bytes : array (n,)
        Work of each launch.
    measured_s : array (n,), seconds
        Median latency.
    groups : tuple (n,)
        Rows of one shape share a name.
    is_resident : array (n,), bool
        Timed from the cache; not to be fitted.
    heads : array (n,), optional
        Attention: KV heads of all sequences of a decode, of all tokens of a prefill.
    """

    flop: Array
    num_bytes: Array
    measured_s: Array
    groups: tuple[str, ...]
    is_resident: Mask
    heads: Array | None = None


@dataclass(frozen=True, slots=True)
class ProductRows(KernelRows):
    """Measured matrix products ``[num_rows x in_features] [in_features x n]``."""

    num_rows: Array = field(kw_only=True)
    in_features: Array = field(kw_only=True)
    out_features: Array = field(kw_only=True)

    def kept(self) -> ProductRows:
        """Return the rows that were not timed from the cache."""
        keep = ~self.is_resident
        return ProductRows(
            flop=self.flop[keep],
            num_bytes=self.num_bytes[keep],
            measured_s=self.measured_s[keep],
            groups=tuple(g for g, kept in zip(self.groups, keep, strict=True) if kept),
            is_resident=self.is_resident[keep],
            num_rows=self.num_rows[keep],
            in_features=self.in_features[keep],
            out_features=self.out_features[keep],
        )


@dataclass(frozen=True, slots=True)
class AllReduceRows:
    """Measured all-reduces: ranks, bytes of the message, seconds; arrays of equal length."""

    ranks: Array
    message_bytes: Array
    measured_s: Array
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NcclRows:
    """Measured collectives of NCCL; arrays of equal length.

    Attributes
    ----------
    steps, wire : array (n,)
        Steps of the ring, and bytes a rank sends per byte of the message.
    """

    message_bytes: Array
    steps: Array
    wire: Array
    measured_s: Array
    groups: tuple[str, ...]


def read_all_reduce_table(folder: Path, engine: str) -> pd.DataFrame:
    """Return the all-reduce table of an engine, or of another where it has none.

    Raises
    ------
    CalibrationError
        No engine has one.
    """
    found = sorted(path.name.split(".")[1] for path in folder.glob("all_reduce.*.parquet"))
    return read_table(folder, "all_reduce", engine if engine in found or not found else found[0])


def read_table(folder: Path, kind: str, engine: str) -> pd.DataFrame:
    """Return one table.

    Raises
    ------
    CalibrationError
        It is not there; the message lists the tables that are.
    """
    path = folder / f"{kind}.{engine}.parquet"
    if not path.is_file():
        known = sorted(p.name for p in folder.glob("*.parquet")) if folder.is_dir() else []
        raise CalibrationError(
            f"{path}: no such table; the folder has: {', '.join(known) or 'none'}"
        )
    return read_frame(path)


def gemm_dtypes(table: pd.DataFrame) -> tuple[str, ...]:
    """Return the data types of a GEMM table that can be fitted.

    ``fp8_block`` is not among them: its rows were timed eagerly and carry a host-side floor.
    """
    present = set(table["gemm_dtype"])
    return tuple(name for name, (written, _) in GEMM_DTYPES.items() if written in present)


def kv_dtypes(table: pd.DataFrame) -> tuple[str, ...]:
    """Return the KV data types of an attention table that can be fitted."""
    present = set(table["kv_cache_dtype"])
    return tuple(name for name, (written, _) in _KV_DTYPES.items() if written in present)


def gemm_rows(table: pd.DataFrame, dtype: str, *, l2_bytes: float) -> ProductRows:
    """Return matrix products of ``m`` tokens with ``[k x n]`` weights.

    ``2 m k n`` FLOP and ``k n b_w + m (k b_in + n b_out)`` bytes, outputs in 16 bit.
    """
    written, width = GEMM_DTYPES[dtype]
    rows = table[
        (table["gemm_dtype"] == written) & (table["n"] >= MIN_SIDE) & (table["k"] >= MIN_SIDE)
    ]
    m, n, k = (_column(rows, name) for name in ("m", "n", "k"))
    weight_bytes = k * n * width
    return ProductRows(
        flop=2.0 * m * k * n,
        num_bytes=weight_bytes + m * (k * width + n * _ACTIVATION_BYTES),
        measured_s=_column(rows, "latency_ms") * 1e-3,
        groups=_names(rows, "n", "k"),
        is_resident=GEMM_WEIGHT_COPIES * weight_bytes <= l2_bytes,
        num_rows=m,
        in_features=k,
        out_features=n,
    )


def decode_rows(
    table: pd.DataFrame, dtype: str, *, l2_bytes: float, bandwidth_bytes_per_s: float
) -> KernelRows:
    """Return attention of one new token per sequence over ``step`` cached ones.

    ``4 h d_h B (c + 1)`` FLOP; ``2 h_kv d_h b_kv B (c + 1)`` bytes of KV, read once, plus
    ``2 h d_h b_a B`` of queries and outputs.
    """
    rows = _attention(table, dtype)
    rows = rows[(rows["step"] + 1 >= MIN_CONTEXT) & (rows["batch_size"] <= MAX_BATCH)]
    batch, context = _column(rows, "batch_size"), _column(rows, "step")
    query, kv_bytes_per_token = _heads(rows, dtype)
    kv_bytes = batch * (context + 1.0) * kv_bytes_per_token
    takes_long = kv_bytes / bandwidth_bytes_per_s > NO_CACHE_EFFECT_S
    return KernelRows(
        flop=4.0 * query * batch * (context + 1.0),
        num_bytes=kv_bytes + 2.0 * query * _ACTIVATION_BYTES * batch,
        measured_s=_column(rows, "latency_ms") * 1e-3,
        groups=_names(rows, "num_heads", "num_key_value_heads", "batch_size"),
        is_resident=(kv_bytes <= l2_bytes) & takes_long,
        heads=batch * _column(rows, "num_key_value_heads"),
    )


def prefill_rows(table: pd.DataFrame, dtype: str) -> KernelRows:
    """Return causal attention of whole prompts of ``isl`` tokens.

    ``4 h d_h B n (n + 1) / 2`` FLOP; KV read once and queries and outputs once. No row is
    called resident: keys and queries come straight from the layer's own products in a real
    step too.
    """
    rows = _attention(table, dtype)
    rows = rows[(rows["isl"] >= MIN_CONTEXT) & (rows["batch_size"] <= MAX_BATCH)]
    batch, length = _column(rows, "batch_size"), _column(rows, "isl")
    query, kv_bytes_per_token = _heads(rows, dtype)
    tokens = batch * length
    return KernelRows(
        flop=4.0 * query * tokens * (length + 1.0) / 2.0,
        num_bytes=tokens * (kv_bytes_per_token + 2.0 * query * _ACTIVATION_BYTES),
        measured_s=_column(rows, "latency_ms") * 1e-3,
        groups=_names(rows, "num_heads", "num_key_value_heads", "batch_size"),
        is_resident=np.zeros(len(rows), dtype=np.bool_),
        heads=tokens * _column(rows, "num_key_value_heads"),
    )


def all_reduce_rows(table: pd.DataFrame) -> AllReduceRows:
    """Return all-reduces under captured graphs; sizes are counted in 2-byte elements.

    That ``message_elements`` are elements shows in the largest messages: an 8-rank A100 node
    then reaches a bus bandwidth of 227 GB/s of its 300, as NCCL does; read as bytes, half.
    """
    rows = table
    if "backend" in rows:
        rows = rows[rows["backend"].str.endswith("_graph")]
    return AllReduceRows(
        ranks=_column(rows, "num_gpus"),
        message_bytes=_column(rows, "message_elements") * 2.0,
        measured_s=_column(rows, "latency_ms") * 1e-3,
        groups=_names(rows, "num_gpus", "message_elements"),
    )


def nccl_rows(table: pd.DataFrame) -> NcclRows:
    """Return all-reduces and gathers of NCCL; sizes are elements of the stated type."""
    rows = table[
        table["collective"].isin(["all_reduce", "all_gather"]) & table["dtype"].isin(NCCL_BYTES)
    ]
    width = rows["dtype"].map(NCCL_BYTES).to_numpy(dtype=np.float64)
    is_reduced = (rows["collective"] == "all_reduce").to_numpy()
    ranks = _column(rows, "num_gpus")
    steps = np.where(is_reduced, 2.0, 1.0) * (ranks - 1.0)
    return NcclRows(
        message_bytes=_column(rows, "message_elements") * width,
        steps=steps,
        wire=steps / ranks,
        measured_s=_column(rows, "latency_ms") * 1e-3,
        groups=_names(rows, "num_gpus", "message_elements"),
    )


def _attention(table: pd.DataFrame, dtype: str) -> pd.DataFrame:
    written, _ = _KV_DTYPES[dtype]
    rows = table[(table["kv_cache_dtype"] == written) & (table["head_dim"] == HEAD_DIM)]
    # Tables of engines without sliding windows have no such column.
    return rows[rows["window_size"] == 0] if "window_size" in rows else rows


def _heads(rows: pd.DataFrame, dtype: str) -> tuple[Array, Array]:
    """Return ``h d_h`` and the KV bytes of one token."""
    _, width = _KV_DTYPES[dtype]
    head_dim = _column(rows, "head_dim")
    kv_bytes = 2.0 * _column(rows, "num_key_value_heads") * head_dim * width
    return _column(rows, "num_heads") * head_dim, kv_bytes


def _column(rows: pd.DataFrame, name: str) -> Array:
    return rows[name].to_numpy(dtype=np.float64)


def _names(rows: pd.DataFrame, *columns: str) -> tuple[str, ...]:
    return tuple("x".join(str(int(v)) for v in row) for row in rows[list(columns)].to_numpy())
