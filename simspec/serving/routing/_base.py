"""The contract of a router."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from simspec.core.registry import PluginConfig, Registry
from simspec.workloads.request import Request

ROUTERS = Registry("simspec.serving.routing", "router")


@dataclass(slots=True)
class Load:
    """What a router knows of one replica: the requests it was sent that have not left it."""

    num_requests: int = 0
    prompt_tokens: int = 0
    """Sum of their prompts; how long an answer becomes nobody knows beforehand."""

    def add(self, prompt_len: int) -> None:
        """Count a request that was sent."""
        self.num_requests += 1
        self.prompt_tokens += prompt_len

    def remove(self, prompt_len: int) -> None:
        """Count a request that has left."""
        self.num_requests -= 1
        self.prompt_tokens -= prompt_len


@dataclass(frozen=True, slots=True)
class RouterFacts:
    """What is fixed about the replicas and the run."""

    num_replicas: int
    pool_tokens: int
    """KV tokens one replica can hold."""
    seed: int


class Router(Protocol):
    """Chooses a replica."""

    def choose(self, request: Request, loads: Sequence[Load]) -> int:
        """Return the replica the request goes to.

        Parameters
        ----------
        request : Request
            As it arrives; ``output_len`` is not to be looked at.
        loads : sequence of Load
            One per replica, before this request.
        """
        ...


class RouterConfig(PluginConfig):
    """Base of every router's ``Config``."""

    def build(self, facts: RouterFacts) -> Router:
        """Return the router of one run."""
        raise TypeError(f"{type(self).__module__}.Config must define build()")


def least_loaded(loads: Sequence[Load]) -> int:
    """Return the replica with the fewest requests; of equals the first."""
    fewest, chosen = loads[0].num_requests, 0
    for index, load in enumerate(loads):
        if load.num_requests < fewest:
            fewest, chosen = load.num_requests, index
    return chosen
