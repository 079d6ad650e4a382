"""Methods side by side over batch sizes: time per output token, and speedup, one line each.

Both figures are the closed form's, at one context. Plain decoding is a line of its own in the
first and the line at 1 in the second; a batch that does not fit leaves a gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simspec.reports.data import finite
from simspec.reports.labels import plain
from simspec.reports.spec import FigureSpec, Json, compact
from simspec.reports.theme import (
    NUM_SERIES,
    SYMBOLS,
    axis,
    break_even,
    break_even_label,
    layout,
    series,
)

Document = Mapping[str, Any]
"""What :func:`simspec.scenarios.compare.compare` returns."""


def tpot_figure(document: Document) -> FigureSpec:
    """Return the time per output token of every method and of plain decoding, milliseconds."""
    traces = [_trace(document, document["autoregressive"], "Autoregressive", "tpot_ms", None)]
    traces += [
        _trace(document, _rows(document, label), label, "tpot_ms", index)
        for index, label in enumerate(_labels(document))
    ]
    return FigureSpec(
        name="tpot_vs_batch",
        title="Time per output token against batch size",
        base={
            "data": traces,
            "layout": layout(
                _batches(document),
                axis("TPOT (ms)", rangemode="tozero"),
                **_room(len(traces)),
            ),
        },
    )


def speedup_figure(document: Document) -> FigureSpec:
    """Return the speedup of every method over plain decoding at the same batch."""
    labels = _labels(document)
    traces = [
        _trace(document, _rows(document, label), label, "speedup", index)
        for index, label in enumerate(labels)
    ]
    return FigureSpec(
        name="methods_speedup",
        title="Speedup against batch size",
        base={
            "data": traces,
            "layout": layout(
                _batches(document),
                axis("Speedup over autoregression (×)", rangemode="tozero"),
                **_room(len(traces)),
                shapes=[break_even()],
                annotations=[break_even_label()],
            ),
        },
    )


def _room(num_lines: int) -> dict[str, Any]:
    """Return height and top margin with which the legend stands above the lines, not on them."""
    legend, plot, bottom = 22 * -(-num_lines // 3), 300, 52
    # From its top down: anchored at the bottom Plotly misplaces a legend of several rows.
    return {
        "height": plot + bottom + legend + 24,
        "margin": {"t": legend + 24, "b": bottom},
        "legend": {"y": min(3.0, 1.0 + (legend + 16) / plot), "yanchor": "top"},
    }


def _labels(document: Document) -> list[str]:
    return [str(line["label"]) for line in document["methods"]]


def _rows(document: Document, label: str) -> list[Mapping[str, Any]]:
    return [row for row in document["rows"] if row["label"] == label]


def _batches(document: Document) -> Json:
    values = [compact(float(batch)) for batch in document["batches"]]
    return axis(
        "Batch size (sequences)",
        type="log",
        tickvals=values,
        ticktext=[f"{batch:,}" for batch in document["batches"]],
    )


def _trace(
    document: Document,
    rows: Sequence[Mapping[str, Any]],
    name: str,
    key: str,
    index: int | None,
) -> Json:
    unit = "×" if key == "speedup" else " ms per token"
    digits = ".2f" if key == "speedup" else ".4r"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(name, width=32),
        "x": [compact(float(batch)) for batch in document["batches"]],
        "y": [compact(finite(row.get(key))) for row in rows],
        "connectgaps": False,
        "hovertemplate": f"<b>{plain(name, width=60)}, batch %{{x}}: %{{y:{digits}}}{unit}</b>"
        "<extra></extra>",
        **_style(index),
    }


def _style(index: int | None) -> Json:
    if index is None:
        return {
            "line": {"color": "@ink", "width": 2.5, "dash": "solid"},
            "marker": {"color": "@ink", "size": 7, "symbol": "circle"},
        }
    style = series(index)
    if index >= NUM_SERIES:  # the colours begin again, with other symbols
        suffix = "-open" if index < 2 * NUM_SERIES else "-open-dot"
        symbol = f"{SYMBOLS[index % NUM_SERIES]}{suffix}"
        style = {**style, "marker": {"color": f"@series{index % NUM_SERIES}", "symbol": symbol}}
    return style
