"""Requests per second over time, with the mean: what a server has to live through."""

from __future__ import annotations

import numpy as np

from simspec.reports.spec import FigureSpec, caption, compact, compact_all
from simspec.reports.theme import axis, layout
from simspec.workloads.description import WorkloadDescription

MAX_WINDOWS = 240


def figure(found: WorkloadDescription) -> FigureSpec | None:
    """Return the figure; None where arrivals are unknown or span no time."""
    times_s = found.times_s
    if times_s is None or times_s.size < 3 or times_s[-1] <= times_s[0]:
        return None
    span_s = float(times_s[-1] - times_s[0])
    num_windows = int(min(MAX_WINDOWS, max(4, times_s.size // 10)))
    edges_s = times_s[0] + span_s / num_windows * np.arange(num_windows + 1)
    counts, _ = np.histogram(times_s, edges_s)
    window_s = span_s / num_windows
    mean = (times_s.size - 1) / span_s
    unit, seconds = _unit(span_s)
    middles = (edges_s[:-1] + edges_s[1:]) / 2 / seconds
    return FigureSpec(
        name="arrival_rate",
        title="Arrivals over time",
        base={
            "data": [
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": f"in {window_s:.3g} s",
                    "line": {"color": "@series0", "width": 1.5, "shape": "hvh"},
                    "fill": "tozeroy",
                    "x": compact_all(middles.tolist()),
                    "y": compact_all((counts / window_s).tolist()),
                    "hovertemplate": f"%{{y:.3~r}} requests/s at %{{x:.3~r}} {unit}<extra></extra>",
                },
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": f"mean, {mean:.3g}",
                    "line": {"color": "@muted", "width": 1.5, "dash": "dash"},
                    "x": [compact(float(edge) / seconds) for edge in (edges_s[0], edges_s[-1])],
                    "y": [compact(mean)] * 2,
                    "hoverinfo": "skip",
                },
            ],
            "layout": layout(
                axis(f"Time ({unit})", nticks=8),
                axis("Requests/s", rangemode="tozero", nticks=6),
                height=300,
            ),
        },
        layers=[caption(f"{times_s.size:,} requests, counted in windows of {window_s:.3g} s.")],
    )


def _unit(span_s: float) -> tuple[str, float]:
    if span_s > 2 * 86_400:
        return "days", 86_400.0
    if span_s > 3 * 3600:
        return "h", 3600.0
    return ("min", 60.0) if span_s > 600 else ("s", 1.0)
