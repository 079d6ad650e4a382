"""Medusa: heads on the state behind the newest token guess several places ahead at once.

Cai et al., ICML 2024, arXiv 2401.10774, section 2.1. Head k is a residual block, x + SiLU(W x + b),
and a projection to the vocabulary of its own; it guesses the token k + 1 places behind the state's.
A node at depth k takes its rank among head k's guesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from simspec.companion.decoding._tree import TreeLoop, TreeShape
from simspec.companion.decoding.sampling import Sampler
from simspec.companion.model.config import DecoderConfig
from simspec.companion.model.decoder import Decoder
from simspec.core.errors import ConfigError


class MedusaHeads:
    """The heads' weights: ``k.block.weight``, ``k.block.bias``, ``k.head.weight``, k from 0."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = dict(weights)

    @property
    def count(self) -> int:
        """Heads."""
        return len({name.split(".")[0] for name in self.weights})

    def logits(self, normed: Tensor, head: int) -> Tensor:
        """Return a head's logits (..., V) from normed states (..., d)."""
        weights = self.weights
        x = normed + F.silu(
            F.linear(normed, weights[f"{head}.block.weight"], weights[f"{head}.block.bias"])
        )
        return F.linear(x, weights[f"{head}.head.weight"]).float()


def head_shapes(config: DecoderConfig, count: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight of ``count`` heads."""
    d = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {}
    for head in range(count):
        shapes |= {
            f"{head}.block.weight": (d, d),
            f"{head}.block.bias": (d,),
            f"{head}.head.weight": (config.vocab_size, d),
        }
    return shapes


class Medusa(TreeLoop):
    """Heads guess, a static tree is verified.

    Parameters
    ----------
    heads : MedusaHeads
        At least as many as the tree is deep.
    tree : TreeShape
        Of ranks.
    """

    name: ClassVar[str] = "medusa"

    def __init__(
        self, decoder: Decoder, sampler: Sampler, *, heads: MedusaHeads, tree: TreeShape
    ) -> None:
        super().__init__(decoder, sampler)
        if tree.depth > heads.count:
            raise ConfigError(f"the tree is {tree.depth} deep, and there are {heads.count} heads")
        self.heads, self.tree = heads, tree
        self.max_draft = tree.depth
        self._state = torch.zeros(0)
        self._places = torch.tensor([(len(path) - 1, path[-1]) for path in tree.paths])

    def see(self, states: Tensor) -> None:
        """Keep the states from which the newest tokens were chosen."""
        self._state = states

    def guess(self) -> Tensor:
        """Return each node's token: its rank among its depth's head's guesses."""
        normed = self.decoder.normed(self._state)
        best = torch.stack(
            [
                self.heads.logits(normed, head).topk(self.tree.width).indices
                for head in range(self.tree.depth)
            ],
            dim=1,
        )  # (B, depth, width)
        return best[:, self._places[:, 0], self._places[:, 1]]

    def kept(self, states: Tensor, nodes: Tensor, lengths: Tensor) -> None:
        """Keep the state of the path's last node, from which the newest token was chosen."""
        rows = torch.arange(len(states))
        self._state = states[rows, nodes[rows, lengths - 1]]

    def select(self, rows: Tensor) -> None:
        """Go on with some of the sequences."""
        super().select(rows)
        self._state = self._state[rows]
