"""How often gaps between arrivals are longer than a time, beside those of a Poisson process."""

from __future__ import annotations

import numpy as np

from simspec.reports.spec import FigureSpec, caption, compact_all
from simspec.reports.theme import axis, layout
from simspec.workloads.describe import gap_cv
from simspec.workloads.description import WorkloadDescription

NUM_POINTS = 160


def figure(found: WorkloadDescription) -> FigureSpec | None:
    """Return the figure; None where arrivals are unknown or fewer than four."""
    times_s = found.times_s
    if times_s is None or times_s.size < 4 or times_s[-1] <= times_s[0]:
        return None
    gaps_s = np.sort(np.diff(times_s))
    mean_s = float(gaps_s.mean())
    shares = np.unique(np.linspace(0, gaps_s.size - 1, NUM_POINTS).round().astype(int))
    at_s = gaps_s[shares]
    longer = 1 - np.searchsorted(gaps_s, at_s, side="right") / gaps_s.size
    poisson_s = np.linspace(0, max(float(gaps_s[-1]), 4 * mean_s), NUM_POINTS)
    cv = gap_cv(times_s)
    return FigureSpec(
        name="gap_distribution",
        title="Gaps between arrivals",
        base={
            "data": [
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": "these arrivals",
                    "line": {"color": "@series0", "width": 2.5},
                    "x": compact_all(at_s.tolist()),
                    "y": compact_all((100 * longer).tolist()),
                    "hovertemplate": "%{y:.3~r}% of gaps are longer than %{x:.3~r} s"
                    "<extra></extra>",
                },
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": "Poisson at this rate",
                    "line": {"color": "@muted", "width": 1.5, "dash": "dash"},
                    "x": compact_all(poisson_s.tolist()),
                    "y": compact_all((100 * np.exp(-poisson_s / mean_s)).tolist()),
                    "hoverinfo": "skip",
                },
            ],
            "layout": layout(
                axis("Gap (s)", rangemode="tozero", nticks=7),
                axis("Longer gaps (%)", type="log", range=[-1.5, 2.05], tickvals=[0.1, 1, 10, 100]),
                height=300,
            ),
        },
        layers=[
            caption(
                f"Coefficient of variation {0.0 if cv is None else cv:.3g}; 1 in a Poisson "
                "process, whose curve is a straight line here."
            )
        ],
    )
