"""The best configuration and autoregression at each load: one table, for terminal and page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simspec.reports.data import Point
from simspec.reports.labels import Metric, metric, visible
from simspec.reports.view import SweepView

_HEADS = {
    "tpot_ms": "TPOT ms",
    "ttft_ms": "TTFT ms",
    "throughput_tokens_per_s": "tokens/s",
    "goodput_requests_per_s": "goodput req/s",
}
"""Metrics shown, where the sweep has them, and how their columns are called."""


@dataclass(frozen=True, slots=True)
class LoadRow:
    """A line of the table; ``point`` is None where no configuration has a result."""

    cells: Sequence[str]
    point: Point | None


@dataclass(frozen=True, slots=True)
class LoadTable:
    """Lines by setting and load: the best configuration, then autoregression beside it.

    The first ``num_leads`` columns say under which setting and load, the first ``num_text``
    hold text; the others hold numbers.
    """

    heads: Sequence[str]
    num_leads: int
    num_text: int
    rows: Sequence[LoadRow]


def load_table(view: SweepView) -> LoadTable:
    """Return the best configuration and autoregression, load by load, smallest load first."""
    load = view.roles.load
    metrics = [metric(key) for key in _HEADS if view.data.has(key)]
    has_speedup = view.data.has("speedup")
    leads = [axis.label for axis in view.settings] + ([load.label] if load is not None else [])
    heads = [*leads, "Configuration", *(["Speedup (95% interval)"] if has_speedup else [])]
    heads += [_HEADS[m.key] for m in metrics]
    rows: list[LoadRow] = []
    for setting in view.setting_choices():
        for position in range(view.num_loads):
            lead = [axis.texts[setting[axis.field]] for axis in view.settings]
            lead += [view.load_text(position)] if load is not None else []
            points = view.at_load(position, setting)
            for row in _rows(view, points, metrics, has_speedup=has_speedup):
                cells = [*lead, *row.cells]
                cells += [""] * (len(heads) - len(cells))
                rows.append(LoadRow(cells, row.point))
    return LoadTable(heads, len(leads), len(leads) + 1, rows)


def _rows(
    view: SweepView, candidates: Sequence[Point], metrics: Sequence[Metric], *, has_speedup: bool
) -> Iterator[LoadRow]:
    best = view.best(candidates)
    if best is None:
        yield LoadRow([_why_empty(candidates)], None)
        return
    for point in (best, view.data.baseline(best)):
        if point is None:
            continue
        cells = [view.describe(point, without=[*view.settings, view.roles.load])]
        if has_speedup:
            cells.append("" if point.is_baseline else _speedup(point))
        cells += [m.text(point.number(m.key), unit=False) for m in metrics]
        yield LoadRow(cells, point)


def _speedup(point: Point) -> str:
    ratio = metric("speedup")
    interval = point.interval("speedup")
    text = ratio.text(point.number("speedup"))
    if interval is None:
        return text
    return f"{text} ({'–'.join(ratio.text(bound, unit=False) for bound in interval)})"


def _why_empty(points: Sequence[Point]) -> str:
    statuses = sorted({point.status.replace("_", " ") for point in points})
    return f"no result ({', '.join(visible(status) for status in statuses)})"
