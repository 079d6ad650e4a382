"""Continuous batching that stops decoding for prompts, as vLLM's v0 engine scheduled.

While a waiting request can be admitted, the step holds prompts only; decoding goes on when none
can. First tokens come early and the tokens of running requests stall meanwhile.
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

    name: Literal["prefill_first"] = "prefill_first"

    def build(
        self, limits: SchedulerLimits, round_slots: int, preemption: Preemption
    ) -> PrefillFirst:
        """Return the policy."""
        return PrefillFirst(limits, round_slots, preemption)


class PrefillFirst:
    """A step of prompts if there is one, else a step of decode rounds."""

    is_made_of_moves: ClassVar[bool] = True

    def __init__(self, limits: SchedulerLimits, round_slots: int, preemption: Preemption) -> None:
        self.limits = limits
        self.round_slots = round_slots
        self.preemption = preemption

    def schedule(self, state: EngineState) -> StepPlan:
        """Return the next step."""
        plan = StepPlan()
        limits = self.limits
        budget = limits.max_num_batched_tokens
        budget = continue_prefills(state, plan, budget, chunked=limits.chunked_prefill)
        if state.waiting:
            admit(state, plan, budget, limits)
        if not plan.prefilling and not plan.resumed:
            reserve_rounds(
                state, plan, limits.max_num_batched_tokens, self.round_slots, self.preemption
            )
        return plan
