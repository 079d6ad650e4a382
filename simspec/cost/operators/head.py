"""The LM head, only for the rows whose logits are needed: ``2 R d V / tp`` FLOP."""

from __future__ import annotations

from collections.abc import Sequence

from simspec.cost.operators._base import AffineKernel, Place


def kernels(place: Place) -> Sequence[AffineKernel]:
    """Return the head's product; the vocabulary is divided among the ranks."""
    if place.site != "head":
        return ()
    stack = place.stack
    vocabulary = -(-stack.vocab_size // stack.tp)  # padded to whole rows, as in models.counts
    return [place.gemm("head").kernel("lm_head", stack.hidden_size, vocabulary)]
