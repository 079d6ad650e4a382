"""The replica that has seen the longest prefix of the prompt, unless it has too much to do.

The router remembers which prefix blocks it sent where, as the cache-aware policy of SGLang's
router does with its approximate tree: it does not ask the replicas. A replica's history holds as
many tokens as its KV pool, the least recently sent blocks are forgotten first.

No replica may hold more than ``ceil(max_load_factor (n + 1) / N)`` of the ``n`` outstanding
requests and this one: the bound of Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with
bounded loads" (arXiv:1608.01350). Of the replicas below it the one with the longest known prefix
gets the request; without hashes, or where nobody knows the first block, the least loaded one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import ceil
from typing import Literal

from pydantic import Field

from simspec.serving.routing._base import Load, RouterConfig, RouterFacts
from simspec.workloads.request import Request


class Config(RouterConfig):
    """How far affinity may unbalance the fleet."""

    name: Literal["prefix_affinity"] = "prefix_affinity"
    max_load_factor: float = Field(default=1.25, ge=1.0, le=1000.0)
    """Most requests of one replica, as a multiple of the mean."""

    def build(self, facts: RouterFacts) -> PrefixAffinity:
        """Return the router of one run."""
        return PrefixAffinity(self.max_load_factor, facts)


class PrefixAffinity:
    """Longest known prefix among the replicas below the bound."""

    def __init__(self, max_load_factor: float, facts: RouterFacts) -> None:
        self._factor = max_load_factor
        self._pool_tokens = facts.pool_tokens
        # Insertion order is the order of last use.
        self._history: list[dict[int, None]] = [{} for _ in range(facts.num_replicas)]

    def choose(self, request: Request, loads: Sequence[Load]) -> int:
        """Return the replica and remember the blocks that go there."""
        outstanding = sum(load.num_requests for load in loads)
        bound = ceil(self._factor * (outstanding + 1) / len(loads))
        chosen, best = -1, (0, 0)
        for index, load in enumerate(loads):
            if load.num_requests < bound:
                score = (self._known(index, request.block_hashes), -load.num_requests)
                if chosen < 0 or score > best:
                    chosen, best = index, score
        self._remember(chosen, request)
        return chosen

    def _known(self, replica: int, blocks: tuple[int, ...]) -> int:
        history = self._history[replica]
        for count, block in enumerate(blocks):
            if block not in history:
                return count
        return len(blocks)

    def _remember(self, replica: int, request: Request) -> None:
        history = self._history[replica]
        # Last block first: the beginning of a prompt is what others share, and is kept longest.
        for block in reversed(request.block_hashes):
            history.pop(block, None)
            history[block] = None
        if request.block_hashes:
            most = max(self._pool_tokens // max(request.hash_block_tokens, 1), 1)
            for block in list(islice(history, max(len(history) - most, 0))):
                del history[block]
