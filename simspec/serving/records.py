"""What a run leaves behind: one row per request, one row per engine step.

Nothing that happened is dropped: every request that arrived has a row with its fate, and steps
are kept whole, so every metric is a function of these arrays: 400,000 steps take about 80 MB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from struct import Struct
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from simspec.cost.work import Phase

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

PHASES: tuple[str, ...] = get_args(Phase)
"""Phases whose seconds each step keeps, in the order of the columns of ``phase_s``."""


class Fate(IntEnum):
    """How a request's stay ended."""

    FINISHED = 0
    """All its tokens came out."""
    REFUSED = 1
    """It could never fit and was turned away on arrival."""
    RUNNING = 2
    """The run ended while it was admitted."""
    WAITING = 3
    """The run ended while it was in the waiting queue."""


@dataclass(frozen=True, slots=True)
class RequestRecords:
    """One entry per request that arrived, in order of ``request_id``.

    Times are seconds on the simulated clock; NaN where the event did not happen.
    """

    request_id: IntArray
    fate: IntArray
    """A :class:`Fate`."""
    prompt_len: IntArray
    output_len: IntArray
    arrival_s: FloatArray
    admission_s: FloatArray
    """First admission; a preempted request keeps it."""
    first_token_s: FloatArray
    last_token_s: FloatArray
    """Latest token; the end of a finished request."""
    queue_s: FloatArray
    """Seconds in the waiting queue, before the first admission and after preemptions."""
    max_gap_s: FloatArray
    """Longest wait between two bursts of its tokens."""
    emitted: IntArray
    num_preemptions: IntArray
    recomputed_tokens: IntArray
    """KV tokens that preemptions threw away and that were not found again in the cache."""
    num_rounds: IntArray
    drafted: IntArray
    accepted: IntArray
    """Whole rounds: what was accepted beyond ``output_len`` in the last round is included."""
    cached_tokens: IntArray
    """Prompt tokens whose KV was found in the cache and not computed."""
    swapped_tokens: IntArray
    """KV tokens that preemptions copied to the host."""
    priority: IntArray
    """Class; smaller is more urgent."""
    landed_s: FloatArray
    """When the KV of its prompt had arrived at the replica that decodes it; NaN: it stayed."""
    resumed_s: FloatArray
    """When that replica took it in."""
    replica: IntArray
    """Replica that served it, counted from 0."""


@dataclass(frozen=True, slots=True)
class StepRecords:
    """One entry per engine step that was completed, in order of time."""

    start_s: FloatArray
    duration_s: FloatArray
    num_decoding: IntArray
    """Sequences that took a decode round."""
    num_prefilling: IntArray
    """Sequences that computed a prompt chunk."""
    prefill_tokens: IntArray
    drafted: IntArray
    accepted: IntArray
    emitted: IntArray
    """Tokens clients got at the end of the step, after the cut at ``output_len``."""
    num_prefilled: IntArray
    """Prefills completed: each yields one token."""
    cut_tokens: IntArray
    """Tokens the rounds yielded beyond ``output_len``."""
    num_steady_gaps: IntArray
    """Bursts whose gap to the sequence's previous burst is exactly this step's duration."""
    num_running: IntArray
    num_waiting: IntArray
    """Both after the step was planned."""
    num_preempted: IntArray
    kv_blocks_used: IntArray
    """Blocks held during the step, the slots reserved for drafts included."""
    swap_s: FloatArray
    """Seconds of the step in which KV went to the host or came back."""
    draft_in_force: IntArray
    """Most tokens a round of the step may draft (K, of a tree its nodes); 0: speculation is off."""
    mode: IntArray
    """Index into ``RunRecords.modes``."""
    caught_up_tokens: IntArray
    """Tokens whose KV a drafter, or deep layers, had missed and the step made up for."""
    host_s: FloatArray
    network_s: FloatArray
    flop: FloatArray
    bytes: FloatArray
    """Per rank."""
    phase_s: FloatArray
    """Array (steps, phases): seconds by phase, columns in the order of ``PHASES``."""
    replica: IntArray
    """Replica that took the step, counted from 0."""

    @property
    def end_s(self) -> FloatArray:
        """Time at which each step ended and its tokens reached the clients."""
        return self.start_s + self.duration_s

    @property
    def batch_size(self) -> IntArray:
        """Sequences in each step, decoding or prefilling."""
        return self.num_decoding + self.num_prefilling

    @property
    def tokens(self) -> IntArray:
        """Tokens each step computes in the target: drafts, one more per round, prompt chunks."""
        return self.drafted + self.num_decoding + self.prefill_tokens


