"""A decoder of LLaMA's kind with random weights: what a step of it takes on this machine.

Only its time matters, so nothing is trained or loaded. It runs the kernels that the cost model
counts: per layer norm, QKV, rotation and cache write, attention, O, norm, gate and up,
activation, down; then the head.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from simspec.companion import kernels
from simspec.companion.device import Call, Device
from simspec.companion.plan import StackShape


class TorchStack:
    """The weights, and passes over them."""

    def __init__(self, shape: StackShape, device: Device, dtype: str) -> None:
        self.shape, self._device, self._dtype = shape, device, dtype
        d, qkv = shape.hidden, (shape.heads + 2 * shape.kv_heads) * shape.head_dim

        def weights(*size: int) -> Any:
            return device.tensor(*size, dtype=dtype)

        self._layers = [
            {
                "norm": weights(d),
                "qkv": weights(qkv, d),
                "o": weights(d, shape.heads * shape.head_dim),
                "ffn_norm": weights(d),
                "gate_up": weights(2 * shape.ffn, d),
                "down": weights(d, shape.ffn),
            }
            for _ in range(shape.layers)
        ]
        self._embedding = weights(shape.vocab, d)
        self._norm = weights(d)
        self._head = weights(shape.vocab, d)

    def step(self, batch: int, new_tokens: int, context: int) -> Call:
        """Return a call that passes ``n`` tokens of ``B`` sequences through layers and head.

        Each sequence has ``c`` tokens cached; the call writes the new ones behind them.
        """
        shape, device = self.shape, self._device
        slots = context + new_tokens
        caches = [
            device.tensor(2, batch, shape.kv_heads, slots, shape.head_dim, dtype=self._dtype)
            for _ in self._layers
        ]
        turns = kernels.angles(context, new_tokens, shape.head_dim, caches[0])
        mask = kernels.causal_mask(new_tokens, context, shape.heads // shape.kv_heads, caches[0])
        ids = (self._embedding[: batch * new_tokens, 0] * 0).long().view(batch, new_tokens)

        def run(_: int) -> Any:
            x = F.embedding(ids, self._embedding)  # [B, n, hidden]
            total = torch.zeros_like(x)
            for weights, cache in zip(self._layers, caches, strict=True):
                x, total = kernels.norm(x, total, weights["norm"])
                qkv = F.linear(x, weights["qkv"])
                q = kernels.rotate_and_cache(qkv, turns, cache, context)
                x = F.linear(kernels.attend(q, cache, mask), weights["o"])
                x, total = kernels.norm(x, total, weights["ffn_norm"])
                x = kernels.activation(F.linear(x, weights["gate_up"]))
                x = F.linear(x, weights["down"])
            x, total = kernels.norm(x, total, self._norm)
            return F.linear(x, self._head)

        return run
