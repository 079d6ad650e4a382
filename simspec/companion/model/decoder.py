"""A decoder of LLaMA's kind: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Weights carry Hugging Face's names, so a checkpoint is a mapping and nothing is converted. Every
pass is over a range of layers, which is what early exits need:

    x = embed(tokens)                       (B, n, d)
    x = layers(x, 0, E, ...)                exit state of layer E
    x = layers(x, E, L, ...)                the rest
    logits(x)                               (B, n, V); the head may read any layer's state

Sources: RMSNorm arXiv:1910.07467; rotary embedding arXiv:2104.09864, with the halves of a head
rotated against each other as ``transformers`` does; GQA arXiv:2305.13245; SwiGLU arXiv:2002.05202.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from simspec.companion.model.cache import KvCache, Place
from simspec.companion.model.config import DecoderConfig
from simspec.core.errors import ConfigError

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
LAST_NORM = "model.norm.weight"


class Decoder:
    """Weights and passes over them.

    Parameters
    ----------
    config : DecoderConfig
        Sizes.
    weights : mapping of str to Tensor
        By Hugging Face's names.

    Raises
    ------
    ConfigError
        A weight is missing, is not known, or has another shape than the sizes say.
    """

    def __init__(self, config: DecoderConfig, weights: Mapping[str, Tensor]) -> None:
        self.config = config
        self.weights = dict(weights)
        _check(config, self.weights)

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return self.weights[EMBEDDING].dtype

    @property
    def device(self) -> str:
        """Where the weights are."""
        return str(self.weights[EMBEDDING].device)

    def to(self, device: str, dtype: torch.dtype) -> Decoder:
        """Return the decoder elsewhere, or in another type."""
        moved = {
            name: weight.to(device=device, dtype=dtype) for name, weight in self.weights.items()
        }
        return Decoder(self.config, moved)

    def cache(self, batch: int, num_slots: int, num_layers: int | None = None) -> KvCache:
        """Return an empty cache for the first ``num_layers`` layers, all by default."""
        config = self.config
        return KvCache(
            config.num_hidden_layers if num_layers is None else num_layers,
            batch,
            num_slots,
            config.num_key_value_heads,
            config.head_dim,
            dtype=self.dtype,
            device=self.device,
        )

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the states (B, n, d) that enter layer 1."""
        return F.embedding(tokens, self.weights[EMBEDDING])

    def layers(self, x: Tensor, first: int, last: int, place: Place, cache: KvCache) -> Tensor:
        """Pass states (B, n, d) through layers ``first + 1 .. last``."""
        turns = rotation(place.positions, self.config, x.dtype)
        for layer in range(first, last):
            own = Part(self.weights, layer_name(layer), self.config)
            x = block(own, x, turns, (cache, layer, place))
        return x

    def train_layers(self, x: Tensor, keep: Tensor | None = None) -> list[Tensor]:
        """Pass whole texts (B, n, d) through all layers without a cache.

        Parameters
        ----------
        keep : Tensor (L, B) of bool, optional
            Which layers are not skipped for which text (layer dropout).

        Returns
        -------
        list of Tensor (B, n, d)
            The state after each layer.
        """
        positions = torch.arange(x.shape[1], device=x.device)[None]
        turns = rotation(positions, self.config, x.dtype)
        states = []
        for layer in range(self.config.num_hidden_layers):
            out = block(Part(self.weights, layer_name(layer), self.config), x, turns, None)
            x = out if keep is None else torch.where(keep[layer][:, None, None], out, x)
            states.append(x)
        return states

    def normed(self, x: Tensor) -> Tensor:
        """Return states through the last norm: what the head reads."""
        weight = self.weights[LAST_NORM].to(x.dtype)
        return F.rms_norm(x, x.shape[-1:], weight, self.config.rms_norm_eps)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits (..., V) of states (..., d) of any layer, in 32 bit."""
        return self.head(self.normed(x))

    def head(self, normed: Tensor) -> Tensor:
        """Return the logits (..., V) of states that are normed already, in 32 bit."""
        name = EMBEDDING if self.config.tie_word_embeddings else HEAD
        return F.linear(normed, self.weights[name]).float()


def layer_name(layer: int) -> str:
    """Return what the names of a layer's weights begin with."""
    return f"model.layers.{layer}"


@dataclass(frozen=True, slots=True)
class Part:
    """A layer or a part of one: its weights begin with ``name``."""

    weights: Mapping[str, Tensor]
    name: str
    config: DecoderConfig

    def linear(self, x: Tensor, which: str) -> Tensor:
        """Return x W^T."""
        return F.linear(x, self.weights[f"{self.name}.{which}.weight"])

    def norm(self, x: Tensor, which: str) -> Tensor:
        """Return x over its root mean square, scaled."""
        weight = self.weights[f"{self.name}.{which}.weight"].to(x.dtype)
        return F.rms_norm(x, x.shape[-1:], weight, self.config.rms_norm_eps)


