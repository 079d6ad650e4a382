"""What the engine did over time in the first replication of a simulation.

Read from ``timeseries.parquet`` beside the result and drawn in at most 240 intervals: queue and
batch, shares of the KV cache and of both roofs, and K in force where something changes it. Where
nothing ran an interval holds zeros; replicas are added up, their shares averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from simspec.core.parquet import read_frame
from simspec.reports.spec import FigureSpec, Json, compact_all
from simspec.reports.theme import axis, layout, series
from simspec.reports.view import SweepView

TABLE = "timeseries.parquet"
NUM_POINTS = 240
LOAD = {"waiting_requests": "Waiting requests", "running_requests": "Sequences running"}
USE = {
    "kv_used_share": "KV cache",
    "compute_roof_share": "Compute roof",
    "bandwidth_roof_share": "Bandwidth roof",
}
DRAFT = {"draft_in_force_tokens": "K in force"}
_OF_INTERVAL = frozenset({"compute_roof_share", "bandwidth_roof_share"})
"""Shares of the whole row's time; the others are states while busy."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Chart:
    name: str
    title: str
    columns: Mapping[str, str]
    unit: str
    scale: float = 1.0


CHARTS = {
    "load": _Chart("over_time_load", "Queue and batch", LOAD, "Requests"),
    "use": _Chart("over_time_use", "Use of the machine", USE, "Share (%)", 100.0),
    "draft": _Chart("over_time_draft", "Draft length in force", DRAFT, "Tokens"),
}
"""What is drawn, each a figure of its own."""


def figure(view: SweepView, chart: str) -> FigureSpec | None:
    """Return one of :data:`CHARTS`; None without a time series, or where K never changes."""
    read = _read(view.data.directory / TABLE)
    if read is None:
        return None
    at_s, curves = read
    if CHARTS[chart].columns is DRAFT:
        drafts = np.round(curves["draft_in_force_tokens"], 6)
        if np.unique(drafts[drafts > 0]).size <= 1:
            return None
    return _figure(CHARTS[chart], at_s, curves)


def _figure(chart: _Chart, at_s: Array, curves: dict[str, Array]) -> FigureSpec:
    traces: list[Json] = [
        {
            **series(index),
            "type": "scatter",
            "mode": "lines",
            "name": label,
            "x": compact_all(at_s.tolist()),
            "y": compact_all((chart.scale * curves[column]).tolist()),
            "hovertemplate": f"%{{x:,.4r}} s: %{{y:,.3r}}<extra>{label}</extra>",
        }
        for index, (column, label) in enumerate(chart.columns.items())
    ]
    base: Json = {
        "data": traces,
        "layout": layout(
            axis("Simulated time (s)"), axis(chart.unit, rangemode="tozero"), height=260
        ),
        "caption": _caption(chart, curves),
    }
    return FigureSpec(name=chart.name, title=chart.title, base=base)


def _caption(chart: _Chart, curves: dict[str, Array]) -> str:
    parts = [
        f"{label} up to {chart.scale * float(curves[column].max()):,.3g}"
        for column, label in chart.columns.items()
    ]
    return f"First replication: {', '.join(parts)}."


def _read(path: Path) -> tuple[Array, dict[str, Array]] | None:
    """Return the starts of the intervals and one curve per column; None without a table."""
    try:
        frame = read_frame(path)
    except (OSError, ValueError):
        return None
    frame = frame[frame["replication"] == 0]
    if frame.empty:
        return None
    return _binned({name: frame[name].to_numpy(dtype=np.float64) for name in _columns()})


def _columns() -> Sequence[str]:
    return ("replica", "start_s", "duration_s", "busy_ms", *LOAD, *USE, *DRAFT)


def _binned(table: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
    num_replicas = int(table["replica"].max()) + 1
    # A row longer than an interval would leave gaps.
    num_points = int(np.clip(table["start_s"].size // (4 * num_replicas), 1, NUM_POINTS))
    ends_s = table["start_s"] + table["duration_s"]
    first_s, last_s = float(table["start_s"].min()), float(ends_s.max())
    width_s = max((last_s - first_s) / num_points, 1e-12)
    place = np.clip(np.ceil((ends_s - first_s) / width_s).astype(np.int64) - 1, 0, num_points - 1)
    cell = table["replica"].astype(np.int64) * num_points + place

    def total(values: Array) -> Array:
        summed = np.bincount(cell, weights=values, minlength=num_points * num_replicas)
        return np.asarray(summed.reshape(num_replicas, num_points), dtype=np.float64)

    busy, covered_s = total(table["busy_ms"]), total(table["duration_s"])
    curves: dict[str, Array] = {}
    for name in (*LOAD, *USE, *DRAFT):
        if name in _OF_INTERVAL:
            weighted = total(table[name] * table["duration_s"])
            by_replica = weighted / np.maximum(width_s, covered_s)
        else:
            by_replica = total(table[name] * table["busy_ms"]) / np.where(busy > 0, busy, np.inf)
        merged = by_replica.sum(axis=0) if name in LOAD else by_replica.mean(axis=0)
        if name in DRAFT:
            together = busy.sum(axis=0)
            weighted = total(table[name] * table["busy_ms"]).sum(axis=0)
            merged = weighted / np.where(together > 0, together, np.inf)
        curves[name] = np.asarray(merged, dtype=np.float64)
    starts_s = first_s + width_s * np.arange(num_points)
    return np.asarray(starts_s, dtype=np.float64), curves
