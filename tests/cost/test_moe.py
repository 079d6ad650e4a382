"""Mixture of experts: which weights a pass reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.cost.operators._base import Place
from simspec.cost.operators.moe import distinct_experts, kernels
from tests.cost.factory import MIXTURE, hardware, stack


def expert_kernels(tp=1):
    owner = stack((MIXTURE,), tp=tp)
    return {k.name: k for k in kernels(Place("block", MIXTURE, owner, hardware()))}


def test_one_token_hits_k_experts_and_many_hit_all():
    """T = 1 gives k; T without bound gives all of them."""
    assert distinct_experts(1, 128, 8) == pytest.approx(8.0, rel=1e-12)
    assert distinct_experts(1e6, 128, 8) == pytest.approx(128.0)
    assert distinct_experts(3, 4, 4) == 4.0


def test_distinct_experts_agree_with_drawing_routes():
    """Uniform independent routes give the expected number of experts."""
    # 4 standard errors of 4000 draws: a false alarm once in 16,000 seeds.
    rng = np.random.default_rng(7)
    num_experts, k, tokens, draws = 16, 2, 5, 4000
    hit = np.array(
        [
            np.unique([rng.choice(num_experts, k, replace=False) for _ in range(tokens)]).size
            for _ in range(draws)
        ]
    )
    error = hit.std(ddof=1) / np.sqrt(draws)
    assert abs(hit.mean() - distinct_experts(tokens, num_experts, k)) < 4 * error


@given(st.integers(1, 500), st.integers(2, 256), st.integers(1, 8))
def test_distinct_experts_grow_and_stay_in_bounds(tokens, num_experts, k):
    """k <= distinct <= min(k T, E_r), growing with T."""
    k = min(k, num_experts)
    here = distinct_experts(tokens, num_experts, k)
    assert k - 1e-9 <= here <= min(k * tokens, num_experts) + 1e-9
    assert here <= distinct_experts(tokens + 1, num_experts, k) + 1e-12


def test_a_verify_pass_reads_more_experts_than_a_decode():
    """5 tokens among 16 experts, 2 each: 16 (1 - 0.875^5) = 7.79 experts instead of 2."""
    up = expert_kernels()["experts_up"]
    weights = 1024 * 2 * 512 * 2
    rows_bytes = 2 * (1024 + 2 * 512) * 2
    assert up.work(1).num_bytes == pytest.approx(2 * weights + rows_bytes)
    expected = 16 * (1 - 0.875**5)
    assert up.work(5).num_bytes == pytest.approx(expected * weights + 5 * rows_bytes)


def test_flop_follow_the_routes_and_not_the_experts_read():
    """2 FLOP per parameter of k experts and token."""
    up = expert_kernels()["experts_up"]
    assert up.work(10).flop == 10 * 2 * 2 * 1024 * 2 * 512
    assert expert_kernels(tp=4)["experts_up"].work(10).flop == up.work(10).flop / 4


def test_the_router_is_on_every_rank():
    """A product of d by the number of experts, not divided."""
    assert expert_kernels(tp=4)["router"].fixed_bytes == 1024 * 16 * 2


def test_shared_experts_are_one_dense_feed_forward():
    """One shared expert of width 512 reads 3 d f parameters for every token."""
    found = expert_kernels()
    shared = found["shared_up"].fixed_bytes + found["shared_down"].fixed_bytes
    assert shared == 3 * 1024 * 512 * 2
