"""The LayerSkip recipe: layer dropout that grows with depth and over training, early-exit loss.

Elhoushi et al., ACL 2024, arXiv 2404.16710, section 4.1. With l = 0 .. L-1 and t = 0 .. T-1:

    p(l, t) = S(t) D(l) p_max                                        equation 1
    D(l)    = exp(l ln 2 / (L - 1)) - 1               0 at the first layer, 1 at the last
    S(t)    = exp(t ln 2 / (T - 1)) - 1, or 1 when training goes on from a trained model
    loss    = sum_l w(l, t) CE(head(norm(x_l)), next token)
    w(l, t) = C(l, t) e(l) / sum_i C(i, t) e(i)                      equation 5
    e(l)    = e_scale sum_{i <= l} i, and L - 1 more at the last     equation 6
    C(l, t) = 1 at the last layer and where (l - t) mod R = 0        rotating exits, every R-th

Layers are dropped per text of the batch. The shared head reads every exit through the last norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Recipe:
    """Settings of the recipe; the zeros make it ordinary training.

    Attributes
    ----------
    max_dropout : float
        p_max, of the last layer at the end.
    depth : {"exponential", "linear"}
        How D grows over layers.
    over_training : {"exponential", "linear", "constant"}
        How S grows over training.
    exit_scale : float
        e_scale; 0: the last layer's loss alone.
    rotation : int
        R: every R-th exit is trained in a step, in turn.
    """

    max_dropout: float = 0.1
    depth: Literal["exponential", "linear"] = "exponential"
    over_training: Literal["exponential", "linear", "constant"] = "exponential"
    exit_scale: float = 0.4
    rotation: int = 4

    def dropout(self, layer: int, num_layers: int, step: int, num_steps: int) -> float:
        """Return p(l, t)."""
        depth = _growth(self.depth, layer, num_layers)
        return self.max_dropout * depth * _growth(self.over_training, step, num_steps)

    def kept(self, num_layers: int, batch: int, step: int, num_steps: int, seed: int) -> Tensor:
        """Return which layers are not skipped for which text, (L, B) of bool."""
        rates = torch.tensor(
            [self.dropout(layer, num_layers, step, num_steps) for layer in range(num_layers)]
        )
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        return torch.rand(num_layers, batch, generator=generator) >= rates[:, None]

    def loss_weights(self, num_layers: int, step: int) -> list[float]:
        """Return w(l, t) of each layer; they sum to 1, and 0 is a layer whose exit rests."""
        last = num_layers - 1
        weights = []
        for layer in range(num_layers):
            takes_part = layer == last or (
                self.rotation > 0 and (layer - step) % self.rotation == 0
            )
            weight = self.exit_scale * layer * (layer + 1) / 2
            if layer == last:
                weight += max(last, 1)
            weights.append(weight if takes_part else 0.0)
        total = sum(weights)
        return [weight / total for weight in weights]


def _growth(shape: str, index: int, count: int) -> float:
    if shape == "constant" or count < 2:
        return 1.0
    share = index / (count - 1)
    return share if shape == "linear" else exp(share * log(2.0)) - 1.0
