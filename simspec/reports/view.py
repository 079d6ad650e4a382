"""Which axis plays which part, and the lookups every figure and sentence shares.

The heat map's plane is K by τ when the sweep varies both, else the two axes with most values
(numeric ones first). One axis may be the load. Every other axis with more than one value is a
selector. All figures share one selection, so choosing E = 4 in one of them chooses it in all.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from simspec.reports.data import METHOD, NAME_WIDTH, Axis, Point, SweepData
from simspec.reports.labels import Metric, method_title, metric, shorten, value_text
from simspec.reports.spec import Selector, view_key

DRAFT_LENGTH = "method.num_speculative_tokens"
THRESHOLD = "method.confidence_threshold"
EXIT_LAYER = "method.exit_layer"

METRIC = "metric"
"""Selector id of the metric."""
PER = "per"
"""Selector id of the round-time figure: per round or per token."""

DEFAULT_METRICS = (
    "speedup",
    "e2e_speedup",
    "tpot_ms",
    "ttft_ms",
    "throughput_tokens_per_s",
    "goodput_requests_per_s",
    "slo_attainment",
    "tokens_per_round",
    "drafted_per_round",
    "acceptance_rate",
    "wasted_draft_share",
    "e2e_ms",
    "itl_ms",
    "ttft_p95_ms",
    "tpot_p95_ms",
    "e2e_p95_ms",
    "queue_ms",
    "longest_gap_ms",
    "round_time_ms",
    "mean_batch_size",
    "busy_share",
    "kv_utilisation",
    "compute_utilisation",
    "bandwidth_utilisation",
    "network_share",
    "preemptions",
)
"""Order of the metric selector when the manifest names none of its own."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The part each axis plays. ``x`` and ``y`` span the heat map; ``pages`` are selectors."""

    x: Axis | None
    y: Axis | None
    load: Axis | None
    pages: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class SweepView:
    """A sweep with its roles, metrics and points by coordinates."""

    data: SweepData
    roles: Roles
    shown: tuple[Point, ...]
    """The points of the grid: the speculative ones, or all when there is nothing else."""
    metrics: tuple[Metric, ...]
    """Columns with a finite value somewhere; the first one ranks the points."""
    by_coordinates: Mapping[tuple[int | None, ...], Point]
    by_condition: Mapping[tuple[int | None, ...], Sequence[Point]]
    """Shown points by index on each setting and on the load (0 without a load axis)."""
    lean: bool = False
    """Leave out what a page with thousands of points has no room for."""

    @property
    def primary(self) -> Metric:
        """The metric that ranks the points."""
        return self.metrics[0]

    @property
    def varied(self) -> tuple[Axis, ...]:
        """Axes with more than one value."""
        return tuple(axis for axis in self.data.axes if len(axis.values) > 1)

    def coordinates(self, point: Point) -> tuple[int | None, ...]:
        """Return the point's index on each varied axis."""
        return tuple(axis.index(point.axis_value(axis)) for axis in self.varied)

    @property
    def conditions(self) -> tuple[Axis, ...]:
        """Varied axes that are not the method's."""
        return tuple(axis for axis in self.varied if not axis.field.startswith("method."))

    def best_by_condition(self) -> dict[str, tuple[dict[str, int], Point]]:
        """Return, by view key, each combination of conditions and the best point under it."""
        axes = self.conditions
        groups: dict[tuple[int | None, ...], list[Point]] = {}
        for point in self.shown:
            key = tuple(axis.index(point.axis_value(axis)) for axis in axes)
            groups.setdefault(key, []).append(point)
        found = {}
        for chosen in combinations(axes):
            best = self.best(groups.get(tuple(chosen.values()), ()))
            if best is not None:
                found[view_key(chosen.values())] = (chosen, best)
        return found

    def at(self, indices: Mapping[str, int]) -> Point | None:
        """Return the point at one index per varied axis, by field; None if there is none."""
        return self.by_coordinates.get(tuple(indices.get(axis.field) for axis in self.varied))

    def best(self, points: Iterable[Point], by: Metric | None = None) -> Point | None:
        """Return the point with the best value, None if no point has one."""
        rank = by or self.primary
        scored = [(value, p) for p in points if (value := p.number(rank.key)) is not None]
        if not scored:
            return None
        direction = rank.better or 1
        return max(scored, key=lambda item: direction * item[0])[1]

    def describe(self, point: Point, *, without: Sequence[Axis | None] = ()) -> str:
        """Return the point in words: ``Kangaroo, E = 2, K = 3, τ = 0.6, load: busy``."""
        skipped = {axis.field for axis in without if axis is not None}
        parts = [method_title(point.method)] if point.method else []
        for axis in self.data.axes:
            value = point.axis_value(axis)
            if axis.field in skipped or axis.field == METHOD or value is None:
                continue
            parts.append(axis.says(value))
        return ", ".join(parts) or "the only point"

    @property
    def settings(self) -> tuple[Axis, ...]:
        """Varied axes that are neither the method's nor the load: hardware, model, ...

        A speedup compares a setting with itself, so nothing is chosen across them.
        """
        return tuple(axis for axis in self.conditions if axis is not self.roles.load)

    def setting_choices(self) -> list[dict[str, int]]:
        """Return the combinations of settings that were run, by field; ``[{}]`` without any."""
        found = {key[:-1]: None for key in self.by_condition}
        fields = [axis.field for axis in self.settings]
        whole = (tuple(i for i in key if i is not None) for key in found)
        return [
            dict(zip(fields, key, strict=True)) for key in sorted(whole) if len(key) == len(fields)
        ]

    def setting_text(self, setting: Mapping[str, int]) -> str:
        """Return a combination of settings in words, empty without any."""
        return ", ".join(
            axis.says(axis.values[setting[axis.field]])
            for axis in self.settings
            if axis.field in setting
        )

    def at_load(self, position: int, setting: Mapping[str, int] | None = None) -> list[Point]:
        """Return the shown points at one load, under one setting or under all of them."""
        if setting is not None:
            key = (*(setting[axis.field] for axis in self.settings), position)
            return list(self.by_condition.get(key, ()))
        groups = (points for key, points in self.by_condition.items() if key[-1] == position)
        return [point for points in groups for point in points]

    @property
    def num_loads(self) -> int:
        """Loads of the sweep; 1 without a load axis."""
        return len(self.roles.load.values) if self.roles.load is not None else 1

    def load_text(self, position: int) -> str:
        """Return the name of a load."""
        if self.roles.load is None:
            return ""
        return shorten(value_text(self.roles.load.values[position]), NAME_WIDTH)


