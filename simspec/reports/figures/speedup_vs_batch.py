"""Speedup against batch size in the closed form, one line per exit layer, break-even at 1.

The speedup of a batch is ``step_time * tokens_per_round / round_time``: the time per token of an
autoregressive step over that of a round. The closed form has no queue and no interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simspec.reports.data import Axis, axis_cell, finite, has_axis
from simspec.reports.labels import Value, plain, value_text
from simspec.reports.spec import FigureSpec, Json, Layer, Selector, compact, view_key
from simspec.reports.theme import NUM_SERIES, axis, break_even, break_even_label, layout, series
from simspec.reports.verdicts import crossings
from simspec.reports.view import SweepView, combinations, series_axis

CONTEXT = "context"
_TIMES = ("round_time_ms", "tokens_per_round", "step_time_ms")

Row = Mapping[str, object]


def figure(view: SweepView) -> FigureSpec | None:
    """Return the figure, None without curves over at least two batch sizes."""
    rows = [row for row in view.data.curves if finite(row.get("speedup")) is not None]
    batches = sorted({b for row in rows if (b := finite(row.get("batch"))) is not None and b > 0})
    if len(batches) < 2:
        return None
    axes = [a for a in view.varied if has_axis(rows[0], a.field) and _varies(rows, a.field)]
    context = _context_axis(view, rows)
    lines = series_axis(view, axes, NUM_SERIES)
    selectors = [a for a in [*axes, *context] if a is not lines]
    names = [lines.says(value) for value in lines.values] if lines else ["Chosen configuration"]
    has_times = not view.lean and all(
        finite(row.get(key)) is not None for row in rows for key in _TIMES
    )
    parts = ("y", "customdata") if has_times else ("y",)
    traces = [_trace(index, name, batches, has_times) for index, name in enumerate(names)]
    spec = FigureSpec(
        name="speedup_vs_batch",
        title="Speedup against batch size",
        base={"data": traces, "layout": _layout(rows, batches)},
        selectors=tuple(Selector(a.field, a.label, a.texts) for a in context),
    )
    table = _index(rows, [*selectors, *([lines] if lines else [])])
    views: dict[str, list[object]] = {}
    for chosen in combinations(selectors):
        key = tuple(chosen.values())
        curves = [table.get((*key, index) if lines else key, {}) for index in range(len(names))]
        if not any(curves):
            continue
        values: list[object] = [_caption(rows, selectors, chosen, names, curves)]
        for curve in curves:
            values += _values(curve, batches)[: len(parts)]
        views[view_key(key)] = values
    paths = ("caption", *(f"data.{i}.{part}" for i in range(len(names)) for part in parts))
    spec.layers.append(Layer(tuple(a.field for a in selectors), views, paths))
    return spec


def _varies(rows: Sequence[Row], field: str) -> bool:
    first = axis_cell(rows[0], field)
    return any(axis_cell(row, field) != first for row in rows)


def _context_axis(view: SweepView, rows: Sequence[Row]) -> list[Axis]:
    if CONTEXT not in rows[0] or view.data.axis(CONTEXT) is not None:
        return []
    values = sorted({c for row in rows if (c := finite(row.get(CONTEXT))) is not None})
    whole: tuple[Value, ...] = tuple(int(c) if c.is_integer() else c for c in values)
    return [Axis(CONTEXT, None, whole)] if len(whole) > 1 else []


def _index(rows: Sequence[Row], axes: Sequence[Axis]) -> dict[tuple[int, ...], dict[float, Row]]:
    """Return rows by axis indices, then batch."""
    found: dict[tuple[int, ...], dict[float, Row]] = {}
    for row in rows:
        indices = [a.index(axis_cell(row, a.field)) for a in axes]
        batch = finite(row.get("batch"))
        if batch is None or None in indices:
            continue
        found.setdefault(tuple(i for i in indices if i is not None), {})[batch] = row
    return found


def _trace(index: int, name: str, batches: Sequence[float], has_times: bool) -> Json:
    hover = f"<b>{plain(name, width=60)}, batch %{{x}}: %{{y:.2f}}×</b>"
    if has_times:
        hover += "<br>%{customdata[0]:.3r} ms per token instead of %{customdata[1]:.3r} ms"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(name, width=32),
        "x": [compact(batch) for batch in batches],
        "y": [],
        "hovertemplate": hover + "<extra></extra>",
        **series(index),
    }


def _values(curve: Mapping[float, Row], batches: Sequence[float]) -> list[object]:
    speedups, pairs = [], []
    for batch in batches:
        row = curve.get(batch, {})
        speedups.append(compact(finite(row.get("speedup"))))
        round_ms, tokens = finite(row.get("round_time_ms")), finite(row.get("tokens_per_round"))
        per_token = round_ms / tokens if round_ms is not None and tokens else None
        pairs.append([compact(per_token), compact(finite(row.get("step_time_ms")))])
    return [speedups, pairs]


def _caption(
    rows: Sequence[Row],
    selectors: Sequence[Axis],
    chosen: Mapping[str, int],
    names: Sequence[str],
    curves: Sequence[Mapping[float, Row]],
) -> str:
    said = [a.says(a.values[chosen[a.field]]) for a in selectors]
    fixed = rows[0].get(CONTEXT)
    if CONTEXT not in chosen and isinstance(fixed, int | float):
        said.append(f"context {value_text(fixed)} tokens")
    limits: list[str] = []
    sides: set[str] = set()
    for name, curve in zip(names, curves, strict=True):
        points = [(b, s) for b, row in sorted(curve.items()) if (s := finite(row["speedup"]))]
        crossed = [f"{'above 1 from ' if r else ''}{b:.0f}" for b, r in crossings(points)]
        if crossed:
            limit = " to ".join(crossed)
            limits.append(f"{limit} ({name})" if len(names) > 1 else limit)
        elif points:
            side = "none, always above 1" if points[-1][1] > 1 else "none, never above 1"
            sides.add(side)
            limits.append(f"{side} ({name})")
    if len(sides) == 1 and all("none" in text for text in limits):
        limits = list(sides)
    lead = f"Closed form at {', '.join(said)}. " if said else "Closed form. "
    return f"{lead}Break-even batch: {', '.join(limits)}." if limits else lead.strip()


def _layout(rows: Sequence[Row], batches: Sequence[float]) -> Json:
    values = [s for row in rows if (s := finite(row.get("speedup"))) is not None]
    low, high = min([0.95, *values]), max([1.05, *values])
    pad = 0.06 * (high - low)
    return layout(
        axis(
            "Batch size (sequences)",
            type="log",
            tickvals=[compact(batch) for batch in batches],
            ticktext=[f"{batch:g}" for batch in batches],
        ),
        axis("Speedup over autoregression (×)", range=[low - pad, high + pad]),
        height=380,
        shapes=[break_even()],
        annotations=[break_even_label()],
    )
