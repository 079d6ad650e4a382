"""Layers with the formats they are held in and the ranks they are split over."""

from __future__ import annotations

from dataclasses import dataclass

from simspec.models.arch import Block


@dataclass(frozen=True, slots=True)
class Stack:
    """A run of layers with its own weights: the target, an adapter, a draft model.

    ``tp`` is the tensor-parallel degree this stack runs at. ``vocab_size`` is that of the head
    that makes its logits (0: the stack has none).
    """

    name: str
    blocks: tuple[Block, ...]
    hidden_size: int
    vocab_size: int
    weight_dtype: str
    kv_dtype: str
    tp: int
    activation_dtype: str = "bf16"
