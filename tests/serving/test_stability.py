"""Overload is said as such, and load below capacity is not."""

from __future__ import annotations

import pytest

from simspec.core.rng import stream
from simspec.serving.simulate import simulate
from simspec.serving.stability import Stability, assess
from simspec.workloads.request import Request
from tests.serving.fakes import ServiceTime, limits, poisson, setup, together

SERVICE_S = 0.02


def single_server(load: float, num_requests: int, seed: int = 0, **given: object) -> Stability:
    draws = stream(seed, "service").exponential(SERVICE_S, num_requests)
    service = iter(draws.tolist())
    requests = poisson(num_requests, load / SERVICE_S, prompt_len=1, output_len=1, seed=seed)
    return assess(
        simulate(
            setup(requests, cost=ServiceTime(lambda: next(service)),
                  scheduler=limits(max_num_seqs=1), **given)  # type: ignore[arg-type]
        )
    )  # fmt: skip


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8, 0.9])
@pytest.mark.parametrize("num_requests", [50, 300, 1500])
def test_below_capacity_is_stable(load: float, num_requests: int):
    """An M/M/1 queue below 0.9 of its capacity is never called unstable (10 seeds)."""
    assert all(single_server(load, num_requests, seed).is_stable for seed in range(10))


@pytest.mark.parametrize(("load", "num_requests"), [(1.2, 2000), (1.6, 400), (3.0, 100)])
def test_above_capacity_is_unstable(load: float, num_requests: int):
    """The further above capacity, the fewer requests it takes to see it (10 seeds)."""
    assert not any(single_server(load, num_requests, seed).is_stable for seed in range(10))


def test_the_sentence_holds_the_numbers():
    """Offered and completed rate and the growth of the queue, which is their difference."""
    verdict = single_server(2.0, 2000)
    assert verdict.reason.startswith("unstable: offered load exceeds capacity: ")
    for number in (verdict.offered_requests_per_s, verdict.completed_requests_per_s):
        assert f"{number:.3g} requests/s" in verdict.reason
    difference = verdict.offered_requests_per_s - verdict.completed_requests_per_s
    assert verdict.queue_growth_per_s == pytest.approx(difference, rel=0.1)


def test_a_stopped_clock_is_judged_up_to_its_end():
    """An overloaded run that is cut short is still overloaded."""
    assert not single_server(2.0, 5000, max_simulated_s=30.0).is_stable


def test_a_closed_loop_and_a_single_burst_are_stable():
    """They offer no rate that could exceed capacity."""
    load = together(*[(10, 5)] * 50)
    assert assess(simulate(setup(load, concurrency=4))).is_stable
    assert assess(simulate(setup(load))).is_stable
    assert assess(simulate(setup([]))).is_stable


def test_a_queue_that_drains_is_stable():
    """A burst in the first half that is worked off says nothing about the load."""
    burst = [Request(i, 0.0, 10, 5) for i in range(200)]
    later = [Request(200 + i, 20.0 + i, 10, 5) for i in range(50)]
    assert assess(simulate(setup([*burst, *later]))).is_stable


def test_a_queue_that_shrinks_is_stable():
    """A backlog of a slow beginning that is being worked off was not made by the load."""
    # 200 services of three times the length: 275 wait in the middle, about 150 at the end.
    service = iter([3 * SERVICE_S] * 200 + [SERVICE_S] * 800)
    run = simulate(
        setup(poisson(1000, 40.0, 1, 1), cost=ServiceTime(lambda: next(service)),
              scheduler=limits(max_num_seqs=1))
    )  # fmt: skip
    verdict = assess(run)
    assert verdict.is_stable
    assert verdict.queue_growth_per_s < -5
