"""Training of what drafts on a frozen target: Kangaroo's adapter, Medusa heads, an EAGLE layer.

All of them learn the target's own next-token distribution at every place of a text, which is what
acceptance compares them with (soft labels; Kangaroo section 3.1, EAGLE section 3.2). EAGLE also
learns the features, with the smooth L1 distance and the paper's weights, 1 and 0.1. A draft of its
own, for the dual method, is trained as any decoder (``train.train_decoder``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from simspec.companion.decoding.eagle import EagleHead, eagle_shapes
from simspec.companion.decoding.kangaroo import Adapter, adapter_shapes
from simspec.companion.decoding.medusa import MedusaHeads, head_shapes
from simspec.companion.model.cache import Place
from simspec.companion.model.decoder import EMBEDDING, HEAD, Decoder
from simspec.companion.training.train import Report, Schedule, Windows, adamw, training_types

_FEATURE_WEIGHT, _TOKEN_WEIGHT = 1.0, 0.1


@dataclass(frozen=True, slots=True)
class Taught:
    """What the target makes of a batch of texts (B, n)."""

    tokens: Tensor
    embedded: Tensor
    """What enters layer 1 (B, n, d)."""
    states: list[Tensor]
    """After each layer (B, n, d)."""
    normed: Tensor
    """What the head reads (B, n, d)."""
    wanted: Tensor
    """The target's distribution at each place (B, n, V)."""


def train_adapter(
    decoder: Decoder,
    tokens: Tensor,
    schedule: Schedule,
    *,
    exit_layer: int,
    seed: int,
    report: Report | None = None,
) -> dict[str, Tensor]:
    """Return the weights of a Kangaroo adapter for the exit after layer ``exit_layer``."""
    weights = _fresh(adapter_shapes(decoder.config), seed)
    # An adapter that adds nothing is the bare exit: training starts there.
    weights["self_attn.o_proj.weight"].zero_()

    def loss(taught: Taught, weights: Mapping[str, Tensor]) -> Tensor:
        adapter = Adapter(decoder.config, weights)
        states = adapter.states(taught.states[exit_layer - 1], _whole(taught), None)
        return _distance(decoder.head(states), taught.wanted)

    return _train(
        decoder,
        weights,
        loss,
        windows=Windows(tokens, schedule, seed),
        schedule=schedule,
        report=report,
    )


def train_heads(
    decoder: Decoder,
    tokens: Tensor,
    schedule: Schedule,
    *,
    count: int,
    seed: int,
    report: Report | None = None,
) -> dict[str, Tensor]:
    """Return the weights of ``count`` Medusa heads; they start as copies of the target's head."""
    weights = _fresh(head_shapes(decoder.config, count), seed)
    own = decoder.weights[EMBEDDING if decoder.config.tie_word_embeddings else HEAD]
    for head in range(count):
        weights[f"{head}.head.weight"] = own.detach().clone()
        weights[f"{head}.block.weight"].zero_()

    def loss(taught: Taught, weights: Mapping[str, Tensor]) -> Tensor:
        heads = MedusaHeads(weights)
        total = torch.zeros(())
        for head in range(count):
            # From the state at i the target's choice is for i + 1, head k's for i + k + 2.
            ahead = head + 1
            logits = heads.logits(taught.normed[:, :-ahead], head)
            total = total + _distance(logits, taught.wanted[:, ahead:])
        return total / count

    return _train(
        decoder,
        weights,
        loss,
        windows=Windows(tokens, schedule, seed),
        schedule=schedule,
        report=report,
    )


def train_eagle(
    decoder: Decoder,
    tokens: Tensor,
    schedule: Schedule,
    *,
    seed: int,
    report: Report | None = None,
) -> dict[str, Tensor]:
    """Return the weights of an EAGLE drafter; it starts by handing the feature on."""
    config = decoder.config
    weights = _fresh(eagle_shapes(config), seed)
    weights["fuse.weight"][:, config.hidden_size :] += torch.eye(config.hidden_size)

    def loss(taught: Taught, weights: Mapping[str, Tensor]) -> Tensor:
        head = EagleHead(config, weights)
        features = head.features(
            taught.embedded[:, 1:], taught.normed[:, :-1], _whole(taught, 1), None
        )
        far = F.smooth_l1_loss(features, taught.normed[:, 1:].float())
        near = _distance(decoder.head(features), taught.wanted[:, 1:])
        return _FEATURE_WEIGHT * far + _TOKEN_WEIGHT * near

    return _train(
        decoder,
        weights,
        loss,
        windows=Windows(tokens, schedule, seed),
        schedule=schedule,
        report=report,
    )


def _train(
    decoder: Decoder,
    weights: dict[str, Tensor],
    loss_of: Callable[[Taught, Mapping[str, Tensor]], Tensor],
    *,
    windows: Windows,
    schedule: Schedule,
    report: Report | None,
) -> dict[str, Tensor]:
    weights = {name: weight.to(decoder.device) for name, weight in weights.items()}
    for weight in weights.values():
        weight.requires_grad_()
    optimiser = adamw(weights, schedule)
    for step in range(schedule.num_steps):
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate(step)
        with training_types(decoder.device):
            loss = loss_of(_taught(decoder, windows.at(step).to(decoder.device)), weights)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimiser.step()
        if report is not None:
            report(step + 1, schedule.num_steps, float(loss.detach()))
    return {name: weight.detach() for name, weight in weights.items()}


@torch.no_grad()
def _taught(decoder: Decoder, tokens: Tensor) -> Taught:
    embedded = decoder.embed(tokens)
    states = decoder.train_layers(embedded)
    normed = decoder.normed(states[-1])
    return Taught(tokens, embedded, states, normed, decoder.head(normed).softmax(-1))


def _whole(taught: Taught, less: int = 0) -> Place:
    positions = torch.arange(taught.tokens.shape[1] - less)[None]
    return Place(positions, positions, torch.zeros(0, dtype=torch.bool))


def _distance(logits: Tensor, wanted: Tensor) -> Tensor:
    """Return the cross-entropy of logits (B, n, V) to distributions (B, n, V), per place."""
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(0, 1))


def _fresh(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            weights[name] = torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
        else:
            weights[name] = 0.02 * torch.randn(shape, generator=generator)
    return weights
