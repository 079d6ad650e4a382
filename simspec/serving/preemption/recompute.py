"""Preemption by recompute: drop the latest sequence's KV and prefill it again later.

The sequence that was admitted last gives up all its blocks and returns to the front of the
waiting queue. When it is admitted again it prefills its prompt and everything it has generated,
``prompt_len + emitted`` tokens, and the end of that prefill yields its next token. This is what
vLLM's v1 engine does. Since the earliest sequence is never the victim of a later one, the run
always makes progress.
"""

from __future__ import annotations

from typing import Literal

from simspec.serving.plan import EngineState, SequenceState
from simspec.serving.preemption._base import PreemptionConfig


class Config(PreemptionConfig):
    """Recompute has no settings."""

    name: Literal["recompute"] = "recompute"

    def build(self) -> Recompute:
        """Return the policy."""
        return Recompute()


class Recompute:
    """The latest admitted goes first."""

    def evict(self, state: EngineState) -> SequenceState:
        """Free the latest admitted sequence's blocks and queue it first."""
        victim = state.running.pop()
        state.blocks.free(victim.request_id)
        victim.recomputed_tokens += victim.context_len
        victim.context_len = 0
        victim.whole_tokens = 0
        victim.capacity_tokens = 0
        victim.prefill_target = victim.prompt_len + victim.emitted
        state.waiting.appendleft(victim)
        return victim
