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
from math import isnan, nextafter

import simpy

from simspec.cost.template import Columns
from simspec.cost.work import Rows
from simspec.memory.blocks import BlockPool
from simspec.serving import invariants
from simspec.serving.cohort import Cohort, DraftingCohort, PlainCohort
from simspec.serving.plan import EngineState, SequenceState, ServingSetup, StepPlan
from simspec.serving.preemption._base import PREEMPTIONS, PreemptionConfig
from simspec.serving.records import (
    NUM_REQUEST_COLUMNS,
    NUM_STEP_COLUMNS,
    Fate,
    RowBuffer,
    RunRecords,
    request_records,
    step_records,
)
from simspec.serving.round_price import RoundPricer
from simspec.serving.scheduling._base import (
    SCHEDULERS,
    Scheduler,
    SchedulerConfig,
    check_round_fits,
)
from simspec.workloads.request import Request


class Replica:
    """A serving engine as a SimPy process.

    Parameters
    ----------
    env : simpy.Environment
        The clock.
    setup : ServingSetup
        Method, prices, limits, pool.
    on_leave : callable
        Called after a request that was not refused has finished.
    check : bool
        Check the numbered laws after every step.
    """

    def __init__(
        self,
        env: simpy.Environment,
        setup: ServingSetup,
        on_leave: Callable[[], None],
        *,
        check: bool,
    ) -> None:
        self._env = env
        self._setup = setup
        self._on_leave = on_leave
        self._check = check
        self._round_slots = setup.method.max_draft + 1
        self._scheduler = build_scheduler(setup)
        blocks = BlockPool(setup.num_blocks, setup.block_size_tokens)
        self._cohort = self._new_cohort(blocks)
        self._state = EngineState(blocks, cohort=self._cohort)
        self._pricer = RoundPricer(setup.method, setup.cost)
        self._now = 0.0
        self._wake: simpy.Event | None = None
        longest = max((request.output_len for request in setup.requests), default=0)
        # A request longer than the pool is refused, whatever its log says.
        pool = setup.num_blocks * setup.block_size_tokens
        self._nothing_drafted: Sequence[int] = [0] * min(longest, pool)
        self._request_rows = RowBuffer(NUM_REQUEST_COLUMNS)
        self._step_rows = RowBuffer(NUM_STEP_COLUMNS)
        self._other_gaps = RowBuffer(2)
        self._refusals: dict[int, str] = {}
        self._num_in_system = 0
        self._integral_s = 0.0
        self._integrated_until_s = 0.0

    def _new_cohort(self, blocks: BlockPool) -> Cohort | None:
        is_known = getattr(self._scheduler, "is_made_of_moves", False)
        if self._setup.step_by_step or not is_known:
            return None
        max_draft = self._setup.method.max_draft
        return DraftingCohort(blocks, max_draft) if max_draft else PlainCohort(blocks)

    # -- arrivals and departures -----------------------------------------------------------

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
        )
        reason = refusal(request, self._setup)
        if reason is not None:
            self._refusals[request.request_id] = reason
            self._record(sequence, Fate.REFUSED)
            return False
        self._count(+1)
        self._state.waiting.append(sequence)
        if self._wake is not None and not self._wake.triggered:
            self._wake.succeed()
        return True

    def _leave(self, sequence: SequenceState) -> None:
        self._state.blocks.free(sequence.request_id)
        self._record(sequence, Fate.FINISHED)
        self._count(-1)

    def _count(self, change: int) -> None:
        now = self._now
        self._integral_s += self._num_in_system * (now - self._integrated_until_s)
        self._integrated_until_s = now
        self._num_in_system += change

    # -- the engine loop -------------------------------------------------------------------

    def process(self) -> Generator[simpy.Event, object, None]:
        """Run for ever: one engine step per turn, asleep while nobody is in the system."""
        env, state, cohort = self._env, self._state, self._cohort
        blocks = state.blocks
        schedule = self._scheduler.schedule
        budget = self._setup.limits.max_num_batched_tokens
        next_event_s = env.peek()
        nothing = StepPlan()
        while True:
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
                plan = StepPlan(decoding=cohort.members.copy()) if self._check else nothing
                price = self._pricer.of_cohort(cohort, None, num_sequences)
                facts: tuple[int, ...] = (num_sequences, 0, 0, blocks.num_used_blocks)
            else:
                plan = schedule(state)
                if not plan.decoding and not plan.prefilling:
                    invariants.when_idle(state)
                    self._wake = env.event()
                    yield self._wake
                    self._now = env.now
                    next_event_s = env.peek()
                    continue
                if plan.admitted or plan.preempted:
                    self._stamp(plan, start_s)
                facts = (
                    len(state.running),
                    len(state.waiting),
                    len(plan.preempted),
                    blocks.num_used_blocks,
                )
                price = self._price(plan)
            end_s = start_s + price[0]
            if end_s >= next_event_s:
                # A difference of numbers within a factor of two is exact, so is the sum.
                if 2.0 * env.now < end_s:
                    while env.now < start_s:
                        yield env.timeout(_delay(env.now, start_s))
                yield env.timeout(price[0] if env.now == start_s else end_s - env.now)
                next_event_s = env.peek()
            self._now = end_s
            if is_plain:
                counts = self._settle_plain(num_sequences, start_s)
            else:
                counts = self._settle(plan, start_s)
            self._step_rows.append((start_s, end_s - start_s, *counts, *facts, *price[1:]))
            if self._check:
                if cohort is not None:
                    cohort.sync()
                invariants.after_step(state, plan, self._setup.limits, self._round_slots)

    def _stamp(self, plan: StepPlan, now: float) -> None:
        for sequence in plan.preempted:
            sequence.num_preemptions += 1
            sequence.queued_since_s = now
        for sequence in plan.admitted:
            sequence.queue_s += now - sequence.queued_since_s
            if isnan(sequence.admission_s):
                sequence.admission_s = now
                self._read_tape(sequence)

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
        contexts = [sequence.context_len for sequence in decoding]
        drafted = [sequence.drafted_at[sequence.emitted] for sequence in decoding]
        accepted = [sequence.accepted_at[sequence.emitted] for sequence in decoding]
        return self._pricer.of_lists(contexts, drafted, accepted, prefill, num_sequences)

    # -- the end of a step -----------------------------------------------------------------

    def _settle_plain(self, num_sequences: int, start_s: float) -> tuple[int, ...]:
        """Hand out the tokens of a step that is a round for all; return what the records count."""
        cohort = self._cohort
        assert cohort is not None
        drafted = cohort.num_drafted
        finished, accepted, cut = cohort.advance(start_s, self._now)
        if finished:
            self._dismiss(finished)
        emitted = accepted + num_sequences - cut
        return num_sequences, 0, 0, drafted, accepted, emitted, 0, cut, num_sequences

    def _settle(self, plan: StepPlan, start_s: float) -> tuple[int, ...]:
        """Hand out the tokens of a step; return what the records count of it.

        Decoding and prefilling sequences, prompt tokens, drafted, accepted, emitted, prefilled,
        cut, steady gaps.
        """
        cohort = self._cohort
        num_decoding = len(plan.decoding)
        if plan.is_together:
            assert cohort is not None
            drafted = cohort.num_drafted
            finished, accepted, cut = cohort.advance(start_s, self._now)
            steady = num_decoding
        else:
            if cohort is not None and cohort.members:
                # They stall for a step of prompts.
                cohort.dissolve()
            finished = []
            drafted, accepted, cut, steady = self._settle_rounds(plan, start_s, finished)
        prefilled = self._settle_prefills(plan)
        ended = [sequence for sequence in prefilled if sequence.emitted == sequence.output_len]
        finished += ended
        if finished:
            self._dismiss(finished)
        if cohort is not None:
            self._gather(cohort, plan, prefilled)
        emitted = accepted + num_decoding + len(prefilled) - cut
        return (
            num_decoding,
            len(plan.prefilling),
            sum(plan.chunks),
            drafted,
            accepted,
            emitted,
            len(prefilled),
            cut,
            steady,
        )

    def _dismiss(self, finished: list[SequenceState]) -> None:
        gone = set(map(id, finished))
        self._state.running = [s for s in self._state.running if id(s) not in gone]
        for sequence in finished:
            self._leave(sequence)
        for _ in finished:
            self._on_leave()

    def _gather(self, cohort: Cohort, plan: StepPlan, prefilled: list[SequenceState]) -> None:
        """Let those join the cohort whose last tokens came out when the others' did."""
        if plan.is_together:
            joining = [s for s in prefilled if s.emitted < s.output_len]
        else:
            now = self._now
            joining = [s for s in self._state.running if s.context_len >= s.prefill_target]
            if any(sequence.last_token_s != now for sequence in joining):
                return
            cohort.last_token_s = now
        for sequence in joining:
            cohort.join(sequence)

    def _settle_rounds(
        self, plan: StepPlan, start_s: float, finished: list[SequenceState]
    ) -> tuple[int, int, int, int]:
        now = self._now
        step_s = now - start_s
        block_size = self._setup.block_size_tokens
        speculates = self._round_slots > 1
        num_drafted = num_accepted = num_cut = num_steady = 0
        for sequence in plan.decoding:
            position = sequence.emitted
            a = sequence.accepted_at[position]
            position += a + 1
            sequence.context_len += a + 1
            sequence.num_rounds += 1
            if sequence.last_token_s == start_s:
                num_steady += 1
                gap_s = step_s
            else:
                gap_s = now - sequence.last_token_s
                self._other_gaps.append((gap_s, now))
            sequence.last_token_s = now
            if gap_s > sequence.max_gap_s:  # noqa: PLR1730 (a call per token costs more)
                sequence.max_gap_s = gap_s
            if speculates:
                m = sequence.drafted_at[sequence.emitted]
                num_drafted += m
                num_accepted += a
                sequence.num_drafted += m
                sequence.num_accepted += a
                spare = (sequence.capacity_tokens - sequence.context_len) // block_size
                if spare > 0:
                    self._state.blocks.shrink(sequence.request_id, spare)
                    sequence.capacity_tokens -= spare * block_size
            if position >= sequence.output_len:
                num_cut += position - sequence.output_len
                position = sequence.output_len
                finished.append(sequence)
            sequence.emitted = position
        return num_drafted, num_accepted, num_cut, num_steady

    def _settle_prefills(self, plan: StepPlan) -> list[SequenceState]:
        """Count the prompt chunks; return those whose prefill is complete, a token each."""
        now = self._now
        prefilled = []
        for sequence, chunk in zip(plan.prefilling, plan.chunks, strict=True):
            sequence.context_len += chunk
            if sequence.context_len < sequence.prefill_target:
                continue
            prefilled.append(sequence)
            if sequence.emitted == 0:
                sequence.first_token_s = now
            else:
                gap_s = now - sequence.last_token_s
                self._other_gaps.append((gap_s, now))
                sequence.max_gap_s = max(sequence.max_gap_s, gap_s)
            sequence.last_token_s = now
            sequence.emitted += 1
        return prefilled

    # -- records ---------------------------------------------------------------------------

    def _record(self, sequence: SequenceState, fate: Fate) -> None:
        self._request_rows.append(
            (
                sequence.request_id,
                fate,
                sequence.prompt_len,
                sequence.output_len,
                sequence.arrival_s,
                sequence.admission_s,
                sequence.first_token_s,
                sequence.last_token_s,
                sequence.queue_s,
                sequence.max_gap_s,
                sequence.emitted,
                sequence.num_preemptions,
                sequence.recomputed_tokens,
                sequence.num_rounds,
                sequence.num_drafted,
                sequence.num_accepted,
            )
        )

    def close(self, num_not_arrived: int) -> RunRecords:
        """Record those still present and return the run."""
        state, setup = self._state, self._setup
        if self._cohort is not None:
            self._cohort.sync()
        is_empty = not state.running and not state.waiting
        end_s = self._integrated_until_s if is_empty else self._env.now
        self._integral_s += self._num_in_system * (end_s - self._integrated_until_s)
        self._integrated_until_s = end_s
        for sequence in state.running:
            self._record(sequence, Fate.RUNNING)
        for sequence in state.waiting:
            sequence.queue_s += end_s - sequence.queued_since_s
            self._record(sequence, Fate.WAITING)
        gaps = self._other_gaps.columns()
        return RunRecords(
            requests=request_records(self._request_rows),
            steps=step_records(self._step_rows),
            other_gaps_s=gaps[0].copy(),
            other_gaps_end_s=gaps[1].copy(),
            refusals=dict(self._refusals),
            end_s=end_s,
            num_not_arrived=num_not_arrived,
            concurrency=setup.concurrency,
            num_blocks=setup.num_blocks,
            block_size_tokens=setup.block_size_tokens,
            max_draft=setup.method.max_draft,
            num_in_system_integral_s=self._integral_s,
        )


