"""Speedup against load, simulated, with 95% intervals.

One line per exit layer (or per value of another selector axis) at the chosen configuration, and
one for the best configuration of each load.
"""

from __future__ import annotations

from collections.abc import Sequence

from simspec.reports.data import Axis, Point
from simspec.reports.labels import plain
from simspec.reports.phrases import SPEEDUP, ratio_text, tpot_text
from simspec.reports.spec import FigureSpec, Json, Layer, compact, view_key
from simspec.reports.theme import NUM_SERIES, axis, break_even, break_even_label, layout, series
from simspec.reports.verdicts import verdicts
from simspec.reports.view import SweepView, combinations, series_axis

_PARTS = ("y", "error_y.array", "error_y.arrayminus", "customdata")


def figure(view: SweepView) -> FigureSpec | None:
    """Return the figure, None when there is no load axis with several values or no speedup."""
    load = view.roles.load
    if load is None or len(load.values) < 2 or not view.data.has(SPEEDUP):
        return None
    others = [a for a in view.varied if a.field != load.field]
    lines = series_axis(view, others, NUM_SERIES)
    selectors = [a for a in others if a is not lines]
    nothing: list[Point | None] = [None] * len(load.values)
    traces = [_trace(load, "Best at each load", nothing, view)]
    traces[0].update(line={"color": "@ink", "width": 3}, marker={"color": "@ink", "size": 9})
    names = [lines.says(value) for value in lines.values] if lines else ["Chosen configuration"]
    for index, name in enumerate(names):
        trace = _trace(load, plain(name, width=32), nothing, view)
        trace.update(series(index))
        if view.lean:
            trace["hovertemplate"] = "%{y:.2f}×<extra></extra>"
        traces.append(trace)
    spec = FigureSpec(
        name="speedup_vs_load",
        title="Speedup against load",
        base={"data": traces, "layout": _layout(view, load)},
    )
    if lines in view.settings:
        # Each line is a setting of its own: a best across them would compare what nobody chooses.
        traces[0]["visible"] = False
    else:
        spec.layers.append(_envelope(view))
    views: dict[str, list[object]] = {}
    parts = _PARTS[:-1] if view.lean else _PARTS
    for chosen in combinations(selectors):
        values: list[object] = [_caption(view, chosen)]
        for index in range(len(names)):
            fixed = {**chosen, lines.field: index} if lines else chosen
            points = [view.at({**fixed, load.field: k}) for k in range(len(load.values))]
            values += _values(points, view)[: len(parts)]
        views[view_key(chosen.values())] = values
    paths = ("caption", *(f"data.{i + 1}.{part}" for i in range(len(names)) for part in parts))
    spec.layers.append(Layer(tuple(a.field for a in selectors), views, paths))
    return spec


def _envelope(view: SweepView) -> Layer:
    """Return the best point of each load, setting by setting."""
    views: dict[str, list[object]] = {}
    for setting in view.setting_choices():
        points = [verdict.point for verdict in verdicts(view, setting)]
        views[view_key(setting.values())] = _values(points, view)
    paths = tuple(f"data.0.{part}" for part in _PARTS)
    return Layer(tuple(a.field for a in view.settings), views, paths)


def _trace(load: Axis, name: str, points: Sequence[Point | None], view: SweepView) -> Json:
    value, above, below, words = _values(points, view)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(load.values) if load.is_numeric else list(range(len(load.values))),
        "y": value,
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": above,
            "arrayminus": below,
            "thickness": 1.5,
            "width": 4,
        },
        "customdata": words,
        "hovertemplate": "%{customdata}<extra></extra>",
        "connectgaps": False,
    }


def _values(points: Sequence[Point | None], view: SweepView) -> list[object]:
    """Return the values, the bars above and below them, and the hover words."""
    above, below = [], []
    for point in points:
        value = point.number(SPEEDUP) if point else None
        interval = point.interval(SPEEDUP) if point else None
        known = value is not None and interval is not None
        above.append(compact(interval[1] - value) if known and interval and value else None)
        below.append(compact(value - interval[0]) if known and interval and value else None)
    return [
        [compact(point.number(SPEEDUP)) if point else None for point in points],
        above,
        below,
        [_hover(view, point) if point else "" for point in points],
    ]


def _hover(view: SweepView, point: Point) -> str:
    if point.number(SPEEDUP) is None:
        return ""
    pair = tpot_text(view, point)
    parts = [plain(view.describe(point), width=160, line=60), f"<b>{ratio_text(point)}</b>"]
    return "<br>".join([*parts, plain(pair)] if pair else parts)


def _caption(view: SweepView, chosen: dict[str, int]) -> str:
    axes = {a.field: a for a in view.varied}
    said = [axes[field].says(axes[field].values[index]) for field, index in chosen.items()]
    lead = f"Lines at {', '.join(said)}. " if said else ""
    return lead + "Bars are 95% intervals; loads without a stable result are left out."


def _layout(view: SweepView, load: Axis) -> Json:
    bounds = [
        bound
        for p in view.shown
        if (value := p.number(SPEEDUP)) is not None
        for bound in (value, *(p.interval(SPEEDUP) or ()))
    ]
    low, high = min([0.95, *bounds]), max([1.05, *bounds])
    pad = 0.06 * (high - low)
    ticks: Json = {}
    if not load.is_numeric:
        count = len(load.values)
        ticks = {
            "tickvals": list(range(count)),
            "ticktext": [plain(text, width=36, line=11) for text in load.texts],
            "tickangle": 0 if count <= 6 else "auto",
            "range": [-0.4, count - 0.6],
        }
    return layout(
        axis(plain(load.title, width=60), showgrid=False, **ticks),
        axis("Speedup over autoregression (×)", range=[low - pad, high + pad]),
        height=380,
        shapes=[break_even()],
        annotations=[break_even_label()],
    )
