"""The contract of a preemption policy."""

from __future__ import annotations

from typing import Protocol

from simspec.core.registry import PluginConfig, Registry
from simspec.serving.plan import EngineState, SequenceState

PREEMPTIONS = Registry("simspec.serving.preemption", "preemption policy")


class Preemption(Protocol):
    """Chooses a victim and takes its blocks."""

    def evict(self, state: EngineState, victim: SequenceState) -> SequenceState:
        """Move a running sequence to the front of the waiting queue and free all its blocks.

        Parameters
        ----------
        state : EngineState
            Changed.
        victim : SequenceState
            Whom the scheduling policy can spare best.

        Returns
        -------
        SequenceState
            Who was moved.
        """
        ...


def forget(state: EngineState, victim: SequenceState) -> SequenceState:
    """Drop a running sequence's KV and queue it first; it will prefill all of it again."""
    state.running.remove(victim)
    state.blocks.free(victim.request_id)
    victim.lost_tokens = victim.context_len
    victim.recomputed_tokens += victim.context_len
    victim.context_len = 0
    victim.whole_tokens = 0
    victim.capacity_tokens = 0
    victim.prefill_target = victim.prompt_len + victim.emitted
    state.waiting.appendleft(victim)
    return victim


class PreemptionConfig(PluginConfig):
    """Base of every preemption policy's ``Config``."""

    @property
    def host_bytes(self) -> float:
        """Host memory that the policy keeps for each rank, bytes."""
        return 0.0

    def build(self) -> Preemption:
        """Return the policy."""
        raise TypeError(f"{type(self).__module__}.Config must define build()")
