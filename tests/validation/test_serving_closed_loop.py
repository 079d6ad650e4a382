"""The reader of closed-loop benchmarks: rows by hand, and the errors on deployments no fit used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from simspec.validation._base import Comparison, LeftOut
from simspec.validation._read import read_rows, recognise
from simspec.validation.api import ValidationResult, validate
from simspec.validation.tables import serving_closed_loop
from tests.helpers.shared import shared

HEADER = (
    "hardware,engine,engine_version,model,precision,gemm_quant_mode,moe_quant_mode,tp,pp,"
    "attention_dp,moe_tp,moe_ep,concurrency,input_len,output_len,measured_on,ttft_ms,tpot_ms"
)
LLAMA = "h100_sxm,vllm,1.0,meta-llama/Llama-3.1-8B,,,,1,1,1,1,1"


def compared(folder: Path, *rows: str) -> list[Comparison | LeftOut]:
    path = folder / "runs.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    kind, reader = recognise(path)
    assert kind == "serving_closed_loop"
    return list(reader.compare(read_rows(path, reader)))


def test_a_row_gives_two_figures_with_their_parts(tmp_path: Path) -> None:
    """TPOT and TTFT in milliseconds, their parts in seconds, an interval on both."""
    tpot, ttft = compared(tmp_path, f"{LLAMA},8,1024,1024,2026-01-01,60,8")
    assert isinstance(tpot, Comparison)
    assert isinstance(ttft, Comparison)
    assert (tpot.quantity, tpot.measured, tpot.line) == ("tpot_ms", 8.0, 2)
    assert (ttft.quantity, ttft.measured) == ("ttft_ms", 60.0)
    assert tpot.group == "h100_sxm / vllm / llama-3.1-8b / bf16 / tp1"
    assert tpot.family == "dense"
    assert sum(tpot.breakdown.values()) * 1e3 == pytest.approx(tpot.predicted)
    assert sum(ttft.breakdown.values()) * 1e3 == pytest.approx(ttft.predicted)
    assert tpot.interval is not None
    assert tpot.interval[0] < tpot.predicted < tpot.interval[1]
    assert ttft.interval is not None
    low, high = ttft.interval
    assert low < ttft.predicted < high
    assert high / low > tpot.interval[1] / tpot.interval[0]


def test_dated_rows_have_shorter_lengths(tmp_path: Path) -> None:
    """Nightly runs draw 80 % to 100 % of nominal, so the same figures mean less work."""
    dated, _, fixed, _ = compared(
        tmp_path, f"{LLAMA},64,1024,1024,2026-01-01,60,20", f"{LLAMA},64,1024,1024,,60,20"
    )
    assert isinstance(dated, Comparison)
    assert isinstance(fixed, Comparison)
    assert dated.breakdown["decode_s"] < fixed.breakdown["decode_s"]


def test_faster_than_perfect_kernels_is_refuted(tmp_path: Path) -> None:
    """16 GB of weights at 3.35 TB/s take 4.8 ms."""
    (row,) = compared(tmp_path, f"{LLAMA},1,128,1024,2026-01-01,60,4")
    assert isinstance(row, LeftOut)
    assert row.cause == "refuted"
    assert "perfect kernels on h100_sxm take 4." in row.reason


def test_prompts_that_cannot_be_computed_in_time_are_refuted(tmp_path: Path) -> None:
    """64 prompts of 4096 tokens are 4.2 PFLOP, 4.3 s at the H100's peak; a request takes 2.3."""
    (row,) = compared(tmp_path, f"{LLAMA},64,4096,128,,200,16.5")
    assert isinstance(row, LeftOut)
    assert row.cause == "refuted"
    assert "64 prompts of 4096 tokens" in row.reason


def test_more_users_are_not_served_faster(tmp_path: Path) -> None:
    """A row that is faster than one with an eighth of its users is doubted, the other is not."""
    few, _, many = compared(
        tmp_path, f"{LLAMA},8,1024,1024,2026-01-01,60,12", f"{LLAMA},64,1024,1024,2026-01-01,60,9"
    )
    assert isinstance(few, Comparison)
    assert isinstance(many, LeftOut)
    assert many.cause == "suspect"
    assert "8 users of the same deployment and lengths at 12 ms" in many.reason


