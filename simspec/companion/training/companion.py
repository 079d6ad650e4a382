"""Train a companion into a folder: tokenizer, decoder, prompts; then what drafts for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import tokenizers
import torch
from tokenizers import Tokenizer
from torch import Tensor

from simspec.companion.folder import DRAFTERS, PROMPTS, windows, write_prompts
from simspec.companion.model.checkpoints import save_decoder, save_weights
from simspec.companion.model.config import DecoderConfig
from simspec.companion.model.decoder import Decoder
from simspec.companion.training.drafters import train_adapter, train_eagle, train_heads
from simspec.companion.training.recipe import Recipe
from simspec.companion.training.text import Corpus
from simspec.companion.training.tokens import FILE, encode, train_tokenizer
from simspec.companion.training.train import Report, Schedule, exit_agreement, train_decoder

Progress = Callable[[str], Report]
"""Given what is trained, returns what its steps are reported to."""

_NUM_PROMPTS = 64
_PROMPT_TOKENS = 64
_JUDGED_TOKENS = 128 * 100


def sizes(layers: int, width: int, vocabulary: int) -> DecoderConfig:
    """Return a decoder's sizes: heads of 32, two to a key, a feed-forward part of 8/3 d."""
    heads = width // 32
    return DecoderConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=64 * max(1, round(width * 8 / 3 / 64)),
        vocab_size=vocabulary,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2 if heads % 2 == 0 else heads,
        head_dim=32,
    )


def train_companion(
    folder: Path,
    corpora: Sequence[Corpus],
    config: DecoderConfig,
    schedule: Schedule,
    recipe: Recipe | None,
    *,
    seed: int,
    progress: Progress,
) -> dict[str, list[float]]:
    """Train tokenizer and decoder and write them.

    Returns
    -------
    dict
        For each corpus how often each layer's exit agrees with the whole decoder on held-out text.
    """
    tokenizer = train_tokenizer((t for c in corpora for t in c.training), config.vocab_size)
    tokens = encode(tokenizer, (t for c in corpora for t in c.training))
    result = train_decoder(config, tokens, schedule, recipe, seed=seed, report=progress("decoder"))
    held_out = held_out_tokens(tokenizer, corpora)
    agreement = {
        name: exit_agreement(result.decoder, text[:_JUDGED_TOKENS])
        for name, text in held_out.items()
    }
    facts = {
        **_facts(corpora, schedule, seed),
        "recipe": "none" if recipe is None else str(recipe),
        "loss_nats": f"{sum(result.losses[-20:]) / len(result.losses[-20:]):.4f}",
        "held_out_exit_agreement": json.dumps(agreement),
    }
    save_decoder(folder, result.decoder, facts)
    tokenizer.save(str(folder / FILE))
    keep_prompts(folder, held_out)
    return agreement


def held_out_tokens(tokenizer: Tokenizer, corpora: Sequence[Corpus]) -> dict[str, Tensor]:
    """Return the held-out text of each corpus in tokens."""
    return {corpus.name: encode(tokenizer, corpus.held_out) for corpus in corpora}


def keep_prompts(folder: Path, held_out: dict[str, Tensor]) -> None:
    """Write prompts from held-out texts into a companion's folder."""
    prompts = {n: windows(t.tolist(), _NUM_PROMPTS, _PROMPT_TOKENS) for n, t in held_out.items()}
    write_prompts(folder / PROMPTS, prompts)


def train_drafters(
    folder: Path,
    decoder: Decoder,
    tokens: Tensor,
    schedule: Schedule,
    *,
    kangaroo: Sequence[int] = (),
    medusa_heads: int = 0,
    eagle: bool = False,
    dual_layers: int = 0,
    dual_width: int = 0,
    seed: int,
    facts: dict[str, str],
    progress: Progress,
) -> list[Path]:
    """Train what is asked for on a frozen decoder, write each when it is done, return the files."""
    written = []

    def save(name: str, weights: dict[str, Tensor]) -> None:
        path = folder / DRAFTERS / f"{name}.safetensors"
        save_weights(path, weights, facts)
        written.append(path)

    for exit_layer in kangaroo:
        name = f"kangaroo_exit_{exit_layer}"
        report = progress(name)
        save(
            name,
            train_adapter(
                decoder, tokens, schedule, exit_layer=exit_layer, seed=seed, report=report
            ),
        )
    if medusa_heads:
        report = progress("medusa")
        save(
            "medusa",
            train_heads(decoder, tokens, schedule, count=medusa_heads, seed=seed, report=report),
        )
    if eagle:
        save("eagle", train_eagle(decoder, tokens, schedule, seed=seed, report=progress("eagle")))
    if dual_layers:
        config = _smaller(decoder.config, dual_layers, dual_width)
        result = train_decoder(
            config, tokens, schedule, None, seed=seed, report=progress("dual_model")
        )
        save_decoder(folder / DRAFTERS / "dual_model", result.decoder, facts)
        written.append(folder / DRAFTERS / "dual_model")
    return written


def provenance(corpora: Sequence[Corpus], schedule: Schedule, seed: int) -> dict[str, str]:
    """Return what a drafter's file says about how it came to be."""
    return _facts(corpora, schedule, seed)


def _facts(corpora: Sequence[Corpus], schedule: Schedule, seed: int) -> dict[str, str]:
    return {
        "corpora": json.dumps({corpus.name: corpus.sha256 for corpus in corpora}),
        "schedule": str(schedule),
        "seed": str(seed),
        "software": f"torch {torch.__version__}, tokenizers {tokenizers.__version__}",
    }


def _smaller(config: DecoderConfig, layers: int, width: int) -> DecoderConfig:
    heads = max(1, width // config.head_dim)
    group = config.num_attention_heads // config.num_key_value_heads
    return DecoderConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=64 * max(1, round(width * 8 / 3 / 64)),
        vocab_size=config.vocab_size,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // group) if heads % group == 0 else heads,
        head_dim=config.head_dim,
    )
