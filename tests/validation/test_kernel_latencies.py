"""Kernels are counted as the cost model counts them, and judged on shapes no fit has seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simspec.calibration import kernel_tables
from simspec.calibration.robust import halves
from simspec.hardware.load import load_hardware, load_hardware_config
from simspec.validation._base import Comparison, LeftOut, MeasurementTable
from simspec.validation.tables import kernel_latencies
from tests.helpers.shared import shared

DECODE = {
    "kernel_source": "x", "engine": "vllm", "engine_version": "0.24", "latency_ms": 1.0,
    "batch_size": 32, "isl": 1, "num_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "step": 4095,
}  # fmt: skip
GEMM = {
    "kernel_source": "x", "engine": "vllm", "engine_version": "0.24", "latency_ms": 1.0,
    "gemm_dtype": "bfloat16", "m": 16, "n": 4096, "k": 4096,
}  # fmt: skip
ALL_REDUCE = {
    "kernel_source": "x", "engine": "vllm", "engine_version": "0.24", "latency_ms": 1.0,
    "allreduce_dtype": "bfloat16", "num_gpus": 4, "message_elements": 4096, "backend": "vllm_graph",
}  # fmt: skip


def judged(*rows: dict[str, object], device: str = "h100_sxm") -> list[Comparison | LeftOut]:
    frame = pd.DataFrame(list(rows))
    table = MeasurementTable(Path(device) / "kernels.parquet", frame)
    return list(kernel_latencies.compare(table))


def one(row: dict[str, object], **changes: object) -> Comparison | LeftOut:
    (found,) = judged({**row, **changes})
    return found


def test_a_product_counted_by_hand() -> None:
    """2 m n k FLOP and k n + m (k + n) values of two bytes, at the rates of the profile."""
    found = one(GEMM)
    assert isinstance(found, Comparison)
    fit = load_hardware("h100_sxm").gemm["bf16"]
    flop_s = 2 * 16 * 4096**2 / (989e12 * fit.flop_efficiency)
    byte_s = 2 * (4096**2 + 16 * 8192) / (3.35e12 * fit.bandwidth_efficiency)
    s = fit.sharpness
    expected = (flop_s**s + byte_s**s) ** (1 / s) + fit.overhead_s + 4096 * fit.depth_s
    assert found.predicted == pytest.approx(expected * 1e3, rel=1e-12)
    assert dict(found.breakdown) == pytest.approx(
        {"compute_s": flop_s, "memory_s": byte_s, "overhead_s": fit.overhead_s}
    )


def test_decode_attention_counted_by_hand() -> None:
    """32 sequences of 4096 tokens at 4 KiB of KV each: 537 MB, and 0.5 MB of queries."""
    found = one(DECODE)
    assert isinstance(found, Comparison)
    fit = load_hardware("h100_sxm").decode_attention["bf16"]
    num_bytes = 32 * 4096 * (2 * 8 * 128 * 2) + 32 * (2 * 32 * 128 * 2)
    expected = num_bytes / (3.35e12 * fit.bandwidth_efficiency) + fit.overhead_s
    expected += 32 * 8 * fit.sequence_s
    assert found.predicted == pytest.approx(expected * 1e3, rel=1e-12)


def test_a_window_bounds_what_is_read() -> None:
    """A window of 1024 tokens on a context of 4096 reads a quarter of the KV."""
    whole, windowed = one(DECODE), one(DECODE, window_size=1024)
    assert isinstance(whole, Comparison)
    assert isinstance(windowed, Comparison)
    queries = 32 * 2 * 32 * 128 * 2
    rate = 32 * 4096 * 4096 + queries
    expected = (32 * 1024 * 4096 + queries) / rate
    ratio = windowed.breakdown["memory_s"] / whole.breakdown["memory_s"]
    assert ratio == pytest.approx(expected)
    assert windowed.group.endswith(", outside")


@pytest.mark.parametrize("kind", ["gemm", "decode", "prefill"])
def test_work_is_that_of_the_fit(kind: str) -> None:
    """FLOP and bytes equal those of the tables a fit is made from, row by row."""
    device = load_hardware("h100_sxm")
    l2 = 50e6
    if kind == "gemm":
        rows = [{**GEMM, "m": m, "n": n} for m in (1, 64, 4096) for n in (1024, 14336)]
        work = kernel_tables.gemm_rows(pd.DataFrame(rows), "bf16", l2_bytes=l2)
        fit = device.gemm["bf16"]
    elif kind == "decode":
        rows = [{**DECODE, "batch_size": b, "step": s} for b in (1, 256) for s in (127, 8191)]
        work = kernel_tables.decode_rows(
            pd.DataFrame(rows), "bf16", l2_bytes=l2, bandwidth_bytes_per_s=3.35e12
        )
        fit = device.decode_attention["bf16"]
    else:
        rows = [{**DECODE, "isl": n, "step": 0} for n in (128, 4096)]
        work = kernel_tables.prefill_rows(pd.DataFrame(rows), "bf16")
        fit = device.prefill_attention["bf16"]
    table = kernel_latencies.KernelTable(
        pd.DataFrame(rows), device, load_hardware_config("h100_sxm"), "vllm"
    )
    kernel_latencies._JUDGES["gemm" if kind == "gemm" else "attention"](table, table.everywhere())
    assert table.parts["compute_s"] * 989e12 * fit.flop_efficiency == pytest.approx(work.flop)
    bytes_found = table.parts["memory_s"] * 3.35e12 * fit.bandwidth_efficiency
    assert bytes_found == pytest.approx(work.num_bytes)


@pytest.mark.parametrize(
    ("row", "changes", "cause", "says"),
    [
        (GEMM, {"n": 1024, "k": 1024}, "suspect", "all 6 weights the benchmark cycles through"),
        (GEMM, {"gemm_dtype": "fp8_block"}, "suspect", "with the host in it"),
        (GEMM, {"gemm_dtype": "fp3"}, "unsupported", "no weight format 'fp3'"),
        (GEMM, {"latency_ms": 0.005}, "refuted", "are 6.76 TB/s, and h100_sxm has 3.35 TB/s"),
        (DECODE, {"batch_size": 1, "step": 4095}, "suspect", "its whole KV fits in 50.0 MB"),
        (DECODE, {"kv_cache_dtype": "int3"}, "unsupported", "no KV data type"),
        (DECODE, {"attn_dtype": "fp8"}, "unsupported", "multiplies in fp8"),
        (ALL_REDUCE, {"backend": "vllm_eager"}, "suspect", "outside a captured graph"),
        (ALL_REDUCE, {"num_gpus": 1}, "unsupported", "one rank exchanges nothing"),
        (ALL_REDUCE, {"num_gpus": 16}, "unsupported", "joins at most 8 devices"),
    ],
)
def test_what_is_left_out(
    row: dict[str, object], changes: dict[str, object], cause: str, says: str
) -> None:
    """Rows that time something else, or that nothing can price, say so."""
    found = one(row, **changes)
    assert isinstance(found, LeftOut)
    assert found.cause == cause
    assert says in found.reason


def test_a_device_is_its_folder_or_a_column() -> None:
    """a100_sxm finds its only profile; an unknown device leaves every row out; columns win."""
    (found,) = judged(GEMM, device="a100_sxm")
    assert found.subject["hardware"] == "a100_sxm_80gb"
    (found,) = judged(GEMM, device="tpu_v9")
    assert isinstance(found, LeftOut)
    assert "no hardware profile 'tpu_v9'" in found.reason
    rows = judged({**GEMM, "hardware": "l40s"}, {**GEMM, "hardware": "h100_sxm"})
    assert [row.subject["hardware"] for row in rows] == ["l40s", "h100_sxm"]
    assert [row.line for row in rows] == [1, 2]


def test_the_fitted_half_is_marked() -> None:
    """Rows whose shape the calibration dealt to its own half are fitted, all others held out."""
    sizes = [1024 * n for n in range(4, 24)]
    rows = judged(*({**GEMM, "n": n, "m": 512, "latency_ms": 9.0} for n in sizes))
    assert all(isinstance(row, Comparison) for row in rows)
    expected = halves([f"{n}x4096" for n in sizes])
    assert 0 < expected.sum() < len(sizes)
    assert [row.role == "fitted" for row in rows if isinstance(row, Comparison)] == [*expected]
    own = judged(
        *({**GEMM, "n": n, "m": 512, "latency_ms": 9.0, "engine": "trtllm"} for n in sizes)
    )
    assert [row.role == "fitted" for row in own if isinstance(row, Comparison)] == [*expected]
    other = judged(*({**GEMM, "n": n, "m": 512, "latency_ms": 9.0, "engine": "x"} for n in sizes))
    assert {row.role for row in other if isinstance(row, Comparison)} == {"held_out"}


@pytest.mark.parametrize(
    ("kind", "group"), [("gemm", "gemm bfloat16"), ("decode_attention", "decode_attention fp8")]
)
def test_the_held_out_error_is_the_one_of_the_profile(kind: str, group: str) -> None:
    """On the real tables: as many held-out rows as the profile states, and the same median."""
    path = shared(f"measured/kernels/h100_sxm/{kind}.vllm.parquet")
    frame = pd.read_parquet(path)
    rows = [
        row
        for row in kernel_latencies.compare(MeasurementTable(path, frame))
        if isinstance(row, Comparison)
        and row.role == "held_out"
        and row.group == f"h100_sxm / vllm / {group}"
    ]
    entries = getattr(load_hardware_config("h100_sxm").kernels, kind)
    stated = entries["bf16" if kind == "gemm" else "fp8"].held_out_error
    assert stated is not None
    # Rows faster than the data sheet are refuted here and were judged there.
    assert len(rows) == pytest.approx(stated.rows, rel=0.01)
    median = float(np.median([abs(row.error) for row in rows]))
    assert median == pytest.approx(stated.median, abs=0.001)