def sweep_view(data: SweepData) -> SweepView:
    """Assign the roles and index the points of a sweep."""
    shown = tuple(point for point in data.points if not point.is_baseline) or data.points
    data = _with_ordered_load(data)
    roles = _roles(data.axes)
    metrics = _metrics(data, shown)
    view = SweepView(data, roles, shown, metrics, {}, {})
    by_coordinates = {view.coordinates(point): point for point in shown}
    by_condition: dict[tuple[int | None, ...], list[Point]] = {}
    settings, load = view.settings, roles.load
    for point in shown:
        position = load.index(point.axis_value(load)) if load is not None else 0
        key = (*(axis.index(point.axis_value(axis)) for axis in settings), position)
        by_condition.setdefault(key, []).append(point)
    return dataclasses.replace(view, by_coordinates=by_coordinates, by_condition=by_condition)


def axis_selectors(view: SweepView, best: Point | None) -> list[Selector]:
    """Return one selector per varied axis, set to the best point."""
    found = []
    for axis in view.varied:
        index = axis.index(best.axis_value(axis)) if best is not None else 0
        texts = tuple(
            method_title(str(value)) if axis.field == METHOD and value is not None else text
            for value, text in zip(axis.values, axis.texts, strict=True)
        )
        found.append(Selector(axis.field, axis.label, texts, index or 0))
    return found


