"""Layers with the formats they are held in and the ranks they are split over."""

from __future__ import annotations

from dataclasses import dataclass

from simspec.models.arch import Block


@dataclass(frozen=True, slots=True)
class Stack:
    """A run of layers with its own weights: the target, an adapter, a draft model.

    ``tp`` is the tensor-parallel degree this stack runs at. ``vocab_size`` is that of the head
    that makes its logits (0: the stack has none).

    ``attention_dp`` groups of ``tp`` ranks each hold everything but the routed experts and serve
    a share of the sequences (attention data parallelism). The routed experts are held once, by
    all ``tp * attention_dp`` ranks together: divided whole over ``ep`` of them, and each expert
    split over the ``moe_tp`` that share it. Engines write the same as ``tp``, ``attention_dp``,
    ``moe_tp`` and ``moe_ep`` with ``tp * attention_dp = moe_tp * moe_ep``.
    """

    name: str
    blocks: tuple[Block, ...]
    hidden_size: int
    vocab_size: int
    weight_dtype: str
    kv_dtype: str
    tp: int
    activation_dtype: str = "bf16"
    ep: int = 1
    attention_dp: int = 1

    @property
    def num_ranks(self) -> int:
        """Devices the stack runs on."""
        return self.tp * self.attention_dp

    @property
    def layout(self) -> str:
        """The degrees in force, for messages: ``tp=1, attention_dp=8, ep=8``."""
        groups = f", attention_dp={self.attention_dp}" if self.attention_dp > 1 else ""
        experts = f", ep={self.ep}" if self.ep > 1 else ""
        return f"tp={self.tp}{groups}{experts}"

    @property
    def moe_tp(self) -> int:
        """Ranks that share one routed expert."""
        return self.num_ranks // self.ep
