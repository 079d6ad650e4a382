"""A byte-pair vocabulary of a text, made and kept by the ``tokenizers`` package."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from simspec.core.errors import ConfigError

FILE = "tokenizer.json"


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Return a byte-level byte-pair tokenizer; equal texts give equal vocabularies."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def load_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of a checkpoint's folder.

    Raises
    ------
    ConfigError
        There is none, or it cannot be read.
    """
    path = folder / FILE
    if not path.is_file():
        raise ConfigError(f"{folder}: has no {FILE}, without which text cannot be read")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises a bare Exception
        raise ConfigError(f"{path}: {error}") from error


def encode(tokenizer: Tokenizer, texts: Iterable[str]) -> Tensor:
    """Return the tokens (N,) of the texts, one after another, a blank line between them."""
    ids: list[int] = []
    for encoding in tokenizer.encode_batch([f"{text}\n\n" for text in texts]):
        ids.extend(encoding.ids)
    return torch.tensor(ids, dtype=torch.long)
