"""Tables of measured kernels: counted as the cost model counts, filtered by what rows are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simspec.calibration import kernel_tables as tables
from simspec.core.errors import CalibrationError
from simspec.cost.operators import attention, linear
from simspec.cost.operators._base import Place
from simspec.cost.work import Rows, Stack
from simspec.hardware.load import load_hardware
from simspec.models.arch import Block
from tests.helpers.shared import shared

H100 = load_hardware("h100_sxm")
BANDWIDTH = H100.memory_bandwidth_bytes_per_s
BLOCK = Block(hidden_size=4096, num_heads=32, num_kv_heads=8, head_dim=128, intermediate_size=14336)


def place(weight_dtype: str = "bf16", kv_dtype: str = "bf16") -> Place:
    """Return a layer on an H100."""
    stack = Stack("target", (BLOCK,), 4096, 128256, weight_dtype, kv_dtype, 1)
    return Place("block", BLOCK, stack, H100)


def gemm_table(**columns: object) -> pd.DataFrame:
    """Return a GEMM table of one row, with columns replaced."""
    row = {"gemm_dtype": "bfloat16", "m": 7, "n": 6144, "k": 4096, "latency_ms": 0.1, **columns}
    return pd.DataFrame([row])


def attention_table(**columns: object) -> pd.DataFrame:
    """Return an attention table of one row, with columns replaced."""
    row = {
        "kv_cache_dtype": "bfloat16", "head_dim": 128, "window_size": 0, "batch_size": 8,
        "num_heads": 32, "num_key_value_heads": 8, "isl": 512, "step": 1023, "latency_ms": 0.1,
        **columns,
    }  # fmt: skip
    return pd.DataFrame([row])


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_gemm_work_is_what_the_cost_model_counts(dtype: str) -> None:
    """FLOP and bytes of a table row are those of the operator with the same shape."""
    written = {"bf16": "bfloat16", "fp8": "fp8"}[dtype]
    rows = tables.gemm_rows(gemm_table(gemm_dtype=written), dtype, l2_bytes=0.0)
    qkv = next(k for k in linear.kernels(place(dtype)) if k.name == "qkv")
    flop, num_bytes = qkv.work(7)
    assert rows.flop[0] == flop
    assert rows.num_bytes[0] == num_bytes
    assert rows.measured_s[0] == pytest.approx(1e-4)


def test_nvfp4_rows_have_their_scales_in_their_bytes() -> None:
    """4.5 bits a weight and a quantised activation, 2 bytes an output."""
    rows = tables.gemm_rows(gemm_table(gemm_dtype="nvfp4"), "fp4", l2_bytes=0.0)
    assert rows.num_bytes[0] == 6144 * 4096 * 0.5625 + 7 * (4096 * 0.5625 + 6144 * 2)
    assert (rows.num_rows[0], rows.in_features[0]) == (7, 4096)


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_attention_work_is_what_the_cost_model_counts(dtype: str) -> None:
    """Decode and prefill rows count as the attention operator counts the same sequences."""
    written = {"bf16": "bfloat16", "fp8": "fp8"}[dtype]
    kernels = {k.row_kind: k for k in attention.kernels(place(kv_dtype=dtype))}
    table = attention_table(kv_cache_dtype=written)

    decode = tables.decode_rows(table, dtype, l2_bytes=0.0, bandwidth_bytes_per_s=BANDWIDTH)
    work = kernels["decode"].work(Rows("decode", 8, 8, 8 * 1024, 8 * 1024, 8))
    assert (decode.flop[0], decode.num_bytes[0]) == pytest.approx(work)

    prefill = tables.prefill_rows(table, dtype)
    pairs = 8 * 512 * 513 / 2
    work = kernels["prefill"].work(Rows("prefill", 8, 8 * 512, 8 * 512, pairs, 8))
    assert (prefill.flop[0], prefill.num_bytes[0]) == pytest.approx(work)


def test_cached_weights_are_told_by_their_size() -> None:
    """Six copies within the cache are resident; one byte more and they are not."""
    weight_bytes = 6144 * 4096 * 2
    inside = tables.gemm_rows(gemm_table(), "bf16", l2_bytes=6.0 * weight_bytes)
    outside = tables.gemm_rows(gemm_table(), "bf16", l2_bytes=6.0 * weight_bytes - 1)
    assert inside.is_resident.tolist() == [True]
    assert outside.is_resident.tolist() == [False]


def test_a_cached_kv_is_told_by_its_size_unless_it_is_tiny() -> None:
    """A KV cache within the last-level cache is resident, but one read in 1 µs cannot matter."""
    middle, tiny = attention_table(), attention_table(batch_size=1, step=255)
    big = attention_table(batch_size=64, step=4095)
    for table, expected in ((middle, True), (tiny, False), (big, False)):
        rows = tables.decode_rows(table, "bf16", l2_bytes=50e6, bandwidth_bytes_per_s=BANDWIDTH)
        assert rows.is_resident.tolist() == [expected]


@pytest.mark.parametrize(
    "outside",
    [
        {"window_size": 128}, {"head_dim": 64}, {"batch_size": 1024}, {"step": 63},
        {"kv_cache_dtype": "fp8"},
    ],
)  # fmt: skip
def test_rows_outside_the_domain_are_left_out(outside: dict[str, object]) -> None:
    """Windows, other head sizes, absurd batches and tiny contexts take no part."""
    rows = tables.decode_rows(
        attention_table(**outside), "bf16", l2_bytes=0.0, bandwidth_bytes_per_s=BANDWIDTH
    )
    assert rows.flop.size == 0


def test_only_captured_all_reduces_count() -> None:
    """Eager rows time the host, not the link; sizes are elements of two bytes."""
    table = pd.DataFrame(
        {
            "num_gpus": [2, 2],
            "message_elements": [1024, 1024],
            "latency_ms": [0.004, 0.02],
            "backend": ["vllm_graph", "vllm_eager"],
        }
    )
    rows = tables.all_reduce_rows(table)
    assert rows.message_bytes.tolist() == [2048.0]
    assert rows.measured_s.tolist() == [pytest.approx(4e-6)]


def test_block_scaled_fp8_is_not_fitted() -> None:
    """Rows with a host-side floor are not a data type of their own."""
    table = pd.concat([gemm_table(), gemm_table(gemm_dtype="fp8_block")])
    assert tables.gemm_dtypes(table) == ("bf16",)


def test_a_missing_table_lists_those_there_are(tmp_path: Path) -> None:
    """A folder without the table is answered with the tables it has."""
    (tmp_path / "gemm.trtllm.parquet").write_bytes(b"")
    with pytest.raises(CalibrationError, match=r"no such table; the folder has: gemm\.trtllm"):
        tables.read_table(tmp_path, "gemm", "vllm")
    with pytest.raises(CalibrationError, match="none"):
        tables.read_table(tmp_path / "nowhere", "gemm", "vllm")


def test_no_kept_row_beats_the_memory() -> None:
    """After the filter, no measured GEMM reads its weights faster than DRAM delivers.

    The L40S table is the one where many rows do before it (its cache is 96 MB).
    """
    table = tables.read_table(shared("measured/kernels/l40s"), "gemm", "vllm")
    rows = tables.gemm_rows(table, "bf16", l2_bytes=96e6)
    bandwidth = load_hardware("l40s").memory_bandwidth_bytes_per_s
    beats = rows.num_bytes / bandwidth > rows.measured_s
    assert beats[rows.is_resident].sum() > 100
    assert np.mean(beats[~rows.is_resident]) < 0.01


def test_message_sizes_are_elements() -> None:
    """Read as elements, an 8-rank A100 node stays below its link; read as bytes, below half."""
    table = tables.read_all_reduce_table(shared("measured/kernels/a100_sxm"), "vllm")
    rows = tables.all_reduce_rows(table)
    largest = (rows.ranks == 8) & (rows.message_bytes == rows.message_bytes.max())
    wire = 2 * 7 / 8 * rows.message_bytes[largest] / rows.measured_s[largest]
    assert 0.7 * 300e9 < wire[0] < 300e9