@dataclass(frozen=True, slots=True)
class ModeFacts:
    """A way to decode that was in force in some steps."""

    name: str
    max_draft: int
    is_verified: bool
    """Whether its tokens are the target's."""


@dataclass(frozen=True, slots=True)
class RunRecords:
    """One run of one replica, or of a fleet: then the rows of all its replicas together."""

    requests: RequestRecords
    steps: StepRecords
    other_gaps_s: FloatArray
    """Gaps between a sequence's bursts that are not one step long (stalls, preemptions)."""
    other_gaps_end_s: FloatArray
    """When the burst that ended each of them came out."""
    refusals: Mapping[int, str]
    """Reason by request id."""
    end_s: float
    """Last departure, or the end of the clock when something was still in the system."""
    num_not_arrived: int
    """Requests of the workload the clock was stopped before."""
    concurrency: int | None
    """Requests kept in flight; None: open loop."""
    blocks_by_replica: tuple[int, ...]
    """KV blocks of each replica."""
    block_size_tokens: int
    max_draft: int
    modes: tuple[ModeFacts, ...]
    """What the run could switch between; one where nothing changes the method's drafts."""
    num_in_system_integral_s: float
    """Time integral of the number of requests in the system, kept apart from the sojourns."""

    @property
    def num_blocks(self) -> int:
        """KV blocks of all replicas together."""
        return sum(self.blocks_by_replica)

    @property
    def num_replicas(self) -> int:
        """Engines that took part."""
        return len(self.blocks_by_replica)

    def digest(self) -> str:
        """Return the SHA-256 of every number of the run: equal runs have equal digests."""
        digest = hashlib.sha256()
        for table in (self.requests, self.steps):
            for column in fields(table):
                digest.update(getattr(table, column.name).tobytes())
        digest.update(self.other_gaps_s.tobytes() + self.other_gaps_end_s.tobytes())
        facts = (
            sorted(self.refusals.items()),
            self.end_s,
            self.num_not_arrived,
            self.concurrency,
            self.blocks_by_replica,
            self.block_size_tokens,
            self.max_draft,
            self.modes,
            self.num_in_system_integral_s,
        )
        digest.update(repr(facts).encode())
        return digest.hexdigest()


class RowBuffer:
    """Rows of numbers, eight bytes each, as they come.

    Parameters
    ----------
    width : int
        Numbers per row.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        # Packing takes a third of the time that array.extend does.
        self._pack = Struct(f"{width}d").pack
        self._values = bytearray()

    def append(self, row: tuple[float, ...]) -> None:
        """Add one row."""
        self._values += self._pack(*row)

    def columns(self) -> FloatArray:
        """Return all rows as a view (width, rows); nothing can be added while it lives."""
        return np.frombuffer(self._values).reshape(-1, self._width).T


NUM_REQUEST_COLUMNS = len(fields(RequestRecords)) - 1
NUM_STEP_COLUMNS = len(fields(StepRecords)) - 2 + len(PHASES)


def request_records(rows: RowBuffer, replica: int) -> RequestRecords:
    """Return the rows, each in the order of the fields of ``RequestRecords``, by request id."""
    columns = rows.columns()
    found = _typed(RequestRecords, columns[:, np.argsort(columns[0])])
    return RequestRecords(**found, replica=np.full(columns.shape[1], replica))


def step_records(rows: RowBuffer, replica: int) -> StepRecords:
    """Return the rows, each in the order of the fields of ``StepRecords``, phases last."""
    columns = rows.columns()
    first_phase = NUM_STEP_COLUMNS - len(PHASES)
    scalars = _typed(StepRecords, columns[:first_phase])
    return StepRecords(
        **scalars,
        phase_s=np.ascontiguousarray(columns[first_phase:].T),
        replica=np.full(columns.shape[1], replica),
    )


def _typed(table: type[RequestRecords] | type[StepRecords], columns: FloatArray) -> dict[str, Any]:
    # Counts were stored as floats beside the times, exactly: they are far below 2**53.
    return {
        column.name: values.astype(np.int64) if column.type == "IntArray" else values.copy()
        for column, values in zip(fields(table), columns, strict=False)
    }
