"""The contract of a scheduling policy, and the moves every policy is made of.

A scheduler only decides. Given the queues and the block allocator it returns a plan; it never
sees the clock. Each move asks the allocator first and then acts, so a plan cannot fail half-way.

A policy whose class has ``is_made_of_moves = True`` promises two things: it reads and changes the
running sequences through the moves below alone, and with nobody waiting or prefilling its step is
a round for all. Then decoding sequences are kept together (``simspec.serving.cohort``); under any
other policy each is looked at in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, ClassVar, Protocol, runtime_checkable

from simspec.core.errors import ConfigError
from simspec.core.registry import PluginConfig, Registry
from simspec.memory.prefixes import Piece
from simspec.serving.plan import (
    EngineState,
    SchedulerLimits,
    SequenceState,
    StepPlan,
    WaitingQueue,
)
from simspec.serving.preemption._base import Preemption

SCHEDULERS = Registry("simspec.serving.scheduling", "scheduling policy")

Urgency = Callable[[SequenceState], Any]
"""Sort key of sequences: smaller goes first, and no two are equal."""


class Scheduler(Protocol):
    """Decides the next engine step."""

    round_slots: int
    """K + 1 of the drafts in force; speculation control changes it between two steps."""

    def schedule(self, state: EngineState) -> StepPlan:
        """Return the next step; an empty plan means that nothing can run now."""
        ...


@runtime_checkable
class BringsQueue(Protocol):
    """A scheduler whose requests wait in another order than that of arrival."""

    def new_queue(self) -> WaitingQueue:
        """Return an empty queue."""
        ...


class SchedulerConfig(PluginConfig):
    """Base of every scheduling policy's ``Config``."""

    looks_at_classes: ClassVar[bool] = False
    """Whether the classes of requests change what is scheduled."""

    @property
    def class_targets_ms(self) -> dict[int, float]:
        """Targets of the time to first token by class, milliseconds, where the policy has some."""
        return {}

    @property
    def for_classes(self) -> tuple[str, ...]:
        """Fields that were given and matter only among requests of several classes."""
        return ()

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
    *,
    urgency: Urgency | None = None,
) -> int:
    """Give every decoding sequence one round if it fits, in order of urgency, then of admission.

    A round reserves ``round_slots`` tokens of the budget and KV slots for as many tokens. A
    sequence the budget has no room for sits this step out; for one the pool has no room for the
    last in that order is preempted until it has, or until it was preempted itself.

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
    # The last one of this list and of the running ones is the same, or prefills.
    running = state.running if urgency is None else sorted(state.running, key=urgency)
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
                victim = preempt(state, plan, preemption, running[-1])
                if running is not state.running:
                    running.pop()
                if victim is sequence:
                    return budget
            blocks.allocate(sequence.request_id, needed)
            sequence.capacity_tokens += needed * blocks.block_size_tokens
        budget -= round_slots
        decoding.append(sequence)
    return budget


def preempt(
    state: EngineState, plan: StepPlan, preemption: Preemption, victim: SequenceState
) -> SequenceState:
    """Take the blocks of a running sequence and send it back to the waiting ones."""
    victim = preemption.evict(state, victim)
    plan.preempted.append(victim)
    plan.copied_tokens += victim.swapped_tokens
    return victim


def continue_prefills(
    state: EngineState,
    plan: StepPlan,
    budget: int,
    *,
    chunked: bool,
    urgency: Urgency | None = None,
) -> int:
    """Give the admitted sequences that still prefill, in order, what the budget allows.

    Returns
    -------
    int, tokens
        Budget that is left.
    """
    # Unfinished prompts exist only behind every decoding sequence.
    num_decoding = len(state.cohort.members) if state.cohort is not None else 0
    unfinished = [
        sequence
        for sequence in islice(state.running, num_decoding, None)
        if sequence.context_len < sequence.prefill_target
    ]
    if urgency is not None:
        unfinished.sort(key=urgency)
    for sequence in unfinished:
        if sequence in plan.resumed:
            continue
        remaining = sequence.prefill_target - sequence.context_len
        if budget <= 0 or (remaining > budget and not chunked):
            break
        budget -= _start_chunk(state, plan, sequence, min(remaining, budget))
    return budget


def admit(state: EngineState, plan: StepPlan, budget: int, limits: SchedulerLimits) -> int:
    """Admit waiting sequences, first come first served, and start their prefill.

    The blocks of the whole prefill are taken at once, so an admitted sequence can always finish
    its prefill. The first one that does not fit holds back those behind it. One whose KV comes
    back from the host goes on in the next step.

    Returns
    -------
    int, tokens
        Budget that is left.
    """
    waiting = state.waiting
    while waiting and budget > 0 and len(state.running) < limits.max_num_seqs:
        sequence = take_in(state, plan, None if limits.chunked_prefill else budget)
        if sequence is None:
            break
        if sequence not in plan.resumed:
            remaining = sequence.prefill_target - sequence.context_len
            budget -= _start_chunk(state, plan, sequence, min(remaining, budget))
    return budget


def take_in(
    state: EngineState, plan: StepPlan, most_tokens: int | None = None
) -> SequenceState | None:
    """Move the first waiting sequence to the running ones if its prefill's blocks are free.

    What the cache has of its prompt is used, all but at least one token. KV in host memory comes
    back only if one more block is left for everybody who runs, else the next round would send it
    away again.

    Parameters
    ----------
    state, plan
        What is known, and what is decided.
    most_tokens : int, tokens, optional
        Take it in only if no more than these are left to prefill.

    Returns
    -------
    SequenceState or None
        The sequence, if it was taken in.
    """
    blocks, prefixes, sequence = state.blocks, state.prefixes, state.waiting[0]
    swapped, cached = sequence.swapped_tokens, 0
    target = max(sequence.prefill_target, swapped)
    found: list[Piece] = []
    if prefixes is not None and sequence.prefix_keys:
        most = max(sequence.prefill_target - 1, swapped) // sequence.piece_tokens
        found = prefixes.find(sequence.prefix_keys, most)
        cached = len(found) * sequence.piece_tokens
    if most_tokens is not None and not swapped and target - cached > most_tokens:
        return None
    needed = blocks.blocks_for(target) - cached // blocks.block_size_tokens
    asked = needed + len(state.running) if swapped else needed
    if prefixes is None:
        if not blocks.can_allocate(asked):
            return None
    elif not prefixes.can_take(found, asked):
        return None
    elif sequence.prefix_keys:
        prefixes.take(sequence.request_id, found)
    blocks.allocate(sequence.request_id, needed)
    sequence.capacity_tokens = blocks.blocks_for(target) * blocks.block_size_tokens
    state.waiting.popleft()
    plan.admitted.append(sequence)
    _start(state, plan, sequence, cached)
    return sequence


def _start(state: EngineState, plan: StepPlan, sequence: SequenceState, cached: int) -> None:
    """Count what a sequence that was taken in has of its KV, and put it among those that run."""
    swapped, lost = sequence.swapped_tokens, sequence.lost_tokens
    sequence.context_len = max(swapped, cached)
    if cached:
        sequence.cached_tokens += max(0, cached - swapped - lost)
        sequence.recomputed_tokens -= min(cached, lost)
    sequence.lost_tokens = 0
    if not swapped:
        state.running.append(sequence)
        return
    assert state.host is not None
    state.host.free(sequence.request_id)
    sequence.swapped_tokens = 0
    plan.resumed.append(sequence)
    plan.copied_tokens += max(0, swapped - cached)
    place = len(state.running)
    if sequence.context_len >= sequence.prefill_target:
        running = state.running
        while place and running[place - 1].context_len < running[place - 1].prefill_target:
            place -= 1
    state.running.insert(place, sequence)


def _start_chunk(state: EngineState, plan: StepPlan, sequence: SequenceState, chunk: int) -> int:
    """Put a prompt chunk into the step; whole pieces in it can be found from now on."""
    plan.prefilling.append(sequence)
    plan.chunks.append(chunk)
    if sequence.prefix_keys:
        assert state.prefixes is not None
        size = sequence.piece_tokens
        state.prefixes.publish(
            sequence.request_id,
            sequence.prefix_keys,
            (sequence.context_len + chunk) // size,
            size // state.blocks.block_size_tokens,
        )
    return chunk
