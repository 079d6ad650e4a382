"""Training of the decoder from scratch, in minutes on a CPU.

AdamW with a warm-up and a cosine decay, on windows of the tokenised text drawn by a keyed stream,
so that a seed gives the same batches whatever the recipe. Progress is reported step by step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import cos, pi

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from simspec.companion.model.config import DecoderConfig
from simspec.companion.model.decoder import Decoder, random_weights
from simspec.companion.training.recipe import Recipe
from simspec.core.errors import ConfigError

Report = Callable[[int, int, float], None]
"""Called with the step, the number of steps, and the last layer's loss."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast.

    Attributes
    ----------
    num_steps, batch, window_tokens : int
        Steps, texts per step, tokens per text.
    learning_rate, warmup_share, weight_decay : float
        Peak of AdamW's rate, the share of steps it takes to rise, decay of matrices.
    """

    num_steps: int
    batch: int = 16
    window_tokens: int = 128
    learning_rate: float = 2e-3
    warmup_share: float = 0.05
    weight_decay: float = 0.1

    def rate(self, step: int) -> float:
        """Return the learning rate of a step: linear up, cosine down to a tenth."""
        warmup = max(1, round(self.warmup_share * self.num_steps))
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        share = (step - warmup) / max(1, self.num_steps - warmup)
        return self.learning_rate * (0.1 + 0.45 * (1.0 + cos(pi * share)))


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A trained decoder and what it took."""

    decoder: Decoder
    losses: tuple[float, ...]
    """Of the last layer, in nats per token, by step."""
    seconds: float


def train_decoder(
    config: DecoderConfig,
    tokens: Tensor,
    schedule: Schedule,
    recipe: Recipe | None,
    *,
    seed: int,
    report: Report | None = None,
    device: str = "cpu",
) -> TrainingResult:
    """Train from random weights.

    Parameters
    ----------
    config : DecoderConfig
        Sizes.
    tokens : Tensor (N,)
        The whole training text.
    schedule : Schedule
        Length and rates.
    recipe : Recipe or None
        None: ordinary training, no dropout and the last layer's loss alone.
    seed : int
        Of the weights, the batches and the dropout.
    """
    weights = {name: w.to(device) for name, w in random_weights(config, seed).items()}
    for weight in weights.values():
        weight.requires_grad_()
    decoder = Decoder(config, weights)
    optimiser = adamw(decoder.weights, schedule)
    rows = Windows(tokens, schedule, seed)
    losses = []
    start = time.perf_counter()
    for step in range(schedule.num_steps):
        texts = rows.at(step).to(device)
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate(step)
        with training_types(device):
            keep = None
            if recipe is not None:
                keep = recipe.kept(
                    config.num_hidden_layers, len(texts), step, schedule.num_steps, seed
                )
            loss, last = _losses(decoder, texts, recipe, step, keep)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(decoder.weights.values()), 1.0)
        optimiser.step()
        losses.append(last)
        if report is not None:
            report(step + 1, schedule.num_steps, last)
    trained = {name: weight.detach() for name, weight in decoder.weights.items()}
    return TrainingResult(Decoder(config, trained), tuple(losses), time.perf_counter() - start)


@contextmanager
def training_types(device: str) -> Iterator[None]:
    """Compute in bf16, attention of short windows in plain products: faster on a CPU."""
    kind = device.split(":", maxsplit=1)[0]
    kernels = [SDPBackend.MATH] if kind == "cpu" else [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    with torch.autocast(kind, dtype=torch.bfloat16), sdpa_kernel(kernels):
        yield


class Windows:
    """Batches of windows of a text, a step's by its number."""

    def __init__(self, tokens: Tensor, schedule: Schedule, seed: int) -> None:
        if len(tokens) <= schedule.window_tokens + 1:
            raise ConfigError(
                f"the text has {len(tokens)} tokens, too few for windows of "
                f"{schedule.window_tokens}; give more text"
            )
        self._tokens, self._schedule, self._seed = tokens, schedule, seed

    def at(self, step: int) -> Tensor:
        """Return (B, window + 1) tokens."""
        length = self._schedule.window_tokens + 1
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        starts = torch.randint(
            0, len(self._tokens) - length, (self._schedule.batch, 1), generator=generator
        )
        windows: Tensor = self._tokens[starts + torch.arange(length)]
        return windows


def adamw(weights: dict[str, Tensor], schedule: Schedule) -> torch.optim.AdamW:
    """Return AdamW over the weights, decaying matrices only."""
    matrices = [weight for weight in weights.values() if weight.dim() > 1]
    vectors = [weight for weight in weights.values() if weight.dim() == 1]
    groups = [
        {"params": matrices, "weight_decay": schedule.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=schedule.learning_rate, betas=(0.9, 0.95))


def _losses(
    decoder: Decoder, texts: Tensor, recipe: Recipe | None, step: int, keep: Tensor | None
) -> tuple[Tensor, float]:
    """Return the loss to descend, and the last layer's."""
    num_layers = decoder.config.num_hidden_layers
    wanted = texts[:, 1:].flatten()
    keep = None if keep is None else keep.to(texts.device)
    states = decoder.train_layers(decoder.embed(texts[:, :-1]), keep)
    shares = [0.0] * (num_layers - 1) + [1.0]
    if recipe is not None:
        shares = recipe.loss_weights(num_layers, step)
    total = torch.zeros((), device=texts.device)
    last = 0.0
    for layer, share in enumerate(shares):
        if share:
            loss = F.cross_entropy(decoder.logits(states[layer]).flatten(0, 1), wanted)
            total = total + share * loss
            last = float(loss.detach())
    return total, last


@torch.inference_mode()
def exit_agreement(decoder: Decoder, tokens: Tensor, window: int = 128) -> list[float]:
    """Return for each layer's exit how often its best next token is the whole model's.

    Parameters
    ----------
    tokens : Tensor (N,)
        Text that nobody trained on.
    """
    window = min(window, len(tokens))
    num = len(tokens) // window
    texts = tokens[: num * window].view(num, window)
    agreeing = torch.zeros(decoder.config.num_hidden_layers)
    for rows in texts.split(32):
        states = decoder.train_layers(decoder.embed(rows))
        best = decoder.logits(states[-1]).argmax(-1)
        for layer, state in enumerate(states):
            agreeing[layer] += (decoder.logits(state).argmax(-1) == best).sum()
    return [float(count) / (num * window) for count in agreeing]
