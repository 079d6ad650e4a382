"""How often gaps between arrivals are longer than a time, beside those of a Poisson process."""

from __future__ import annotations

import numpy as np

from simspec.reports.spec import FigureSpec, caption, compact, compact_all
from simspec.reports.theme import axis, layout
from simspec.workloads.describe import gap_cv
from simspec.workloads.description import WorkloadDescription

NUM_POINTS = 160
_LOWEST_SHARE = 10**-3.5
"""Where the axis of shares ends."""


def figure(found: WorkloadDescription) -> FigureSpec | None:
    """Return the figure; None where arrivals are unknown or fewer than four."""
    times_s = found.times_s
    if times_s is None or times_s.size < 4 or times_s[-1] <= times_s[0]:
        return None
    gaps_s = np.sort(np.diff(times_s))
    mean_s = float(gaps_s.mean())
    # Evenly in the number of longer gaps on its logarithmic axis, and evenly in rank before that.
    from_end = np.geomspace(1, gaps_s.size, NUM_POINTS).round().astype(int)
    even = np.linspace(0, gaps_s.size - 1, NUM_POINTS).round().astype(int)
    at_s = gaps_s[np.union1d(gaps_s.size - from_end, even)]
    longer = 1 - np.searchsorted(gaps_s, at_s, side="right") / gaps_s.size
    # One night without a request would flatten the rest: the axis ends where the shares do.
    end_s = max(float(np.quantile(gaps_s, 1 - _LOWEST_SHARE)), 4 * mean_s)
    poisson_s = np.linspace(0, end_s, NUM_POINTS)
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
                axis("Gap (s)", range=[0, compact(1.02 * end_s)], nticks=7),
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
