"""A run: the clock, the arrivals, a replica or a fleet of them, the end.

Open loop: every request arrives at its own time, whatever the engine does, except one that follows
another of its session: it is sent when that one has been answered and its think time is over.
Closed loop: so many clients, each of whom thinks and sends the next request of the workload
whenever it has got an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import simpy

from simspec.serving import invariants
from simspec.serving.disaggregation import Disaggregated
from simspec.serving.fleet import Fleet
from simspec.serving.plan import SequenceState, ServingSetup
from simspec.serving.records import RunRecords
from simspec.serving.replica import Replica
from simspec.workloads.request import Request


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
        invariants.nobody_is_lost(records, len(setup.requests))
        invariants.at_end(records)
    return records


class _Source:
    """Feeds the workload into a replica or a fleet."""

    def __init__(self, env: simpy.Environment, setup: ServingSetup, *, check: bool) -> None:
        self._env = env
        self.num_not_arrived = len(setup.requests)
        self._followers: dict[int, list[Request]] = {}
        is_open = setup.concurrency is None
        for request in setup.requests if is_open else ():
            if request.follows is not None:
                self._followers.setdefault(request.follows, []).append(request)
        own_time = [request for request in setup.requests if request.follows is None]
        # Stable: requests that arrive together keep the order of the workload.
        self._pending = iter(
            sorted(own_time, key=lambda request: request.arrival_s) if is_open else setup.requests
        )
        on_leave = self._send_followers if is_open else self._send_next
        is_watched = bool(self._followers) or not is_open
        self.engine: Replica | Fleet | Disaggregated
        if setup.router is None:
            thinks = any(request.think_s > 0 for request in setup.requests)
            self.engine = Replica(env, setup, on_leave, check=check, leaves_on_time=thinks)
        else:
            kind = Fleet if setup.prefill is None else Disaggregated
            self.engine = kind(env, setup, on_leave if is_watched else None, check=check)
        if is_open:
            env.process(self._arrive_on_time())
        for _ in range(setup.concurrency or 0):
            self._send_next()
        self.engine.start()

    def _arrive_on_time(self) -> Generator[simpy.Event, object, None]:
        env = self._env
        for request in self._pending:
            if request.arrival_s > env.now:
                yield env.timeout(request.arrival_s - env.now)
            self._submit_with_followers(request)

    def _submit(self, request: Request) -> bool:
        self.num_not_arrived -= 1
        return self.engine.submit(request)

    def _submit_with_followers(self, request: Request) -> None:
        sent = [request]
        while sent:
            request = sent.pop()
            if not self._submit(request):
                # A refusal is an answer too.
                for follower in self._followers.pop(request.request_id, ()):
                    if follower.think_s > 0:
                        self._after_thinking(follower, self._submit_with_followers)
                    else:
                        sent.append(follower)

    def _send_followers(self, answered: SequenceState) -> None:
        for request in self._followers.pop(answered.request_id, ()):
            self._after_thinking(request, self._submit_with_followers)

    def _send_next(self, _answered: SequenceState | None = None) -> None:
        request = next(self._pending, None)
        if request is not None:
            self._after_thinking(request, self._submit_or_send_next)

    def _submit_or_send_next(self, request: Request) -> None:
        # A loop: a workload of nothing but refusals would be too deep a recursion.
        while not self._submit(request):
            following = next(self._pending, None)
            if following is None:
                return
            if following.think_s > 0:
                self._after_thinking(following, self._submit_or_send_next)
                return
            request = following

    def _after_thinking(self, request: Request, send: Callable[[Request], None]) -> None:
        if request.think_s <= 0:
            send(request)
            return
        clock = self._env.timeout(request.think_s)
        assert clock.callbacks is not None
        clock.callbacks.append(lambda _: send(request))
