"""A small decoder with random weights, loud enough that its text wanders."""

from __future__ import annotations

import torch

from simspec.companion.decoding._base import Loop
from simspec.companion.decoding._tree import TreeShape, chain_shape
from simspec.companion.decoding.dual_model import DualModel
from simspec.companion.decoding.eagle import Eagle, EagleHead, eagle_shapes
from simspec.companion.decoding.kangaroo import Adapter, Kangaroo, adapter_shapes
from simspec.companion.decoding.layerskip import LayerSkip
from simspec.companion.decoding.medusa import Medusa, MedusaHeads, head_shapes
from simspec.companion.decoding.prompt_lookup import PromptLookup
from simspec.companion.decoding.sampling import Sampler
from simspec.companion.model.config import DecoderConfig
from simspec.companion.model.decoder import EMBEDDING, Decoder, random_weights

torch.set_num_threads(1)


def sizes(vocab: int = 50, layers: int = 4) -> DecoderConfig:
    return DecoderConfig(layers, 32, 64, vocab, 4, 2, 8)


def small_decoder(vocab: int = 50, layers: int = 4, scale: float = 8.0) -> Decoder:
    config = sizes(vocab, layers)
    weights = random_weights(config, seed=0)
    return Decoder(config, {n: w * scale if w.dim() > 1 else w for n, w in weights.items()})


def cut(decoder: Decoder, layers: int) -> Decoder:
    """Return the decoder without its last layers."""
    config = sizes(decoder.config.vocab_size, layers)
    gone = [f"layers.{n}." for n in range(layers, decoder.config.num_hidden_layers)]
    kept = {n: w for n, w in decoder.weights.items() if not any(g in n for g in gone)}
    return Decoder(config, kept)


def _random(shapes: dict[str, tuple[int, ...]], scale: float = 0.05) -> dict[str, torch.Tensor]:
    stream = torch.Generator().manual_seed(7)
    return {
        name: torch.ones(shape)
        if len(shape) == 1 and "bias" not in name
        else scale * torch.randn(shape, generator=stream)
        for name, shape in shapes.items()
    }


WIDE_TREE = TreeShape(
    tuple((i,) for i in range(10))
    + tuple((i, j) for i in range(10) for j in range(6))
    + tuple((0, 0, j) for j in range(4))
)


def loop_of(name: str, decoder: Decoder, sampler: Sampler) -> Loop:
    """Return a loop by a short name: method, exit or draft layers, K, tau."""
    method, *numbers = name.split("-")
    config = decoder.config
    if method == "layerskip":
        e, k, tau = int(numbers[0]), int(numbers[1]), float(numbers[2])
        return LayerSkip(
            decoder, sampler, exit_layer=e, num_speculative_tokens=k, confidence_threshold=tau
        )
    if method == "kangaroo":
        e, k, tau = int(numbers[0]), int(numbers[1]), float(numbers[2])
        adapter = Adapter(config, _random(adapter_shapes(config)))
        return Kangaroo(
            decoder,
            sampler,
            adapter=adapter,
            exit_layer=e,
            num_speculative_tokens=k,
            confidence_threshold=tau,
        )
    if method == "dual":
        layers, k, tau = int(numbers[0]), int(numbers[1]), float(numbers[2])
        return DualModel(
            decoder,
            sampler,
            drafter=cut(decoder, layers),
            num_speculative_tokens=k,
            confidence_threshold=tau,
        )
    if method == "eagle":
        weights = _random(eagle_shapes(config))
        weights["fuse.weight"][:, config.hidden_size :] += torch.eye(config.hidden_size)
        return Eagle(
            decoder,
            sampler,
            head=EagleHead(config, weights),
            num_speculative_tokens=int(numbers[0]),
            confidence_threshold=float(numbers[1]),
        )
    if method == "medusa":
        heads = MedusaHeads(_random(head_shapes(config, 3), 0.3))
        for head in range(3):
            heads.weights[f"{head}.head.weight"] += decoder.weights[EMBEDDING]
        tree = WIDE_TREE if numbers[0] == "wide" else chain_shape(3)
        return Medusa(decoder, sampler, heads=heads, tree=tree)
    assert method == "lookup", name
    return PromptLookup(decoder, sampler, num_speculative_tokens=int(numbers[0]))


LOOPS = (
    "layerskip-1-3-0",
    "layerskip-3-4-0",
    "layerskip-2-5-0.3",
    "layerskip-2-6-1",
    "kangaroo-3-3-0",
    "kangaroo-2-5-0.4",
    "dual-3-4-0",
    "dual-1-4-0.3",
    "eagle-4-0",
    "eagle-5-0.2",
    "medusa-wide",
    "medusa-chain",
    "lookup-1",
    "lookup-5",
)


def prompts(count: int, vocab: int = 50, longest: int = 12, seed: int = 1) -> list[list[int]]:
    stream = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest, (count,), generator=stream).tolist()
    return [torch.randint(0, vocab, (n,), generator=stream).tolist() for n in lengths]
