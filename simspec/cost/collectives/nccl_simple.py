"""NCCL's full-bandwidth protocol: a ring that waits for a fence at each of its steps.

``2 (tp - 1)`` steps of an all-reduce and ``tp - 1`` of a gather, each rank passing on ``1 / tp``
of the message in each (NCCL, ``src/collectives/device``, protocol Simple). For large messages.
"""

from __future__ import annotations

from simspec.cost.collectives.ring import all_gather_wire, all_reduce_wire, reduce_scatter_wire

__all__ = ["all_gather_wire", "all_reduce_steps", "all_reduce_wire", "reduce_scatter_wire"]


def all_reduce_steps(tp: int) -> float:
    """Return the steps of an all-reduce, one after the other: ``2 (tp - 1)``."""
    return 2.0 * (tp - 1.0)
