"""The projection in front of a draft head's layer: ``[n d x d]`` over inputs laid side by side.

EAGLE and MTP heads bring the token embedding and the target's state (2 d) to the model's width,
EAGLE-3 three states of the target (3 d), a Medusa head has a square one. Engines keep it whole on
every rank (vLLM: ``fc`` and ``eh_proj`` are replicated), so it does not shrink with ``tp``.
"""

from __future__ import annotations

from collections.abc import Sequence

from simspec.cost.operators._base import AffineKernel, Place


def kernels(place: Place) -> Sequence[AffineKernel]:
    """Return the concatenation and the product of a layer that has them."""
    block = place.block
    if block is None or not block.fused_size:
        return ()
    width, d = block.fused_size, block.hidden_size
    product = place.gemm("ffn").kernel("fusion", width, d)
    if width == d:
        return [product]
    return [place.elementwise_kernel("concatenation", 2 * width), product]
