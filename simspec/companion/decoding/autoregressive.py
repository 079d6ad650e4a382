"""Plain decoding: one pass of all layers, one token. F(0, L, 1) + H(1)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from simspec.companion.decoding._base import ChainLoop
from simspec.companion.decoding.sampling import Drafts


class Autoregressive(ChainLoop):
    """A round without drafts."""

    name: ClassVar[str] = "autoregressive"

    def draft(self) -> Drafts:
        """Propose nothing."""
        batch, vocab = len(self.texts), self.decoder.config.vocab_size
        return Drafts(
            tokens=torch.zeros(batch, 0, dtype=torch.long),
            counts=torch.zeros(batch, dtype=torch.long),
            probabilities=torch.zeros(batch, 0, vocab),
        )

    def verify(self, drafts: Drafts) -> Tensor:
        """Pass the last token through all layers."""
        return self.verified(drafts)
