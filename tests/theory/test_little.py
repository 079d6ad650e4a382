"""Little's law, L = lambda W, on every kind of run.

L is the time integral of the number in the system, kept by the engine as it counts arrivals and
departures; W comes from the times in the request records. Little 1961.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simspec.serving.invariants import at_end, little_gap
from simspec.serving.records import Fate
from simspec.serving.scheduling._base import SCHEDULERS
from simspec.serving.simulate import simulate
from tests.serving.fakes import limits, poisson, setup


@pytest.mark.parametrize("policy", SCHEDULERS.names())
@pytest.mark.parametrize("rate", [2.0, 20.0, 200.0])
@pytest.mark.parametrize("max_draft", [0, 4])
def test_number_in_system_is_rate_times_sojourn(policy: str, rate: float, max_draft: int):
    """L T = sum of sojourns, below and above capacity, with and without preemption."""
    load = poisson(200, rate, prompt_len=40, output_len=30)
    run = simulate(
        setup(load, max_draft=max_draft, num_blocks=40, scheduler=limits(policy)), check=True
    )
    finished = run.requests.fate == Fate.FINISHED
    sojourns = (run.requests.last_token_s - run.requests.arrival_s)[finished]
    number = run.num_in_system_integral_s / run.end_s
    rate_of_finished = finished.sum() / run.end_s
    assert number == pytest.approx(rate_of_finished * sojourns.mean(), rel=1e-9)


@pytest.mark.parametrize("concurrency", [1, 7])
def test_closed_loop(concurrency: int):
    """As long as requests are left, L is the concurrency."""
    load = poisson(70, 1.0, prompt_len=40, output_len=30)
    run = simulate(setup(load, concurrency=concurrency), check=True)
    assert little_gap(run) < 1e-9
    last_arrival_s = float(run.requests.arrival_s.max())
    assert run.num_in_system_integral_s >= concurrency * last_arrival_s * (1 - 1e-9)


def test_a_stopped_clock_counts_those_still_there():
    """Sojourns of the unfinished are cut at the end of the run, and the law still holds."""
    load = poisson(200, 50.0, prompt_len=40, output_len=30)
    run = simulate(setup(load, max_simulated_s=2.0), check=True)
    assert np.any(run.requests.fate != Fate.FINISHED)
    assert little_gap(run) < 1e-9


def test_a_lost_second_is_noticed():
    """The check fails when the integral and the sojourns disagree."""
    run = simulate(setup(poisson(20, 5.0, prompt_len=40, output_len=30)))
    wrong = replace(run, num_in_system_integral_s=run.num_in_system_integral_s + 0.001)
    with pytest.raises(AssertionError, match="law 8"):
        at_end(wrong)
