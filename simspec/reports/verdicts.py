"""Whether speculation pays, load by load, and where the closed form breaks even."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simspec.reports.data import Axis, Point, axis_cell, finite, has_axis
from simspec.reports.labels import metric
from simspec.reports.phrases import SPEEDUP
from simspec.reports.view import SweepView


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the best configuration does at one load."""

    position: int
    """Index on the load axis, 0 without one."""
    load: str
    point: Point | None
    """None when no configuration has a speedup there."""
    pays: bool | None
    """True: interval above 1. False: it reaches 1 or lies below, or nothing but autoregression
    has a result. None: unknown."""


def pays(point: Point) -> bool | None:
    """Return whether the point's speedup interval lies above 1, None without a speedup."""
    value = point.number(SPEEDUP)
    if value is None:
        return None
    interval = point.interval(SPEEDUP)
    return (interval[0] if interval is not None else value) > 1


def includes_one(point: Point) -> bool:
    """Return whether the interval of the speedup contains 1."""
    interval = point.interval(SPEEDUP)
    return interval is not None and interval[0] <= 1 <= interval[1]


def verdicts(
    view: SweepView,
    setting: Mapping[str, int] | None = None,
    *,
    configuration: Point | None = None,
) -> list[Verdict]:
    """Return the verdict at each load, smallest first.

    Parameters
    ----------
    view : SweepView
    setting : mapping, optional
        One of ``view.setting_choices()``; without it the best of all settings is taken.
    configuration : Point, optional
        Hold this point's configuration and setting fixed; otherwise the best one is chosen at
        each load.
    """
    found = []
    for position in range(view.num_loads):
        candidates = view.at_load(position, setting)
        if configuration is not None:
            candidates = [p for p in candidates if _same_but_load(view, p, configuration)]
        point = view.best(candidates, metric(SPEEDUP))
        verdict = pays(point) if point is not None else _lost(view, candidates)
        found.append(Verdict(position, view.load_text(position), point, verdict))
    return found


def _lost(view: SweepView, candidates: Sequence[Point]) -> bool | None:
    """Return False when only autoregression has a result under these conditions, else None."""
    if not candidates or any(p.is_ok for p in candidates):
        return None
    baselines = [view.data.baseline(p) for p in candidates]
    return False if any(b is not None and b.is_ok for b in baselines) else None


def _same_but_load(view: SweepView, a: Point, b: Point) -> bool:
    return all(
        axis.index(a.axis_value(axis)) == axis.index(b.axis_value(axis))
        for axis in view.varied
        if axis is not view.roles.load
    )


def best_curves(view: SweepView, best: Point) -> dict[str, list[tuple[float, float]]]:
    """Return (batch, speedup) of the best configuration, one curve per other condition.

    Keyed by the condition in words, empty when there is only one.
    """
    curves = view.data.curves
    known = {axis.field for axis in view.data.axes}
    extra = [
        name
        for name in ("context",)
        if name in curves[0] and name not in known and len({row[name] for row in curves}) > 1
    ]
    found: dict[str, list[tuple[float, float]]] = {}
    for row in curves:
        if not all(_matches(row, axis, best) for axis in view.data.axes):
            continue
        batch, speedup = finite(row.get("batch")), finite(row.get(SPEEDUP))
        if batch is None or speedup is None or batch <= 0:
            continue
        condition = ", ".join(f"{name} {row[name]} tokens" for name in extra)
        found.setdefault(condition, []).append((batch, speedup))
    return {condition: sorted(curve) for condition, curve in found.items()}


def _matches(row: Mapping[str, object], axis: Axis, best: Point) -> bool:
    if not has_axis(row, axis.field):
        return True
    return axis.index(axis_cell(row, axis.field)) == axis.index(best.axis_value(axis))


def break_even_batch(curve: Sequence[tuple[float, float]]) -> float | None:
    """Return the smallest batch at which a falling curve crosses 1, interpolated in log batch."""
    return next((batch for batch, rises in crossings(curve) if not rises), None)


def crossings(curve: Sequence[tuple[float, float]]) -> list[tuple[float, bool]]:
    """Return the batches at which a curve crosses 1, in order, and whether it rises there.

    It rises where a larger batch already reads every expert of a mixture in a plain step.
    """
    found = []
    for (b0, s0), (b1, s1) in itertools.pairwise(curve):
        if (s0 > 1) != (s1 > 1):
            share = (s0 - 1) / (s0 - s1)
            batch = math.exp(math.log(b0) + share * (math.log(b1) - math.log(b0)))
            found.append((batch, s1 > 1))
    return found
