"""Replicas behind a router, on one clock.

A request goes to the replica that the router names when it arrives, and stays there. The router
looks at what it sent and what has left, at the time of the arrival: a step that ends at that very
time counts by the order of the events. Left out: the time the router takes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import simpy

from simspec.serving.merging import merge
from simspec.serving.plan import SequenceState, ServingSetup
from simspec.serving.records import RunRecords
from simspec.serving.replica import Replica
from simspec.serving.routing._base import Load, RouterFacts
from simspec.workloads.request import Request


class Fleet:
    """Equal replicas and their router.

    Parameters
    ----------
    env : simpy.Environment
        The clock of all.
    setup : ServingSetup
        What each replica is, how many there are, and the router.
    on_leave : callable, optional
        Called with each request that has finished, at that time; None: nobody needs to know then.
    check : bool
        Check the numbered laws after every step.
    """

    def __init__(
        self,
        env: simpy.Environment,
        setup: ServingSetup,
        on_leave: Callable[[SequenceState], None] | None,
        *,
        check: bool,
    ) -> None:
        assert setup.router is not None
        self._on_leave = on_leave
        count = setup.num_replicas
        self._loads = [Load() for _ in range(count)]
        self._router = setup.router.build(
            RouterFacts(count, setup.num_blocks * setup.block_size_tokens, setup.seed)
        )
        self._replicas = [
            Replica(
                env,
                setup,
                partial(self._left, load),
                check=check,
                index=index,
                leaves_on_time=on_leave is not None,
            )
            for index, load in enumerate(self._loads)
        ]

    def start(self) -> None:
        """Let every replica run."""
        for replica in self._replicas:
            replica.start()

    def submit(self, request: Request) -> bool:
        """Send a request to a replica; return whether it was taken."""
        chosen = self._router.choose(request, self._loads)
        taken = self._replicas[chosen].submit(request)
        if taken:
            self._loads[chosen].add(request.prompt_len)
        return taken

    def _left(self, load: Load, sequence: SequenceState) -> None:
        load.remove(sequence.prompt_len)
        if self._on_leave is not None:
            self._on_leave(sequence)

    def close(self, num_not_arrived: int) -> RunRecords:
        """Record those still present and return the run of all."""
        parts = [replica.close(num_not_arrived) for replica in self._replicas]
        return merge(parts, num_not_arrived=num_not_arrived)
