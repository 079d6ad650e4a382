"""Replications to table rows: means, intervals, and speedups paired with the baseline.

Points of one sweep share their tapes, lengths and arrivals replication by replication, so the
speedup's interval is that of paired ratios: far narrower than two separate intervals would say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simspec.core.stats import Interval, mean_interval, ratio_interval
from simspec.sweeps.plan import SweepPlan

PAIRED = {"speedup": "tpot_ms", "e2e_speedup": "e2e_ms"}
"""Ratio column: the metric whose baseline value is divided by the method's."""


def join(plan: SweepPlan, finished: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row per point in grid order."""
    rows = []
    for point in plan.points:
        result = plan.result(finished, point.point_id)
        row: dict[str, Any] = {"point_id": point.point_id, "method.name": point.config.method.name}
        row.update(point.columns)
        row["status"] = result["status"]
        row["reason"] = result.get("reason")
        for metric, values in result.get("replications", {}).items():
            row.update(interval_columns(metric, _interval(values)))
        if point.baseline_id is not None:
            baseline = plan.result(finished, point.baseline_id)
            row.update(_ratios(baseline, result))
        elif point.is_baseline and result["status"] == "ok":
            for name in PAIRED:
                row.update(interval_columns(name, Interval(1.0, 1.0, 1.0, 1)))
        row.update(result.get("facts", {}))
        row.update(result.get("quantiles", {}))
        rows.append(row)
    return rows


def interval_columns(metric: str, interval: Interval | None) -> dict[str, float | None]:
    """Return the three columns of a metric."""
    mean, low, high = (
        (interval.mean, interval.low, interval.high) if interval else (None, None, None)
    )
    return {metric: mean, f"{metric}_ci95_low": low, f"{metric}_ci95_high": high}


def _interval(values: list[float | None]) -> Interval | None:
    known = [v for v in values if v is not None]
    return mean_interval(known) if known and len(known) == len(values) else None


def _ratios(baseline: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, float | None]:
    columns: dict[str, float | None] = {}
    for name, metric in PAIRED.items():
        plain = baseline.get("replications", {}).get(metric)
        ours = result.get("replications", {}).get(metric)
        usable = plain and ours and None not in plain and None not in ours
        columns.update(interval_columns(name, ratio_interval(plain, ours) if usable else None))
    return columns
