"""Share of requests with at most so many tokens, of prompts and of outputs."""

from __future__ import annotations

import numpy as np

from simspec.reports.spec import FigureSpec, Json, caption, compact_all
from simspec.reports.theme import axis, layout
from simspec.workloads.description import WorkloadDescription

NUM_POINTS = 200
_TICKS = [10**k for k in range(8)]


def figure(found: WorkloadDescription) -> FigureSpec:
    """Return the figure."""
    sides = (("Prompt", found.prompt_lens, "solid"), ("Output", found.output_lens, "dash"))
    traces: list[Json] = []
    for index, (name, values, dash) in enumerate(sides):
        ordered = np.sort(values)
        ranks = np.unique(np.linspace(0, ordered.size - 1, NUM_POINTS).round().astype(int))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "line": {"color": f"@series{index}", "width": 2.5, "dash": dash, "shape": "hv"},
                "x": compact_all(ordered[ranks].tolist()),
                "y": compact_all((100 * (ranks + 1) / ordered.size).tolist()),
                "hovertemplate": "%{y:.0f}% have at most %{x:,.0f} tokens<extra></extra>",
            }
        )
    medians = [f"{np.median(values):,.0f}" for _, values, _ in sides]
    return FigureSpec(
        name="length_distribution",
        title="Lengths",
        base={
            "data": traces,
            "layout": layout(
                axis("Tokens", type="log", tickvals=_TICKS, ticktext=[f"{t:,}" for t in _TICKS]),
                axis("Requests (%)", range=[0, 101], tickvals=[0, 25, 50, 75, 100]),
                height=300,
            ),
        },
        layers=[caption(f"Medians: {medians[0]} prompt and {medians[1]} output tokens.")],
    )
