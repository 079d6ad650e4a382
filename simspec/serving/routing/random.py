"""A replica drawn at random, or the less loaded of a few drawn ones.

Splitting a Poisson stream at random leaves independent Poisson streams, so one choice makes a
fleet behave as that many separate replicas. Two choices already take most of the difference to
the shortest queue away (Mitzenmacher, "The power of two choices in randomized load balancing",
IEEE TPDS 12(10), 2001).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from simspec.core.rng import stream
from simspec.serving.routing._base import Load, RouterConfig, RouterFacts
from simspec.workloads.request import Request


class Config(RouterConfig):
    """How many are drawn."""

    name: Literal["random"] = "random"
    choices: int = Field(default=1, ge=1, le=16)
    """Replicas drawn, with repetition; the one with the fewest outstanding requests gets it."""

    def build(self, facts: RouterFacts) -> Random:
        """Return the router of one run."""
        return Random(self.choices, facts.seed)


class Random:
    """Drawn from a stream keyed by the request, so that no other choice moves it."""

    def __init__(self, choices: int, seed: int) -> None:
        self._choices = choices
        self._seed = seed

    def choose(self, request: Request, loads: Sequence[Load]) -> int:
        """Return the least loaded of the drawn replicas."""
        draws = stream(self._seed, "router", request.request_id)
        drawn = draws.integers(len(loads), size=self._choices).tolist()
        return int(min(drawn, key=lambda k: loads[k].num_requests))
