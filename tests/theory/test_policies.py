"""What scheduling and bursts do to latency, by simulation of a real deployment."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from simspec.core.rng import stream
from simspec.scenarios.build import Deployment
from simspec.serving.metrics import summarise
from simspec.serving.simulate import simulate
from simspec.workloads.request import Request
from tests.serving.test_with_real_parts import deployment, serving


@cache
def plain() -> Deployment:
    return deployment("autoregressive")


def measured(requests: list[Request], **given: object) -> dict[str, float]:
    return summarise(simulate(serving(plain(), requests, **given)), warmup=0.1)


def arriving(gaps_s: np.ndarray, prompt_len: int, output_len: int) -> list[Request]:
    return [Request(i, t, prompt_len, output_len) for i, t in enumerate(np.cumsum(gaps_s).tolist())]


def gamma_gaps_s(count: int, rate_per_s: float, cv: float) -> np.ndarray:
    shape = cv**-2
    return stream(7, "gaps", count).gamma(shape, 1 / (rate_per_s * shape), count)


def test_chunked_prefill_lowers_the_tail_of_itl_and_raises_ttft():
    """A prompt in pieces stalls nobody for long, and pays for a step per piece."""
    load = arriving(gamma_gaps_s(120, 3.0, 1.0), 6000, 120)
    limits = replace(plain().limits, max_num_batched_tokens=8192, chunked_prefill=False)
    whole = measured(load, limits=limits)
    chunked = measured(
        load, limits=replace(limits, max_num_batched_tokens=1024, chunked_prefill=True)
    )
    assert chunked["itl_p99_ms"] < 0.5 * whole["itl_p99_ms"]
    assert chunked["ttft_ms"] > 1.05 * whole["ttft_ms"]
    assert chunked["ttft_p50_ms"] > whole["ttft_p50_ms"]


@pytest.mark.parametrize("policy", ["continuous", "prefill_first", "priority"])
def test_bursts_raise_the_tail_of_ttft_at_equal_load(policy: str):
    """Gamma arrivals with a CV of 4 against Poisson: the same rate, several times the tail."""
    limits = replace(plain().limits, policy=policy, max_num_seqs=32)
    poisson, bursts = (
        measured(arriving(gamma_gaps_s(600, 9.0, cv), 1000, 60), limits=limits) for cv in (1.0, 4.0)
    )
    assert bursts["ttft_p99_ms"] > 2.0 * poisson["ttft_p99_ms"]
    assert bursts["busy_share"] < 1.0


def test_swapping_keeps_more_of_the_machine_for_new_tokens_where_it_pays():
    """A pool too small for its load: less time on prompts, and everybody is done earlier."""
    of = deployment("autoregressive", scheduler={"preemption": "swap"})
    load = arriving(np.zeros(60), 900, 400)
    small = {"num_blocks": 1500, "host": of.host}
    swap, recompute = (
        simulate(serving(of, load, limits=replace(of.limits, preemption=name), **small))
        for name in ("swap", "recompute")
    )
    assert recompute.requests.num_preemptions.sum() > 10
    assert swap.requests.swapped_tokens.sum() > 0
    assert swap.requests.recomputed_tokens.sum() == 0
    assert swap.steps.prefill_tokens.sum() == 900 * 60
    assert swap.end_s < recompute.end_s


def test_cached_prompts_shorten_the_wait_of_others():
    """Requests that begin alike leave the engine more time: TTFT falls for all of them."""
    ids = [(*range(12), 1000 + i, 2000 + i) for i in range(150)]
    load = [
        replace(request, block_hashes=ids[i], hash_block_tokens=256)
        for i, request in enumerate(arriving(gamma_gaps_s(150, 8.0, 1.0), 3584, 40))
    ]
    without, with_cache = (measured(load, prefix_caching=on) for on in (False, True))
    assert with_cache["prefix_cache_hit_rate"] == pytest.approx(12 / 14, abs=0.01)
    assert without["prefix_cache_hit_rate"] == 0.0
    assert with_cache["ttft_ms"] < 0.5 * without["ttft_ms"]
