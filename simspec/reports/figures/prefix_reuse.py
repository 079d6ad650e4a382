"""Share of prompt blocks that a prefix cache of a size would have had."""

from __future__ import annotations

from simspec.reports.spec import FigureSpec, caption, compact, compact_all
from simspec.reports.theme import axis, layout
from simspec.workloads.description import WorkloadDescription
from simspec.workloads.prefix_reuse import cache_for, cache_sizes

_TICKS = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9]
_TEXTS = ["1k", "10k", "100k", "1M", "10M", "100M", "1G"]


def figure(found: WorkloadDescription) -> FigureSpec | None:
    """Return the figure; None where nothing says what prompts share."""
    reuse = found.reuse
    if reuse is None:
        return None
    sizes = cache_sizes(reuse)
    tokens: list[float | int | None] = [size * reuse.block_tokens for size in sizes]
    enough = cache_for(reuse, 0.9)
    words = "No block comes twice."
    if enough is not None:
        words = (
            f"An infinite cache has {reuse.hit_share:.1%} of the blocks; one of "
            f"{enough * reuse.block_tokens:,} tokens has nine tenths of those."
        )
    return FigureSpec(
        name="prefix_reuse",
        title="Prompt tokens a prefix cache saves",
        base={
            "data": [
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": "cache of this size",
                    "line": {"color": "@series0", "width": 2.5},
                    "x": tokens,
                    "y": compact_all([100 * reuse.hit_share_of(size) for size in sizes]),
                    "hovertemplate": "%{y:.3~r}% with %{x:,.3~s} tokens<extra></extra>",
                },
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": "infinite cache",
                    "line": {"color": "@muted", "width": 1.5, "dash": "dash"},
                    "x": [tokens[0], tokens[-1]],
                    "y": [compact(100 * reuse.hit_share)] * 2,
                    "hoverinfo": "skip",
                },
            ],
            "layout": layout(
                axis("Cache (tokens)", type="log", tickvals=_TICKS, ticktext=_TEXTS),
                axis("Blocks found (%)", rangemode="tozero", nticks=6),
                height=300,
            ),
        },
        layers=[
            caption(
                f"{words} Least recently used blocks of {reuse.block_tokens} tokens leave first."
            )
        ],
    )
