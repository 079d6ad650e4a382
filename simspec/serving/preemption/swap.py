"""Preemption by swap: copy a sequence's KV to host memory and back later.

The victim's KV goes over the host link in the step that preempts it and comes back in the step
that admits it again, which both take that much longer; it goes on where it stopped in the step
after. Nothing is computed twice. Each rank copies its share over its own link, at the link's
nominal rate. Where the host memory has no room left the victim is recomputed
(``simspec.serving.preemption.recompute``). This is what vLLM's v0 engine did with
``preemption_mode="swap"`` and ``swap_space``.

When it pays: ``simspec.scenarios.swapping``. Left out: copies that overlap with computing, and the
set-up of each copy.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simspec.core.units import from_gb
from simspec.serving.plan import EngineState, SequenceState
from simspec.serving.preemption._base import PreemptionConfig, forget


class Config(PreemptionConfig):
    """How much host memory there is to copy to."""

    name: Literal["swap"] = "swap"
    swap_space_gb: float = Field(default=4.0, gt=0.0, le=100_000.0)
    """Host memory for each GPU, 10**9 bytes; vLLM's ``swap_space`` was 4 GiB unless told."""

    @property
    def host_bytes(self) -> float:
        """Host memory that the policy keeps for each rank, bytes."""
        return from_gb(self.swap_space_gb)

    def build(self) -> Swap:
        """Return the policy."""
        return Swap()


class Swap:
    """Copy out if there is room, else forget."""

    def evict(self, state: EngineState, victim: SequenceState) -> SequenceState:
        """Move the victim's KV to the host, free its blocks and queue it first."""
        host, tokens = state.host, victim.context_len
        needed = state.blocks.blocks_for(tokens)
        if host is None or not needed or not host.can_allocate(needed):
            return forget(state, victim)
        host.allocate(victim.request_id, needed)
        state.running.remove(victim)
        state.blocks.free(victim.request_id)
        victim.swapped_tokens = tokens
        victim.num_swapped_tokens += tokens
        victim.context_len = 0
        victim.capacity_tokens = 0
        state.waiting.appendleft(victim)
        return victim