def test_runs_that_contradict_each_other_are_doubted(tmp_path: Path) -> None:
    """Two runs of one load that differ by half were not run alike."""
    rows = compared(
        tmp_path,
        f"{LLAMA},8,1024,1024,2026-01-01,60,8",
        f"{LLAMA},8,1024,1024,2026-01-01,60,12",
        f"{LLAMA},16,1024,1024,2026-01-01,60,10",
    )
    assert [row.cause for row in rows if isinstance(row, LeftOut)] == ["suspect"] * 3


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("tpu_v5,vllm,1.0,meta-llama/Llama-3.1-8B,,,,1,1,1,1,1", "no hardware profile 'tpu_v5'"),
        ("h100_sxm,tgi,1.0,meta-llama/Llama-3.1-8B,,,,1,1,1,1,1", "no engine profile 'tgi'"),
        ("h100_sxm,vllm,1.0,acme/Novel-9B,,,,1,1,1,1,1", "no architecture 'acme/Novel-9B'"),
        ("h100_sxm,vllm,1.0,meta-llama/Llama-3.1-70B,,,,16,1,1,16,1", "at most 8 devices"),
    ],
)
def test_what_simspec_does_not_have_is_said(tmp_path: Path, row: str, reason: str) -> None:
    """A row without profile, engine, architecture or link is left out with the reason."""
    (left,) = compared(tmp_path, f"{row},8,1024,1024,2026-01-01,60,8")
    assert isinstance(left, LeftOut)
    assert left.cause == "unsupported"
    assert reason in left.reason


# -- the published table ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> ValidationResult:
    """Return the rows of H100 and H200, judged."""
    source = shared("measured/serving_closed_loop.csv").read_text().splitlines()
    path = tmp_path_factory.mktemp("rows") / "serving_closed_loop.csv"
    kept = [line for line in source[1:] if line.startswith(("h100_sxm", "h200_sxm"))]
    path.write_text("\n".join([source[0], *kept]) + "\n")
    return validate([path])


def held_out(result: ValidationResult, quantity: str, **only: str) -> list[Comparison]:
    return [
        row
        for _, row in result.rows()
        if row.role == "held_out"
        and row.quantity == quantity
        and all(getattr(row, k, row.subject.get(k)) == v for k, v in only.items())
    ]


def mean_error(rows: Sequence[Comparison]) -> float:
    return sum(abs(row.error) for row in rows) / len(rows)


def test_tpot_of_dense_models(published: ValidationResult) -> None:
    """On deployments no fit used: at most 8 % mean and 5 % median."""
    rows = held_out(published, "tpot_ms", family="dense")
    assert len(rows) > 200
    assert mean_error(rows) < 0.08
    assert sorted(abs(row.error) for row in rows)[len(rows) // 2] < 0.05


def test_tpot_of_mixtures(published: ValidationResult) -> None:
    """On deployments no fit used: at most 16 % mean."""
    rows = held_out(published, "tpot_ms", family="moe")
    assert len(rows) > 130
    assert mean_error(rows) < 0.16


def test_ttft(published: ValidationResult) -> None:
    """On deployments no fit used: at most 28 % mean."""
    assert mean_error(held_out(published, "ttft_ms")) < 0.28


@pytest.mark.parametrize(("engine", "limit"), [("trtllm", 0.05), ("sglang", 0.05), ("vllm", 0.08)])
def test_no_engine_is_predicted_with_a_bias(
    published: ValidationResult, engine: str, limit: float
) -> None:
    """The mean of the signed errors of an engine's TPOT is near zero."""
    rows = held_out(published, "tpot_ms", engine=engine)
    assert abs(sum(row.error for row in rows) / len(rows)) < limit


def test_intervals_hold_what_they_say(published: ValidationResult) -> None:
    """Of deployments no fit used, 90 % to 99 % lie inside their 95 % interval."""
    rows = held_out(published, "tpot_ms")
    inside = [
        row.interval[0] <= row.measured <= row.interval[1]
        for row in rows
        if row.interval is not None
    ]
    assert len(inside) == len(rows)
    assert 0.90 <= sum(inside) / len(inside) <= 0.99


def test_few_rows_are_refuted(published: ValidationResult) -> None:
    """Arithmetic refutes at most one in twenty, each with its sentence."""
    refuted = [row for _, row in published.left_out() if row.cause == "refuted"]
    assert 0 < len(refuted) <= 0.05 * 927
    assert all("perfect kernels" in row.reason for row in refuted)


def test_columns_are_those_of_the_readme() -> None:
    """Numbers are columns, and every needed column is known."""
    assert serving_closed_loop.NUMBERS - {"pp"} <= serving_closed_loop.COLUMNS
    assert not math.isnan(len(serving_closed_loop.DESCRIPTION))
