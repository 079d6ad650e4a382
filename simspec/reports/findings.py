"""What a sweep says, in words.

Every sentence names the configuration and its 95% interval, and puts the milliseconds of both
sides beside a ratio. "Pays" means the interval of the speedup lies above 1 altogether; "stops
paying" is the smallest load or batch at which it no longer does. The best of many points is
picked by its mean, which flatters it; the sentence says out of how many it was picked.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from simspec.reports.data import NAME_WIDTH, Axis, Point, finite
from simspec.reports.labels import metric, shorten, value_text, visible
from simspec.reports.view import SweepView

Tone = Literal["good", "bad", "neutral"]

SPEEDUP = "speedup"


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement: a few words to scan and the sentence that carries the numbers."""

    kind: str
    headline: str
    text: str
    tone: Tone = "neutral"


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


def findings(view: SweepView) -> list[Finding]:
    """Return the findings of a sweep, most important first."""
    found = [_best(view)]
    if view.data.has(SPEEDUP):
        found.append(_stops_paying(view))
        found.extend(_only_speculation(view))
        found.extend(_fixed_configuration(view))
        found.extend(_closed_form_limit(view))
        found.extend(_worst(view))
        found.extend(_undecided(view))
    found.extend(_slo(view))
    found.extend(_without_results(view))
    return found


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


def verdicts(view: SweepView, configuration: Point | None = None) -> list[Verdict]:
    """Return the verdict at each load, smallest first.

    Parameters
    ----------
    view : SweepView
    configuration : Point, optional
        Hold this point's configuration fixed; otherwise the best one is chosen at each load.
    """
    axis = view.roles.load
    positions = range(len(axis.values)) if axis is not None else range(1)
    found = []
    for position in positions:
        candidates = view.at_load(position)
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


def _best(view: SweepView) -> Finding:
    rank = view.primary
    best = view.best(view.shown)
    if best is None:
        return Finding(
            "best",
            "No point has results",
            f"None of the {_count(len(view.shown), 'point')} of this sweep has a result; "
            "the reasons stand below.",
            "bad",
        )
    among = sum(p.number(rank.key) is not None for p in view.shown)
    name = view.describe(best)
    if rank.key == SPEEDUP:
        pair = tpot_text(view, best)
        text = f"{name}: {ratio_text(best)}{f', {pair}' if pair else ''}. "
        text += f"It is the best of {_count(among, 'point')}" + (
            "; picked by its mean, so its interval is a little optimistic." if among > 1 else "."
        )
        headline = f"Best point: {rank.text(best.number(rank.key))}"
        return Finding("best", headline, text, "good" if pays(best) else "neutral")
    value = rank.text(best.number(rank.key))
    why = "" if view.data.baselines else " There is no autoregressive baseline, so no speedup."
    text = f"{name}: {rank.label} {value}{_interval_text(best, rank.key)}. "
    text += f"It is the best of {_count(among, 'point')}.{why}"
    return Finding("best", f"Best point: {value}", text)


def _stops_paying(view: SweepView) -> Finding:
    found = verdicts(view)
    known = [verdict for verdict in found if verdict.pays is not None]
    nothing = [v.load for v in found if v.pays is None and not _keeps_up(view, v)]
    tail = ""
    if nothing:
        tail = f" Nothing is known at {_listed(nothing)}: no point has results there."
    if not any(verdict.pays for verdict in known):
        headline = "Speculation never pays here"
        return Finding("stops_paying", headline, _never(view, known) + tail, "bad")
    stop = next((i for i, verdict in enumerate(known) if not verdict.pays), None)
    if stop is None:
        last = known[-1]
        where = f"even at the heaviest load compared, {last.load}, " if last.load else ""
        text = (
            f"Within this sweep speculation always pays: {where}{_best_words(view, last)}. "
            "If it stops, then outside the loads swept."
        )
        return Finding("stops_paying", "Speculation always pays here", text + tail, "good")
    text = _stop_words(view, known[stop])
    if stop > 0:
        before = known[stop - 1]
        text += f" One load lower, at {before.load}, {_best_words(view, before)}."
    again = [verdict.load for verdict in known[stop + 1 :] if verdict.pays]
    if again:
        text += f" It pays again at {_listed(again)}."
    return Finding("stops_paying", f"Stops paying at {known[stop].load}", text + tail)


def _stop_words(view: SweepView, stop: Verdict) -> str:
    if stop.point is None:
        return f"At {stop.load} no speculative configuration has a result while autoregression has."
    reached = "the interval reaches 1" if _upper(stop.point) >= 1 else "slower than autoregression"
    return f"At {stop.load} the best configuration left, {_best_words(view, stop)}: {reached}."


