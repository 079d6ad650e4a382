"""Requests that wait for others: clients that think, and sessions of agents."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simspec.core.rng import stream
from simspec.serving.simulate import simulate
from simspec.workloads.request import Request
from tests.serving.fakes import limits, setup
from tests.serving.test_simulate import ONE_SECOND


def test_a_client_thinks_before_each_request():
    """One client: arrivals are its think times and answers, one after the other."""
    load = [Request(i, 0.0, 10, 2, think_s=t) for i, t in enumerate((0.5, 3.0, 0.0, 1.25))]
    run = simulate(setup(load, concurrency=1, cost=ONE_SECOND), check=True)
    assert run.requests.arrival_s.tolist() == [0.5, 5.5, 7.5, 10.75]
    assert run.requests.last_token_s.tolist() == [2.5, 7.5, 9.5, 12.75]


def test_a_closed_loop_that_thinks_keeps_the_response_time_law():
    """Clients = throughput × (response + think time): Little's law of the whole loop."""
    num, clients = 400, 5
    think = stream(1, "think").standard_gamma(1.0, num) * 4.0
    load = [Request(i, 0.0, 10, 2, think_s=float(t)) for i, t in enumerate(think)]
    run = simulate(setup(load, concurrency=clients, cost=ONE_SECOND), check=True)
    requests = run.requests
    response_s = float(np.mean(requests.last_token_s - requests.arrival_s))
    throughput = num / run.end_s
    # Clients that have run out of requests leave the loop: a few cycles out of eighty each.
    assert throughput * (response_s + think.mean()) == pytest.approx(clients, rel=0.03)


def test_a_session_goes_on_when_it_has_been_answered():
    """Its next request comes after the answer and the tool, whatever the clock said."""
    load = [
        Request(0, 1.0, 10, 2),
        Request(1, 1.0, 10, 1, follows=0, think_s=0.5),
        Request(2, 1.0, 10, 1, follows=1),
        Request(3, 2.0, 10, 1),
    ]
    run = simulate(setup(load, cost=ONE_SECOND), check=True)
    arrival_s = dict(
        zip(run.requests.request_id.tolist(), run.requests.arrival_s.tolist(), strict=True)
    )
    end_s = dict(
        zip(run.requests.request_id.tolist(), run.requests.last_token_s.tolist(), strict=True)
    )
    assert arrival_s == {0: 1.0, 1: end_s[0] + 0.5, 2: end_s[1], 3: 2.0}


def test_a_refused_request_does_not_end_its_session():
    """A long chain of requests that can never fit is refused whole; what follows is served."""
    small = limits(max_num_batched_tokens=64)
    num = 2000
    load = [Request(0, 0.0, 10_000, 1)]
    load += [Request(i, 0.0, 10_000, 1, follows=i - 1) for i in range(1, num)]
    load.append(Request(num, 0.0, 10, 1, follows=num - 1, think_s=2.0))
    run = simulate(setup(load, num_blocks=4, scheduler=small, cost=ONE_SECOND), check=True)
    assert len(run.refusals) == num
    assert run.requests.arrival_s[-1] == 2.0
    assert run.num_not_arrived == 0


def test_thinking_clients_are_the_same_step_by_step():
    """Rounds computed together give the same records as one by one."""
    think = stream(2, "think").standard_gamma(0.5, 60) * 0.3
    load = [Request(i, 0.0, 20, 30, think_s=float(t)) for i, t in enumerate(think)]
    fast = setup(load, concurrency=6, max_draft=3)
    assert simulate(fast).digest() == simulate(replace(fast, step_by_step=True)).digest()


def test_a_stopped_clock_counts_who_was_still_thinking():
    """Requests that were never sent have not arrived."""
    load = [Request(i, 0.0, 10, 1, think_s=4.0) for i in range(5)]
    run = simulate(setup(load, concurrency=1, cost=ONE_SECOND, max_simulated_s=7.0), check=True)
    assert run.num_not_arrived == 4
