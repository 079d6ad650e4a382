"""Parts of sentences about points: ratios with their interval, both times, which points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simspec.reports.data import NAME_WIDTH, Point, finite
from simspec.reports.labels import metric, shorten, value_text
from simspec.reports.view import SweepView

SPEEDUP = "speedup"


def ratio_text(point: Point) -> str:
    """Return ``1.62× (95% interval 1.58–1.66)``."""
    ratio = metric(SPEEDUP)
    text = ratio.text(point.number(SPEEDUP))
    interval = point.interval(SPEEDUP)
    if interval is None:
        return f"{text} (no interval: it needs at least two replications)"
    low, high = (ratio.text(bound, unit=False) for bound in interval)
    return f"{text} (95% interval {low}–{high})"


def tpot_text(view: SweepView, point: Point) -> str:
    """Return ``7.10 ms per token instead of 11.5 ms``, empty when unknown."""
    baseline = view.data.baseline(point)
    mine = point.number("tpot_ms")
    theirs = baseline.number("tpot_ms") if baseline is not None else None
    if mine is None or theirs is None:
        return ""
    shown = metric("tpot_ms")
    return f"{shown.text(mine)} per token instead of {shown.text(theirs)}"


def slo_text(slo: object) -> str:
    """Return the latency targets in words: ``TTFT ≤ 500 ms and TPOT ≤ 50 ms``."""
    if not isinstance(slo, Mapping):
        return ""
    names = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "E2E latency"}
    parts = [
        f"{name} ≤ {value:g} ms"
        for key, name in names.items()
        if (value := finite(slo.get(key))) is not None
    ]
    return " and ".join(parts)


def describe_subset(view: SweepView, points: Sequence[Point]) -> str:
    """Return which points these are: the axes on which they do not cover every value."""
    speculative = [p for p in points if not p.is_baseline]
    parts = []
    for axis in view.varied:
        indices = {axis.index(p.axis_value(axis)) for p in points}
        indices.discard(None)
        if indices and len(indices) < len(axis.values):
            chosen = [axis.values[i] for i in sorted(i for i in indices if i is not None)]
            names = ", ".join(shorten(value_text(value), NAME_WIDTH) for value in chosen[:6])
            more = f" and {len(chosen) - 6} more" if len(chosen) > 6 else ""
            sign = " = " if axis.is_numeric else ": "
            parts.append(f"{axis.symbol}{sign}{names}{more}")
    kinds = []
    if speculative and len(speculative) < len(points):
        kinds.append(f"{len(points) - len(speculative)} of them autoregressive")
    elif not speculative:
        kinds.append("autoregressive")
    subject = f"{count(len(points), 'point')}"
    return f"{subject} ({'; '.join([*parts, *kinds])})" if parts or kinds else subject


def with_pair(view: SweepView, point: Point) -> str:
    """Return the ratio with its interval and, where known, both times."""
    pair = tpot_text(view, point)
    return f"{ratio_text(point)}, {pair}" if pair else ratio_text(point)


def upper(point: Point) -> float:
    """Return the upper end of the speedup's interval, its mean without one."""
    interval = point.interval(SPEEDUP)
    return interval[1] if interval is not None else point.number(SPEEDUP) or 0.0


def interval_text(point: Point, key: str) -> str:
    """Return `` (95% interval 6.98–7.22)``, empty when there is none."""
    interval = point.interval(key)
    if interval is None:
        return ""
    low, high = (metric(key).text(bound, unit=False) for bound in interval)
    return f" (95% interval {low}–{high})"


def listed(names: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    if len(names) < 2:
        return "".join(names) or "this load"
    return ", ".join(names[:-1]) + " and " + names[-1]


def count(number: int, noun: str) -> str:
    """Return ``1 point`` or ``1,200 points``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
