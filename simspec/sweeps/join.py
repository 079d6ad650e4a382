"""Stored results to table rows: means, intervals, and speedups paired with the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simspec.scenarios.report import comparison_columns, metric_columns
from simspec.scenarios.run import Outcome
from simspec.sweeps.plan import SweepPlan


def join(plan: SweepPlan, finished: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row per point in grid order."""
    rows = []
    for point in plan.points:
        outcome = _outcome(plan, finished, point.point_id)
        plain = None
        if point.is_baseline:
            plain = outcome
        elif point.baseline_id is not None:
            plain = _outcome(plan, finished, point.baseline_id)
        rows.append(
            {
                "point_id": point.point_id,
                "baseline_id": point.baseline_id,
                "method.name": point.config.method.name,
                **point.columns,
                "status": outcome.status,
                "reason": outcome.reason,
                **metric_columns(outcome),
                **comparison_columns(outcome, plain),
                **outcome.facts,
                **outcome.quantiles,
            }
        )
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
