"""The contract of a preemption policy."""

from __future__ import annotations

from typing import Protocol

from simspec.core.registry import PluginConfig, Registry
from simspec.serving.plan import EngineState, SequenceState

PREEMPTIONS = Registry("simspec.serving.preemption", "preemption policy")


class Preemption(Protocol):
    """Chooses a victim and takes its blocks."""

    def evict(self, state: EngineState) -> SequenceState:
        """Move one running sequence back to the waiting queue and free all its blocks.

        Called only while something runs.
        """
        ...


class PreemptionConfig(PluginConfig):
    """Base of every preemption policy's ``Config``."""

    def build(self) -> Preemption:
        """Return the policy."""
        raise TypeError(f"{type(self).__module__}.Config must define build()")
