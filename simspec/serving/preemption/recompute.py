"""Preemption by recompute: drop a sequence's KV and prefill it again later.

The victim gives up all its blocks and returns to the front of the waiting queue. When it is
admitted again it prefills its prompt and everything it has generated, ``prompt_len + emitted``
tokens, and the end of that prefill yields its next token. This is what vLLM's v1 engine does.
Under the policies that serve in order of admission the victim is the latest admitted; since the
earliest is never the victim of a later one, the run always makes progress.
"""

from __future__ import annotations

from typing import Literal

from simspec.serving.plan import EngineState, SequenceState
from simspec.serving.preemption._base import PreemptionConfig, forget


class Config(PreemptionConfig):
    """Recompute has no settings."""

    name: Literal["recompute"] = "recompute"

    def build(self) -> Recompute:
        """Return the policy."""
        return Recompute()


class Recompute:
    """Forget, and compute again."""

    def evict(self, state: EngineState, victim: SequenceState) -> SequenceState:
        """Free the victim's blocks and queue it first."""
        return forget(state, victim)
