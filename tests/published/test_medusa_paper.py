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


def medusa(model: str) -> RoundEstimate:
    config = {
        "model": model,
        "hardware": "a100_sxm_80gb",
        "engine": "ideal",
        "method": "medusa",
        "acceptance": {"name": "tree_ranks", "hit_rates": VICUNA_7B},
    }
    return estimate_round(build(parse_mapping(config, DeploymentConfig, "test")), 1, 500)


@pytest.mark.parametrize(("model", "published"), [("vicuna-7b", 1.22), ("vicuna-13b", 1.23)])
def test_the_overhead_of_64_tokens_and_four_heads(model: str, published: float) -> None:
    """Within 5 %: nothing here was fitted to it. Found: 1.22 and 1.19 on the device alone."""
    round_ = medusa(model)
    assert float(round_.round_time_s / round_.step_time_s) == pytest.approx(published, rel=0.05)


def test_tokens_per_step_of_independent_heads() -> None:
    """2.34 from the accuracies, 2.31 measured with greedy decoding (Spec-Bench, A100).

    Independence is 1.3 % too high; the accuracies and the runs share no texts.
    """
    assert medusa("vicuna-7b").statistics.tokens_per_round == pytest.approx(2.31, rel=0.02)


def test_experts_eat_the_gain_of_a_tree_at_batch_1() -> None:
    """Mixtral-8x7B, int8 weights, 3 heads, one H100: 35 tokens in 15 steps and no gain.

    NVIDIA/TensorRT-LLM#1798; so a step cost at least 2.3 plain ones there. The tree's size is not
    reported: from 15 nodes on, all eight experts are read in every layer.
    """
    for num_nodes in (15, 31, 63):
        config = {
            "model": "mixtral-8x7b",
            "hardware": "h100_sxm",
            "engine": "vllm",
            "dtype": "int8_weight_only",
            "method": {
                "name": "medusa",
                "num_heads": 3,
                "num_nodes": num_nodes,
                "head_accuracies": VICUNA_7B[:3],
            },
            # 1 + 0.646 + 0.646^2 + 0.646^3 = 35 / 15 tokens per step.
            "acceptance": 0.646,
        }
        deployment = build(parse_mapping(config, DeploymentConfig, "test"))
        found = estimate_round(deployment, 1, 200)
        assert found.statistics.tokens_per_round == pytest.approx(35 / 15, abs=0.01)
        assert float(found.round_time_s / found.step_time_s) > 2.3
        assert float(found.speedup) < 1.0
