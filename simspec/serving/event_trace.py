"""A run as events of the Chrome trace format, which Perfetto and ``chrome://tracing`` open.

A process per replica, with a lane (thread) each for drafting, verifying or decoding, prefilling,
the host, copies of KV to and from it, and whatever else a step took; within a step the lanes follow
one another, so their durations add up to the step's. Requests are asynchronous spans (queue,
prefill, decode), the queue, batch, KV blocks and K in force are counters. Times are microseconds.

Source: "Trace Event Format" (Google, the document linked from chromium.org's trace event
profiling tool), sections on complete, counter, async and metadata events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isnan
from typing import Any

import numpy as np
import numpy.typing as npt

from simspec.core.units import us
from simspec.serving.records import PHASES, IntArray, RunRecords
from simspec.serving.request_table import FATES

LANES = {
    "draft": ("draft", "catch_up"),
    "verify": ("verify", "decode"),
    "prefill": ("prefill",),
}
"""Lane: the phases of a step that it shows."""
HOST, SWAP, OTHER = "host", "swap", "other"
_TIDS = {name: tid for tid, name in enumerate([*LANES, HOST, SWAP, OTHER], start=1)}
COUNTERS = {"queue": "requests", "batch": "sequences", "KV": "blocks", "K in force": "tokens"}
"""Counter: its unit."""
_STEPS_SHARE = 0.7
_PER_LIFELINE = 8
_NOISE_S = 1e-9
"""Less than the nanosecond that a timestamp resolves."""

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cut:
    """Which part of a run is shown, so that the file stays small."""

    from_s: float = 0.0
    to_s: float = inf
    max_events: int = 100_000


@dataclass(slots=True)
class Told:
    """What the events of a run cover; complete once they have all been taken."""

    from_s: float
    to_s: float
    steps_left_out: int = 0
    """Inside the cut, beyond ``max_events``."""
    requests_left_out: int = 0


def run_events(records: RunRecords, cut: Cut, told: Told) -> Iterator[Event]:
    """Yield the events of a run, at most ``cut.max_events`` beside the names of lanes.

    Steps are shown from the start of the cut until their share of the events is used up, then the
    requests that were there in that time; ``told`` says what was left out.
    """
    for replica in range(records.num_replicas):
        yield from _names(replica)
    steps = records.steps
    chosen = np.flatnonzero((steps.end_s > cut.from_s) & (steps.start_s < cut.to_s))
    chosen = chosen[np.argsort(steps.start_s[chosen], kind="stable")]
    is_before_idle = _before_idle(records)
    told.from_s = cut.from_s
    told.to_s = min(cut.to_s, records.end_s)
    room = int(_STEPS_SHARE * cut.max_events)
    used = 0
    for place, index in enumerate(chosen.tolist()):
        events = list(_step(records, index, is_idle_next=bool(is_before_idle[index])))
        if used + len(events) > room:
            told.steps_left_out = chosen.size - place
            told.to_s = float(steps.start_s[index])
            break
        used += len(events)
        yield from events
    rows = _present(records, told)
    fitting = (cut.max_events - used) // _PER_LIFELINE
    told.requests_left_out = max(0, rows.size - fitting)
    for row in rows[:fitting].tolist():
        yield from _lifeline(records, row, told)


def _names(replica: int) -> Iterator[Event]:
    yield _meta("process_name", replica, 0, name=f"replica {replica}")
    for lane, tid in _TIDS.items():
        yield _meta("thread_name", replica, tid, name=lane)
        yield _meta("thread_sort_index", replica, tid, sort_index=tid)


def _meta(kind: str, pid: int, tid: int, **args: object) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _step(records: RunRecords, index: int, *, is_idle_next: bool) -> Iterator[Event]:
    steps = records.steps
    replica = int(steps.replica[index])
    start_s = now_s = float(steps.start_s[index])
    spans = {
        lane: float(sum(steps.phase_s[index, PHASES.index(phase)] for phase in phases))
        for lane, phases in LANES.items()
    }
    spans[HOST] = float(steps.host_s[index])
    spans[SWAP] = float(steps.swap_s[index])
    rest_s = float(steps.duration_s[index]) - sum(spans.values())
    if rest_s > _NOISE_S:
        spans[OTHER] = rest_s
    args = {
        "step": index,
        "decoding": int(steps.num_decoding[index]),
        "prefill_tokens": int(steps.prefill_tokens[index]),
        "drafted": int(steps.drafted[index]),
        "accepted": int(steps.accepted[index]),
    }
    for lane, seconds in spans.items():
        if seconds > 0:
            yield {
                "ph": "X", "name": lane, "cat": "step", "pid": replica, "tid": _TIDS[lane],
                "ts": _us(now_s), "dur": _us(seconds), "args": args,
            }  # fmt: skip
            now_s += seconds
    yield from _counters(
        replica,
        start_s,
        (
            int(steps.num_waiting[index]),
            int(steps.batch_size[index]),
            int(steps.kv_blocks_used[index]),
            int(steps.draft_in_force[index]),
        ),
    )
    if is_idle_next:
        yield from _counters(replica, float(steps.end_s[index]), (0, 0, 0, 0))


def _counters(pid: int, at_s: float, values: tuple[int, int, int, int]) -> Iterator[Event]:
    for (name, unit), value in zip(COUNTERS.items(), values, strict=True):
        yield {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": _us(at_s),
               "args": {unit: value}}  # fmt: skip


def _before_idle(records: RunRecords) -> npt.NDArray[np.bool_]:
    """Return which steps are not followed at once by another of their replica."""
    steps = records.steps
    found = np.ones(steps.start_s.size, dtype=bool)
    for replica in range(records.num_replicas):
        mine = np.flatnonzero(steps.replica == replica)
        found[mine[:-1]] = steps.start_s[mine[1:]] > steps.end_s[mine[:-1]] + _NOISE_S
    return found


def _present(records: RunRecords, told: Told) -> IntArray:
    """Return the rows of the requests that were in the system in the time that is shown."""
    requests = records.requests
    end_s = np.where(np.isnan(requests.last_token_s), records.end_s, requests.last_token_s)
    is_there = (requests.arrival_s <= told.to_s) & (end_s >= told.from_s)
    rows = np.flatnonzero(is_there)
    return np.asarray(rows[np.argsort(requests.arrival_s[rows], kind="stable")])


def _lifeline(records: RunRecords, row: int, told: Told) -> Iterator[Event]:
    requests = records.requests
    replica = int(requests.replica[row])
    arrival_s, admission_s, first_s, last_s = (
        float(column[row])
        for column in (
            requests.arrival_s,
            requests.admission_s,
            requests.first_token_s,
            requests.last_token_s,
        )
    )
    fate = FATES[int(requests.fate[row])]
    end_s = arrival_s if fate == "refused" else last_s if fate == "finished" else records.end_s
    request_id = int(requests.request_id[row])
    args = {
        "fate": fate,
        "prompt_tokens": int(requests.prompt_len[row]),
        "output_tokens": int(requests.output_len[row]),
        "accepted_tokens": int(requests.accepted[row]),
        "preemptions": int(requests.num_preemptions[row]),
    }
    marks = [arrival_s, *(t if not isnan(t) else end_s for t in (admission_s, first_s)), end_s]
    where = {"cat": "request", "id": f"{replica}.{request_id}", "pid": replica, "tid": 0}
    whole = f"request {request_id}"
    begin_s = max(arrival_s, told.from_s)
    yield _async("b", whole, where, begin_s, args)
    parts = zip(("queue", "prefill", "decode"), marks[:-1], marks[1:], strict=True)
    for part, start_s, stop_s in parts:
        shown_s, hidden_s = max(start_s, told.from_s), min(stop_s, told.to_s)
        if hidden_s > shown_s:
            yield _async("b", part, where, shown_s, {})
            yield _async("e", part, where, hidden_s, {})
    yield _async("e", whole, where, max(begin_s, min(end_s, told.to_s)), {})


def _async(kind: str, name: str, where: Event, at_s: float, args: dict[str, Any]) -> Event:
    return {**where, "ph": kind, "name": name, "ts": _us(at_s), "args": args}


def _us(seconds: float) -> float:
    return round(us(seconds), 3)
