"""The embedding gather: one row read and one activation written for each token."""

from __future__ import annotations

from collections.abc import Sequence

from simspec.cost.operators._base import AffineKernel, Place


def kernels(place: Place) -> Sequence[AffineKernel]:
    """Return the gather at the bottom of a stack."""
    if place.site != "embedding":
        return ()
    d = place.stack.hidden_size
    row_bytes = d * place.weight_bytes("embedding")
    return [place.elementwise_kernel("embedding", d, bytes_per_row=row_bytes)]
