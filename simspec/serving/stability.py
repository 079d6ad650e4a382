"""Whether an open-loop run had a steady state at all.

Above capacity no mean exists: the longer the run, the longer the waiting queue. A run is called
unstable when, while requests arrive,

1. the waiting queue never empties in the second half,
2. it is longer at the end than in the middle,
3. at the end it holds more than 5 % of the arrivals, and more than three standard deviations of
   their number: a stable queue seen for so short a time could have grown that far by chance.

A queue at exactly its capacity moves like a random walk whose variance is that of the arrivals
plus that of the services (Kingman 1962); the second is taken to be no larger than the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from simspec.serving.records import Fate, FloatArray, IntArray, RunRecords

_SHARE = 0.05
_NUM_BINS = 20


@dataclass(frozen=True, slots=True)
class Stability:
    """The verdict on a run and the numbers behind it, over the second half of the arrivals."""

    is_stable: bool
    reason: str
    """One sentence with the numbers; empty when stable."""
    offered_requests_per_s: float
    completed_requests_per_s: float
    offered_tokens_per_s: float
    """Output tokens asked for."""
    completed_tokens_per_s: float
    """Output tokens delivered."""
    queue_growth_per_s: float
    """Requests by which the waiting queue grows."""


_NO_RATE = Stability(True, "", 0.0, 0.0, 0.0, 0.0, 0.0)


def assess(records: RunRecords) -> Stability:
    """Return whether the offered load was below capacity.

    A closed loop is always stable: it offers only as much as is completed.
    """
    requests, steps = records.requests, records.steps
    taken = requests.fate != Fate.REFUSED
    arrivals_s = np.sort(requests.arrival_s[taken])
    if records.concurrency is not None or arrivals_s.size < 2:
        return _NO_RATE
    start_s = float(arrivals_s[0])
    end_s = records.end_s if records.num_not_arrived else float(arrivals_s[-1])
    middle_s = (start_s + end_s) / 2.0
    span_s = end_s - middle_s
    if span_s <= 0:
        return _NO_RATE
    came_s, left_s = arrivals_s, requests.admission_s[taken]
    if np.any(~np.isnan(requests.landed_s)):
        # Prompts are computed apart: a second wait, for the link and for a decode replica.
        handed = (requests.output_len > 1) & ~np.isnan(requests.first_token_s)
        came_s = np.concatenate([came_s, requests.first_token_s[handed]])
        left_s = np.concatenate([left_s, requests.resumed_s[handed]])
    times_s, waiting = _waiting(came_s, np.sort(left_s))
    at_middle, at_end = (
        int(waiting[np.searchsorted(times_s, time_s, side="right") - 1])
        for time_s in (middle_s, end_s)
    )
    second_half = waiting[(times_s > middle_s) & (times_s <= end_s)]
    never_empty = at_middle > 0 and bool(np.all(second_half > 0))
    is_stable = not (never_empty and at_end > max(at_middle, _chance(arrivals_s, start_s, end_s)))
    came = taken & (requests.arrival_s > middle_s) & (requests.arrival_s <= end_s)
    left = (requests.fate == Fate.FINISHED) & (requests.last_token_s > middle_s)
    left &= requests.last_token_s <= end_s
    delivered = float(steps.emitted[(steps.end_s > middle_s) & (steps.end_s <= end_s)].sum())
    numbers = (
        int(came.sum()) / span_s,
        float(left.sum()) / span_s,
        float(requests.output_len[came].sum()) / span_s,
        delivered / span_s,
        (at_end - at_middle) / span_s,
    )
    return Stability(is_stable, "" if is_stable else _sentence(numbers, at_end), *numbers)


def _waiting(arrivals_s: FloatArray, admissions_s: FloatArray) -> tuple[FloatArray, IntArray]:
    # Never-admitted requests have NaN, sorted last: they wait for ever.
    admissions_s = admissions_s[~np.isnan(admissions_s)]
    times_s = np.concatenate([arrivals_s, admissions_s])
    order = np.argsort(times_s, kind="stable")
    changes = np.repeat([1, -1], [arrivals_s.size, admissions_s.size])
    return times_s[order], np.cumsum(changes[order])


def _chance(arrivals_s: FloatArray, start_s: float, end_s: float) -> float:
    arrivals_s = arrivals_s[arrivals_s <= end_s]
    bins = np.histogram(arrivals_s, bins=_NUM_BINS, range=(start_s, end_s))[0]
    variance = max(arrivals_s.size, _NUM_BINS * float(bins.var()))
    return max(_SHARE * arrivals_s.size, 3.0 * sqrt(variance))


def _sentence(numbers: tuple[float, float, float, float, float], num_waiting: int) -> str:
    offered, completed, offered_tokens, completed_tokens, growth = numbers
    return (
        f"unstable: offered load exceeds capacity: {offered:.3g} requests/s "
        f"({offered_tokens:.4g} output tokens/s) arrive, {completed:.3g} requests/s "
        f"({completed_tokens:.4g} tokens/s) are completed, and the waiting queue grows by "
        f"{growth:.3g} requests/s to {num_waiting}"
    )
