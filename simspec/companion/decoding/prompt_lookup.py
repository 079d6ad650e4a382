"""Prompt lookup: what followed the text's last tokens when they stood there before.

Saxena 2023 (github.com/apoorvumang/prompt-lookup-decoding). The longest of the last
``max_ngram .. min_ngram`` tokens that occurred earlier in the text decides, and of its occurrences
the first. Without one nothing is drafted: m = 0, and the pass is a plain one.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from simspec.companion.decoding._base import ChainLoop
from simspec.companion.decoding.sampling import Drafts, Sampler, certain
from simspec.companion.model.decoder import Decoder


class PromptLookup(ChainLoop):
    """Copies up to K tokens.

    Parameters
    ----------
    num_speculative_tokens : int
        K.
    max_ngram, min_ngram : int
        Lengths of what is looked up, longest first.
    """

    name: ClassVar[str] = "prompt_lookup"

    def __init__(
        self,
        decoder: Decoder,
        sampler: Sampler,
        *,
        num_speculative_tokens: int,
        max_ngram: int = 3,
        min_ngram: int = 1,
    ) -> None:
        super().__init__(decoder, sampler)
        self.max_draft = num_speculative_tokens
        self.max_ngram, self.min_ngram = max_ngram, min_ngram

    def draft(self) -> Drafts:
        """Search each text."""
        found = [
            continuation(text, self.max_draft, self.max_ngram, self.min_ngram)
            for text in self.texts
        ]
        longest = max(map(len, found))
        tokens = torch.tensor([copied + [0] * (longest - len(copied)) for copied in found])
        tokens = tokens.long().view(len(found), longest)
        return Drafts(
            tokens=tokens,
            counts=torch.tensor([len(copied) for copied in found]),
            probabilities=certain(tokens, self.decoder.config.vocab_size),
        )

    def verify(self, drafts: Drafts) -> Tensor:
        """Pass the last token and the drafts through all layers."""
        return self.verified(drafts)


def continuation(text: list[int], most: int, max_ngram: int, min_ngram: int) -> list[int]:
    """Return at most ``most`` tokens that followed an earlier occurrence of the text's end."""
    for length in range(min(max_ngram, len(text) - 1), min_ngram - 1, -1):
        end = text[-length:]
        for start in range(len(text) - length):
            if text[start : start + length] == end:
                return text[start + length : start + length + most]
    return []
