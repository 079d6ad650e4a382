"""The contract of a scheduling policy, and the moves every policy is made of.

A scheduler only decides. Given the queues and the block allocator it returns a plan; it never
sees the clock. Each move asks the allocator first and then acts, so a plan cannot fail half-way.

A policy whose class has ``is_made_of_moves = True`` promises two things: it reads and changes the
running sequences through the moves below alone, and with nobody waiting or prefilling its step is
a round for all. Then decoding sequences are kept together (``simspec.serving.cohort``); under any
other policy each is looked at in every step.
"""

from __future__ import annotations

from itertools import islice
from typing import Protocol

from simspec.core.errors import ConfigError
from simspec.core.registry import PluginConfig, Registry
from simspec.serving.plan import EngineState, SchedulerLimits, SequenceState, StepPlan
from simspec.serving.preemption._base import Preemption

SCHEDULERS = Registry("simspec.serving.scheduling", "scheduling policy")


class Scheduler(Protocol):
    """Decides the next engine step."""

    round_slots: int
    """K + 1 of the drafts in force; speculation control changes it between two steps."""

    def schedule(self, state: EngineState) -> StepPlan:
        """Return the next step; an empty plan means that nothing can run now."""
        ...


class SchedulerConfig(PluginConfig):
    """Base of every scheduling policy's ``Config``."""

    def build(self, limits: SchedulerLimits, round_slots: int, preemption: Preemption) -> Scheduler:
        """Return the policy.

        Parameters
        ----------
        limits : SchedulerLimits
            What one step may hold.
        round_slots : int, tokens
            K + 1: token budget and KV slots one decode round reserves per sequence.
        preemption : Preemption
            Called when a round's slots cannot be reserved.
        """
        raise TypeError(f"{type(self).__module__}.Config must define build()")


def check_round_fits(limits: SchedulerLimits, round_slots: int, method: str) -> None:
    """Refuse a token budget that holds not even one sequence's round.

    Raises
    ------
    ConfigError
        K + 1 tokens exceed what one step may process.
    """
    if round_slots > limits.max_num_batched_tokens:
        raise ConfigError(
            f"max_num_batched_tokens is {limits.max_num_batched_tokens}, but one round of "
            f"{method} takes {round_slots} tokens (K + 1); give at least {round_slots}",
            field="scheduler.max_num_batched_tokens",
        )


def reserve_rounds(
    state: EngineState,
    plan: StepPlan,
    budget: int,
    round_slots: int,
    preemption: Preemption,
) -> int:
    """Give every decoding sequence, in order of admission, one round if it fits.

    A round reserves ``round_slots`` tokens of the budget and KV slots for as many tokens. A
    sequence the budget has no room for sits this step out; one the pool has no room for makes
    the preemption policy evict until it has, or until it was evicted itself.

    Returns
    -------
    int, tokens
        Budget that is left; negative when a sequence sat out, so that nothing else is added.
    """
    cohort = state.cohort
    if cohort is not None and cohort.members:
        if cohort.reserve(budget):
            plan.is_together = True
            plan.decoding = cohort.members.copy()
            return budget - round_slots * len(plan.decoding)
        cohort.dissolve()
    running = state.running
    blocks = state.blocks
    decoding = plan.decoding
    index = 0
    while index < len(running):
        sequence = running[index]
        index += 1
        context_len = sequence.context_len
        if context_len < sequence.prefill_target:
            continue
        if budget < round_slots:
            return -1
        if context_len + round_slots > sequence.capacity_tokens:
            needed = blocks.blocks_for(context_len + round_slots - sequence.capacity_tokens)
            while not blocks.can_allocate(needed):
                victim = preemption.evict(state)
                plan.preempted.append(victim)
                if victim is sequence:
                    return budget
            blocks.allocate(sequence.request_id, needed)
            sequence.capacity_tokens += needed * blocks.block_size_tokens
        budget -= round_slots
        decoding.append(sequence)
    return budget


def continue_prefills(state: EngineState, plan: StepPlan, budget: int, *, chunked: bool) -> int:
    """Give the admitted sequences that still prefill, in order, what the budget allows.

    Returns
    -------
    int, tokens
        Budget that is left.
    """
    # Unfinished prompts exist only behind every decoding sequence.
    num_decoding = len(state.cohort.members) if state.cohort is not None else 0
    for sequence in islice(state.running, num_decoding, None):
        if sequence.context_len < sequence.prefill_target:
            chunk = _chunk(sequence, budget, chunked=chunked)
            if chunk <= 0:
                break
            plan.prefilling.append(sequence)
            plan.chunks.append(chunk)
            budget -= chunk
    return budget


def admit(state: EngineState, plan: StepPlan, budget: int, limits: SchedulerLimits) -> int:
    """Admit waiting sequences, first come first served, and start their prefill.

    The blocks of the whole prefill are taken at once, so an admitted sequence can always finish
    its prefill. The first one that does not fit holds back those behind it.

    Returns
    -------
    int, tokens
        Budget that is left.
    """
    waiting = state.waiting
    while waiting and budget > 0 and len(state.running) < limits.max_num_seqs:
        chunk = _chunk(waiting[0], budget, chunked=limits.chunked_prefill)
        if chunk <= 0 or not take_in(state, plan):
            break
        plan.prefilling.append(state.running[-1])
        plan.chunks.append(chunk)
        budget -= chunk
    return budget


def take_in(state: EngineState, plan: StepPlan) -> bool:
    """Move the first waiting sequence to the running ones if its prefill's blocks are free."""
    blocks = state.blocks
    sequence = state.waiting[0]
    needed = blocks.blocks_for(sequence.prefill_target)
    if not blocks.can_allocate(needed):
        return False
    blocks.allocate(sequence.request_id, needed)
    sequence.capacity_tokens = needed * blocks.block_size_tokens
    state.waiting.popleft()
    state.running.append(sequence)
    plan.admitted.append(sequence)
    return True


def _chunk(sequence: SequenceState, budget: int, *, chunked: bool) -> int:
    """Return the tokens of the next prompt chunk, 0 when an unsplittable prompt must wait."""
    remaining = sequence.prefill_target - sequence.context_len
    if remaining <= budget:
        return remaining
    return budget if chunked else 0