def build_scheduler(setup: ServingSetup) -> Scheduler:
    """Return the scheduling policy the limits name, with its preemption policy.

    Raises
    ------
    ConfigError
        A policy is unknown, or no round of K + 1 tokens fits into a step.
    """
    limits = setup.limits
    round_slots = setup.method.max_draft + 1
    check_round_fits(limits, round_slots, setup.method.name)
    preemption = PREEMPTIONS.config_class(limits.preemption)()
    scheduler = SCHEDULERS.config_class(limits.policy)()
    assert isinstance(preemption, PreemptionConfig), limits.preemption
    assert isinstance(scheduler, SchedulerConfig), limits.policy
    return scheduler.build(limits, round_slots, preemption.build())


def refusal(request: Request, setup: ServingSetup) -> str | None:
    """Return why the request can never be served, even alone; None if it can.

    The largest need is that of the last round: it can start when one token is missing, with
    ``prompt_len + output_len - 2`` tokens in the KV, and reserves K + 1 more.
    """
    total = request.prompt_len + request.output_len - 1
    needed = total + setup.method.max_draft if request.output_len > 1 else total
    size = setup.block_size_tokens
    if -(-needed // size) > setup.num_blocks:
        return (
            f"needs {needed} KV slots ({request.prompt_len} prompt + {request.output_len} output "
            f"tokens with the slots of a round), the pool holds {setup.num_blocks * size}"
        )
    limits = setup.limits
    if not limits.chunked_prefill and total > limits.max_num_batched_tokens:
        return (
            f"may have to prefill {total} tokens in one step without chunked prefill, "
            f"max_num_batched_tokens is {limits.max_num_batched_tokens}"
        )
    return None


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
