"""Static batching: a batch is formed from what waits, and nobody joins until all of it is done.

When nothing runs, waiting requests are taken in first come first served, up to ``max_num_seqs``
and the KV blocks of their prompts. Their prompts are computed in as many steps as the token
budget asks for, then all of them decode; the places of those that finish early stay empty.
A batch does not wait to be full.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from simspec.serving.plan import EngineState, SchedulerLimits, StepPlan
from simspec.serving.preemption._base import Preemption
from simspec.serving.scheduling._base import (
    SchedulerConfig,
    continue_prefills,
    reserve_rounds,
    take_in,
)


class Config(SchedulerConfig):
    """Everything is in the limits."""

    name: Literal["static"] = "static"

    def build(self, limits: SchedulerLimits, round_slots: int, preemption: Preemption) -> Static:
        """Return the policy."""
        return Static(limits, round_slots, preemption)


class Static:
    """Take a batch in, prefill it, decode it to the end."""

    is_made_of_moves: ClassVar[bool] = True

    def __init__(self, limits: SchedulerLimits, round_slots: int, preemption: Preemption) -> None:
        self.limits = limits
        self.round_slots = round_slots
        self.preemption = preemption

    def schedule(self, state: EngineState) -> StepPlan:
        """Return the next step."""
        plan = StepPlan()
        limits = self.limits
        if not state.running:
            while state.waiting and len(state.running) < limits.max_num_seqs:
                if take_in(state, plan) is None:
                    break
        budget = limits.max_num_batched_tokens
        continue_prefills(state, plan, budget, chunked=limits.chunked_prefill)
        if not plan.prefilling and not plan.resumed:
            reserve_rounds(state, plan, budget, self.round_slots, self.preemption)
        return plan