def _best_words(view: SweepView, verdict: Verdict) -> str:
    assert verdict.point is not None, "a load where speculation pays has a best point"
    name = view.describe(verdict.point, without=[view.roles.load])
    return f"{name}, reaches {_with_pair(view, verdict.point)}"


def _never(view: SweepView, known: Sequence[Verdict]) -> str:
    best = view.best([v.point for v in known if v.point is not None], metric(SPEEDUP))
    if best is None:
        return "No point has a speedup, so nothing can be said."
    return (
        "No load has a configuration whose interval lies above 1. The closest is "
        f"{view.describe(best)} with {_with_pair(view, best)}."
    )


def _keeps_up(view: SweepView, verdict: Verdict) -> bool:
    return any(p.is_ok for p in view.at_load(verdict.position))


def _only_speculation(view: SweepView) -> list[Finding]:
    """Return the loads that autoregression cannot serve and some configuration can."""
    found = []
    for verdict in verdicts(view):
        candidates = view.at_load(verdict.position)
        best = view.best(candidates, metric("tpot_ms"))
        baseline = view.data.baseline(best) if best is not None else None
        if best is None or baseline is None or baseline.is_ok:
            continue
        stable = sum(p.is_ok for p in candidates)
        where = f"At {verdict.load} autoregression" if verdict.load else "Autoregression"
        text = (
            f"{where} has no result ({visible(baseline.status.replace('_', ' '))}), "
            f"while {stable} of {_count(len(candidates), 'point')} keep up; fastest is "
            f"{view.describe(best, without=[view.roles.load])} at "
            f"{metric('tpot_ms').text(best.number('tpot_ms'))} per token. "
            "There is no speedup to state without a baseline."
        )
        name = f" at {verdict.load}" if verdict.load else ""
        found.append(Finding("only_speculation", f"Only speculation keeps up{name}", text, "good"))
    return found


def _fixed_configuration(view: SweepView) -> list[Finding]:
    best = view.best(view.shown, metric(SPEEDUP))
    if best is None or view.roles.load is None or len(view.roles.load.values) < 2 or not pays(best):
        return []
    fixed = verdicts(view, best)
    start = next((i for i, v in enumerate(fixed) if v.point is best), 0)
    stop = next((v for v in fixed[start + 1 :] if v.pays is False), None)
    name = view.describe(best, without=[view.roles.load])
    if stop is None or stop.point is None:
        return []
    text = (
        f"{name}, left as it is while the load grows, is down to "
        f"{_with_pair(view, stop.point)} at {stop.load}."
    )
    return [Finding("fixed", f"Left unchanged, it stops paying at {stop.load}", text)]


def _closed_form_limit(view: SweepView) -> list[Finding]:
    best = view.best(view.shown, metric(SPEEDUP))
    if best is None or not view.data.curves:
        return []
    found = []
    for condition, curve in best_curves(view, best).items():
        limit = break_even_batch(curve)
        label = f" with {condition}" if condition else ""
        first, last = curve[0], curve[-1]
        if limit is None:
            side = "above" if last[1] > 1 else "below"
            text = (
                f"In the closed form{label} the same configuration stays {side} 1 from batch "
                f"{first[0]:g} ({first[1]:.2f}×) to batch {last[0]:g} ({last[1]:.2f}×)."
            )
            headline = f"No break-even batch up to {last[0]:g}"
        else:
            text = (
                f"In the closed form{label} the same configuration gives {first[1]:.2f}× at batch "
                f"{first[0]:g} and falls to 1 at a batch of about {limit:.0f} "
                f"({last[1]:.2f}× at batch {last[0]:g})."
            )
            headline = f"Break-even near batch {limit:.0f}"
        found.append(Finding("break_even_batch", headline, text))
    return found[:3]


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
    if axis.field not in row:
        return True
    value = row[axis.field]
    scalar = value if isinstance(value, str | int | float) else None
    return axis.index(scalar) == axis.index(best.axis_value(axis))


def break_even_batch(curve: Sequence[tuple[float, float]]) -> float | None:
    """Return the smallest batch at which a falling curve crosses 1, interpolated in log batch."""
    for (b0, s0), (b1, s1) in itertools.pairwise(curve):
        if s0 > 1 >= s1:
            share = (s0 - 1) / (s0 - s1)
            return math.exp(math.log(b0) + share * (math.log(b1) - math.log(b0)))
    return None


