"""Draft trees: shapes, the best nodes under given hit rates, and what a tree accepts.

A node of a tree is the path of ranks that leads to it: ``(0, 2)`` is the drafter's third choice
after its first choice. The root, the text's newest token, is verified with the nodes and is not
counted among them: N nodes are N + 1 verified tokens.

With ``a_i(r)`` the probability that the text's token at depth i is the drafter's r-th choice, given
that the path above it is the text, depths independent, a node ``(r_1, ..., r_d)`` is text with
probability ``a_1(r_1) ... a_d(r_d)``. At most one path is text, so

    P(a >= d) = sum of those over the nodes of depth d,   E[a] = sum over all nodes

(Cai et al., "Medusa", arXiv 2401.10774, section 2.3.3). The best N nodes are the N most probable
ones: a node is never more probable than its parent, so they form a tree, and every shorter prefix
of the list is the best smaller tree. EAGLE-2 (Li et al., arXiv 2406.16858, section 4) finds them
among those its drafter has looked at, which expands the k most probable nodes of each level.

Left out: hit rates that depend on the path taken or on the text around it; a drafter that adapts
its tree to each context accepts more than one tree of mean rates does.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Annotated, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import Field

from simspec.core.errors import ConfigError
from simspec.decoding._base import AcceptanceProcess
from simspec.decoding._chain import chain_outcomes, required
from simspec.decoding.tape import Outcomes, RoundStatistics, Tape

Array: TypeAlias = npt.NDArray[np.float64]
Path: TypeAlias = tuple[int, ...]
MAX_NODES = 1024
"""Most nodes of a tree."""
Paths: TypeAlias = Annotated[
    tuple[tuple[Annotated[int, Field(ge=0, le=63)], ...], ...], Field(max_length=MAX_NODES)
]
"""A user's tree: the ranks that lead to each node, from 0."""

MAX_DEPTH = 16
"""Deepest tree: as many depths as a tape tells apart."""


