"""One-shot: every rank reads the whole message of every other rank, and all reduce it at once.

One round of latency, ``(tp - 1) S`` bytes into each rank; the best for small messages.
TensorRT-LLM and vLLM call it so in their custom all-reduce kernels.
"""

from __future__ import annotations


def all_reduce_wire(tp: int) -> float:
    """Return the bytes a rank receives per byte of the message: ``tp - 1``."""
    return tp - 1.0


def all_gather_wire(tp: int) -> float:
    """Return the bytes a rank receives per byte of the result: ``(tp - 1) / tp``."""
    return (tp - 1.0) / tp


def reduce_scatter_wire(tp: int) -> float:
    """Return the bytes a rank receives per byte of the message: ``(tp - 1) / tp``."""
    return (tp - 1.0) / tp
