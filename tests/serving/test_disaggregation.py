"""Prompts on replicas of their own: laws, the time of a copy, and what it takes off decoding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.hardware.profile import InterNodeLink
from simspec.serving.metrics import summarise
from simspec.serving.plan import PrefillSide, ServingSetup
from simspec.serving.records import Fate
from simspec.serving.routing._base import ROUTERS
from simspec.serving.simulate import simulate
from simspec.workloads.request import Request
from tests.serving.fakes import limits, poisson, setup
from tests.serving.test_laws import setups

SLOW = InterNodeLink("slow", 1e6, 0.01)
INSTANT = InterNodeLink("instant", 1e30, 0.0)


def apart(
    alone: ServingSetup,
    num_prefill: int = 1,
    num_decode: int = 1,
    link: InterNodeLink = SLOW,
    kv_bytes_per_token: float = 1000.0,
) -> ServingSetup:
    """Return the same engine, prompts and decoding on replicas of their own."""
    side = PrefillSide(
        num_prefill, alone.method, alone.cost, alone.num_blocks, alone.limits, link,
        kv_bytes_per_token,
    )  # fmt: skip
    router = ROUTERS.parse("least_loaded")
    return replace(alone, num_replicas=num_decode, router=router, prefill=side)


@given(setups(), st.integers(1, 3), st.integers(1, 3), st.sampled_from([SLOW, INSTANT]))
def test_every_law_holds(drawn: ServingSetup, num_prefill: int, num_decode: int, link: object):
    """Tokens, requests, blocks and time are conserved; the same bytes twice and step by step."""
    both = apart(drawn, num_prefill, num_decode, link)
    run = simulate(both, check=True)
    assert run.requests.request_id.size + run.num_not_arrived == len(drawn.requests)
    if drawn.max_simulated_s is None:
        assert set(run.requests.fate.tolist()) <= {Fate.FINISHED, Fate.REFUSED}
    assert run.digest() == simulate(both).digest()
    assert run.digest() == simulate(replace(both, step_by_step=True)).digest()


def test_a_copy_takes_latency_and_bytes_over_bandwidth():
    """Two prompts end in one step: the second copy waits for the first, latency is not waited for.

    Formula: copy k arrives at first token + latency + k bytes / bandwidth.
    """
    load = [Request(i, 0.0, prompt, 3) for i, prompt in enumerate((100, 50))]
    run = simulate(apart(setup(load, scheduler=limits(max_num_batched_tokens=200))), check=True)
    taken = run.requests.landed_s - run.requests.first_token_s
    wire_s = 1000.0 * np.array([100.0, 150.0]) / 1e6
    np.testing.assert_allclose(taken, 0.01 + wire_s, rtol=1e-12)
    np.testing.assert_array_equal(run.requests.resumed_s[0], run.requests.landed_s[0])


def test_prompts_and_decoding_are_done_where_they_belong():
    """Prefill replicas decode nobody, decode replicas compute no prompt unless they preempted."""
    load = poisson(40, 30.0, prompt_len=60, output_len=20)
    run = simulate(apart(setup(load, max_draft=2), 2, 2), check=True)
    on_prefill = run.steps.replica < 2
    assert run.steps.num_decoding[on_prefill].sum() == 0
    assert run.steps.prefill_tokens[~on_prefill].sum() == 0
    assert run.steps.emitted[on_prefill].sum() == 40
    assert run.steps.num_preempted.sum() == 0
    assert run.num_replicas == 4


def test_decoding_is_not_interfered_with():
    """Over an instant link with replicas to spare every token takes as long as alone."""
    load = [Request(i, 0.05 * i, 200, 20) for i in range(12)]
    run = simulate(apart(setup(load), 12, 12, INSTANT), check=True)
    alone = simulate(setup(load[:1]))
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "longest_gap_ms"):
        value = summarise(run, warmup=0.0)[name]
        assert value == pytest.approx(summarise(alone, warmup=0.0)[name], rel=1e-9)


def test_tails_are_shorter_than_where_prompts_stop_decoding():
    """At equal load and GPUs, p99 ITL lies below that of replicas that do not split prompts."""
    load = poisson(150, 12.0, prompt_len=1500, output_len=60)
    whole = setup(load, scheduler=limits("prefill_first", 64, 2000, chunked_prefill=False))
    together = replace(whole, num_replicas=2, router=ROUTERS.parse("least_loaded"))
    split = simulate(apart(whole, 1, 1, INSTANT))
    mixed = simulate(together)
    assert summarise(split)["itl_p99_ms"] < 0.8 * summarise(mixed)["itl_p99_ms"]


def test_a_slow_link_is_seen_in_tpot_not_in_ttft():
    """The first token comes out before the copy, so the copy is part of the decode window."""
    load = poisson(20, 2.0, prompt_len=100, output_len=10)
    fast, slow = (summarise(simulate(apart(setup(load), link=link))) for link in (INSTANT, SLOW))
    assert slow["ttft_ms"] == pytest.approx(fast["ttft_ms"], rel=1e-9)
    assert slow["tpot_ms"] - fast["tpot_ms"] > 110.0 / 9 * 0.9


def test_a_copy_waits_for_blocks():
    """A decode pool for one request at a time takes the second in when the first has left."""
    load = [Request(i, 0.0, 64, 8) for i in range(2)]
    run = simulate(apart(setup(load, num_blocks=6), link=INSTANT), check=True)
    requests = run.requests
    assert requests.resumed_s[1] >= requests.last_token_s[0] > requests.landed_s[1]
    assert requests.queue_s[1] >= requests.resumed_s[1] - requests.landed_s[1]
