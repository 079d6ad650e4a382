"""Dual model: a smaller decoder with the same vocabulary drafts.

Leviathan et al., ICML 2023, arXiv 2211.17192. The draft has a cache of its own. It has not read its
own last token: when all drafts were kept, it catches up with one more pass after verification.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from simspec.companion.decoding._base import SequentialLoop
from simspec.companion.decoding.sampling import Drafts, Sampler
from simspec.companion.model.cache import Place
from simspec.companion.model.decoder import Decoder
from simspec.core.errors import ConfigError


class DualModel(SequentialLoop):
    """A whole decoder drafts.

    Parameters
    ----------
    drafter : Decoder
        With the target's vocabulary.
    num_speculative_tokens, confidence_threshold
        K and tau.

    Raises
    ------
    ConfigError
        The vocabularies differ.
    """

    name: ClassVar[str] = "dual_model"

    def __init__(
        self,
        decoder: Decoder,
        sampler: Sampler,
        *,
        drafter: Decoder,
        num_speculative_tokens: int,
        confidence_threshold: float = 0.0,
    ) -> None:
        super().__init__(decoder, sampler)
        sizes = drafter.config.vocab_size, decoder.config.vocab_size
        if sizes[0] != sizes[1]:
            raise ConfigError(f"the draft has {sizes[0]} tokens, the target {sizes[1]}")
        self.drafter, self.max_draft = drafter, num_speculative_tokens
        self.threshold = confidence_threshold
        self._cache = drafter.cache(0, 0)

    def prefilled(self, tokens: Tensor, lens: Tensor) -> None:
        """Let the draft read the prompts."""
        self._cache = self.drafter.cache(len(tokens), self.cache.num_slots)
        self._pass(tokens, self._cache.chain(tokens.shape[1]))
        self._cache.lens += lens

    def draft_step(self, tokens: Tensor, step: int, rows: Tensor | None) -> Tensor:
        """Run the draft over one token of each sequence."""
        states = self._pass(tokens[:, None], self._cache.chain(1, step, rows))
        return self.drafter.logits(states[:, 0])

    def verify(self, drafts: Drafts) -> Tensor:
        """Pass the last token and the drafts through the target."""
        return self.verified(drafts)

    def settle(self, drafts: Drafts, accepted: Tensor) -> None:
        """Let the draft read its last token where it was kept."""
        all_kept = (accepted == drafts.counts).nonzero()[:, 0]
        if len(all_kept):
            counts = drafts.counts
            newest = drafts.tokens[all_kept, counts[all_kept] - 1]
            self._pass(newest[:, None], self._cache.chain(1, counts, all_kept))
        self._cache.lens += accepted + 1

    def select(self, rows: Tensor) -> None:
        """Go on with some of the sequences."""
        super().select(rows)
        self._cache.select(rows)

    def _pass(self, tokens: Tensor, place: Place) -> Tensor:
        drafter = self.drafter
        layers = drafter.config.num_hidden_layers
        return drafter.layers(drafter.embed(tokens), 0, layers, place, self._cache)
