"""Where a round's time goes, beside one autoregressive step under the same load.

Stacked bars of the parts the simulation records per round, in milliseconds, or divided by the
tokens a round yields. What the parts do not explain of the measured round is shown as "other"
when it is more than one per cent.
"""

from __future__ import annotations

from collections.abc import Sequence

from simspec.reports.data import Axis, Point
from simspec.reports.labels import metric, visible
from simspec.reports.spec import FigureSpec, Json, Layer, Selector, compact_all, view_key
from simspec.reports.theme import axis, layout
from simspec.reports.view import PER, SweepView, combinations

PARTS = (
    ("time_draft_ms", "Draft", "@draft", "@onpart"),
    ("time_verify_ms", "Verify or decode", "@verify", "@onverify"),
    ("time_prefill_ms", "Prefill riding along", "@prefill", "@onpart"),
    ("time_host_ms", "Host", "@host", "@onpart"),
)
"""Column, name, fill and ink of each part, in the order they are stacked."""
OTHER_SHARE = 0.01
_PER_ROUND, _PER_TOKEN = 0, 1


def figure(view: SweepView) -> FigureSpec | None:
    """Return the figure, None when no point records the parts of a round."""
    if not any(view.data.has(key) for key, *_ in PARTS):
        return None
    has_other = any(parts_ms(point)[-1] is not None for point in view.data.points)
    spec = FigureSpec(
        name="round_time",
        title="Where the round's time goes",
        base=_base(view, has_other=has_other),
        selectors=(Selector(PER, "Show", ("per round", "per token")),),
    )
    words: dict[str, list[object]] = {}
    numbers: dict[str, list[object]] = {}
    num_parts = len(PARTS) + has_other
    axes, points = _points(view)
    for key, point in points.items():
        baseline = view.data.baseline(point)
        words[key] = [_words(view, point, baseline)]
        for per in (_PER_ROUND, _PER_TOKEN):
            name = f"{key},{per}" if axes else str(per)
            sides = (baseline, point) if _is_pair(view) else (point,)
            numbers[name] = _numbers(sides, per, num_parts)
    fields = tuple(a.field for a in axes)
    paths = tuple(f"data.{i}.x" for i in range(num_parts))
    spec.layers.append(Layer(fields, words, ("caption",)))
    spec.layers.append(Layer((*fields, PER), numbers, paths))
    spec.layers.append(_title_layer())
    return spec


def _points(view: SweepView) -> tuple[tuple[Axis, ...], dict[str, Point]]:
    """Return the selecting axes and the point of each selection.

    A lean page offers the best point under each condition, a full one every point.
    """
    if view.lean:
        return view.conditions, {k: best for k, (_, best) in view.best_by_condition().items()}
    found = {view_key(i.values()): view.at(i) for i in combinations(view.varied)}
    return view.varied, {key: point for key, point in found.items() if point is not None}


def _base(view: SweepView, *, has_other: bool) -> Json:
    rows = ["Autoregression", "Speculation"] if _is_pair(view) else ["Autoregression"]
    parts = [(name, colour, ink) for _, name, colour, ink in PARTS]
    if has_other:
        parts.append(("Other", "@line", "@ink"))
    traces: list[Json] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": [],
            "y": rows,
            "marker": {"color": colour, "line": {"color": "@card", "width": 1.5}},
            "texttemplate": "%{x:.3r}",
            "textposition": "inside",
            "insidetextanchor": "middle",
            "constraintext": "inside",
            "textangle": 0,
            "insidetextfont": {"color": ink, "size": 13},
            "hovertemplate": f"<b>{name}: %{{x:.3r}} ms</b><br>%{{y}}<extra></extra>",
        }
        for name, colour, ink in parts
    ]
    return {
        "data": traces,
        "layout": layout(
            axis("Time (ms)", rangemode="tozero"),
            axis("", showgrid=False),
            height=260,
            barmode="stack",
            bargap=0.3,
            legend={"traceorder": "normal"},
            uniformtext={"minsize": 10, "mode": "hide"},
        ),
    }


def _title_layer() -> Layer:
    titles = ("Time of one round (ms)", "Time per token (ms)")
    return Layer(
        (PER,),
        {
            str(per): {"layout": {"xaxis": {"title": {"text": title}}}}
            for per, title in enumerate(titles)
        },
    )


def parts_ms(point: Point) -> list[float | None]:
    """Return draft, verify, prefill, host and other time of a round in milliseconds."""
    found = [point.number(key) for key, *_ in PARTS]
    total = point.number("round_time_ms")
    rest = None if total is None else total - sum(part or 0 for part in found)
    other = rest if total and rest is not None and rest > OTHER_SHARE * total else None
    return [*found, other]


def _is_pair(view: SweepView) -> bool:
    """Return whether there is speculation to show beside autoregression."""
    return any(not point.is_baseline for point in view.shown)


def _numbers(sides: Sequence[Point | None], per: int, num_parts: int) -> list[object]:
    columns: list[list[float | None]] = []
    for row in sides:
        parts = parts_ms(row)[:num_parts] if row is not None else [None] * num_parts
        tokens = row.number("tokens_per_round") if row is not None else None
        scale = tokens if per == _PER_TOKEN and tokens else 1.0
        # A zero part is left out: it would print a label on nothing.
        columns.append([part / scale if part else None for part in parts])
    return [compact_all(pair) for pair in zip(*columns, strict=True)]


def _words(view: SweepView, point: Point, baseline: Point | None) -> str:
    if not point.is_ok:
        return f"No result: {visible(point.status.replace('_', ' '))}."
    shown = metric("round_time_ms")
    total, tokens = _total_ms(point), point.number("tokens_per_round")
    if point.is_baseline:
        return f"A step takes {shown.text(total)} and yields one token of each sequence."
    words = f"A round takes {shown.text(total)}"
    if view.lean:
        words = f"Best: {view.describe(point)}. {words}"
    if total is not None and tokens:
        words += f" and yields {tokens:.2f} tokens, {shown.text(total / tokens)} per token"
    step = _total_ms(baseline) if baseline is not None else None
    if step is not None:
        words += f"; an autoregressive step takes {shown.text(step)} for one"
    return words + "."


def _total_ms(point: Point) -> float | None:
    total = point.number("round_time_ms")
    if total is not None:
        return total
    known = [part for part in parts_ms(point) if part is not None]
    return sum(known) if known else None
