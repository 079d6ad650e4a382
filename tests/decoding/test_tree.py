"""Trees: shape, the best nodes, what a tape lets through."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import ConfigError
from simspec.decoding._tree import (
    beam_tree,
    best_tree,
    parse_tree,
    reach,
    tree_outcomes,
)
from simspec.decoding.acceptance.tree_ranks import VICUNA_7B
from simspec.decoding.eagle import STATIC_TREE
from simspec.decoding.medusa import TREES
from simspec.decoding.tape import Tape

RATES = np.diff(np.array(VICUNA_7B), axis=1, prepend=0.0)

rates_of_two_depths = st.lists(
    st.lists(st.floats(0.01, 0.3), min_size=3, max_size=3).map(
        lambda row: sorted(row, reverse=True)
    ),
    min_size=2,
    max_size=2,
).map(np.array)


def test_counts_of_a_small_tree() -> None:
    """Three nodes at depth 1, two at 2, one at 3; the nodes with children are what is read."""
    tree = parse_tree([[0], [0, 0], [1], [2], [1, 1], [1, 1, 0]])
    assert (tree.num_nodes, tree.depth) == (6, 3)
    assert tree.nodes_per_depth == (3, 2, 1)
    assert tree.parents_per_depth == (2, 1)
    assert tree.depth_sums == (0, 1, 2, 3, 5, 7, 10)


def test_the_published_trees_have_their_published_sizes() -> None:
    """Medusa: 63 nodes, depth 4 (64 with the root); EAGLE-1: 25 nodes, depth 5."""
    medusa, eagle = parse_tree(TREES["mc_sim_7b_63"]), parse_tree(STATIC_TREE)
    assert (medusa.num_nodes, medusa.depth) == (63, 4)
    assert (eagle.num_nodes, eagle.depth) == (25, 5)
    assert eagle.nodes_per_depth == (4, 8, 8, 3, 2)
    assert eagle.parents_per_depth == (4, 4, 1, 1)


@given(rates_of_two_depths, st.integers(1, 12))
def test_no_other_tree_of_that_size_accepts_more(rates: np.ndarray, num_nodes: int) -> None:
    """The greedy tree is as good as the best of all sets of nodes: those of largest product."""
    tree = best_tree(rates, num_nodes, 2)
    nodes = [path for depth in (1, 2) for path in product(range(3), repeat=depth)]
    values = sorted((prod(rates[i, r] for i, r in enumerate(path)) for path in nodes), reverse=True)
    assert reach(tree, rates)[1:].sum() == pytest.approx(sum(values[:num_nodes]))
    parse_tree(tree.paths)


@given(rates_of_two_depths, st.integers(2, 12))
def test_a_wide_enough_beam_finds_the_best_nodes(rates: np.ndarray, num_nodes: int) -> None:
    """EAGLE-2's beam misses nothing when a level has no more nodes than it continues."""
    beam = beam_tree(rates, num_nodes, 2, 3)
    best = best_tree(rates, num_nodes, 2)
    assert reach(beam, rates).sum() == pytest.approx(reach(best, rates).sum())
    parse_tree(beam.paths)


def test_candidates_beyond_the_table_fill_a_beam_with_nodes_of_no_use() -> None:
    """They are verified and never accepted."""
    one = np.array([[0.7]])
    tree = beam_tree(one, 10, 2, 4)
    assert tree.num_nodes == 10
    assert reach(tree, one).tolist() == pytest.approx([1.0, 0.7, 0.49])


def test_a_hundred_percent_drafter_still_gives_a_tree() -> None:
    """Ties between parent and child go to the parent."""
    tree = beam_tree(np.array([[1.0, 0.0]]), 4, 4, 2)
    parse_tree(tree.paths)
    assert (0, 0, 0, 0) in tree.paths


def test_more_nodes_than_paths_are_refused() -> None:
    """Two depths of three candidates have 12 paths."""
    with pytest.raises(ConfigError, match="no more than 12 paths"):
        best_tree(RATES[:2, :3], 13, 2)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([], "give one path"),
        ([[]], "give one path"),
        ([[0], [0]], r"path \[0\] is given twice"),
        ([[0], [1, 0]], r"\[1, 0\] hangs in the air; add its parent \[1\]"),
        ([[0] * depth for depth in range(1, 18)], "at most 16"),
    ],
)
def test_what_is_no_tree_is_refused(paths: list[list[int]], message: str) -> None:
    """One sentence that says what to add or remove."""
    with pytest.raises(ConfigError, match=message) as error:
        parse_tree(paths)
    assert error.value.field == "tree"


def _ranked(rank: list[list[int]]) -> Tape:
    ranks = np.array(rank)
    unknown = np.full(ranks.shape[1], np.nan)
    return Tape(unknown, unknown, ranks == 0, rank=ranks, rank_rates=RATES)


def test_the_text_is_followed_down_the_tree() -> None:
    """Position by position: in the tree, in the tree, out of it; the end of the tape ends it."""
    tree = parse_tree([[0], [2], [2, 1], [2, 1, 0]])
    tape = _ranked([[2, 0, 1, 0], [7, 1, 1, 1], [0, 0, 0, 3]])
    outcomes = tree_outcomes(tape, tree, 3, 4)
    # Start 0: ranks 2, 1, 0 at depths 1, 2, 3. Start 1: 0, then (0, 1) is no node. Start 2: no.
    assert outcomes.accepted.tolist() == [3, 1, 0, 1]
    assert outcomes.drafted.tolist() == [4] * 4


@given(st.integers(0, 2000), st.integers(1, 30))
def test_outcomes_are_the_walk_down_a_set_of_paths(seed: int, num_positions: int) -> None:
    """The same as following the path in the plain set of nodes, at every start."""
    tree = parse_tree(STATIC_TREE)
    rng = np.random.default_rng(seed)
    ranks = rng.integers(0, 4, (3, num_positions)) * (rng.random((3, num_positions)) < 0.6)
    outcomes = tree_outcomes(_ranked(ranks.tolist()), tree, tree.depth, tree.num_nodes)
    nodes = set(STATIC_TREE)
    for start in range(num_positions):
        path: tuple[int, ...] = ()
        while start + len(path) < num_positions:
            longer = (*path, int(ranks[min(len(path), 2), start + len(path)]))
            if longer not in nodes:
                break
            path = longer
        assert outcomes.accepted[start] == len(path)


def test_without_ranks_a_rate_is_that_of_being_in_the_tree() -> None:
    """Row i of ``accept`` decides depth i, as for a chain as long as the tree is deep."""
    accept = np.array([[True, True, False, True, True, True], [True] * 6, [False] * 6])
    unknown = np.full(6, np.nan)
    tree = parse_tree(STATIC_TREE)
    outcomes = tree_outcomes(Tape(unknown, unknown, accept), tree, tree.depth, tree.num_nodes)
    assert outcomes.accepted.tolist() == [2, 2, 0, 2, 2, 1]
    assert outcomes.drafted.tolist() == [25] * 6
