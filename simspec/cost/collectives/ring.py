"""Ring: reduce-scatter, then all-gather, each rank passing on ``1 / tp`` of the message.

``2 (tp - 1) / tp * S`` bytes out of each rank, the least any all-reduce can send; Patarasuk and
Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel and
Distributed Computing 69(2), 2009.
"""

from __future__ import annotations


def all_reduce_wire(tp: int) -> float:
    """Return the bytes a rank sends per byte of the message: ``2 (tp - 1) / tp``."""
    return 2.0 * (tp - 1.0) / tp


def all_gather_wire(tp: int) -> float:
    """Return the bytes a rank sends per byte of the result: ``(tp - 1) / tp``."""
    return (tp - 1.0) / tp


def reduce_scatter_wire(tp: int) -> float:
    """Return the bytes a rank sends per byte of the message: ``(tp - 1) / tp``."""
    return (tp - 1.0) / tp
