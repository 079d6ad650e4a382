"""Heat map over the two main axes of a sweep, K by τ in the main one.

Cells are equally wide whatever the axis values, so the drawing works in cell indices. The page
writes the values into the cells, in whichever ink reads best on each (``meta.number`` says in
which format). Cells
without results are hatched and say why; the best cell is outlined; a small ring marks a speedup
whose 95% interval includes 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from simspec.reports.data import Axis, Point
from simspec.reports.labels import Metric, plain
from simspec.reports.phrases import ratio_text, tpot_text
from simspec.reports.spec import FigureSpec, Json, Layer, Selector, compact, view_key
from simspec.reports.theme import DIVERGING, SEQUENTIAL, axis, layout
from simspec.reports.verdicts import includes_one
from simspec.reports.view import METRIC, SweepView, combinations

HEATMAP, HATCH, STATUS, RINGS, BEST, CHOSEN = range(6)
"""Order of the traces."""

_VALUE_PATHS = (
    f"data.{HEATMAP}.z",
    f"data.{HEATMAP}.zmin",
    f"data.{HEATMAP}.zmax",
    f"data.{HEATMAP}.customdata",
    f"data.{BEST}.x",
    f"data.{BEST}.y",
    f"data.{RINGS}.x",
    f"data.{RINGS}.y",
    "caption",
)
CELL_DIGITS = 7
"""Significant digits of a cell, so that it rounds as the same number in a sentence does."""
_STATUS_WORDS = {"unstable": "unstable", "does_not_fit": "does not fit", "refused": "refused"}


def figure(view: SweepView) -> FigureSpec | None:
    """Return the heat map, None when the sweep has no axis to draw."""
    x, y = view.roles.x, view.roles.y
    if x is None:
        return None
    pages = view.roles.pages
    selector = Selector(METRIC, "Metric", tuple(m.label for m in view.metrics))
    spec = FigureSpec(
        name="tau_vs_k",
        title=f"{view.primary.label}: {y.label} against {x.label}" if y else x.label,
        base=_base(x, y),
        picks={a.field: d for a, d in ((x, "x"), (y, "y")) if a and len(a.values) > 1},
        selectors=(selector,),
    )
    spec.layers.append(_metric_layer(view))
    grids = {view_key(page.values()): _grid(view, page) for page in combinations(pages)}
    grids = {key: grid for key, grid in grids.items() if any(p for row in grid for p in row)}
    fields = tuple(page.field for page in pages)
    spec.layers.append(Layer(fields, {key: _cells(view, grid) for key, grid in grids.items()}))
    spec.layers.append(_value_layer(view, fields, grids))
    spec.layers.extend(_chosen_layer(x, y))
    return spec


Grid = list[list[Point | None]]


def _base(x: Axis, y: Axis | None) -> Json:
    rows = len(y.values) if y else 1
    return {
        "data": [_heatmap(x, y), *_marks()],
        "layout": layout(
            _cell_axis(x),
            _cell_axis(y),
            height=110 + rows * max(26, min(58, 420 // rows)),
        ),
    }


def _heatmap(x: Axis, y: Axis | None) -> Json:
    return {
        "type": "heatmap",
        "x": list(range(len(x.values))),
        "y": list(range(len(y.values) if y else 1)),
        "meta": {
            "x": [plain(x.says(value)) for value in x.values],
            "y": [plain(y.says(value)) for value in y.values] if y else [""],
        },
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
        "colorbar": {
            "thickness": 10,
            "outlinewidth": 0,
            "ticks": "",
            "len": 1,
            "title": {"side": "top", "font": {"size": 13, "color": "@muted"}},
            "tickfont": {"size": 12, "color": "@muted"},
        },
    }


def _marks() -> list[Json]:
    """Return the empty traces over the cells, in the order of the constants above."""
    hidden = {"type": "scatter", "showlegend": False, "x": [], "y": []}
    outline = {**hidden, "mode": "lines", "hoverinfo": "skip", "cliponaxis": False}
    hatch = {
        **hidden,
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": "rgba(0,0,0,0)",
        "fillpattern": {"shape": "/", "fgcolor": "@hatch", "size": 7, "solidity": 0.12},
        "hoverinfo": "skip",
    }
    status = {
        **hidden,
        "mode": "text",
        "textfont": {"size": 12, "color": "@muted"},
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    ring = {"symbol": "circle-open", "size": 7, "color": "@ink", "line": {"width": 1.5}}
    return [
        hatch,
        status,
        {**hidden, "mode": "markers", "hoverinfo": "skip", "marker": ring},
        {**outline, "line": {"color": "@ink", "width": 3}},
        {**outline, "line": {"color": "@ink", "width": 1.5, "dash": "dot"}},
    ]


def _cell_axis(values: Axis | None) -> Json:
    count = len(values.values) if values else 1
    return axis(
        plain(values.title, width=60) if values else "",
        tickvals=list(range(count)),
        ticktext=_tick_texts(values) if values else [""],
        range=[-0.5, count - 0.5],
        showgrid=False,
    )


def _tick_texts(values: Axis) -> list[str]:
    return [plain(text, width=24, line=14) for text in values.texts]


def _metric_layer(view: SweepView) -> Layer:
    views: dict[str, Json] = {}
    for index, shown in enumerate(view.metrics):
        has_interval = _has_intervals(view, shown)
        value = f"%{{z:{shown.d3_format}}}"
        interval = "<br>95% interval %{customdata}" if has_interval else ""
        unit = plain(shown.suffix)
        views[view_key([index])] = {
            "data": {
                str(HEATMAP): {
                    "colorscale": DIVERGING if shown.number == "ratio" else SEQUENTIAL,
                    "reversescale": shown.better < 0,
                    "meta": {"number": shown.number},
                    "hovertemplate": f"<b>{plain(shown.label)} {value}{unit}</b>{interval}"
                    "<br>%{text}<extra></extra>",
                    "colorbar": {
                        "title": {"text": plain(shown.unit, width=24, line=12)},
                        "tickformat": ".0%" if shown.number == "share" else "",
                    },
                }
            }
        }
    return Layer((METRIC,), views)


def _grid(view: SweepView, page: dict[str, int]) -> Grid:
    x, y = view.roles.x, view.roles.y
    assert x is not None
    fixed = dict(page)
    rows: Grid = []
    for j in range(len(y.values) if y else 1):
        if y is not None and len(y.values) > 1:
            fixed[y.field] = j
        row: list[Point | None] = []
        for i in range(len(x.values)):
            if len(x.values) > 1:
                fixed[x.field] = i
            row.append(view.at(fixed))
        rows.append(row)
    return rows


def _cells(view: SweepView, grid: Grid) -> Json:
    """Return what does not depend on the metric: times in words, hatching and status texts."""
    hatch_x: list[float | None] = []
    hatch_y: list[float | None] = []
    text_x, text_y, texts, reasons = [], [], [], []
    for j, row in enumerate(grid):
        for i, point in enumerate(row):
            if point is not None and point.is_ok:
                continue
            xs, ys = _rectangle(i, j, 0.47)
            hatch_x += [*xs, None]
            hatch_y += [*ys, None]
            text_x.append(i)
            text_y.append(j)
            texts.append(_status_word(point))
            reasons.append(_status_hover(view, point))
    pairs: Json = {}
    if not view.lean and view.data.baselines:
        words = [[_pair(view, point) for point in row] for row in grid]
        pairs = {str(HEATMAP): {"text": words}}
    return {
        "data": {
            **pairs,
            str(HATCH): {"x": hatch_x, "y": hatch_y},
            str(STATUS): {"x": text_x, "y": text_y, "text": texts, "customdata": reasons},
        }
    }


def _status_word(point: Point | None) -> str:
    if point is None:
        return "not run"
    return _STATUS_WORDS.get(point.status, plain(point.status.replace("_", " "), width=14))


def _status_hover(view: SweepView, point: Point | None) -> str:
    if point is None:
        return "Not part of this sweep"
    reason = plain(point.reason or "no reason given", width=240, line=56)
    return f"<b>{_status_word(point).capitalize()}</b><br>{_short_name(view, point)}<br>{reason}"


def _short_name(view: SweepView, point: Point) -> str:
    return plain(view.describe(point, without=view.roles.pages), width=120)


def _pair(view: SweepView, point: Point | None) -> str:
    return plain(tpot_text(view, point)) if point is not None and point.is_ok else ""


def _value_layer(view: SweepView, fields: tuple[str, ...], grids: dict[str, Grid]) -> Layer:
    views: dict[str, list[object]] = {}
    for index, shown in enumerate(view.metrics):
        overall = _span(shown, list(grids.values()))
        for key, grid in grids.items():
            span = overall if shown.number == "ratio" else _span(shown, [grid])
            name = f"{key},{index}" if fields else str(index)
            views[name] = _values(view, shown, grid, span)
    return Layer((*fields, METRIC), views, _VALUE_PATHS)


def _values(view: SweepView, shown: Metric, grid: Grid, span: tuple[float, float]) -> list[object]:
    """Return the values of ``_VALUE_PATHS`` for one metric of one page."""
    best = view.best([p for row in grid for p in row if p is not None], shown)
    corner = _position(grid, best) if best is not None and shown.better != 0 else None
    intervals: list[list[str]] = []
    if _has_intervals(view, shown):
        intervals = [[_interval(shown, p) for p in row] for row in grid]
    ringed = [
        (i, j)
        for j, row in enumerate(grid)
        for i, p in enumerate(row)
        if shown.key == "speedup" and p is not None and includes_one(p)
    ]
    return [
        [[compact(p.number(shown.key), CELL_DIGITS) if p else None for p in row] for row in grid],
        span[0],
        span[1],
        intervals,
        *(_rectangle(*corner, 0.492) if corner is not None else ([], [])),
        [i + 0.38 for i, _ in ringed],
        [j + 0.3 for _, j in ringed],
        _caption(view, shown, best),
    ]


def _has_intervals(view: SweepView, shown: Metric) -> bool:
    if view.lean and shown is not view.primary:
        return False
    return any(p.interval(shown.key) is not None for p in view.shown)


def _interval(shown: Metric, point: Point | None) -> str:
    interval = point.interval(shown.key) if point is not None else None
    if interval is None:
        return "unknown"
    return "–".join(shown.text(bound, unit=False) for bound in interval)


def _caption(view: SweepView, shown: Metric, best: Point | None) -> str:
    if best is None:
        return "No point has a value here."
    name = view.describe(best, without=view.roles.pages)
    if shown.key == "speedup":
        pair = tpot_text(view, best)
        return f"Best here: {name}, {ratio_text(best)}{f', {pair}' if pair else ''}."
    value = shown.text(best.number(shown.key))
    baseline = view.data.baseline(best)
    theirs = baseline.number(shown.key) if baseline is not None else None
    against = f"; autoregression: {shown.text(theirs)}" if theirs is not None else ""
    if shown.better == 0:
        return f"Highest here: {name}, {value}{against}."
    word = "more" if shown.better > 0 else "less"
    return f"Best here ({word} is better): {name}, {value}{against}."


def _position(grid: Grid, wanted: Point) -> tuple[int, int]:
    return next(
        (i, j) for j, row in enumerate(grid) for i, point in enumerate(row) if point is wanted
    )


def _rectangle(i: float, j: float, half: float) -> tuple[list[float], list[float]]:
    west, east, south, north = i - half, i + half, j - half, j + half
    return [west, east, east, west, west], [south, south, north, north, south]


def _outline(i: float, j: float) -> Json:
    xs, ys = _rectangle(i, j, 0.492)
    return {"x": xs, "y": ys}


def _span(shown: Metric, grids: Sequence[Grid]) -> tuple[float, float]:
    """Return the colour range: symmetric about 1 for ratios, else from least to most."""
    values = [
        value
        for grid in grids
        for row in grid
        for p in row
        if p is not None and (value := p.number(shown.key)) is not None
    ]
    if not values:
        return (0.0, 1.0)
    if shown.number == "ratio":
        reach = max(0.05, *(abs(value - 1) for value in values))
        return (1 - reach, 1 + reach)
    low, high = min(values), max(values)
    if low == high:
        pad = abs(low) * 0.05 or 0.5
        return (low - pad, high + pad)
    return (low, high)


def _chosen_layer(x: Axis, y: Axis | None) -> list[Layer]:
    """Return the dotted outline of the cell the figures below follow."""
    axes = [a for a in (x, y) if a is not None and len(a.values) > 1]
    if not axes:
        return []
    views: dict[str, Json] = {}
    for indices in combinations(axes):
        i = indices.get(x.field, 0)
        j = indices.get(y.field, 0) if y is not None else 0
        views[view_key(indices.values())] = {"data": {str(CHOSEN): _outline(i, j)}}
    return [Layer(tuple(a.field for a in axes), views)]