@runtime_checkable
class RankedAcceptance(Protocol):
    """An acceptance process that knows where among the candidates the text's token is."""

    def rank_rates(self) -> Array:
        """Return ``a_i(r)``, array (depth, ranks); deeper drafts use the last row."""
        ...

    def survival(self, paths: Sequence[Path]) -> Array:
        """Return ``P(a >= d)``, d = 0..D, when every round drafts the tree ``paths``."""
        ...


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of drafts.

    Attributes
    ----------
    paths : tuple
        The nodes, each after its parent.
    """

    paths: tuple[Path, ...]

    @property
    def num_nodes(self) -> int:
        """N, the root left out."""
        return len(self.paths)

    @property
    def depth(self) -> int:
        """D, tokens of the longest path."""
        return max(map(len, self.paths))

    @property
    def nodes_per_depth(self) -> tuple[int, ...]:
        """Nodes at depth 1..D."""
        lengths = [len(path) for path in self.paths]
        return tuple(lengths.count(depth) for depth in range(1, self.depth + 1))

    @property
    def parents_per_depth(self) -> tuple[int, ...]:
        """Nodes at depth 1..D-1 that have children: the tokens a drafter has to read."""
        parents = {path[:-1] for path in self.paths}
        lengths = [len(path) for path in parents]
        return tuple(lengths.count(depth) for depth in range(1, self.depth))

    @property
    def depth_sums(self) -> tuple[int, ...]:
        """Sum of the depths of the first m nodes, m = 0..N."""
        return tuple(accumulate(map(len, self.paths), initial=0))


def parse_tree(paths: Sequence[Sequence[int]]) -> Tree:
    """Return the tree of a user's paths, in their order as far as parents come first.

    Raises
    ------
    ConfigError
        No node, a path twice, a path without its parent, or one too deep.
    """
    nodes = sorted((tuple(path) for path in paths), key=len)
    known = set(nodes)
    if not nodes or not nodes[0]:
        raise ConfigError(
            "tree: give one path of ranks for each node, for example [[0], [1], [0, 0]]; the root "
            "is always there",
            field="tree",
        )
    for path in nodes:
        if nodes.count(path) > 1:
            raise ConfigError(f"tree: path {list(path)} is given twice", field="tree")
        if len(path) > 1 and path[:-1] not in known:
            raise ConfigError(
                f"tree: path {list(path)} hangs in the air; add its parent {list(path[:-1])}",
                field="tree",
            )
    if len(nodes[-1]) > MAX_DEPTH:
        raise ConfigError(
            f"tree: path {list(nodes[-1])} has {len(nodes[-1])} tokens, at most {MAX_DEPTH} fit",
            field="tree",
        )
    return Tree(tuple(nodes))


def best_tree(rates: Array, num_nodes: int, max_depth: int) -> Tree:
    """Return the ``num_nodes`` most probable nodes down to ``max_depth``, most probable first.

    Parameters
    ----------
    rates : array (depth, ranks)
        ``a_i(r)``, never rising along a row; deeper levels use the last row.
    num_nodes : int
        N.
    max_depth : int
        D: heads of the drafter.

    Raises
    ------
    ConfigError
        The table has fewer paths than that.
    """
    return Tree(_grown(_key(rates), num_nodes, max_depth))


@lru_cache(maxsize=256)
def _grown(rates: tuple[tuple[float, ...], ...], num_nodes: int, depth: int) -> tuple[Path, ...]:
    num_ranks = len(rates[0])
    # A node is followed by its next sibling and its first child, both never more probable.
    waiting: list[tuple[float, int, Path, float]] = [(-rates[0][0], 1, (0,), 1.0)]
    chosen: list[Path] = []
    while waiting and len(chosen) < num_nodes:
        negative, level, path, above = heapq.heappop(waiting)
        chosen.append(path)
        if path[-1] + 1 < num_ranks:
            value = above * _row(rates, level - 1)[path[-1] + 1]
            heapq.heappush(waiting, (-value, level, (*path[:-1], path[-1] + 1), above))
        if level < depth:
            value = -negative * _row(rates, level)[0]
            heapq.heappush(waiting, (-value, level + 1, (*path, 0), -negative))
    if len(chosen) < num_nodes:
        raise ConfigError(
            f"num_nodes: {num_nodes} nodes, and {num_ranks} candidates at {depth} depths have no "
            f"more than {len(chosen)} paths",
            field="num_nodes",
        )
    return tuple(chosen)


def beam_tree(rates: Array, num_nodes: int, depth: int, top_k: int) -> Tree:
    """Return the best ``num_nodes`` nodes among those a beam of ``top_k`` looks at.

    Level 1 has the ``top_k`` first candidates; the ``top_k`` most probable nodes of each level
    get ``top_k`` children each, down to ``depth``. Candidates beyond the table have rate 0.
    """
    return Tree(_beam(_key(rates), num_nodes, depth, top_k))


@lru_cache(maxsize=256)
def _beam(
    rates: tuple[tuple[float, ...], ...], num_nodes: int, depth: int, top_k: int
) -> tuple[Path, ...]:
    level: list[tuple[float, Path]] = [(1.0, ())]
    seen: list[tuple[float, Path]] = []
    for i in range(depth):
        row = (*_row(rates, i)[:top_k], *[0.0] * (top_k - len(rates[0])))
        grown = [
            (value * rate, (*path, rank)) for value, path in level for rank, rate in enumerate(row)
        ]
        seen += grown
        level = sorted(grown, key=_most_probable_first)[:top_k]
    best = sorted(seen, key=_most_probable_first)[:num_nodes]
    return tuple(path for _, path in best)


def _most_probable_first(node: tuple[float, Path]) -> tuple[float, int, Path]:
    value, path = node
    # Parents before children, also where both have rate 0 or the child rate 1.
    return -value, len(path), path


def _row(rates: tuple[tuple[float, ...], ...], level: int) -> tuple[float, ...]:
    return rates[min(level, len(rates) - 1)]


def _key(rates: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in rates.tolist())


def reach(tree: Tree, rates: Array) -> Array:
    """Return ``P(a >= d)``, d = 0..D, of a tree under independent rates.

    Parameters
    ----------
    tree : Tree
        The nodes.
    rates : array (depth, ranks)
        ``a_i(r)``; deeper levels use the last row, further ranks have rate 0.
    """
    found = np.zeros(tree.depth + 1)
    found[0] = 1.0
    for path in tree.paths:
        found[len(path)] += np.prod([_rate(rates, i, rank) for i, rank in enumerate(path)])
    return found


def _rate(rates: Array, level: int, rank: int) -> float:
    row = rates[min(level, rates.shape[0] - 1)]
    return float(row[rank]) if rank < row.size else 0.0


def tree_outcomes(tape: Tape, tree: Tree | None, depth: int, num_nodes: int) -> Outcomes:
    """Return m and a of the round that starts at each text position.

    Every round drafts all its nodes. On a tape with ranks the text is followed from the root as
    long as it stays in the tree. Without, row i of ``accept`` says whether the text's token is
    among the nodes of depth i, given the path. The end of the tape ends the text.

    Parameters
    ----------
    tape : Tape
        Of one request, ``n`` positions.
    tree : Tree or None
        The nodes; needed on a tape with ranks only.
    depth, num_nodes : int
        D and N.
    """
    drafted = np.full(tape.confidence.size, num_nodes, dtype=np.int64)
    if tape.rank is None or tree is None:
        return Outcomes(drafted, chain_outcomes(tape, depth, 0.0).accepted)
    children, outside = _children(tree)
    num_positions = drafted.size
    accepted = np.zeros(num_positions, dtype=np.int64)
    node = np.zeros(num_positions, dtype=np.int64)
    for i in range(min(tree.depth, num_positions)):
        # Entry t of these views is the round that starts at t; depth i + 1 is position t + i.
        rank = tape.rank[min(i, tape.rank.shape[0] - 1), i:]
        node = children[node[: num_positions - i], np.minimum(rank, children.shape[1] - 1)]
        accepted[: num_positions - i] += node != outside
    return Outcomes(drafted, accepted)


@lru_cache(maxsize=256)
def _children(tree: Tree) -> tuple[npt.NDArray[np.int64], int]:
    """Return the node that each node has at each rank; the last node and rank lead outside."""
    number = {path: i for i, path in enumerate(((), *tree.paths))}
    outside = len(number)
    ranks = max(path[-1] for path in tree.paths) + 1
    table = np.full((outside + 1, ranks + 1), outside, dtype=np.int64)
    for path in tree.paths:
        table[number[path[:-1]], path[-1]] = number[path]
    return table, outside


def tree_statistics(
    acceptance: AcceptanceProcess | None, method: str, tree: Tree | None, depth: int, num_nodes: int
) -> RoundStatistics:
    """Return the closed form of m and a: m = N, and a as in :func:`tree_outcomes`.

    Parameters
    ----------
    acceptance : AcceptanceProcess or None
        None is refused.
    method : str
        For the message.
    tree : Tree or None
        The nodes; needed by an acceptance with ranks only.
    depth, num_nodes : int
        D and N.
    """
    process = required(acceptance, method)
    drafted = np.zeros(num_nodes + 1)
    drafted[num_nodes] = 1.0
    if isinstance(process, RankedAcceptance) and tree is not None:
        reached = np.append(process.survival(tree.paths), 0.0)
        accepted = reached[:-1] - reached[1:]
    else:
        accepted = process.statistics(depth, 0.0).accepted_pmf
    all_accepted = float(accepted[-1]) if depth == num_nodes else 0.0
    return RoundStatistics(drafted, np.clip(accepted, 0.0, None), all_accepted)


def read_by_a_tree(acceptance: AcceptanceProcess) -> str:
    """Return the acceptance's sentence with what its rates mean to a tree."""
    if isinstance(acceptance, RankedAcceptance):
        return acceptance.describe()
    return (
        f"{acceptance.describe()}; read by a tree: the rate of draft position i is that at which "
        "the text's token is among the nodes of depth i, given the path"
    )


def levels(expanded: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield depth, nodes read and nodes read so far of a drafter's levels below the root."""
    total = 0
    for depth, count in enumerate(expanded, start=1):
        total += count
        yield depth, count, total
