"""The replica that has least to do: join the shortest queue.

A request counts from its arrival until its last token, whether it waits or runs, as the balancer
of vLLM's data-parallel front end and the shortest-queue policy of SGLang's router count it. Of
equally loaded replicas the first is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from simspec.serving.routing._base import Load, RouterConfig, RouterFacts, least_loaded
from simspec.workloads.request import Request


class Config(RouterConfig):
    """What is counted."""

    name: Literal["least_loaded"] = "least_loaded"
    by: Literal["requests", "prompt_tokens"] = "requests"
    """Outstanding requests, or the sum of their prompt tokens."""

    def build(self, facts: RouterFacts) -> LeastLoaded:
        """Return the router of one run."""
        return LeastLoaded(by_tokens=self.by == "prompt_tokens")


class LeastLoaded:
    """Fewest outstanding requests or prompt tokens."""

    def __init__(self, *, by_tokens: bool) -> None:
        self._by_tokens = by_tokens

    def choose(self, request: Request, loads: Sequence[Load]) -> int:
        """Return the least loaded replica."""
        if not self._by_tokens:
            return least_loaded(loads)
        return min(range(len(loads)), key=lambda k: (loads[k].prompt_tokens, loads[k].num_requests))