def block(
    part: Part,
    x: Tensor,
    turns: tuple[Tensor, Tensor],
    cached: tuple[KvCache, int, Place] | None,
) -> Tensor:
    """Return a layer's output (B, n, d); without a cache its input is a whole text."""
    x = x + attention(part, part.norm(x, "input_layernorm"), turns, cached)
    normed = part.norm(x, "post_attention_layernorm")
    gate = F.silu(part.linear(normed, "mlp.gate_proj"))
    return x + part.linear(gate * part.linear(normed, "mlp.up_proj"), "mlp.down_proj")


def attention(
    part: Part,
    x: Tensor,
    turns: tuple[Tensor, Tensor],
    cached: tuple[KvCache, int, Place] | None,
) -> Tensor:
    """Return grouped-query attention of (B, n, d), over the cache where there is one."""
    config = part.config

    def heads(which: str, count: int) -> Tensor:
        return part.linear(x, f"self_attn.{which}").unflatten(-1, (count, config.head_dim))

    q = rotate(heads("q_proj", config.num_attention_heads), turns)  # (B, n, h, d_h)
    k = rotate(heads("k_proj", config.num_key_value_heads), turns)  # (B, n, h_kv, d_h)
    v = heads("v_proj", config.num_key_value_heads)
    visible = None
    if cached is not None:
        cache, layer, place = cached
        k, v = cache.write(layer, place, k, v)  # (B, S, h_kv, d_h)
        visible = place.visible
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=visible,
        is_causal=visible is None,
        enable_gqa=config.num_attention_heads != config.num_key_value_heads,
    )  # (B, h, n, d_h)
    return part.linear(out.transpose(1, 2).flatten(-2), "self_attn.o_proj")


def rotation(positions: Tensor, config: DecoderConfig, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosines and sines (B, n, 1, d_h) of the rotary embedding."""
    half = torch.arange(0, config.head_dim, 2, device=positions.device, dtype=torch.float32)
    angles = positions[..., None].float() / config.rope_theta ** (half / config.head_dim)
    angles = torch.cat((angles, angles), dim=-1)[..., None, :]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Return heads (B, n, h, d_h) turned by their positions."""
    cos, sin = turns
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def weight_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight by name."""
    d, f = config.hidden_size, config.intermediate_size
    q = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (config.vocab_size, d), LAST_NORM: (d,)}
    if not config.tie_word_embeddings:
        shapes[HEAD] = (config.vocab_size, d)
    for layer in range(config.num_hidden_layers):
        name = layer_name(layer)
        shapes |= {
            f"{name}.input_layernorm.weight": (d,),
            f"{name}.self_attn.q_proj.weight": (q, d),
            f"{name}.self_attn.k_proj.weight": (kv, d),
            f"{name}.self_attn.v_proj.weight": (kv, d),
            f"{name}.self_attn.o_proj.weight": (d, q),
            f"{name}.post_attention_layernorm.weight": (d,),
            f"{name}.mlp.gate_proj.weight": (f, d),
            f"{name}.mlp.up_proj.weight": (f, d),
            f"{name}.mlp.down_proj.weight": (d, f),
        }
    return shapes


def random_weights(config: DecoderConfig, seed: int) -> dict[str, Tensor]:
    """Return weights to start training from: normal, 0.02, what adds to the stream smaller.

    The projections that add to the residual stream are scaled by 1 / sqrt(2 L), as GPT-2 does.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in weight_shapes(config).items():
        if len(shape) == 1:
            weights[name] = torch.ones(shape)
            continue
        scale = 0.02
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            scale /= (2.0 * config.num_hidden_layers) ** 0.5
        weights[name] = scale * torch.randn(shape, generator=generator)
    return weights


def _check(config: DecoderConfig, weights: Mapping[str, Tensor]) -> None:
    shapes = weight_shapes(config)
    for name, shape in shapes.items():
        if name not in weights:
            raise ConfigError(f"the checkpoint lacks {name}, of shape {list(shape)}")
        if tuple(weights[name].shape) != shape:
            raise ConfigError(
                f"{name} has shape {list(weights[name].shape)}, the sizes say {list(shape)}"
            )
    unknown = sorted(set(weights) - set(shapes))
    if unknown:
        raise ConfigError(f"the checkpoint holds {unknown[0]}, which no such decoder has")
