"""EAGLE: one layer over the target's own features drafts the next features.

Li et al., "EAGLE", ICML 2024, arXiv 2401.15077, section 3.1. The drafter reads, at each place, the
target's last normed state there and the embedding of the token that follows, fuses them from 2 d to
d, passes one layer with a cache of its own, and its output stands for the next state: the target's
head turns it into a token. After a round the places whose true states are now known are read again,
in the first draft step of the next round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from simspec.companion.decoding._base import SequentialLoop
from simspec.companion.decoding.sampling import Drafts, Sampler
from simspec.companion.model.cache import KvCache, Place
from simspec.companion.model.config import DecoderConfig
from simspec.companion.model.decoder import Decoder, Part, block, rotation, weight_shapes

_LAYER = "model.layers.0"


class EagleHead:
    """The drafter's weights: ``fuse.weight`` (d, 2 d) and one layer, named as a decoder's first."""

    def __init__(self, config: DecoderConfig, weights: Mapping[str, Tensor]) -> None:
        self.config, self.weights = config, dict(weights)

    def features(
        self, embedded: Tensor, features: Tensor, place: Place, cache: KvCache | None
    ) -> Tensor:
        """Return the next features (B, n, d) from tokens' embeddings and the features before."""
        x = F.linear(torch.cat((embedded, features), dim=-1), self.weights["fuse.weight"])
        turns = rotation(place.positions, self.config, x.dtype)
        cached = None if cache is None else (cache, 0, place)
        return block(Part(self.weights, _LAYER, self.config), x, turns, cached)


def eagle_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight of a drafter."""
    d = config.hidden_size
    layer = {n: s for n, s in weight_shapes(config).items() if n.startswith(f"{_LAYER}.")}
    return {"fuse.weight": (d, 2 * d), **layer}


class Eagle(SequentialLoop):
    """A chain of K drafts.

    Parameters
    ----------
    head : EagleHead
        Trained on the target.
    num_speculative_tokens, confidence_threshold
        K and tau.
    """

    name: ClassVar[str] = "eagle"

    def __init__(
        self,
        decoder: Decoder,
        sampler: Sampler,
        *,
        head: EagleHead,
        num_speculative_tokens: int,
        confidence_threshold: float = 0.0,
    ) -> None:
        super().__init__(decoder, sampler)
        self.head, self.max_draft = head, num_speculative_tokens
        self.threshold = confidence_threshold
        self._cache = decoder.cache(0, 0, 1)
        # True features, and the tokens behind them, that the drafter has not read.
        self._known = torch.zeros(0)
        self._num_known = torch.zeros(0, dtype=torch.long)
        self._newest = torch.zeros(0)
        self._verified = torch.zeros(0)

    def prefill(self, tokens: Tensor, place: Place, slots: int) -> Tensor:
        """Pass the prompts through the target, then all but their last places through the drafter.

        Place i of the drafter reads the target's state at i and the token at i + 1.
        """
        decoder = self.decoder
        states = super().prefill(tokens, place, slots)
        self._cache = decoder.cache(len(tokens), slots, 1)
        if tokens.shape[1] > 1:
            features = decoder.normed(states)[:, :-1]
            at = self._cache.chain(tokens.shape[1] - 1)
            self.head.features(decoder.embed(tokens[:, 1:]), features, at, self._cache)
        return states

    def prefilled(self, tokens: Tensor, lens: Tensor) -> None:
        """The drafter lacks the last place of each prompt, whose next token is chosen now."""
        self._cache.lens += lens - 1
        self._num_known = torch.ones_like(lens)

    def see(self, states: Tensor) -> None:
        """Keep the features behind which the newest tokens stand."""
        self._known = self.decoder.normed(states)[:, None]

    def draft_step(self, tokens: Tensor, step: int, rows: Tensor | None) -> Tensor:
        """Read what is known, then go on from the drafter's own features."""
        decoder = self.decoder
        if step == 0:
            ends = self._num_known - 1
            behind = self._tokens_behind()
            place = self._cache.chain(self._known.shape[1])
            out = self.head.features(decoder.embed(behind), self._known, place, self._cache)
            self._newest = out[torch.arange(len(ends)), ends]
            return decoder.head(self._newest)
        part = torch.arange(len(self.texts)) if rows is None else rows
        place = self._cache.chain(1, self._num_known + step - 1, rows)
        embedded = decoder.embed(tokens[:, None])
        out = self.head.features(embedded, self._newest[part][:, None], place, self._cache)[:, 0]
        self._newest[part] = out
        return decoder.head(out)

    def _tokens_behind(self) -> Tensor:
        """Return the token behind each known feature, (B, k)."""
        most = self._known.shape[1]
        rows = []
        for text, count in zip(self.texts, self._num_known.tolist(), strict=True):
            rows.append(text[-count:] + [0] * (most - count))
        return torch.tensor(rows)

    def verify(self, drafts: Drafts) -> Tensor:
        """Pass the last token and the drafts through the target; keep the states."""
        decoder = self.decoder
        tokens = torch.cat((self.last[:, None], drafts.tokens), dim=1)
        place = self.cache.chain(tokens.shape[1])
        x = decoder.layers(decoder.embed(tokens), 0, self.num_layers, place, self.cache)
        self._verified = decoder.normed(x)
        return decoder.head(self._verified)

    def settle(self, drafts: Drafts, accepted: Tensor) -> None:
        """What was read from true features stays; the accepted places have new ones."""
        self._cache.lens = self._cache.lens + self._num_known
        self._known, self._num_known = self._verified, accepted + 1

    def select(self, rows: Tensor) -> None:
        """Go on with some of the sequences."""
        super().select(rows)
        self._cache.select(rows)
        self._known, self._num_known = self._known[rows], self._num_known[rows]
