"""Stored results to table rows: means, intervals, and speedups paired with the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simspec.core.stats import Interval
from simspec.scenarios.report import (
    PAIRED,
    interval_columns,
    metric_columns,
    speedups,
)
from simspec.scenarios.run import Outcome
from simspec.sweeps.plan import SweepPlan


def join(plan: SweepPlan, finished: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row per point in grid order."""
    rows = []
    for point in plan.points:
        outcome = _outcome(plan, finished, point.point_id)
        row: dict[str, Any] = {"point_id": point.point_id, "method.name": point.config.method.name}
        row.update(point.columns)
        row["status"], row["reason"] = outcome.status, outcome.reason
        row.update(metric_columns(outcome))
        if point.baseline_id is not None:
            row.update(speedups(_outcome(plan, finished, point.baseline_id), outcome))
        elif point.is_baseline and outcome.replications:
            row.update(speedups(outcome, outcome))
            for name in PAIRED:
                row.update(interval_columns(name, Interval(1.0, 1.0, 1.0, 1)))
        row.update(outcome.facts)
        row.update(outcome.quantiles)
        rows.append(row)
    return rows


def _outcome(plan: SweepPlan, finished: Mapping[str, Any], point_id: str) -> Outcome:
    stored = finished[plan.keys[point_id]]
    return Outcome(
        status=stored["status"],
        reason=stored.get("reason"),
        replications=stored.get("replications", {}),
        quantiles=stored.get("quantiles", {}),
        facts=stored.get("facts", {}),
    )
