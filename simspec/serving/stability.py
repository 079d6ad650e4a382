"""Whether an open-loop run had a steady state at all.

Above capacity no mean exists: the longer the run, the longer the waiting queue. The test looks at
the second half of the arrivals, where a stable engine has forgotten its empty start. The run is
unstable when, in that half, (1) the waiting queue never empties and (2) it grows by more than
both 5 % of the arrivals and three standard deviations of their count. Near capacity a stable
queue can wander that far, which is as well: its mean would be worth nothing either.

In heavy traffic a queue that is exactly at capacity moves like a random walk whose variance is
that of the arrivals plus that of the services (Kingman 1962); the second is taken to be no
larger than the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from simspec.serving.records import Fate, FloatArray, IntArray, RunRecords

_GROWTH_SHARE = 0.05
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


def assess(records: RunRecords) -> Stability:
    """Return whether the offered load was below capacity.

    A closed loop is always stable: it offers only as much as is completed.
    """
    requests, steps = records.requests, records.steps
    arrivals_s = np.sort(requests.arrival_s)
    if records.concurrency is not None or arrivals_s.size == 0:
        return Stability(True, "", *(5 * [0.0]))
    end_s = records.end_s if records.num_not_arrived else float(arrivals_s[-1])
    start_s = (float(arrivals_s[0]) + end_s) / 2.0
    span_s = end_s - start_s
    if span_s <= 0:
        return Stability(True, "", *(5 * [0.0]))
    came = (requests.arrival_s > start_s) & (requests.arrival_s <= end_s)
    came &= requests.fate != Fate.REFUSED
    left = (requests.fate == Fate.FINISHED) & (requests.last_token_s > start_s)
    left &= requests.last_token_s <= end_s
    during = (steps.start_s >= start_s) & (steps.start_s <= end_s)
    num_came = int(came.sum())
    waiting = steps.num_waiting[during]
    growth = _growth(steps.start_s[during] - start_s, waiting, span_s)
    bins = np.histogram(requests.arrival_s[came], bins=_NUM_BINS, range=(start_s, end_s))[0]
    deviation = sqrt(max(num_came, _NUM_BINS * float(bins.var())))
    never_empty = bool(waiting.size) and bool(waiting.min() > 0)
    is_stable = not (never_empty and growth > max(_GROWTH_SHARE * num_came, 3.0 * deviation))
    delivered = float(steps.emitted[(steps.end_s > start_s) & (steps.end_s <= end_s)].sum())
    numbers = (
        num_came / span_s,
        float(left.sum()) / span_s,
        float(requests.output_len[came].sum()) / span_s,
        delivered / span_s,
        growth / span_s,
    )
    return Stability(is_stable, "" if is_stable else _sentence(numbers, int(waiting[-1])), *numbers)


def _growth(times_s: FloatArray, waiting: IntArray, span_s: float) -> float:
    # Means over the first and the last tenth, which lie 0.9 spans apart: less noise than ends.
    first, last = times_s <= 0.1 * span_s, times_s >= 0.9 * span_s
    if not first.any() or not last.any():
        return 0.0
    return float(waiting[last].mean() - waiting[first].mean()) / 0.9


def _sentence(numbers: tuple[float, float, float, float, float], num_waiting: int) -> str:
    offered, completed, offered_tokens, completed_tokens, growth = numbers
    return (
        f"unstable: offered load exceeds capacity: {offered:.3g} requests/s "
        f"({offered_tokens:.4g} output tokens/s) arrive, {completed:.3g} requests/s "
        f"({completed_tokens:.4g} tokens/s) are completed, and the waiting queue grows by "
        f"{growth:.3g} requests/s to {num_waiting}"
    )