def series_axis(view: SweepView, among: Sequence[Axis], limit: int) -> Axis | None:
    """Return the axis to draw one line per value of: E if it varies, else a selector axis."""
    ranked = sorted(
        among, key=lambda axis: (axis.field != EXIT_LAYER, axis not in view.roles.pages)
    )
    usable = [axis for axis in ranked if 1 < len(axis.values) <= limit]
    return usable[0] if usable and usable[0] in view.roles.pages else None


def combinations(axes: Sequence[Axis]) -> list[dict[str, int]]:
    """Return every combination of indices on some axes, by field."""
    ranges = (range(len(axis.values)) for axis in axes)
    fields = [axis.field for axis in axes]
    return [dict(zip(fields, indices, strict=True)) for indices in itertools.product(*ranges)]


def _roles(axes: Sequence[Axis]) -> Roles:
    varied = [axis for axis in axes if len(axis.values) > 1]
    load = next((axis for axis in axes if _is_load(axis)), None)
    free = [axis for axis in varied if axis is not load]
    x, y = _plane(free, [] if load is None or load not in varied else [load])
    if x is None and axes:
        x = axes[0]
    pages = tuple(axis for axis in varied if axis is not x and axis is not y)
    return Roles(x, y, load, pages)


def _is_load(axis: Axis) -> bool:
    return axis.field == "load" or axis.field.startswith("workload.arrivals")


def _plane(free: Sequence[Axis], spare: Sequence[Axis]) -> tuple[Axis | None, Axis | None]:
    by_field = {axis.field: axis for axis in free}
    if DRAFT_LENGTH in by_field and THRESHOLD in by_field:
        return by_field[DRAFT_LENGTH], by_field[THRESHOLD]
    ranked = sorted(free, key=lambda axis: (not axis.is_numeric, -len(axis.values)))
    ranked.extend(spare)
    return (ranked[0] if ranked else None, ranked[1] if len(ranked) > 1 else None)


def _metrics(data: SweepData, shown: Sequence[Point]) -> tuple[Metric, ...]:
    listed = data.manifest.get("metrics")
    named = [str(key) for key in listed] if isinstance(listed, list) else []
    keys = list(dict.fromkeys([*DEFAULT_METRICS, *named]))
    found = [metric(key) for key in keys if any(p.number(key) is not None for p in shown)]
    return tuple(found) or (metric(named[0] if named else "tpot_ms"),)


def _with_ordered_load(data: SweepData) -> SweepData:
    """Order the loads by the batch they lead to, where autoregression tells it for all of them.

    Labels such as ``busy`` have no order of their own, and "the smallest load at which" needs one.
    """
    axis = next((axis for axis in data.axes if _is_load(axis)), None)
    if axis is None:
        return data
    if axis.is_numeric:
        ordered = tuple(sorted(axis.values, key=lambda value: float(value or 0)))
    else:
        sizes = [_mean_batch(data, axis, value) for value in axis.values]
        if any(size is None for size in sizes):
            return data
        pairs = sorted(zip(sizes, range(len(sizes)), strict=True), key=lambda pair: pair[0] or 0)
        ordered = tuple(axis.values[position] for _, position in pairs)
    replaced = Axis(axis.field, axis.given_label, ordered)
    axes = tuple(replaced if known is axis else known for known in data.axes)
    return dataclasses.replace(data, axes=axes)


def _mean_batch(data: SweepData, axis: Axis, value: object) -> float | None:
    sizes = [
        size
        for point in data.baselines
        if point.axis_value(axis) == value and (size := point.number("mean_batch_size")) is not None
    ]
    return sum(sizes) / len(sizes) if sizes else None
