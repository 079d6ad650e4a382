"""One replica after the other, whatever they have to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from simspec.serving.routing._base import Load, RouterConfig, RouterFacts
from simspec.workloads.request import Request


class Config(RouterConfig):
    """Round robin has no settings."""

    name: Literal["round_robin"] = "round_robin"

    def build(self, facts: RouterFacts) -> RoundRobin:
        """Return the router of one run."""
        return RoundRobin()


class RoundRobin:
    """In turn."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, request: Request, loads: Sequence[Load]) -> int:
        """Return the next replica."""
        chosen = self._next
        self._next = (chosen + 1) % len(loads)
        return chosen
