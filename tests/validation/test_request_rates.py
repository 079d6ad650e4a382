"""Rates of requests: what its own latencies or the memory refute, and Little's law for the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simspec.validation._base import Comparison, LeftOut, MeasurementTable
from simspec.validation._read import read_rows
from simspec.validation.api import DATA
from simspec.validation.tables import request_rates

ROW: dict[str, Any] = {
    "hardware": "H100-80GB", "engine": "vLLM", "model": "meta-llama/Llama-3.1-8B",
    "weight_dtype": "bf16", "max_num_seqs": 128.0, "prompt_len": 204.0, "output_len": 62.0,
    "offered_per_s": 1.0, "achieved_per_s": 1.0, "e2e_ms": 480.0, "ttft_ms": 31.0, "tpot_ms": 7.2,
}  # fmt: skip


def judged(**changes: Any) -> Comparison | LeftOut:
    table = MeasurementTable(Path("t.csv"), pd.DataFrame([{**ROW, **changes}]))
    (found,) = request_rates.compare(table)
    return found


def test_a_client_that_counts_two_events_a_token_is_refuted() -> None:
    """3.47 ms are neither (480 - 31) / 61 nor enough to read 15 GB at 3.35 TB/s."""
    found = judged(tpot_ms=3.47)
    assert isinstance(found, LeftOut)
    assert found.cause == "refuted"
    assert "over 61 tokens is 7.36 ms per token" in found.reason
    assert "h100_sxm has 3.35 TB/s" in found.reason


def test_each_bound_refutes_alone() -> None:
    """A TPOT that fits its latencies may still be too fast, and one slow enough contradict them."""
    too_fast = judged(e2e_ms=31 + 61 * 3.47, tpot_ms=3.47)
    contradicted = judged(tpot_ms=14.0)
    assert isinstance(too_fast, LeftOut)
    assert "over 61 tokens" not in too_fast.reason
    assert isinstance(contradicted, LeftOut)
    assert "TB/s" not in contradicted.reason


def test_more_in_flight_is_slower_until_the_slots_are_full() -> None:
    """Little's law gives the batch; beyond max_num_seqs requests wait outside."""

    def predicted(rate: float, e2e_ms: float) -> float:
        tpot = (e2e_ms - 31) / 61
        found = judged(achieved_per_s=rate, offered_per_s=rate, e2e_ms=e2e_ms, tpot_ms=tpot)
        assert isinstance(found, Comparison)
        return found.predicted

    few, many = predicted(1.0, 480.0), predicted(92.2, 1021.0)
    assert few < many < predicted(128.0, 1021.0)
    assert predicted(200.0, 1021.0) == predicted(300.0, 1021.0)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hardware": "abacus"}, "no hardware profile 'abacus'"),
        ({"engine": "abacus"}, "no engine profile 'abacus'"),
        ({"model": "abacus"}, "no architecture 'abacus'"),
        ({"weight_dtype": "abacus"}, "no data type 'abacus'"),
        ({"tpot_ms": None}, "tpot_ms is missing"),
        ({"output_len": 1.0}, "output_len is 1"),
    ],
)
def test_what_is_unknown_is_said(changes: dict[str, Any], says: str) -> None:
    found = judged(**changes)
    assert isinstance(found, LeftOut)
    assert says in found.reason


def test_the_packaged_sweep() -> None:
    """Six stages within a tenth, nothing fitted on them; the file's own TPOT is refuted."""
    rows = list(request_rates.compare(read_rows(DATA / "request_rates.csv", request_rates)))
    compared = [row for row in rows if isinstance(row, Comparison)]
    assert [type(row) for row in rows].count(LeftOut) == 1
    assert all(abs(row.error) < 0.1 for row in compared)
    assert {row.role for row in compared} == {"held_out"}
