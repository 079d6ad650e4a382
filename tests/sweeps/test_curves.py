"""The closed-form curves of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simspec.scenarios.build import build
from simspec.scenarios.closed_form import estimate
from simspec.sweeps.curves import closed_form_curves
from tests.sweeps.factory import GRID, SCENARIO, plan

FIELDS = ("method.exit_layer", "method.num_speculative_tokens", "method.confidence_threshold")


def curves(folder: Path, **changes: Any) -> list[dict[str, Any]]:
    return closed_form_curves(plan(folder, **changes))


def test_one_row_per_configuration_and_batch(tmp_path: Path) -> None:
    """Loads share a curve, autoregression has none, and the method's fields are always there."""
    rows = curves(tmp_path)
    found = [(*(row[name] for name in FIELDS), row["batch"]) for row in rows]
    assert found == [(e, k, 0, batch) for e in (2, 3) for k in (1, 2) for batch in (1, 4)]
    assert all("load" not in row for row in rows)
    assert {row["method.name"] for row in rows} == {"kangaroo"}


def test_a_curve_is_what_estimate_says(tmp_path: Path) -> None:
    """All batches at once as arrays give the numbers of one batch at a time."""
    rows = curves(tmp_path, grid={"tp": [2]})
    (point,) = (p for p in plan(tmp_path, grid={"tp": [2]}).points if not p.is_baseline)
    deployment = build(point.config)
    for row in rows:
        alone = estimate(deployment, row["batch"], 256)
        for key in set(row) & set(alone) - {"batch", "context", "tp"}:
            assert row[key] == pytest.approx(alone[key], rel=1e-12), key
        assert {"speedup", "round_time_ms", "time_draft_ms", "tokens_per_round"} <= set(row)


def test_only_what_fits_is_drawn(tmp_path: Path) -> None:
    """A batch that the KV cache or the engine cannot hold has no point on the curve."""
    scenario = {**SCENARIO, "memory": {"num_kv_blocks": 100}, "scheduler": {"max_num_seqs": 8}}
    options = {"curve_batches": [1, 5, 6, 8, 9], "curve_context": 256}
    rows = curves(tmp_path, scenario=scenario, grid={"tp": [1]}, sweep=options)
    # 256 + K + 1 slots are 17 whole blocks, and 100 blocks hold five times 17.
    assert [row["batch"] for row in rows] == [1, 5]


def test_an_axis_of_load_and_deployment_is_kept(tmp_path: Path) -> None:
    """A label that changes the deployment too stays in the curves."""
    setups = {
        "small": {"tp": 1, "workload.num_requests": 4},
        "large": {"tp": 2, "workload.num_requests": 5},
    }
    rows = curves(tmp_path, grid={"load": GRID["load"], "setup": setups})
    assert {row["setup"] for row in rows} == {"small", "large"}
    assert len(rows) == 4


def test_the_method_axis_need_not_be_in_the_grid(tmp_path: Path) -> None:
    """Fields of the method that do not vary are columns all the same."""
    rows = curves(tmp_path, grid={"dtype": ["bf16", "fp8"]})
    assert {row["method.exit_layer"] for row in rows} == {2}
    assert [row["dtype"] for row in rows] == ["bf16", "bf16", "fp8", "fp8"]
