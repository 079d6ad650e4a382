"""A run: the clock, the arrivals, a replica or a fleet of them, the end.

Open loop: every request arrives at its own time, whatever the engine does. Closed loop: so many
requests are in flight, and whenever one finishes the next of the workload arrives at once.
"""

from __future__ import annotations

from collections.abc import Generator

import simpy

from simspec.serving import invariants
from simspec.serving.fleet import Fleet
from simspec.serving.plan import ServingSetup
from simspec.serving.records import RunRecords
from simspec.serving.replica import Replica


def simulate(setup: ServingSetup, *, check: bool = False) -> RunRecords:
    """Run one replication and return its records.

    Same setup, same seed: same bytes. Without ``max_simulated_s`` the run ends when the last
    request has left, so an overloaded open loop ends too; ``stability.assess`` tells.

    Parameters
    ----------
    setup : ServingSetup
        The whole experiment.
    check : bool
        Check the numbered laws of ``docs/invariants.md`` after every step and at the end.

    Raises
    ------
    ConfigError
        The limits name an unknown policy or leave no room for a round.
    """
    env = simpy.Environment()
    source = _Source(env, setup, check=check)
    env.run(until=setup.max_simulated_s)
    records = source.engine.close(source.num_not_arrived)
    if check:
        invariants.at_end(records)
    return records


class _Source:
    """Feeds the workload into a replica or a fleet."""

    def __init__(self, env: simpy.Environment, setup: ServingSetup, *, check: bool) -> None:
        self._env = env
        self.num_not_arrived = len(setup.requests)
        is_open = setup.concurrency is None
        # Stable: requests that arrive together keep the order of the workload.
        self._pending = iter(
            sorted(setup.requests, key=lambda request: request.arrival_s)
            if is_open
            else setup.requests
        )
        self.engine: Replica | Fleet
        if setup.router is None:
            on_leave = _nothing if is_open else self._submit_next
            self.engine = Replica(env, setup, lambda _: on_leave(), check=check)
        else:
            self.engine = Fleet(env, setup, None if is_open else self._submit_next, check=check)
        if is_open:
            env.process(self._arrive_on_time())
        for _ in range(setup.concurrency or 0):
            self._submit_next()
        self.engine.start()

    def _arrive_on_time(self) -> Generator[simpy.Event, object, None]:
        env = self._env
        for request in self._pending:
            if request.arrival_s > env.now:
                yield env.timeout(request.arrival_s - env.now)
            self.num_not_arrived -= 1
            self.engine.submit(request)

    def _submit_next(self) -> None:
        for request in self._pending:
            self.num_not_arrived -= 1
            if self.engine.submit(request):
                return


def _nothing() -> None:
    """Do nothing: an open loop does not look at departures."""
