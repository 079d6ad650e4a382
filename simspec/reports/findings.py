"""What a sweep says, in words.

Every sentence names the configuration and its 95% interval, and puts the milliseconds of both
sides beside a ratio. "Pays" means the interval of the speedup lies above 1 altogether; "stops
paying" is the smallest load or batch at which it no longer does. The best of many points is
picked by its mean, which flatters it; the sentence says out of how many it was picked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from simspec.reports.data import Point
from simspec.reports.labels import metric, shorten, visible
from simspec.reports.limits import stops_by_configuration
from simspec.reports.phrases import (
    SPEEDUP,
    count,
    describe_subset,
    interval_text,
    listed,
    ratio_text,
    slo_text,
    tpot_text,
    upper,
    with_pair,
)
from simspec.reports.verdicts import (
    Verdict,
    best_curves,
    break_even_batch,
    crossings,
    includes_one,
    pays,
    verdicts,
)
from simspec.reports.view import SweepView

Tone = Literal["good", "bad", "neutral"]

MAX_SETTINGS = 6
"""Settings told one by one; more are counted."""
_OUTCOMES = (
    ("always", "pays at every load"),
    ("sometimes", "pays at some loads"),
    ("never", "never pays"),
    ("unknown", "has no speedup"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement: a few words to scan and the sentence that carries the numbers."""

    kind: str
    headline: str
    text: str
    tone: Tone = "neutral"


def findings(view: SweepView) -> list[Finding]:
    """Return the findings of a sweep, most important first."""
    found = [_best(view)]
    if view.data.has(SPEEDUP):
        found.extend(_stops_paying(view))
        if told := stops_by_configuration(view):
            found.append(Finding("configurations", *told))
        found.extend(_fastest(view))
        found.extend(_only_speculation(view))
        found.extend(_fixed_configuration(view))
        found.extend(_closed_form_limit(view))
        found.extend(_worst(view))
        found.extend(_undecided(view))
    found.extend(_slo(view))
    found.extend(_without_results(view))
    return found


def _best(view: SweepView) -> Finding:
    rank = view.primary
    best = view.best(view.shown)
    if best is None:
        return Finding(
            "best",
            "No point has results",
            f"None of the {count(len(view.shown), 'point')} of this sweep has a result; "
            "the reasons stand below.",
            "bad",
        )
    among = sum(p.number(rank.key) is not None for p in view.shown)
    name = view.describe(best)
    if rank.key == SPEEDUP:
        pair = tpot_text(view, best)
        text = f"{name}: {ratio_text(best)}{f', {pair}' if pair else ''}. "
        text += f"It is the best of {count(among, 'point')}" + (
            "; picked by its mean, so its interval is a little optimistic." if among > 1 else "."
        )
        headline = f"Best point: {rank.text(best.number(rank.key))}"
        return Finding("best", headline, text, "good" if pays(best) else "neutral")
    value = rank.text(best.number(rank.key))
    why = "" if view.data.baselines else " There is no autoregressive baseline, so no speedup."
    text = f"{name}: {rank.label} {value}{interval_text(best, rank.key)}. "
    text += f"It is the best of {count(among, 'point')}.{why}"
    return Finding("best", f"Best point: {value}", text)


def _stops_paying(view: SweepView) -> list[Finding]:
    """Return where speculation stops paying, setting by setting while they are few."""
    choices = view.setting_choices()
    if len(choices) <= MAX_SETTINGS:
        return [_stop_under(view, setting) for setting in choices]
    outcomes = Counter(_outcome(verdicts(view, setting)) for setting in choices)
    text = f"Of {len(choices)} combinations of {_axis_names(view)} speculation "
    text += ", ".join(f"{words} in {outcomes[key]}" for key, words in _OUTCOMES if outcomes[key])
    headline = f"Pays at every load in {outcomes['always']} of {len(choices)}"
    return [Finding("stops_paying", headline, text + "; the heat map shows which.")]


def _outcome(found: Sequence[Verdict]) -> str:
    known = [verdict.pays for verdict in found if verdict.pays is not None]
    if not known:
        return "unknown"
    return "always" if all(known) else "sometimes" if any(known) else "never"


def _axis_names(view: SweepView) -> str:
    return listed([axis.label.lower() for axis in view.settings])


