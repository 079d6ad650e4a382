"""One engine: schedule, price, wait, settle.

Each turn of the loop is one engine step: the scheduler says who takes part, the tapes say what
each round drafts and accepts, the cost model says how long the passes take, SimPy waits exactly
at most once, and the tokens reach their clients at the end of the step. The order of events at
equal times is their order of insertion.

A step during which nothing else happens needs no event: the replica's own clock runs ahead of
SimPy's up to the next one. Decoding sequences that take part in every step are kept together
(``cohort``); with ``step_by_step`` each is looked at in every step, with the same records.

Left out: the time between an arrival and the engine noticing it, streaming to the client, and
overlap of scheduling with the device beyond what the engine profile's host time says.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from math import isnan, nextafter

import simpy

from simspec.cost.template import Columns
from simspec.cost.work import Rows
from simspec.memory.blocks import BlockPool
from simspec.memory.prefixes import PrefixPool
from simspec.serving import invariants
from simspec.serving.admission import build_scheduler, pieces, refusal
from simspec.serving.cohort import Cohort, cohort_of
from simspec.serving.landing import Landing
from simspec.serving.plan import EngineState, SequenceState, ServingSetup, StepPlan
from simspec.serving.recorder import Recorder
from simspec.serving.records import PHASES, Fate, RunRecords
from simspec.serving.round_price import RoundPricer
from simspec.serving.scheduling._base import BringsQueue
from simspec.serving.settling import Settlement
from simspec.serving.speculation._control import SpeculationControl
from simspec.workloads.request import Request

_NUM_TOTALS = 5
"""Columns of a price before the seconds by phase."""

_NO_PLAN = StepPlan()


class Replica:
    """A serving engine as a SimPy process.

    Parameters
    ----------
    env : simpy.Environment
        The clock.
    setup : ServingSetup
        Method, prices, limits, pool.
    on_leave : callable
        Called with each request that has finished.
    check : bool
        Check the numbered laws after every step.
    index : int
        Which replica of a fleet this is.
    leaves_on_time : bool
        Whether SimPy's clock has to stand at the time of a departure when ``on_leave`` is called:
        where it sends something to another replica.
    refuses : callable, optional
        Why a request can never be served; None: by what this replica alone can do.
    hands_over : bool
        Whether requests leave with their first token, to be decoded elsewhere.
    """

    def __init__(
        self,
        env: simpy.Environment,
        setup: ServingSetup,
        on_leave: Callable[[SequenceState], None],
        *,
        check: bool,
        index: int = 0,
        leaves_on_time: bool = False,
        refuses: Callable[[Request], str | None] | None = None,
        hands_over: bool = False,
    ) -> None:
        self._env = env
        self._setup = setup
        self._check = check
        self._round_slots = setup.method.max_draft + 1
        self._scheduler = build_scheduler(setup)
        prefixes = (
            PrefixPool(setup.num_blocks, setup.block_size_tokens) if setup.prefix_caching else None
        )
        blocks = prefixes or BlockPool(setup.num_blocks, setup.block_size_tokens)
        host = (
            BlockPool(setup.host.num_blocks, setup.block_size_tokens)
            if setup.host is not None
            else None
        )
        self._cohort = self._new_cohort(blocks)
        self._state = EngineState(blocks, cohort=self._cohort, prefixes=prefixes, host=host)
        if isinstance(self._scheduler, BringsQueue):
            self._state.waiting = self._scheduler.new_queue()
        self._pricer = RoundPricer(setup.method, setup.cost)
        self._no_work: Columns = (0.0,) * (_NUM_TOTALS + len(PHASES))
        self._now = 0.0
        self._wake: simpy.Event | None = None
        longest = max((request.output_len for request in setup.requests), default=0)
        # A request longer than the pool is refused, whatever its log says.
        pool = setup.num_blocks * setup.block_size_tokens
        self._nothing_drafted: Sequence[int] = [0] * min(longest, pool)
        self._recorder = Recorder(setup, index)
        self._on_leave = on_leave
        self._refuses = refuses or partial(refusal, setup=setup)
        self._landing = Landing()
        self._departed: list[SequenceState] = []
        self._settlement = Settlement(
            self._state,
            self._cohort,
            self._recorder,
            speculates=setup.method.max_draft > 0,
            on_leave=self._departed.append if leaves_on_time else on_leave,
            hands_over=hands_over,
        )
        self._control: SpeculationControl | None = None
        if setup.speculation is not None:
            self._control = SpeculationControl(
                setup, setup.speculation, self._state, self._nothing_drafted
            )

    def _new_cohort(self, blocks: BlockPool) -> Cohort | None:
        is_known = getattr(self._scheduler, "is_made_of_moves", False)
        if self._setup.step_by_step or not is_known:
            return None
        return cohort_of(blocks, self._setup.method.max_draft)

    # -- arrivals --------------------------------------------------------------------------

    def submit(self, request: Request) -> bool:
        """Take a request in, or refuse it if it can never fit; return whether it was taken."""
        self._now = now = max(self._now, self._env.now)
        sequence = SequenceState(
            request_id=request.request_id,
            prompt_len=request.prompt_len,
            output_len=request.output_len,
            arrival_s=now,
            prefill_target=request.prompt_len,
            queued_since_s=now,
            priority=request.priority,
        )
        if self._setup.prefix_caching:
            size = self._setup.block_size_tokens
            sequence.prefix_keys, sequence.piece_tokens = pieces(request, size)
        reason = self._refuses(request)
        if reason is not None:
            self._recorder.refuse(sequence, reason)
            return False
        self._recorder.count(+1, now)
        self._state.waiting.append(sequence)
        self._rouse()
        return True

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.triggered:
            self._wake.succeed()

    def expect(self, sequence: SequenceState) -> None:
        """Count in a sequence whose prompt another replica has computed."""
        self._recorder.count(+1, self._env.now)
        self._landing.expected[sequence.request_id] = sequence

    def land(self, sequence: SequenceState) -> None:
        """Take note that the KV of an expected sequence has arrived."""
        self._now = max(self._now, self._env.now)
        self._landing.arrive(sequence, self._now)
        self._rouse()

    def _take_landed(self) -> None:
        limits = self._setup.limits
        for sequence in self._landing.take_in(self._state, limits.max_num_seqs, self._now):
            sequence.prefix_keys = ()
            if self._control is not None:
                self._control.admit(sequence)
            else:
                self._read_tape(sequence)

    # -- the engine loop -------------------------------------------------------------------

    def start(self) -> None:
        """Let it run."""
        self._env.process(self.process())

    def process(self) -> Generator[simpy.Event, object, None]:
        """Run for ever: one engine step per turn, asleep while nobody is in the system."""
        env, state, cohort = self._env, self._state, self._cohort
        settlement, add_row, control = self._settlement, self._recorder.step, self._control
        in_force: tuple[int, ...] = (self._round_slots - 1, 0, 0)
        landed = self._landing.landed
        blocks = state.blocks
        budget = self._setup.limits.max_num_batched_tokens
        next_event_s = env.peek()
        while True:
            if control is not None and control.wants_to_switch():
                self._switch(control)
                cohort = self._cohort
            if landed:
                self._take_landed()
            # Nobody to admit, to prefill or to wait for: every policy lets all decode.
            is_plain = (
                cohort is not None
                and not state.waiting
                and len(cohort.members) == len(state.running) > 0
                and cohort.reserve(budget)
            )
            start_s = self._now
            if is_plain:
                assert cohort is not None
                num_sequences = len(cohort.members)
                plan = StepPlan(decoding=cohort.members.copy()) if self._check else _NO_PLAN
                price = self._pricer.of_cohort(cohort, None, num_sequences)
                used = blocks.num_used_blocks
                facts: tuple[float, ...] = (num_sequences, len(landed), 0, used, 0.0)
            else:
                plan = self._scheduler.schedule(state)
                if not plan.decoding and not plan.prefilling and not plan.resumed:
                    yield from self._sleep()
                    next_event_s = env.peek()
                    continue
                if plan.admitted or plan.preempted:
                    self._stamp(plan, start_s)
                facts = self._facts(plan)
                price = self._price(plan)
            step_s = price[0] + facts[-1]
            end_s = start_s + step_s
            if end_s >= next_event_s:
                yield from self._wait(start_s, end_s, step_s)
                next_event_s = env.peek()
            self._now = end_s
            if control is not None:
                members = cohort.members if is_plain and cohort is not None else plan.decoding
                in_force = control.show_rounds(members)
            if is_plain:
                counts = settlement.plain(num_sequences, start_s, end_s)
            else:
                counts = settlement.step(plan, start_s, end_s)
            add_row((start_s, end_s - start_s, *counts, *facts, *in_force, *price[1:]))
            if control is not None:
                control.show_step(prompt_tokens=counts[2], emitted=counts[5])
            if self._check:
                self._verify(plan)
            if self._departed:
                next_event_s = yield from self._see_off()

    def _facts(self, plan: StepPlan) -> tuple[float, ...]:
        """Return who runs, waits and was preempted, the blocks in use, the seconds of copying."""
        state, copy_s = self._state, 0.0
        if plan.copied_tokens:
            assert self._setup.host is not None
            copy_s = self._setup.host.copy_s(plan.copied_tokens)
        num_waiting = len(state.waiting) + len(self._landing.landed)
        queues = len(state.running), num_waiting, len(plan.preempted)
        return *queues, state.blocks.num_used_blocks, copy_s

    def _verify(self, plan: StepPlan) -> None:
        if self._cohort is not None:
            self._cohort.sync()
        invariants.after_step(self._state, plan, self._setup.limits, self._round_slots)

    def _sleep(self) -> Generator[simpy.Event, object, None]:
        """Wait for an arrival."""
        invariants.when_idle(self._state, len(self._landing.landed))
        self._wake = self._env.event()
        yield self._wake
        self._now = self._env.now

    def _wait(
        self, start_s: float, end_s: float, duration_s: float
    ) -> Generator[simpy.Event, object, None]:
        """Let SimPy's clock come to the end of a step during which something else happens."""
        env = self._env
        # A difference of numbers within a factor of two is exact, so is the sum.
        if 2.0 * env.now < end_s:
            while env.now < start_s:
                yield env.timeout(_delay(env.now, start_s))
        yield env.timeout(duration_s if env.now == start_s else end_s - env.now)

    def _see_off(self) -> Generator[simpy.Event, object, float]:
        """Hand on those who have left, at SimPy's time; return that of the next event."""
        env = self._env
        while env.now < self._now:
            yield env.timeout(_delay(env.now, self._now))
        leaving = self._departed.copy()
        self._departed.clear()
        for sequence in leaving:
            self._on_leave(sequence)
        return env.peek()

    def _switch(self, control: SpeculationControl) -> None:
        """Reserve, price and settle as the mode that has come into force does."""
        max_draft = control.mode.max_draft
        self._cohort = self._state.cohort = self._settlement.cohort = control.enter(self._cohort)
        self._settlement.speculates = max_draft > 0
        self._scheduler.round_slots = self._round_slots = max_draft + 1
        self._pricer = control.pricer

    def _stamp(self, plan: StepPlan, now: float) -> None:
        for sequence in plan.admitted:
            sequence.queue_s += now - sequence.queued_since_s
            if self._control is not None:
                self._control.admit(sequence)
            elif isnan(sequence.admission_s):
                self._read_tape(sequence)
            if isnan(sequence.admission_s):
                sequence.admission_s = now
        for sequence in plan.preempted:
            sequence.num_preemptions += 1
            sequence.queued_since_s = now

    def _read_tape(self, sequence: SequenceState) -> None:
        method, acceptance = self._setup.method, self._setup.acceptance
        if method.max_draft == 0 or acceptance is None:
            sequence.drafted_at = sequence.accepted_at = self._nothing_drafted
            return
        # A round that starts at the last token still drafts K positions beyond it.
        num_tokens = sequence.output_len + self._round_slots
        tape = acceptance.tape(self._setup.seed, sequence.request_id, num_tokens)
        outcomes = method.outcomes(tape)
        sequence.drafted_at = outcomes.drafted[: sequence.output_len].tolist()
        sequence.accepted_at = outcomes.accepted[: sequence.output_len].tolist()

    def _price(self, plan: StepPlan) -> Columns:
        prefill = _prefill_rows(plan) if plan.prefilling else None
        num_sequences = len(plan.decoding) + len(plan.prefilling)
        if plan.is_together:
            assert self._cohort is not None
            return self._pricer.of_cohort(self._cohort, prefill, num_sequences)
        decoding = plan.decoding
        if not num_sequences:
            return self._no_work
        contexts = [sequence.context_len for sequence in decoding]
        drafted = [sequence.drafted_at[sequence.emitted] for sequence in decoding]
        accepted = [sequence.accepted_at[sequence.emitted] for sequence in decoding]
        return self._pricer.of_lists(contexts, drafted, accepted, prefill, num_sequences)

    # -- records ---------------------------------------------------------------------------

    def close(self, num_not_arrived: int) -> RunRecords:
        """Record those still present and return the run."""
        state, recorder = self._state, self._recorder
        if self._cohort is not None:
            self._cohort.sync()
        now = self._env.now
        for sequence in state.running:
            recorder.request(sequence, Fate.RUNNING)
        for sequence in self._landing.expected.values():
            recorder.request(sequence, Fate.RUNNING)
        for sequence in (*state.waiting, *self._landing.landed):
            sequence.queue_s += now - sequence.queued_since_s
            recorder.request(sequence, Fate.WAITING)
        return recorder.close(now, num_not_arrived)


def _prefill_rows(plan: StepPlan) -> Rows:
    kv_tokens = num_last = 0
    attended = 0.0
    for sequence, chunk in zip(plan.prefilling, plan.chunks, strict=True):
        context = sequence.context_len
        kv_tokens += context + chunk
        attended += chunk * (context + (chunk + 1) / 2)
        num_last += context + chunk == sequence.prefill_target
    return Rows("prefill", len(plan.chunks), sum(plan.chunks), kv_tokens, attended, num_last)


def _delay(now: float, until_s: float) -> float:
    """Return the delay that takes a clock to ``until_s``, or one bit short of it."""
    delay_s = until_s - now
    return delay_s if now + delay_s <= until_s else nextafter(delay_s, 0.0)