def _worst(view: SweepView) -> list[Finding]:
    scored = [p for p in view.shown if p.number(SPEEDUP) is not None]
    if len(scored) < 2:
        return []
    worst = min(scored, key=lambda p: p.number(SPEEDUP) or 0)
    interval = worst.interval(SPEEDUP)
    if (interval[1] if interval else worst.number(SPEEDUP) or 0) >= 1:
        return []
    text = f"The worst point, {view.describe(worst)}, is at {_with_pair(view, worst)}."
    return [Finding("worst", "A careless choice costs", text, "bad")]


def _undecided(view: SweepView) -> list[Finding]:
    scored = [p for p in view.shown if p.interval(SPEEDUP) is not None]
    open_ones = sum(includes_one(p) for p in scored)
    if not open_ones:
        return []
    text = (
        f"The interval of {open_ones} of {_count(len(scored), 'point')} includes 1: with this many "
        "replications the sweep cannot tell them from autoregression."
    )
    return [Finding("undecided", f"{_count(open_ones, 'point')} undecided", text)]


def _slo(view: SweepView) -> list[Finding]:
    """Return the load at which speculation changes the share of good requests most."""
    targets = slo_text(view.data.manifest.get("slo"))
    pairs = [pair for verdict in verdicts(view) if (pair := _attainment(view, verdict.point))]
    if not targets or not pairs:
        return []
    point, mine, theirs = max(pairs, key=lambda pair: abs(pair[1] - pair[2]))
    share, rate = metric("slo_attainment"), metric("goodput_requests_per_s")
    where = f"{view.describe(point)}: "
    text = (
        f"{where}{share.text(mine)} of the requests meet {targets}, against "
        f"{share.text(theirs)} under autoregression"
    )
    baseline = view.data.baseline(point)
    good = point.number(rate.key)
    plain = baseline.number(rate.key) if baseline is not None else None
    if good is not None and plain is not None:
        text += f": a goodput of {rate.text(good)} against {rate.text(plain, unit=False)}"
    if len(pairs) > 1:
        text += ". No other load differs more"
    headline = f"{share.text(mine)} instead of {share.text(theirs)} within the SLO"
    if share.text(mine) == share.text(theirs):
        headline = f"{share.text(mine)} within the SLO either way"
    return [Finding("slo", headline, text + ".", "good" if mine > theirs else "neutral")]


def _attainment(view: SweepView, point: Point | None) -> tuple[Point, float, float] | None:
    """Return a point with its share of good requests and that of its baseline."""
    baseline = view.data.baseline(point) if point is not None else None
    if point is None or baseline is None:
        return None
    mine, theirs = point.number("slo_attainment"), baseline.number("slo_attainment")
    return None if mine is None or theirs is None else (point, mine, theirs)


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


def _without_results(view: SweepView) -> list[Finding]:
    words = {
        "unstable": "unstable: the offered load exceeds the capacity",
        "does_not_fit": "do not fit into memory",
        "refused": "refused",
    }
    found = []
    for status in dict.fromkeys(p.status for p in view.data.points if not p.is_ok):
        points = [p for p in view.data.points if p.status == status]
        groups = Counter(p.reason for p in points)
        parts = []
        for reason, _ in groups.most_common(3):
            members = [p for p in points if p.reason == reason]
            where = describe_subset(view, members)
            stated = shorten(visible(reason), 240).rstrip(".") or "no reason given"
            parts.append(f"{where}: {stated}.")
        rest = len(groups) - 3
        if rest > 0:
            parts.append(f"{_count(rest, 'more reason')} in the table.")
        meaning = words.get(status, visible(status.replace("_", " ")))
        headline = f"{_count(len(points), 'point')} {meaning}"
        found.append(Finding(status, headline, " ".join(parts), "bad"))
    return found


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
    subject = f"{_count(len(points), 'point')}"
    return f"{subject} ({'; '.join([*parts, *kinds])})" if parts or kinds else subject


def _with_pair(view: SweepView, point: Point) -> str:
    pair = tpot_text(view, point)
    return f"{ratio_text(point)}, {pair}" if pair else ratio_text(point)


def _upper(point: Point) -> float:
    interval = point.interval(SPEEDUP)
    return interval[1] if interval is not None else point.number(SPEEDUP) or 0.0


def _interval_text(point: Point, key: str) -> str:
    interval = point.interval(key)
    if interval is None:
        return ""
    low, high = (metric(key).text(bound, unit=False) for bound in interval)
    return f" (95% interval {low}–{high})"


def _listed(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names) or "this load"
    return ", ".join(names[:-1]) + " and " + names[-1]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