def _stop_under(view: SweepView, setting: Mapping[str, int]) -> Finding:
    name = view.setting_text(setting)
    tag = f" ({name})" if name else ""
    found = verdicts(view, setting)
    known = [verdict for verdict in found if verdict.pays is not None]
    nothing = [
        verdict.load
        for verdict in found
        if verdict.pays is None
        and not any(p.is_ok for p in view.at_load(verdict.position, setting))
    ]
    tail = f" Nothing is known at {listed(nothing)}: no point has results there." if nothing else ""
    if not any(verdict.pays for verdict in known):
        headline = f"Speculation never pays here{tag}"
        return Finding("stops_paying", headline, _never(view, known) + tail, "bad")
    stop = next((i for i, verdict in enumerate(known) if not verdict.pays), None)
    if stop is None:
        last = known[-1]
        if len(found) == 1:
            text = f"{_best_words(view, last)}. One load was swept: others may differ."
            return Finding("stops_paying", f"Speculation pays here{tag}", text, "good")
        where = f"even at the heaviest load compared, {last.load}, " if last.load else ""
        text = (
            f"Within this sweep speculation always pays: {where}{_best_words(view, last)}. "
            "If it stops, then outside the loads swept."
        )
        return Finding("stops_paying", f"Speculation always pays here{tag}", text + tail, "good")
    text = _stop_words(view, known[stop])
    if stop > 0:
        before = known[stop - 1]
        text += f" One load lower, at {before.load}, {_best_words(view, before)}."
    again = [verdict.load for verdict in known[stop + 1 :] if verdict.pays]
    if again:
        text += f" It pays again at {listed(again)}."
    return Finding("stops_paying", f"Stops paying at {known[stop].load}{tag}", text + tail)


def _stop_words(view: SweepView, stop: Verdict) -> str:
    if stop.point is None:
        return f"At {stop.load} no speculative configuration has a result while autoregression has."
    reached = "the interval reaches 1" if upper(stop.point) >= 1 else "slower than autoregression"
    return f"At {stop.load} the best configuration left, {_best_words(view, stop)}: {reached}."


def _best_words(view: SweepView, verdict: Verdict) -> str:
    assert verdict.point is not None, "a load where speculation pays has a best point"
    name = view.describe(verdict.point, without=[view.roles.load, *view.settings])
    return f"{name}, reaches {with_pair(view, verdict.point)}"


def _never(view: SweepView, known: Sequence[Verdict]) -> str:
    best = view.best([v.point for v in known if v.point is not None], metric(SPEEDUP))
    if best is None:
        return "No point has a speedup, so nothing can be said."
    return (
        "No load has a configuration whose interval lies above 1. The closest is "
        f"{view.describe(best)} with {with_pair(view, best)}."
    )


def _fastest(view: SweepView) -> list[Finding]:
    """Return the point with the least time per token, where settings make that another one."""
    best = view.best(view.data.points, metric("tpot_ms"))
    if best is None or not view.settings or best is view.best(view.shown):
        return []
    time = metric("tpot_ms").text(best.number("tpot_ms"))
    text = (
        f"A speedup compares each setting with itself. In milliseconds {view.describe(best)} is "
        f"the fastest: {time} per token{interval_text(best, 'tpot_ms')}."
    )
    return [Finding("fastest", f"Fastest: {time} per token", text)]


def _only_speculation(view: SweepView) -> list[Finding]:
    """Return the conditions that autoregression cannot serve and some configuration can."""
    found = []
    for setting in view.setting_choices():
        for position in range(view.num_loads):
            candidates = view.at_load(position, setting)
            best = view.best(candidates, metric("tpot_ms"))
            baseline = view.data.baseline(best) if best is not None else None
            if best is not None and baseline is not None and not baseline.is_ok:
                place = ", ".join(
                    filter(None, (view.load_text(position), view.setting_text(setting)))
                )
                found.append(_keeps_up(view, place, candidates, best, baseline))
    return found[:MAX_SETTINGS]


