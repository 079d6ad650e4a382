"""Kangaroo: an adapter of one attention layer between the exit and the target's head.

Liu et al., NeurIPS 2024, arXiv 2404.18911, section 3.1. The adapter is a norm, multi-head attention
with a cache of its own, a residual, and a norm before the head, without a feed-forward part. It
passes every exit state once. The state of the last draft is made by the closing pass, after the
adapter's last call: when all drafts were kept, the next round's first call reads two states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from simspec.companion.decoding._early_exit import EarlyExitLoop
from simspec.companion.decoding.sampling import Drafts, Sampler
from simspec.companion.model.cache import KvCache, Place
from simspec.companion.model.config import DecoderConfig
from simspec.companion.model.decoder import Decoder, Part, attention, rotation
from simspec.core.errors import ConfigError


class Adapter:
    """The adapter's weights and its pass.

    Parameters
    ----------
    config : DecoderConfig
        Of the target: the adapter has its width and heads.
    weights : mapping of str to Tensor
        ``input_layernorm.weight``, ``self_attn.{q,k,v,o}_proj.weight``, ``norm.weight``.
    """

    def __init__(self, config: DecoderConfig, weights: Mapping[str, Tensor]) -> None:
        self.config = config
        self.weights = {f"adapter.{name}": weight for name, weight in weights.items()}
        for name, shape in adapter_shapes(config).items():
            found = weights.get(name)
            if found is None or tuple(found.shape) != shape:
                have = "none" if found is None else list(found.shape)
                raise ConfigError(
                    f"the adapter's {name} must have shape {list(shape)}, it has {have}"
                )

    def states(self, x: Tensor, place: Place, cache: KvCache | None) -> Tensor:
        """Return what the head reads, normed (B, n, d), from exit states (B, n, d)."""
        part = Part(self.weights, "adapter", self.config)
        turns = rotation(place.positions, self.config, x.dtype)
        cached = None if cache is None else (cache, 0, place)
        x = x + attention(part, part.norm(x, "input_layernorm"), turns, cached)
        return part.norm(x, "norm")


def adapter_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight of an adapter."""
    d = config.hidden_size
    q = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    return {
        "input_layernorm.weight": (d,),
        "self_attn.q_proj.weight": (q, d),
        "self_attn.k_proj.weight": (kv, d),
        "self_attn.v_proj.weight": (kv, d),
        "self_attn.o_proj.weight": (d, q),
        "norm.weight": (d,),
    }


class Kangaroo(EarlyExitLoop):
    """The adapter drafts.

    Parameters
    ----------
    adapter : Adapter
        Trained for ``exit_layer``.
    """

    name: ClassVar[str] = "kangaroo"

    def __init__(
        self,
        decoder: Decoder,
        sampler: Sampler,
        *,
        adapter: Adapter,
        exit_layer: int,
        num_speculative_tokens: int,
        confidence_threshold: float = 0.0,
    ) -> None:
        super().__init__(
            decoder,
            sampler,
            exit_layer=exit_layer,
            num_speculative_tokens=num_speculative_tokens,
            confidence_threshold=confidence_threshold,
        )
        self.adapter = adapter
        self._cache = decoder.cache(0, 0, 1)
        # The exit state of each text's last cached token where the adapter has not read it.
        self._unread = torch.zeros(0)

    def prefill(self, tokens: Tensor, place: Place, slots: int) -> Tensor:
        """Pass the prompts through all layers, and their exit states through the adapter."""
        decoder = self.decoder
        x = decoder.layers(decoder.embed(tokens), 0, self.exit_layer, place, self.cache)
        self._cache = decoder.cache(len(tokens), slots, 1)
        self.adapter.states(x, place, self._cache)
        return decoder.layers(x, self.exit_layer, self.num_layers, place, self.cache)

    def prefilled(self, tokens: Tensor, lens: Tensor) -> None:
        """The adapter has read every prompt token."""
        self._cache.lens += lens
        self._unread = torch.zeros(
            len(lens), self.decoder.config.hidden_size, dtype=self.decoder.dtype
        )

    def exit_logits(self, states: Tensor, step: int, rows: Tensor | None) -> Tensor:
        """Pass one state of each sequence through the adapter; two where one was missing."""
        cache = self._cache
        missing = self.cache.lens - cache.lens
        if step or not missing.any():
            place = cache.chain(1, missing + step, rows)
            return self.decoder.head(self.adapter.states(states[:, None], place, cache)[:, 0])
        both = torch.stack((self._unread, states), dim=1)
        behind = torch.stack((states, states), dim=1)
        x = torch.where(missing.bool()[:, None, None], both, behind)
        out = self.adapter.states(x, cache.chain(2), cache)
        return self.decoder.head(out[torch.arange(len(states)), missing])

    def settle(self, drafts: Drafts, accepted: Tensor) -> None:
        """The adapter has read the states of all accepted tokens but the m-th draft's."""
        all_kept = accepted == drafts.counts
        self._cache.lens = self.cache.lens + accepted + 1 - all_kept.long()
        self._unread = self._states[torch.arange(len(accepted)), drafts.counts]

    def select(self, rows: Tensor) -> None:
        """Go on with some of the sequences."""
        super().select(rows)
        self._cache.select(rows)
        self._unread = self._unread[rows]
