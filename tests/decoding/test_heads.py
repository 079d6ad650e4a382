"""Rounds of draft heads: the closed form prices them like the rounds it stands for."""

from __future__ import annotations

import numpy as np
import pytest

from simspec.cost.forward import CostModel
from simspec.cost.work import Stack
from simspec.decoding._base import ACCEPTANCE_MODELS, METHODS
from simspec.decoding._heads import expected_head_round
from simspec.decoding.acceptance.tree_ranks import VICUNA_7B
from simspec.decoding.tape import RoundStatistics
from tests.cost.factory import engine
from tests.decoding.factories import target
from tests.decoding.test_expected_cost import device, mixture

METHOD_FIELDS = {
    "tree": {"name": "eagle", "num_speculative_tokens": 4, "num_nodes": 20},
    "chain": {"name": "eagle", "version": 1, "num_speculative_tokens": 4},
    "eagle 3": {"name": "eagle", "version": 3, "top_k": 4, "num_nodes": 12},
    "medusa": {"name": "medusa"},
    "mtp": {"name": "mtp", "num_modules": 2, "num_speculative_tokens": 4},
}


@pytest.mark.parametrize("stack", [target(), mixture()], ids=["dense", "experts"])
@pytest.mark.parametrize("batch_size", [1, 16, 64])
@pytest.mark.parametrize("fields", METHOD_FIELDS.values(), ids=METHOD_FIELDS)
def test_expected_round_time_is_the_mean_of_simulated_rounds(
    fields: dict[str, object], batch_size: int, stack: Stack
) -> None:
    """Within 0.2 % plus 4 standard errors over 300 rounds, drafting alone too.

    Each round draws every sequence's a from the closed form's law; false alarm 6e-5 each.
    """
    method = METHODS.parse(fields).build(stack)
    acceptance = ACCEPTANCE_MODELS.parse({"name": "tree_ranks", "hit_rates": VICUNA_7B}).at(None)
    statistics = method.statistics(acceptance)
    cost = CostModel(method.stacks(), device(4.0), engine(per_draft_step_s=7e-4))
    law = statistics.accepted_pmf
    rng = np.random.default_rng(batch_size)
    drawn = rng.choice(law.size, size=(300, batch_size), p=law)
    contexts, drafted = [1000] * batch_size, [method.max_draft] * batch_size
    seen = np.zeros((300, 3))
    for row, accepted in zip(seen, drawn.tolist(), strict=True):
        step = cost.step(method.round_passes(contexts, drafted, accepted, None), batch_size)
        row[:] = step.total_s, step.by_phase["draft"], step.host_s
    weighted = method.expected_passes(batch_size, 1000, statistics)
    expected = cost.expected_step(weighted, batch_size)
    errors = seen.std(axis=0, ddof=1) / np.sqrt(300)
    values = (expected.total_s, expected.by_phase["draft"], expected.host_s)
    for mean, error, value in zip(seen.mean(axis=0), errors, values, strict=True):
        assert mean == pytest.approx(value, abs=0.002 * mean + 4 * error)


@pytest.mark.parametrize("fields", METHOD_FIELDS.values(), ids=METHOD_FIELDS)
def test_every_draft_token_of_depth_costs_one_host_turn(fields: dict[str, object]) -> None:
    """D turns for EAGLE, K for MTP, one for Medusa's heads however many there are."""
    method = METHODS.parse(fields).build(target())
    cost = CostModel(method.stacks(), device(4.0), engine(per_draft_step_s=1e-3))
    passes = method.round_passes([500], [method.max_draft], [1], None)
    turns = {"medusa": 1, "eagle": 6 if fields.get("version") == 3 else 4, "mtp": 4}
    assert cost.step(passes, 1).host_s == pytest.approx(1e-3 * turns[method.name])


def test_arrays_of_batches_give_what_numbers_give() -> None:
    """A grid of batches and contexts equals a loop over its points."""
    law = np.array([0.4, 0.3, 0.2, 0.1])
    statistics = RoundStatistics(np.array([0.0, 0.0, 0.0, 1.0]), law)
    batches, contexts = np.array([[1.0], [7.0], [64.0]]), np.array([[100.0, 4000.0]])
    grid = expected_head_round(batches, contexts, statistics, (0, 1, 3, 6))
    for i, batch_size in enumerate(batches[:, 0].tolist()):
        for k, context in enumerate(contexts[0].tolist()):
            point = expected_head_round(batch_size, context, statistics, (0, 1, 3, 6))
            for field in ("num_tokens", "kv_tokens", "attended_tokens"):
                many = np.broadcast_to(getattr(grid.verification, field), (3, 2))
                assert many[i, k] == pytest.approx(getattr(point.verification, field))
            total = np.zeros((3, 2))
            for weight, rows in grid.drafting.yielded:
                total = total + np.broadcast_to(weight * rows.attended_tokens**0.5, (3, 2))
            one = sum(w * rows.attended_tokens**0.5 for w, rows in point.drafting.yielded)
            assert total[i, k] == pytest.approx(one)
