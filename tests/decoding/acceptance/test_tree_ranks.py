"""Candidates by rank: tapes, trees in steady state, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from simspec.core.errors import ConfigError
from simspec.decoding._tree import RankedAcceptance, parse_tree, reach, tree_outcomes
from simspec.decoding.acceptance.tree_ranks import VICUNA_7B, Config
from tests.decoding.factories import walk

TREE = parse_tree([[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0], [0, 1, 0]])


def process(persistence: float = 0.0, hit_rates: object = VICUNA_7B):
    return Config.model_validate({"hit_rates": hit_rates, "persistence": persistence}).at(None)


def test_each_rank_comes_at_its_rate() -> None:
    """P(rank < r) is the cumulative rate at every depth; 0.0014 is 3.5 standard errors at most."""
    for persistence, slack in ((0.0, 1.0), (0.8, 3.0)):
        text = process(persistence).tape(3, 1, 1_500_000)
        assert text.rank is not None
        for row, rates in zip(text.rank, VICUNA_7B, strict=True):
            for first, rate in enumerate(rates, start=1):
                assert (row < first).mean() == pytest.approx(rate, abs=0.0014 * slack)
        np.testing.assert_array_equal(text.accept, text.rank == 0)


def test_a_longer_tape_begins_with_the_shorter_one() -> None:
    """Also where positions keep the ease of those before them."""
    short, long = (process(0.6).tape(1, 2, n).rank for n in (50, 500))
    assert short is not None
    assert long is not None
    np.testing.assert_array_equal(short, long[:, : short.shape[1]])


def test_independent_positions_have_medusas_sum() -> None:
    """P(a >= d) is the sum over the nodes of depth d of the product of their rates."""
    rates = process().rank_rates()
    np.testing.assert_allclose(process().survival(TREE.paths), reach(TREE, rates), atol=1e-12)
    expected = 0.5604 + 0.1113 + 0.0554  # depth 1
    assert process().survival(TREE.paths)[1] == pytest.approx(expected)
    second = 0.5604 * (0.3164 + 0.1072) + 0.1113 * 0.3164
    assert process().survival(TREE.paths)[2] == pytest.approx(second)


@pytest.mark.parametrize("persistence", [0.0, 0.3, 0.9])
def test_the_closed_form_of_a_tree_is_the_mean_of_the_tape(persistence: float) -> None:
    """P(a >= d) within 3.5 standard errors over 400 requests of 60 rounds, the first 20 left out.

    False alarm for a new seed: 1 % for all nine comparisons.
    """
    ours = process(persistence)
    seen = np.zeros((400, TREE.depth))
    for request in range(400):
        text = ours.tape(5, request, 240)
        _, accepted = walk(tree_outcomes(text, TREE, TREE.depth, TREE.num_nodes), 60)
        for depth in range(1, TREE.depth + 1):
            seen[request, depth - 1] = (accepted[20:] >= depth).mean()
    errors = seen.std(axis=0, ddof=1) / np.sqrt(400)
    expected = ours.survival(TREE.paths)[1:]
    assert (np.abs(seen.mean(axis=0) - expected) < 3.5 * errors).all()


def test_persistence_lengthens_runs_and_hardens_starts() -> None:
    """Two drafts in a row succeed more often, the first less often: both are the clustering."""
    once = process(0.0, [[0.5]]).survival([(0,), (0, 0)])
    twice = process(0.6, [[0.5]]).survival([(0,), (0, 0)])
    assert twice[1] < once[1] == 0.5
    assert twice[2] / twice[1] > once[2] / once[1]


def test_a_token_beyond_the_table_is_in_no_tree() -> None:
    """Nodes of ranks the table does not have are never text."""
    deep = [(rank,) for rank in range(12)]
    assert process(hit_rates=[[0.5, 0.7]]).survival(deep)[1] == pytest.approx(0.7)


def test_it_ranks_for_trees() -> None:
    """Trees recognise it by what it offers."""
    assert isinstance(process(), RankedAcceptance)


@pytest.mark.parametrize(
    ("hit_rates", "message"),
    [
        ([[0.5, 0.4]], "depth 1 falls"),
        ([[0.2, 0.5]], "candidate 2 is right more often"),
        ([[0.5, 0.6], [0.4]], "depth 2 has 1 rates and depth 1 has 2"),
        ([], "hit_rates"),
        ([[1.2]], "less than or equal to 1"),
    ],
)
def test_rates_out_of_order_are_refused(hit_rates: object, message: str) -> None:
    """Cumulative rates rise, by less and less, with as many candidates at every depth."""
    with pytest.raises(ValidationError, match=message):
        process(hit_rates=hit_rates)


def test_a_threshold_is_refused() -> None:
    """No confidences, so nothing could stop a chain."""
    with pytest.raises(ConfigError, match="tree_ranks has none"):
        process().statistics(4, 0.5)
