"""Continuous batching in order of urgency, with deadlines for the first token.

A step is made as under ``continuous``, but rounds, prompt chunks and admissions go to the most
urgent request first, and the one to be preempted is the least urgent that runs. A request's
deadline is its arrival plus the target of its class; requests of one class go in order of deadline
(earliest deadline first). Between classes, either the class counts first (``order: class``), or
deadlines alone (``order: deadline``): then a class with a tight target overtakes one with a loose
target, but only those that arrived within the difference.

When the most urgent waiting request finds no seat or no KV block, running requests that are less
urgent and of a lower class make room, the least urgent first, if that is enough (``preempts``).
Nobody makes room for a request of the same class, since that would only trade one wait for a
longer one. vLLM's
``--scheduling-policy priority`` orders the same way by class and arrival, and preempts for the
blocks of running requests only.

With ``order: class`` nothing protects a class from starving: under a steady load of more urgent
requests it waits for ever, and it is preempted again and again. With ``order: deadline`` and
``preempts: false`` every request is the most urgent one day.
"""

from __future__ import annotations

from math import inf
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simspec.core.units import from_ms
from simspec.serving.plan import EngineState, SchedulerLimits, SequenceState, StepPlan
from simspec.serving.preemption._base import Preemption
from simspec.serving.scheduling._base import (
    SchedulerConfig,
    admit,
    continue_prefills,
    preempt,
    reserve_rounds,
    take_in,
)
from simspec.serving.scheduling._queue import OrderedQueue

Milliseconds = Annotated[float, Field(gt=0.0, le=1e9)]


class Config(SchedulerConfig):
    """What urgency means."""

    looks_at_classes: ClassVar[bool] = True

    name: Literal["priority"] = "priority"
    order: Literal["class", "deadline"] = "class"
    """What counts first: the request's class, or its deadline whatever its class."""
    class_ttft_ms: dict[int, Milliseconds] = Field(default_factory=dict)
    """Target of the time to first token by class, milliseconds; classes not named here have the
    scenario's ``slo.ttft_ms``, and without that no deadline."""
    preempts: bool = True
    """Whether running requests make room for one of a more urgent class."""

    @property
    def class_targets_ms(self) -> dict[int, float]:
        """Targets of the time to first token by class, milliseconds."""
        return dict(self.class_ttft_ms)

    @property
    def for_classes(self) -> tuple[str, ...]:
        """Fields that were given and matter only among requests of several classes."""
        return tuple(sorted(self.model_fields_set - {"name"}))

    def build(self, limits: SchedulerLimits, round_slots: int, preemption: Preemption) -> Priority:
        """Return the policy."""
        targets = {number: from_ms(target) for number, target in self.class_ttft_ms.items()}
        return Priority(self, targets, limits, round_slots, preemption)


class Priority:
    """Rounds, chunks and admissions by urgency."""

    is_made_of_moves: ClassVar[bool] = True

    def __init__(
        self,
        config: Config,
        targets_s: dict[int, float],
        limits: SchedulerLimits,
        round_slots: int,
        preemption: Preemption,
    ) -> None:
        self.config = config
        self.targets_s = targets_s
        self.limits = limits
        self.round_slots = round_slots
        self.preemption = preemption
        self._default_s = inf if limits.ttft_target_s is None else limits.ttft_target_s
        self._by_class = config.order == "class"

    def new_queue(self) -> OrderedQueue:
        """Return the queue in which requests wait for this policy."""
        return OrderedQueue(self.urgency)

    def urgency(self, sequence: SequenceState) -> tuple[float, float, float, int]:
        """Return the sort key of a request: what is smaller goes first."""
        deadline_s = sequence.arrival_s + self.targets_s.get(sequence.priority, self._default_s)
        first = float(sequence.priority) if self._by_class else 0.0
        return first, deadline_s, sequence.arrival_s, sequence.request_id

    def schedule(self, state: EngineState) -> StepPlan:
        """Return the next step."""
        plan = StepPlan()
        limits = self.limits
        if state.waiting and self.config.preempts:
            self._make_room(state, plan)
        budget = reserve_rounds(
            state,
            plan,
            limits.max_num_batched_tokens,
            self.round_slots,
            self.preemption,
            urgency=self.urgency,
        )
        if state.running and len(state.running) > len(plan.decoding):
            budget = continue_prefills(
                state, plan, budget, chunked=limits.chunked_prefill, urgency=self.urgency
            )
        if state.waiting and not plan.preempted:
            admit(state, plan, budget, limits)
        return plan

    def _make_room(self, state: EngineState, plan: StepPlan) -> None:
        """Take in waiting requests in the place of running ones of less urgent classes."""
        while state.waiting:
            first = state.waiting[0]
            victims = [s for s in state.running if self._gives_way(s, first)]
            if not victims or not self._is_blocked(state, first, spared=0):
                return
            if state.cohort is not None:
                state.cohort.dissolve()
            if self._is_blocked(
                state,
                first,
                spared=sum(s.capacity_tokens for s in victims),
                num_victims=len(victims),
            ):
                return
            victims.sort(key=self.urgency)
            while self._is_blocked(state, first, spared=0) and victims:
                preempt(state, plan, self.preemption, victims.pop())
            if take_in(state, plan) is None:
                return

    def _gives_way(self, running: SequenceState, first: SequenceState) -> bool:
        # By deadline, one of a lower class may still be the more urgent.
        return running.priority > first.priority and self.urgency(running) > self.urgency(first)

    def _is_blocked(
        self, state: EngineState, first: SequenceState, *, spared: int, num_victims: int = 0
    ) -> bool:
        """Whether a request lacks a seat or blocks, were some tokens' blocks and seats free."""
        if len(state.running) - num_victims >= self.limits.max_num_seqs:
            return True
        blocks = state.blocks
        needed = blocks.blocks_for(max(first.prefill_target, first.swapped_tokens))
        return needed - spared // blocks.block_size_tokens > blocks.num_free_blocks
