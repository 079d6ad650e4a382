"""LayerSkip with and without a shared cache: the paper's ablation, as ratios of times per token.

Elhoushi et al., arXiv 2404.16710, tables 7 and 11: a Llama of 1.5B and 24 layers, seven drafts, on
a CPU; plain decoding takes 165 ms per token. The processor is not named, so what is compared is the
speedup on a device whose time is the reading of weights.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from simspec.cost.forward import CostModel
from simspec.decoding._base import ACCEPTANCE_MODELS, METHODS
from simspec.hardware.load import load_engine
from tests.cost.factory import hardware
from tests.decoding.factories import target

PLAIN_MS, DRAFTS = 165.0, 7
RUNS = [
    (18, 0.99, True, 134.0),
    (18, 0.99, False, 143.0),
    (12, 0.97, True, 104.0),
    (12, 0.97, False, 110.0),
]


def speedup(exit_layer: int, rate: float, *, share_kv: bool) -> float:
    small = target(num_layers=24, hidden_size=2048, num_heads=16)
    block = replace(small.blocks[0], intermediate_size=5504)
    small = replace(small, blocks=(block,) * 24)
    settings = {"exit_layer": exit_layer, "num_speculative_tokens": DRAFTS, "share_kv": share_kv}
    method = METHODS.parse({"name": "layerskip", **settings}).build(small)
    plain = METHODS.parse("autoregressive").build(small)
    published = {
        "name": "tokens_per_round",
        "tokens_per_round": 1.0 + rate * DRAFTS,
        "num_speculative_tokens": DRAFTS,
    }
    statistics = method.statistics(ACCEPTANCE_MODELS.parse(published).at(exit_layer))
    round_s, step_s = (
        float(
            CostModel(each.stacks(), hardware(), load_engine("ideal"))
            .expected_step(each.expected_passes(1, 300, law), 1)
            .total_s
        )
        for each, law in ((method, statistics), (plain, plain.statistics(None)))
    )
    return statistics.tokens_per_round * step_s / round_s


@pytest.mark.parametrize(("exit_layer", "rate", "share_kv", "published_ms"), RUNS)
def test_speedups_of_the_ablation(
    exit_layer: int, rate: float, share_kv: bool, published_ms: float
) -> None:
    """Nothing was fitted to these."""
    found = speedup(exit_layer, rate, share_kv=share_kv)
    assert found == pytest.approx(PLAIN_MS / published_ms, rel=0.12)
