"""One server, first come first served: waiting times against queueing theory.

With a batch limit of one and requests of one output token, an engine step is a service and the
admission delay is the waiting time of a single-server queue.
Sources: Pollaczek-Khinchine and Lindley 1952; Kleinrock, Queueing Systems I, 1975, ch. 5 and 8.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from simspec.core.rng import stream
from simspec.core.stats import mean_interval
from simspec.serving.records import RunRecords
from simspec.serving.simulate import simulate
from tests.serving.fakes import ServiceTime, limits, poisson, setup

MEAN_S = 0.02
REPLICATIONS = 10
# The relaxation time is about 1 / (1 - sqrt(load))^2 services: 5, 20 and 380.
WARMUP = {0.3: 100, 0.6: 300, 0.9: 2000}
MEASURED = {0.3: 5000, 0.6: 5000, 0.9: 8000}


def deterministic(seed: int) -> Callable[[], float]:
    return lambda: MEAN_S


def exponential(seed: int) -> Callable[[], float]:
    draws = iter(stream(seed, "service").exponential(MEAN_S, 20_000).tolist())
    return lambda: next(draws)


def single_server(load: float, seed: int, draw: Callable[[], float], num: int) -> RunRecords:
    arrivals = poisson(num, load / MEAN_S, prompt_len=1, output_len=1, seed=seed)
    return simulate(setup(arrivals, cost=ServiceTime(draw), scheduler=limits(max_num_seqs=1)))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
@pytest.mark.parametrize(
    ("service", "squared_cv"), [(deterministic, 0.0), (exponential, 1.0)], ids=["MD1", "MM1"]
)
def test_mean_wait(load: float, service: Callable[[int], Callable[[], float]], squared_cv: float):
    """Pollaczek-Khinchine: W = rho S (1 + cv^2) / (2 (1 - rho)).

    False-alarm rate: 5 % per case by the definition of the interval; the seeds are fixed.
    """
    waits = []
    for seed in range(REPLICATIONS):
        run = single_server(load, seed, service(seed), WARMUP[load] + MEASURED[load])
        waits.append(float(run.requests.queue_s[WARMUP[load] :].mean()))
    interval = mean_interval(waits)
    theory = load * MEAN_S * (1.0 + squared_cv) / (2.0 * (1.0 - load))
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low <= theory <= interval.high, (interval, theory)


def test_every_wait_obeys_lindley():
    """W' = max(0, W + S - A), request by request: no arrival and no service is misplaced."""
    services = stream(7, "service").exponential(MEAN_S, 20_000)
    draws = iter(services.tolist())
    run = single_server(0.9, 7, lambda: next(draws), 5000)
    arrivals = run.requests.arrival_s
    wait = 0.0
    for i, simulated in enumerate(run.requests.queue_s.tolist()):
        assert abs(simulated - wait) < 1e-9, i
        if i + 1 < arrivals.size:
            wait = max(0.0, wait + services[i] - (arrivals[i + 1] - arrivals[i]))


def test_the_server_is_busy_for_the_load():
    """Utilisation equals rho, within four standard errors (false alarm 6e-5)."""
    busy = [
        float(run.steps.duration_s.sum() / run.end_s)
        for run in (single_server(0.6, seed, deterministic(seed), 4000) for seed in range(5))
    ]
    assert abs(np.mean(busy) - 0.6) < 4 * np.std(busy, ddof=1) / np.sqrt(5)
