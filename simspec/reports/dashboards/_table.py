"""The tables of a page: all points (sortable with JavaScript), and the best at each load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simspec.reports.by_load import load_table
from simspec.reports.data import METHOD, Axis, Point
from simspec.reports.labels import Metric, method_title, shorten, value_text, visible
from simspec.reports.phrases import listed
from simspec.reports.view import SweepView

MAX_ROWS = 1000
MAX_BEST_ROWS = 400
COLUMNS = (
    "speedup",
    "tpot_ms",
    "ttft_ms",
    "e2e_ms",
    "throughput_tokens_per_s",
    "goodput_requests_per_s",
    "tokens_per_round",
    "acceptance_rate",
)
"""Metrics shown, where the sweep has them."""
_HEADS = {
    "speedup": "Speedup (×)",
    "tpot_ms": "TPOT (ms)",
    "ttft_ms": "TTFT (ms)",
    "e2e_ms": "E2E (ms)",
    "acceptance_rate": "Acceptance rate",
}
_WITH_INTERVAL = {"speedup", "tpot_ms", "ttft_ms"}


@dataclass(frozen=True, slots=True)
class Column:
    """A head of the table."""

    title: str
    numeric: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """Text and a second line; numbers stand to the right and sort as numbers."""

    text: str
    small: str = ""
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a point and its class: ``best``, ``baseline`` or ``failed``."""

    cells: Sequence[Cell]
    mark: str


@dataclass(frozen=True, slots=True)
class Table:
    """Everything the template needs."""

    note: str
    columns: Sequence[Column]
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class BestTable:
    """The best configurations; the first ``num_heads`` cells of a row are its heads."""

    title: str
    num_heads: int
    table: Table


def best_table(view: SweepView) -> BestTable:
    """Return the summary's table of the best configuration at each load, as the page shows it."""
    found = load_table(view)
    columns = [Column(head, i >= found.num_text) for i, head in enumerate(found.heads)]
    rows = []
    for row in found.rows[:MAX_BEST_ROWS]:
        cells = [Cell(text, is_text=i < found.num_text) for i, text in enumerate(row.cells)]
        is_beside = row.point is not None and row.point.is_baseline
        rows.append(Row(cells, "failed" if row.point is None else "baseline" if is_beside else ""))
    note = "Means over replications; below each, autoregression under the same load."
    if not any(row.mark == "baseline" for row in rows):
        note = "Means over replications."
    if len(found.rows) > MAX_BEST_ROWS:
        note += f" The first {MAX_BEST_ROWS} of {len(found.rows):,} rows."
    title = "Best configuration"
    if view.num_loads > 1:
        title = "Best at each load"
    elif view.settings:
        title = "Best of each " + listed([axis.label.lower() for axis in view.settings])
    return BestTable(title, max(1, found.num_leads), Table(note, columns, rows))


def points_table(view: SweepView) -> Table:
    """Return the table, best point first, then by the primary metric."""
    axes = [axis for axis in view.varied if axis.field != METHOD]
    has_method = any(point.method for point in view.data.points)
    metrics = [m for m in view.metrics if m.key in COLUMNS]
    columns = [Column("Method", False)] if has_method else []
    columns += [Column(_axis_head(axis), axis.is_numeric) for axis in axes]
    columns += [Column(_HEADS.get(m.key, m.title), True) for m in metrics]
    columns.append(Column("Status", False))
    best = view.best(view.shown)
    ordered = _ordered(view)
    rows = [
        _row(view, point, best, axes, metrics, has_method=has_method)
        for point in ordered[:MAX_ROWS]
    ]
    total = len(ordered)
    note = f"{total:,} points, best first; small print is the 95% interval."
    if total > MAX_ROWS:
        note = (
            f"The best {MAX_ROWS:,} of {total:,} points; small print is the 95% interval. "
            "All of them are in points.parquet."
        )
    return Table(note, columns, rows)


def _axis_head(axis: Axis) -> str:
    return axis.symbol if len(axis.symbol) == 1 else axis.label


def _ordered(view: SweepView) -> list[Point]:
    rank = view.primary
    direction = rank.better or 1

    def key(point: Point) -> tuple[bool, float]:
        value = point.number(rank.key)
        return (value is None, -direction * value if value is not None else 0.0)

    return sorted(view.data.points, key=key)


def _row(
    view: SweepView,
    point: Point,
    best: Point | None,
    axes: Sequence[Axis],
    metrics: Sequence[Metric],
    *,
    has_method: bool,
) -> Row:
    cells = []
    if has_method:
        cells.append(Cell(shorten(method_title(point.method), 80), is_text=True))
    cells += [_axis_cell(point, axis) for axis in axes]
    cells += [_metric_cell(point, shown) for shown in metrics]
    status = visible(point.status.replace("_", " "))
    reason = shorten(visible(point.reason), 90) if not point.is_ok else ""
    cells.append(Cell(status, reason, is_text=True))
    mark = "failed" if not point.is_ok else "baseline" if point.is_baseline else ""
    return Row(cells, "best" if point is best else mark)


def _axis_cell(point: Point, axis: Axis) -> Cell:
    value = point.axis_value(axis)
    return Cell(shorten(value_text(value), 80), is_text=not axis.is_numeric)


def _metric_cell(point: Point, shown: Metric) -> Cell:
    value = point.number(shown.key)
    interval = point.interval(shown.key) if shown.key in _WITH_INTERVAL else None
    small = "–".join(shown.text(b, unit=False) for b in interval) if interval else ""
    return Cell(shown.text(value, unit=shown.number == "ratio"), small)
