"""Which part of a run is measured.

Latencies are averaged over requests chosen by their place in the order of arrival: the first
ones meet an empty engine and are left out as warm-up. A closed loop starts with all its requests
at once, whose prompts queue as no later one does, and its last ones run while the engine empties.
Choosing by arrival keeps long and short requests in proportion, which
choosing by departure would not. Rates are taken over the time from the first measured arrival to
the last arrival of all, after which the load falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from simspec.core.stats import mser5
from simspec.serving.records import Fate, IntArray, RunRecords


@dataclass(frozen=True, slots=True)
class Window:
    """The measured part of a run."""

    requests: IntArray
    """Rows of ``RunRecords.requests``, in order of arrival."""
    start_s: float
    end_s: float
    num_warmup: int
    num_cooldown: int

    @property
    def seconds(self) -> float:
        """Length of the window over which rates are taken."""
        return self.end_s - self.start_s


def measured_window(
    records: RunRecords,
    *,
    warmup: Literal["auto"] | float = "auto",
    cooldown: Literal["auto"] | float = "auto",
) -> Window:
    """Return the part of a run to measure.

    Parameters
    ----------
    records : RunRecords
        The run.
    warmup : float or "auto"
        Share of the requests left out at the start, 0..1; ``auto``: MSER-5 on the latency per
        output token of the finished requests in order of arrival, and in a closed loop at least
        those it started with, but never more than half.
    cooldown : float or "auto"
        Share left out at the end; ``auto``: none in an open loop, in a closed loop as many as
        are in flight when the last one arrives, but never more than half.
    """
    requests = records.requests
    num_requests = requests.request_id.size
    order = np.argsort(requests.arrival_s, kind="stable")
    if num_requests == 0:
        return Window(order, 0.0, records.end_s, 0, 0)
    first = _warmup(records, order) if warmup == "auto" else int(warmup * num_requests)
    if cooldown == "auto":
        num_cooldown = min(records.concurrency or 0, (num_requests - first) // 2)
    else:
        num_cooldown = int(cooldown * num_requests)
    first = min(first, num_requests - 1)
    last = max(first + 1, num_requests - num_cooldown)
    start_s = float(requests.arrival_s[order[first]])
    end_s = float(requests.arrival_s[order[-1]])
    steps_end_s = records.steps.end_s
    no_step = not np.any((steps_end_s > start_s) & (steps_end_s <= end_s))
    # Everybody came at once, or the load goes on past the end of the clock.
    if no_step or records.num_not_arrived:
        end_s = records.end_s
    return Window(order[first:last], start_s, end_s, first, num_requests - last)


def in_batches(records: RunRecords, window: Window, num_batches: int) -> list[Window]:
    """Return the measured part as batches of equally many consecutive requests.

    A batch lasts from its first arrival to that of the next one; the last to the end of the
    window. What does not divide is left out at the start.
    """
    size = window.requests.size // num_batches
    spare = window.requests.size - size * num_batches
    parts = window.requests[spare:].reshape(num_batches, size)
    bounds = [*records.requests.arrival_s[parts[:, 0]].tolist(), window.end_s]
    return [
        Window(part, start_s, end_s, window.num_warmup, window.num_cooldown)
        for part, start_s, end_s in zip(parts, bounds[:-1], bounds[1:], strict=True)
    ]


def _warmup(records: RunRecords, order: IntArray) -> int:
    requests = records.requests
    finished = np.flatnonzero(requests.fate[order] == Fate.FINISHED)
    rows = order[finished]
    latency_s = (requests.last_token_s - requests.arrival_s)[rows] / requests.output_len[rows]
    cut = mser5(latency_s)
    return max(int(finished[cut]) if cut else 0, _num_starters(records))


def _num_starters(records: RunRecords) -> int:
    """Return how many requests a closed loop started with; 0 when nobody came later."""
    arrival_s = records.requests.arrival_s
    if records.concurrency is None:
        return 0
    together = int(np.sum(arrival_s == arrival_s.min()))
    return min(together, arrival_s.size // 2) if together < arrival_s.size else 0
