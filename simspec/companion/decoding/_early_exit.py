"""Drafting with the target's own first layers: what LayerSkip and Kangaroo share.

    for j = 1 .. m:  F(0, E, 1), exit(1), H(1)       for the sequences that still draft
    F(0, E, 1) of the last draft, F(E, L, m + 1) from the kept exit states, H(m + 1)

Layers 1..E run once over every token: their keys and values in the cache are the target's own, and
their states at the exit are what layers E+1..L start from.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from simspec.companion.decoding._base import SequentialLoop
from simspec.companion.decoding.sampling import Drafts, Sampler
from simspec.companion.model.decoder import Decoder
from simspec.core.errors import ConfigError


class EarlyExitLoop(SequentialLoop):
    """Drafts from an exit, verifies from its states.

    Parameters
    ----------
    exit_layer : int
        E.
    num_speculative_tokens : int
        K.
    confidence_threshold : float
        tau: a sequence stops after a draft that is less sure; 0 always drafts K.

    Raises
    ------
    ConfigError
        The exit leaves no layer to draft or to verify with.
    """

    def __init__(
        self,
        decoder: Decoder,
        sampler: Sampler,
        *,
        exit_layer: int,
        num_speculative_tokens: int,
        confidence_threshold: float = 0.0,
    ) -> None:
        super().__init__(decoder, sampler)
        if not 1 <= exit_layer < self.num_layers:
            raise ConfigError(
                f"exit_layer is {exit_layer}; the decoder has {self.num_layers} layers, so it can "
                f"be 1 to {self.num_layers - 1}"
            )
        self.exit_layer, self.max_draft = exit_layer, num_speculative_tokens
        self.threshold = confidence_threshold
        self._states = torch.zeros(0)

    @abstractmethod
    def exit_logits(self, states: Tensor, step: int, rows: Tensor | None) -> Tensor:
        """Return the drafter's logits (B, V) from exit states (B, d) of draft step ``step``."""

    def draft(self) -> Drafts:
        """Run the first layers over the last token, then over each draft."""
        size = len(self.texts), self.max_draft + 1, self.decoder.config.hidden_size
        self._states = torch.zeros(size, dtype=self.decoder.dtype)
        return super().draft()

    def draft_step(self, tokens: Tensor, step: int, rows: Tensor | None) -> Tensor:
        """Run the first layers over one token of each sequence and read the exit."""
        states = self._shallow(tokens, step, rows)
        self._states[slice(None) if rows is None else rows, step] = states
        return self.exit_logits(states, step, rows)

    def verify(self, drafts: Drafts) -> Tensor:
        """Run the first layers over each last draft, then the others over all states."""
        rows, counts = torch.arange(len(self.texts)), drafts.counts
        self._states[rows, counts] = self._shallow(drafts.tokens[rows, counts - 1], counts, None)
        states = self._states[:, : drafts.tokens.shape[1] + 1]
        place = self.cache.chain(states.shape[1])
        x = self.decoder.layers(states, self.exit_layer, self.num_layers, place, self.cache)
        return self.decoder.logits(x)

    def _shallow(self, tokens: Tensor, ahead: int | Tensor, rows: Tensor | None) -> Tensor:
        """Return the exit states (B, d) of one token of each sequence."""
        place = self.cache.chain(1, ahead, rows)
        x = self.decoder.embed(tokens[:, None])
        return self.decoder.layers(x, 0, self.exit_layer, place, self.cache)[:, 0]
