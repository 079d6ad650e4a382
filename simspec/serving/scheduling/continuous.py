"""Continuous batching with one token budget per step, as vLLM's v1 engine schedules.

Running sequences come first: each decoding one reserves K + 1 tokens of the step's budget, then
unfinished prompts get chunks, then waiting requests are admitted first come first served while
sequences, budget and KV blocks allow. Prompts and decode rounds share a step, so with chunked
prefill a long prompt delays the others' tokens by at most one budget's worth of work. Nobody is
admitted in a step that preempted somebody or in which a decoding sequence found no budget.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from simspec.serving.plan import EngineState, SchedulerLimits, StepPlan
from simspec.serving.preemption._base import Preemption
from simspec.serving.scheduling._base import (
    SchedulerConfig,
    admit,
    continue_prefills,
    reserve_rounds,
)


class Config(SchedulerConfig):
    """Everything is in the limits."""

    name: Literal["continuous"] = "continuous"

    def build(
        self, limits: SchedulerLimits, round_slots: int, preemption: Preemption
    ) -> Continuous:
        """Return the policy."""
        return Continuous(limits, round_slots, preemption)


class Continuous:
    """Decode rounds, then prompt chunks, then admissions, in one step."""

    is_made_of_moves: ClassVar[bool] = True

    def __init__(self, limits: SchedulerLimits, round_slots: int, preemption: Preemption) -> None:
        self.limits = limits
        self.round_slots = round_slots
        self.preemption = preemption

    def schedule(self, state: EngineState) -> StepPlan:
        """Return the next step."""
        plan = StepPlan()
        limits = self.limits
        budget = reserve_rounds(
            state, plan, limits.max_num_batched_tokens, self.round_slots, self.preemption
        )
        # Unfinished prompts exist only behind every decoding sequence.
        if state.running and len(state.running) > len(plan.decoding):
            budget = continue_prefills(state, plan, budget, chunked=limits.chunked_prefill)
        if state.waiting and not plan.preempted:
            admit(state, plan, budget, limits)
        return plan
