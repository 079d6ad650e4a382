"""Trees of drafts: verified in one pass, of which one path is kept.

Node 0 is the newest token of the text. A draft node is reached when the target, asked at its
parent, chooses its token; the walk ends at the first choice that no child has, and that choice is
the round's last token. Children are chosen and not drawn, so the output is distributed as the
target's whatever the tree holds (the certain drafts of ``sampling``, several to a place).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simspec.companion.decoding._base import Clock, Loop, Round
from simspec.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TreeShape:
    """A static tree, a node for each path of ranks.

    Attributes
    ----------
    paths : tuple of tuple of int
        Ranks from the root: ``(0, 2)`` is the third best guess below the best one. Parents stand
        before their children.
    """

    paths: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """Refuse a node without its parent.

        Raises
        ------
        ConfigError
            A path is empty, stands twice, or its beginning is missing.
        """
        known: set[tuple[int, ...]] = {()}
        for path in self.paths:
            if not path or path in known or path[:-1] not in known:
                raise ConfigError(
                    f"tree: node {list(path)} is empty, doubled, or before its parent"
                )
            known.add(path)

    @property
    def num_nodes(self) -> int:
        """N, the root not counted."""
        return len(self.paths)

    @property
    def depth(self) -> int:
        """Longest path."""
        return max(map(len, self.paths), default=0)

    @property
    def width(self) -> int:
        """Most guesses that any place needs."""
        return 1 + max((path[-1] for path in self.paths), default=0)

    @property
    def parents(self) -> list[int]:
        """Node number of each draft node's parent; the root is 0, draft nodes follow."""
        number = {(): 0} | {path: i + 1 for i, path in enumerate(self.paths)}
        return [number[path[:-1]] for path in self.paths]

    @property
    def depths(self) -> Tensor:
        """Depth (N + 1,) of every node, 0 for the root."""
        return torch.tensor([0, *map(len, self.paths)])

    @property
    def ancestors(self) -> Tensor:
        """Which nodes each node descends from, itself included: (N + 1, N + 1) of bool."""
        size = self.num_nodes + 1
        marks = torch.eye(size, dtype=torch.bool)
        for node, parent in enumerate(self.parents, start=1):
            marks[node] |= marks[parent]
        return marks


def chain_shape(depth: int) -> TreeShape:
    """Return the tree of best guesses alone."""
    return TreeShape(tuple((0,) * length for length in range(1, depth + 1)))


class TreeLoop(Loop):
    """A method that verifies a static tree.

    Parameters
    ----------
    tree : TreeShape
        The same in every round.
    """

    tree: TreeShape

    @property
    def round_slots(self) -> int:
        """N + 1: every node has a slot until the path is known."""
        return self.tree.num_nodes + 1

    @abstractmethod
    def guess(self) -> Tensor:
        """Return the tokens (B, N) of the draft nodes."""

    def kept(self, states: Tensor, nodes: Tensor, lengths: Tensor) -> None:
        """Take note of the last layer's states (B, N + 1, d) and the paths that were kept.

        Parameters
        ----------
        nodes : Tensor (B, depth + 1)
            Node numbers of the path, the root first.
        lengths : Tensor (B,)
            How many of them count.
        """

    @torch.inference_mode()
    def round(self) -> Round:
        """Guess, verify the tree, keep the path."""
        contexts = tuple(self.cache.lens.tolist())
        batch, decoder = len(self.texts), self.decoder
        clock = Clock(decoder.device)
        guesses = self.guess()
        draft_s = clock.lap()
        nodes = torch.cat((self.last[:, None], guesses), dim=1)
        place = self.cache.tree(self.tree.depths, self.tree.ancestors[None])
        states = decoder.layers(decoder.embed(nodes), 0, self.num_layers, place, self.cache)
        p = self.sampler.probabilities(decoder.logits(states))
        chosen = self.sampler.draw(p)  # (B, N + 1): the target's choice at every node
        paths, tokens = _walks(self.tree, guesses.tolist(), chosen.tolist())
        lengths = torch.tensor([len(path) for path in paths])
        padded = torch.zeros(batch, self.tree.depth + 1, dtype=torch.long)
        for row, path in enumerate(paths):
            padded[row, : len(path)] = torch.tensor(path)
        self.cache.keep_path(padded)
        self.kept(states, padded, lengths)
        self.cache.lens += lengths
        self.put(tokens)
        verify_s = clock.lap()
        return Round(
            contexts,
            tokens,
            (self.tree.num_nodes,) * batch,
            tuple(len(path) - 1 for path in paths),
            None,
            None,
            draft_s[0],
            verify_s[0],
            draft_s[1],
            verify_s[1],
        )


def _walks(
    tree: TreeShape, guesses: Sequence[Sequence[int]], chosen: Sequence[Sequence[int]]
) -> tuple[list[list[int]], tuple[tuple[int, ...], ...]]:
    """Return the kept path of each sequence, root first, and what came out."""
    children: list[list[int]] = [[] for _ in range(tree.num_nodes + 1)]
    for node, parent in enumerate(tree.parents, start=1):
        children[parent].append(node)
    paths, tokens = [], []
    for guessed, wanted in zip(guesses, chosen, strict=True):
        path, out = [0], [wanted[0]]
        while True:
            below = [n for n in children[path[-1]] if guessed[n - 1] == out[-1]]
            if not below:
                break
            path.append(below[0])
            out.append(wanted[below[0]])
        paths.append(path)
        tokens.append(tuple(out))
    return paths, tuple(tokens)
