"""Leviathan's theory of wall time as a special case of the cost model.

Theorem 3.8 of arXiv 2211.17192: with draft steps that cost c of a target step, verification that
costs one, and independent acceptance alpha, K drafts improve the wall time by
(1 - alpha^(K+1)) / ((1 - alpha) (K c + 1)). LayerSkip with two caches on a device that only reads
weights is exactly that, with c = E / L.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from simspec.cost.forward import CostModel
from simspec.decoding.acceptance.constant import Config as Constant
from simspec.decoding.layerskip import Config
from tests.cost.factory import engine, hardware
from tests.decoding.factories import target

LAYERS = 100
MOST = 30


@cache
def improvement(exit_layer: int, alpha: float, num_drafts: int) -> float:
    """Return the speedup over plain decoding at batch 1, no head and hardly any KV."""
    # Arithmetic is free here, so that a pass costs its weights whatever its rows.
    device = replace(hardware(), peak_flop_per_s={"bf16": 1e18})
    stack = replace(target(LAYERS), vocab_size=1)
    config = Config(exit_layer=exit_layer, num_speculative_tokens=num_drafts, share_kv=False)
    method = config.build(stack)
    cost = CostModel(method.stacks(), device, engine())
    statistics = method.statistics(Constant(alpha=alpha).at(None))
    round_s = cost.expected_step(method.expected_passes(1, 1.0, statistics), 1).total_s
    step_s = cost.step(method.round_passes([1], [0], [0], None), 1).total_s
    return float(statistics.tokens_per_round * step_s / round_s)


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("exit_layer", [2, 25, 75])
@pytest.mark.parametrize("num_drafts", [1, 5, 10])
def test_the_improvement_of_theorem_3_8(alpha: float, exit_layer: int, num_drafts: int) -> None:
    """Within 1 %: activations and the KV of a few tokens are what the theorem leaves out."""
    tokens = (1 - alpha ** (num_drafts + 1)) / (1 - alpha)
    expected = tokens / (num_drafts * exit_layer / LAYERS + 1)
    assert improvement(exit_layer, alpha, num_drafts) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("exit_layer", "num_drafts", "best"),
    [(2, 19, 6.37), (10, 10, 3.43), (25, 6, 2.09), (33, 5, 1.77), (50, 3, 1.376), (75, 1, 1.09)],
)
def test_the_best_draft_length(exit_layer: int, num_drafts: int, best: float) -> None:
    """The published optima at alpha = 0.9: fewer drafts the more each costs, and below 1 / c."""
    found = {k: improvement(exit_layer, 0.9, k) for k in range(1, MOST)}
    top = max(found, key=lambda k: found[k])
    # Neighbours of an optimum differ by less than the activations of 20 verified tokens do.
    assert abs(top - num_drafts) <= 1
    assert found[num_drafts] == pytest.approx(best, rel=0.015)
    assert max(found.values()) < LAYERS / exit_layer


@pytest.mark.parametrize("exit_layer", [10, 40, 80])
def test_drafting_pays_exactly_where_acceptance_exceeds_its_cost(exit_layer: int) -> None:
    """Corollary 3.9: some K improves the wall time if and only if alpha > c."""
    c = exit_layer / LAYERS
    assert max(improvement(exit_layer, c + 0.03, k) for k in range(1, MOST)) > 1.0
    assert max(improvement(exit_layer, c - 0.03, k) for k in range(1, MOST)) < 1.0


@pytest.mark.parametrize(("alpha", "exit_layer"), [(0.7, 10), (0.9, 50)])
def test_the_improvement_is_at_least_that_of_one_draft(alpha: float, exit_layer: int) -> None:
    """Corollary 3.9: where it pays, it pays by at least (1 + alpha) / (1 + c)."""
    best = max(improvement(exit_layer, alpha, k) for k in range(1, MOST))
    assert best >= 0.99 * (1 + alpha) / (1 + exit_layer / LAYERS)
