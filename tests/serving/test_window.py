"""Which requests are measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simspec.serving.measured import Slo
from simspec.serving.metrics import summarise
from simspec.serving.records import Fate
from simspec.serving.simulate import simulate
from simspec.serving.window import measured_window
from simspec.workloads.request import Request
from tests.serving.fakes import FakeCost, limits, poisson, setup, together


def test_the_first_share_of_arrivals_is_left_out():
    """A share is of the requests in order of arrival; rates start at the first one kept."""
    run = simulate(setup(poisson(50, 10.0, prompt_len=20, output_len=10)))
    window = measured_window(run, warmup=0.2)
    assert window.requests.tolist() == list(range(10, 50))
    assert window.start_s == run.requests.arrival_s[10]
    assert window.end_s == run.requests.arrival_s[-1]


def test_arrival_order_rules_not_request_order():
    """Requests may be numbered in any order."""
    load = [Request(0, 2.0, 5, 2), Request(1, 0.0, 5, 2), Request(2, 1.0, 5, 2)]
    window = measured_window(simulate(setup(load)), warmup=0.34)
    assert window.requests.tolist() == [2, 0]


def test_a_closed_loop_leaves_out_those_in_flight_at_the_end():
    """While the loop drains, the load is not the one that was asked for."""
    run = simulate(setup(together(*[(10, 5)] * 40), concurrency=8))
    window = measured_window(run, warmup=0.0)
    assert window.num_cooldown == 8
    assert window.requests.tolist() == list(range(32))


def test_at_least_half_is_kept_in_a_short_closed_loop():
    """A loop no longer than its concurrency still measures something."""
    run = simulate(setup(together(*[(10, 5)] * 8), concurrency=8))
    assert measured_window(run, warmup=0.0).requests.size == 4


def test_arrivals_all_at_once_are_measured_to_the_end():
    """With no span of arrivals the rates are over the whole run."""
    run = simulate(setup(together(*[(10, 5)] * 8)))
    window = measured_window(run, warmup=0.0)
    assert (window.start_s, window.end_s) == (0.0, run.end_s)


def test_automatic_warmup_cuts_a_transient():
    """MSER-5 leaves out the burst that a run starts with, and at most half of the run."""
    burst = [Request(i, 0.0, 20, 10) for i in range(40)]
    steady = [replace(r, request_id=40 + r.request_id, arrival_s=10.0 + r.arrival_s)
              for r in poisson(200, 5.0, prompt_len=20, output_len=10)]  # fmt: skip
    run = simulate(setup([*burst, *steady], scheduler=limits(max_num_seqs=1)))
    assert 35 <= measured_window(run).num_warmup <= 120


def test_warmup_counts_arrivals_not_departures():
    """Refused requests keep their place in the order of arrival."""
    burst = [Request(i, 0.0, 20 if i % 2 else 10_000, 10) for i in range(80)]
    steady = [replace(r, request_id=80 + r.request_id, arrival_s=10.0 + r.arrival_s)
              for r in poisson(200, 5.0, prompt_len=20, output_len=10)]  # fmt: skip
    run = simulate(setup([*burst, *steady], num_blocks=100, scheduler=limits(max_num_seqs=1)))
    window = measured_window(run)
    assert np.sum(run.requests.fate == Fate.REFUSED) == 40
    # 40 of the burst and half of the 240 taken, plus the 40 refused before them.
    assert 75 <= window.num_warmup <= 160


@pytest.mark.parametrize("num_requests", [9, 40, 200])
def test_automatic_warmup_leaves_out_the_start_of_a_closed_loop(num_requests: int) -> None:
    """Four prompts at once wait for each other, a step each; every later one takes one step.

    Steps of one second hold one prompt of 248 tokens beside the decoding requests, and answers of
    20 tokens keep the departures a step apart: TTFT in the steady loop is one second exactly.
    """
    cost = FakeCost(pass_s=1.0, token_s=0.0, kv_token_s=0.0)
    load = together(*[(248, 20)] * num_requests)
    run = simulate(setup(load, concurrency=4, cost=cost))
    first_s = run.requests.first_token_s - run.requests.arrival_s
    assert first_s[:4].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert summarise(run)["ttft_ms"] == 1000.0


def test_goodput_does_not_count_the_latencies_of_the_warmup() -> None:
    """Three of the four starters are too late and finish in the window; later ones meet 1.5 s.

    In the steady loop every request is good, so goodput is the rate at which requests finish.
    """
    cost = FakeCost(pass_s=1.0, token_s=0.0, kv_token_s=0.0)
    run = simulate(setup(together(*[(248, 20)] * 40), concurrency=4, cost=cost))
    got = summarise(run, Slo(ttft_s=1.5), warmup=0.1)
    assert got["slo_attainment"] == 1.0
    assert got["goodput_requests_per_s"] == got["requests_per_s"]
    window = measured_window(run, warmup=0.1)
    late = (run.requests.first_token_s - run.requests.arrival_s) > 1.5
    assert np.any(late & (run.requests.last_token_s > window.start_s))


def test_a_loop_that_is_all_start_is_measured() -> None:
    """When no request comes later there is no steady part to keep instead."""
    run = simulate(setup(together(*[(10, 5)] * 8), concurrency=8))
    assert measured_window(run).num_warmup == 0
