"""Medusa's published overhead and tokens per step, from its tree and its heads' accuracies.

Cai et al., arXiv 2401.10774, table 1: speedup = tokens per step / overhead, overhead being the time
of a step with 64 verified tokens over that of a plain one. The paper's GPU is not in the table; the
authors' logs are of an A100.
"""

from __future__ import annotations

import pytest

from simspec.core.yamlio import parse_mapping
from simspec.decoding.acceptance.tree_ranks import VICUNA_7B
from simspec.scenarios.build import build
from simspec.scenarios.closed_form import RoundEstimate, estimate_round
from simspec.scenarios.schema import DeploymentConfig


def medusa(model: str, engine: str) -> RoundEstimate:
    config = {
        "model": model,
        "hardware": "a100_sxm_80gb",
        "engine": engine,
        "method": "medusa",
        "acceptance": {"name": "tree_ranks", "hit_rates": VICUNA_7B},
    }
    return estimate_round(build(parse_mapping(config, DeploymentConfig, "test")), 1, 500)


@pytest.mark.parametrize(("model", "published"), [("vicuna-7b", 1.22), ("vicuna-13b", 1.23)])
def test_the_overhead_of_64_tokens_and_four_heads(model: str, published: float) -> None:
    """Within 5 %: nothing here was fitted to it. Found: 1.22 and 1.19 on the device alone."""
    round_ = medusa(model, "ideal")
    assert float(round_.round_time_s / round_.step_time_s) == pytest.approx(published, rel=0.05)


def test_an_eager_baseline_makes_the_overhead_smaller() -> None:
    """A plain step that waits for launches has room for 63 more tokens: 1.14 instead of 1.22."""
    eager, graphs = (
        float(found.round_time_s / found.step_time_s)
        for found in (medusa("vicuna-7b", "pytorch"), medusa("vicuna-7b", "vllm"))
    )
    assert 1.05 < eager < graphs - 0.05


def test_tokens_per_step_of_independent_heads() -> None:
    """2.34 from the accuracies, 2.31 measured with greedy decoding (Spec-Bench, A100).

    Independence is 1.3 % too high; the accuracies and the runs share no texts.
    """
    assert medusa("vicuna-7b", "ideal").statistics.tokens_per_round == pytest.approx(2.31, rel=0.02)