def _keeps_up(
    view: SweepView, place: str, candidates: Sequence[Point], best: Point, baseline: Point
) -> Finding:
    stable = sum(p.is_ok for p in candidates)
    where = f"At {place} autoregression" if place else "Autoregression"
    text = (
        f"{where} has no result ({visible(baseline.status.replace('_', ' '))}), "
        f"while {stable} of {count(len(candidates), 'point')} keep up; fastest is "
        f"{view.describe(best, without=view.conditions)} at "
        f"{metric('tpot_ms').text(best.number('tpot_ms'))} per token. "
        "There is no speedup to state without a baseline."
    )
    headline = f"Only speculation keeps up{f' at {place}' if place else ''}"
    return Finding("only_speculation", headline, text, "good")


def _fixed_configuration(view: SweepView) -> list[Finding]:
    best = view.best(view.shown, metric(SPEEDUP))
    if best is None or view.roles.load is None or len(view.roles.load.values) < 2 or not pays(best):
        return []
    fixed = verdicts(view, configuration=best)
    start = next((i for i, v in enumerate(fixed) if v.point is best), 0)
    stop = next((v for v in fixed[start + 1 :] if v.pays is False), None)
    name = view.describe(best, without=[view.roles.load])
    if stop is None or stop.point is None:
        return []
    text = (
        f"{name}, left as it is while the load grows, is down to "
        f"{with_pair(view, stop.point)} at {stop.load}."
    )
    return [Finding("fixed", f"Left unchanged, it stops paying at {stop.load}", text)]


def _closed_form_limit(view: SweepView) -> list[Finding]:
    best = view.best(view.shown, metric(SPEEDUP))
    if best is None or not view.data.curves:
        return []
    found = []
    for condition, curve in best_curves(view, best).items():
        crossed = crossings(curve)
        label = f" with {condition}" if condition else ""
        first, last = curve[0], curve[-1]
        if not crossed:
            side = "above" if last[1] > 1 else "below"
            text = (
                f"In the closed form{label} the same configuration stays {side} 1 from batch "
                f"{first[0]:g} ({first[1]:.2f}×) to batch {last[0]:g} ({last[1]:.2f}×)."
            )
            headline = f"No break-even batch up to {last[0]:g}"
        else:
            course = [
                f"{'rises above' if rises else 'falls to'} 1 at a batch of about {batch:.0f}"
                for batch, rises in crossed
            ]
            text = (
                f"In the closed form{label} the same configuration gives {first[1]:.2f}× at batch "
                f"{first[0]:g} and {', then '.join(course)} "
                f"({last[1]:.2f}× at batch {last[0]:g})."
            )
            limit = break_even_batch(curve)
            headline = f"Break-even near batch {crossed[0][0] if limit is None else limit:.0f}"
        found.append(Finding("break_even_batch", headline, text))
    return found[:3]


def _worst(view: SweepView) -> list[Finding]:
    scored = [p for p in view.shown if p.number(SPEEDUP) is not None]
    if len(scored) < 2:
        return []
    worst = min(scored, key=lambda p: p.number(SPEEDUP) or 0)
    interval = worst.interval(SPEEDUP)
    if (interval[1] if interval else worst.number(SPEEDUP) or 0) >= 1:
        return []
    text = f"The worst point, {view.describe(worst)}, is at {with_pair(view, worst)}."
    return [Finding("worst", "A careless choice costs", text, "bad")]


def _undecided(view: SweepView) -> list[Finding]:
    scored = [p for p in view.shown if p.interval(SPEEDUP) is not None]
    open_ones = sum(includes_one(p) for p in scored)
    if not open_ones:
        return []
    text = (
        f"The interval of {open_ones} of {count(len(scored), 'point')} includes 1: with this many "
        "replications the sweep cannot tell them from autoregression."
    )
    return [Finding("undecided", f"{count(open_ones, 'point')} undecided", text)]


def _slo(view: SweepView) -> list[Finding]:
    """Return the load at which speculation changes the share of good requests most."""
    targets = slo_text(view.data.manifest.get("slo"))
    points = [v.point for setting in view.setting_choices() for v in verdicts(view, setting)]
    pairs = [pair for point in points if (pair := _attainment(view, point))]
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
        text += f". No other {'condition' if view.settings else 'load'} differs more"
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
            parts.append(f"{count(rest, 'more reason')} in the table.")
        meaning = words.get(status, visible(status.replace("_", " ")))
        headline = f"{count(len(points), 'point')} {meaning}"
        found.append(Finding(status, headline, " ".join(parts), "bad"))
    return found
