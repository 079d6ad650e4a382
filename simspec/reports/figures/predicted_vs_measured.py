"""Predicted against measured figures, both axes logarithmic, with the band of ±10 %.

The selector chooses what was measured, all of it or one family of rows. Rows that a fit has used
are drawn hollow. Of long tables an even selection of rows is drawn, the first and the last among
them; the errors of a caption are always those of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from simspec.reports.labels import number_text, plain, shorten, visible
from simspec.reports.spec import FigureSpec, Json, Layer, Selector, compact, compact_all, view_key
from simspec.reports.theme import NUM_SERIES, SYMBOLS, axis, layout
from simspec.validation._base import Comparison
from simspec.validation.api import ValidationResult

MAX_POINTS = 1500
MAX_FAMILIES = 12
"""Families that have a view of their own; the rest stands in the view of all."""
BAND = 0.10
_MAX_FIELDS = 10

Topic = tuple[str, str]
"""Kind of table and quantity."""

_UNITS = {
    "tpot_ms": ("Time per output token", "ms"),
    "ttft_ms": ("Time to first token", "ms"),
    "speedup": ("Speedup", "×"),
    "step_cost_ratio": ("Cost of a step over that of one token", "×"),
    "tokens_per_s": ("Throughput", "tokens/s"),
    "kv_cache_tokens": ("KV cache", "tokens"),
    "kv_bytes_per_token": ("KV of one token per GPU", "bytes"),
    "latency_ms": ("Latency of a kernel", "ms"),
}


def quantity_label(quantity: str) -> str:
    """Return a quantity with its unit."""
    name, unit = _UNITS.get(quantity, (quantity, ""))
    return f"{name} ({unit})" if unit else name


def topics(result: ValidationResult) -> dict[Topic, list[Comparison]]:
    """Return the rows of every kind of table and quantity, most rows first."""
    found: dict[Topic, list[Comparison]] = {}
    for table, row in result.rows():
        found.setdefault((table.kind, row.quantity), []).append(row)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def topic_label(topic: Topic) -> str:
    """Return a quantity and the kind of table it stands in."""
    kind, quantity = topic
    return f"{quantity_label(quantity)} · {kind.replace('_', ' ')}"


def figure(result: ValidationResult) -> FigureSpec | None:
    """Return the figure; None when nothing was compared."""
    options: list[str] = []
    views: dict[str, Json | list[object]] = {}
    for topic, rows in topics(result).items():
        families = _families(rows)
        views[view_key([len(options)])] = _view(topic[1], families)
        options.append(topic_label(topic))
        for slot, (family, own) in enumerate(list(families.items())[:MAX_FAMILIES]):
            if len(families) > 1:
                views[view_key([len(options)])] = _view(topic[1], {family: own}, first=slot)
                options.append(f"{topic_label(topic)} · {shorten(visible(family), 60)}")
    if not options:
        return None
    selector = Selector("shown", "Show", tuple(options))
    return FigureSpec(
        name="predicted_vs_measured",
        title="Predicted against measured",
        base={"data": [], "layout": layout(axis(""), axis(""), height=560, hovermode="closest")},
        layers=[Layer((selector.id,), views)],
        selectors=(selector,),
    )


def _families(rows: Sequence[Comparison]) -> dict[str, list[Comparison]]:
    """Return the rows by family, largest first."""
    found: dict[str, list[Comparison]] = {}
    for row in rows:
        found.setdefault(row.family or row.group, []).append(row)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def _view(quantity: str, families: Mapping[str, Sequence[Comparison]], *, first: int = 0) -> Json:
    name, unit = _UNITS.get(quantity, (quantity, ""))
    total = sum(len(rows) for rows in families.values())
    every = [row for rows in families.values() for row in rows]
    low, high = _range(every)
    share = min(1.0, MAX_POINTS / total)
    traces = _band(low, high)
    for index, (family, rows) in enumerate(families.items()):
        traces.append(_trace(family, _thinned(rows, share), unit, min(first + index, NUM_SERIES)))
    suffix = f" ({unit})" if unit else ""
    log: Json = {"type": "log", "range": [math.log10(low), math.log10(high)], "nticks": 8}
    return {
        "data": traces,
        "layout": {
            "xaxis": axis(f"Measured {_lower(name)}{suffix}", **log),
            "yaxis": axis(f"Predicted {_lower(name)}{suffix}", **log),
            "showlegend": True,
        },
        "caption": _caption(every, share),
    }


def _lower(name: str) -> str:
    return name if name.startswith("KV") else name[:1].lower() + name[1:]


def _range(rows: Sequence[Comparison]) -> tuple[float, float]:
    values = [value for row in rows for value in (row.measured, row.predicted)]
    return min(values) / 1.3, max(values) * 1.3


def _thinned(rows: Sequence[Comparison], share: float) -> list[Comparison]:
    """Return an even selection, the first and the last row among it."""
    count = max(1, math.ceil(share * len(rows)))
    places = np.unique(np.linspace(0, len(rows) - 1, count).round().astype(int))
    return [rows[place] for place in places.tolist()]


def _band(low: float, high: float) -> list[Json]:
    ends = [compact(low), compact(high)]
    line: Json = {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "x": ends}

    def at(factor: float) -> list[float | int | None]:
        return [compact(low * factor), compact(high * factor)]

    edge: Json = {"color": "@line", "width": 1}
    return [
        {**line, "y": at(1 - BAND), "line": edge, "showlegend": False},
        {
            **line,
            "y": at(1 + BAND),
            "line": edge,
            "fill": "tonexty",
            "fillcolor": "@grid",
            "name": f"within {BAND:.0%}",
        },
        {**line, "y": ends, "line": {"color": "@muted", "width": 1.5}, "name": "equal"},
    ]


def _trace(family: str, rows: Sequence[Comparison], unit: str, slot: int) -> Json:
    colour = f"@series{slot % NUM_SERIES}" if slot < NUM_SERIES else "@host"
    symbol = SYMBOLS[slot % NUM_SERIES]
    # The legend shows the mark of the first row.
    rows = sorted(rows, key=lambda row: row.role == "fitted")
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(family, width=40),
        "x": compact_all([row.measured for row in rows]),
        "y": compact_all([row.predicted for row in rows]),
        "text": [_hover(row, unit) for row in rows],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "color": colour,
            "size": 7,
            "opacity": 0.75,
            "symbol": [symbol + "-open" if row.role == "fitted" else symbol for row in rows],
        },
    }


def _hover(row: Comparison, unit: str) -> str:
    shown = f" {unit}" if unit and unit != "×" else unit
    lines = [
        f"<b>{plain(row.group, width=70)}</b>",
        f"measured {number_text(row.measured, 'significant')}{shown}, predicted "
        f"{number_text(row.predicted, 'significant')}{shown} ({row.error:+.1%})",
    ]
    if row.interval is not None:
        low, high = (number_text(bound, "significant") for bound in row.interval)
        lines.append(f"95% interval {low} to {high}{shown}")
    lines += [plain(text) for text in _wrapped(subject_text(row), 70)]
    lines.append(plain(f"line {row.line}" + (", fitted" if row.role == "fitted" else "")))
    return "<br>".join(lines)


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(", "):
        if lines[-1] and len(lines[-1]) + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]}, {word}" if lines[-1] else word
    return lines


def subject_text(row: Comparison, *, fields: int = _MAX_FIELDS) -> str:
    """Return what was measured, as words: the fields that hold something short."""
    words = []
    for key, value in row.subject.items():
        if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
            continue
        text = f"{value:g}" if isinstance(value, float) else str(value)
        if len(text) <= 40:
            words.append(f"{key} {text}")
    return ", ".join(words[:fields])


def _caption(rows: Sequence[Comparison], share: float) -> str:
    error = np.abs([row.error for row in rows])
    inside = float((error <= BAND).mean())
    text = (
        f"{len(rows):,} rows: median error {float(np.median(error)):.1%}, "
        f"{inside:.0%} within {BAND:.0%}."
    )
    if any(row.role == "fitted" for row in rows):
        text += " Hollow: rows that a fit has used."
    return text + (f" An even selection of {share:.1%} of them is drawn." if share < 1.0 else "")
