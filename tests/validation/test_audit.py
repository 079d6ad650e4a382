"""Contradictions that stand in the columns of a row, whatever the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simspec.validation._audit import refuted
from simspec.validation._base import MeasurementTable
from simspec.validation.api import validate

RUN = {"concurrency": 8, "ttft_ms": 100.0, "tpot_ms": 10.0, "output_len": 101}


def reasons(*rows: dict[str, Any]) -> dict[int, str]:
    return refuted(MeasurementTable(Path("t.csv"), pd.DataFrame(list(rows))))


def test_users_times_speed_bound_the_total() -> None:
    """Eight users at 100 tokens/s receive 800 together: 700 is waiting, 900 is impossible."""
    found = reasons(*({**RUN, "output_tokens_per_s": total} for total in (700, 800, 900)))
    assert found == {
        4: "8 users at 100 tokens/s receive 800 tokens/s together, and the total is given as 900"
    }


def test_a_tpot_follows_from_its_latency() -> None:
    """100 ms and 100 steps of 10 ms are 1,100 ms; 600 ms would be steps of 5."""
    found = reasons(*({**RUN, "e2e_ms": total} for total in (1100.0, 600.0)))
    assert list(found) == [3]
    assert "5.00 ms per token" in found[3]


def test_a_round_yields_no_more_than_it_drafts() -> None:
    """Three drafts make at most four tokens."""
    assert list(reasons({"speedup": 4.0, "draft_len": 3}, {"speedup": 4.5, "draft_len": 3})) == [3]


@pytest.mark.parametrize("cell", [None, float("nan"), 0.0, -1.0, "x"])
def test_missing_cells_contradict_nothing(cell: object) -> None:
    """What is not known refutes nothing, and neither does another table."""
    assert reasons({"speedup": 9.0, "draft_len": cell}) == {}
    assert reasons({"speedup": 9.0}) == {}


def test_a_contradicted_row_is_left_out_by_any_reader(tmp_path: Path) -> None:
    """A pool of a known kind with the columns of a contradiction is not judged."""
    head = "model,dtype,kv_dtype,gpu,gpu_memory_gb,tp,gpu_memory_utilization,max_model_len"
    good = "meta-llama/Llama-3.1-8B,bf16,bf16,RTX 4090,24,1,0.9,32768,41408"
    path = tmp_path / "t.csv"
    path.write_text(f"{head},kv_cache_tokens,speedup,draft_len\n{good},2,3\n{good},5,3\n")
    result = validate(path)
    assert [row.line for _, row in result.rows()] == [2]
    ((_, left_out),) = result.left_out()
    assert (left_out.line, left_out.cause) == (3, "refuted")
