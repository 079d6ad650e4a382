"""Unverified exit: layers 1..E and the head decode alone; the deep layers are owed.

One step is F(0, E, 1) + H(1). Nothing checks its token, so the text is the exit's and not the
target's. :meth:`UnverifiedExit.repay` runs layers E+1..L over all owed tokens from their kept exit
states, after which the cache is what the target would have made of the same text, and any loop may
go on with it.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from simspec.companion.decoding._base import Clock, Loop, Round
from simspec.companion.decoding.sampling import Sampler
from simspec.companion.model.decoder import Decoder
from simspec.core.errors import ConfigError


class UnverifiedExit(Loop):
    """The exit's own choices.

    Parameters
    ----------
    exit_layer : int
        E.
    """

    name: ClassVar[str] = "unverified_exit"

    def __init__(self, decoder: Decoder, sampler: Sampler, *, exit_layer: int) -> None:
        super().__init__(decoder, sampler)
        if not 1 <= exit_layer < self.num_layers:
            raise ConfigError(
                f"exit_layer is {exit_layer}; the decoder has {self.num_layers} layers, so it can "
                f"be 1 to {self.num_layers - 1}"
            )
        self.exit_layer = exit_layer
        self._owed: list[Tensor] = []

    @property
    def num_owed(self) -> int:
        """Tokens of each sequence that the deep layers have not seen."""
        return len(self._owed)

    @torch.inference_mode()
    def round(self) -> Round:
        """Take one token from the exit."""
        contexts = tuple(self.cache.lens.tolist())
        clock = Clock(self.decoder.device)
        x = self.decoder.embed(self.last[:, None])
        x = self.decoder.layers(x, 0, self.exit_layer, self.cache.chain(1), self.cache)[:, 0]
        token = self.sampler.draw(self.sampler.probabilities(self.decoder.logits(x)))
        self._owed.append(x)
        self.cache.lens += 1
        tokens = tuple((t,) for t in token.tolist())
        self.put(tokens)
        wall_s, cpu_s = clock.lap()
        nobody = (0,) * len(contexts)
        return Round(contexts, tokens, nobody, nobody, None, None, 0.0, wall_s, 0.0, cpu_s)

    @torch.inference_mode()
    def repay(self) -> tuple[float, float]:
        """Run the deep layers over all owed tokens; return wall and process seconds."""
        clock = Clock(self.decoder.device)
        if self._owed:
            states = torch.stack(self._owed, dim=1)
            self.cache.lens -= self.num_owed
            place = self.cache.chain(self.num_owed)
            self.decoder.layers(states, self.exit_layer, self.num_layers, place, self.cache)
            self.cache.lens += self.num_owed
            self._owed = []
        return clock.lap()

    def select(self, rows: Tensor) -> None:
        """Go on with some of the sequences."""
        super().select(rows)
        self._owed = [states[rows] for states in self._owed]
