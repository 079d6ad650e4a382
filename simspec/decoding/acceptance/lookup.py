"""Acceptance of drafts copied from earlier text: whether there is a match, and how far it goes.

A search for an earlier occurrence finds something or not, and what it finds goes on like the text
for a while. After text that was not copied, a search hits with probability ``hit_probability``;
given a hit, the first i copied tokens are the text's with probability ``rates[i - 1]`` (beyond the
list the last conditional rate repeats). A copied stretch of n tokens is a property of the text:
every search inside it hits and finds what is left of it, up to and including the position at which
text and copy part. So hits persist, and the conditional acceptance rises with the position: short
chance matches fail at once, real copies go on.

With r_i the rates, r_0 = 1, and h the hit probability, a stretch of n tokens takes
floor(n / (K + 1)) + 1 rounds of K drafts, the last of which ends it, so per stretch or miss

    rounds without a draft      1 - h
    rounds that draft           h sum_j r_{j (K + 1)}
    rounds that accept i        h sum_j r_{j (K + 1) + i},  i = 1..K, at least

which is the closed form. On the traces of an n-gram drafter it predicts every K from 1 to 10
(docs/theory/acceptance.md); ``simspec calibrate acceptance`` fits it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from simspec.core.errors import ConfigError
from simspec.core.rng import stream
from simspec.decoding._base import AcceptanceConfig
from simspec.decoding._chain import MAX_DRAFT
from simspec.decoding.acceptance._common import Rate, never_rising
from simspec.decoding.tape import RoundStatistics, Tape

_NEGLIGIBLE = 1e-15
_LONGEST = 0.9999
"""Conditional rate beyond the list: stretches of 10,000 tokens on average are never measured."""


class Config(AcceptanceConfig):
    """How often a search hits, and how far copies go on."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "lookup", "hit_probability": 0.3, "rates": [0.6, 0.45, 0.38, 0.33]},
                {"name": "lookup", "hit_probability": 1.0, "rates": [0.3, 0.27]},
            ]
        }
    )

    name: Literal["lookup"] = "lookup"
    hit_probability: float = Field(ge=0, le=1)
    """Share of searches that find something, after text that was not copied."""
    rates: Annotated[
        tuple[Rate, ...], Field(min_length=1, max_length=MAX_DRAFT), AfterValidator(never_rising)
    ]
    """Given a hit there, the share of which the first 1, 2, … copied tokens are the text's."""
    source: str = ""
    """Where the numbers come from; printed in every report."""

    @model_validator(mode="after")
    def _copies_end(self) -> Self:
        if _last_conditional(self.rates) > _LONGEST:
            raise ValueError(
                "by the last rate copied stretches would never end: beyond the list its share of "
                "the rate before it repeats; give a longer list, down to a lower rate"
            )
        return self

    def at(self, exit_layer: int | None) -> LookupProcess:
        """Return the process; there is no exit layer to depend on."""
        listed = ", ".join(f"{rate:g}" for rate in self.rates)
        origin = f"source: {self.source}" if self.source else "no source given"
        return LookupProcess(
            sentence=(
                f"a search finds an earlier occurrence with probability {self.hit_probability:g} "
                "after text that was not copied and always inside a copied stretch; given a hit, "
                f"per-position acceptance [{listed}]; without one nothing is drafted; no "
                f"confidence distribution; {origin}"
            ),
            hit_probability=self.hit_probability,
            rates=self.rates,
        )


def _last_conditional(rates: tuple[float, ...]) -> float:
    """Return the rate at which stretches go on beyond the list."""
    if len(rates) == 1:
        return rates[0]
    return rates[-1] / rates[-2] if rates[-2] > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class LookupProcess:
    """Matches and copied stretches along a text.

    Attributes
    ----------
    sentence : str
        What :meth:`describe` returns.
    hit_probability : float
        h.
    rates : tuple
        r_1, r_2, …
    """

    sentence: str
    hit_probability: float
    rates: tuple[float, ...]

    def tape(self, seed: int, request_id: int, num_tokens: int) -> Tape:
        """Return the tape of a request, with the look-ahead the longest draft needs.

        Row ``k`` of one table of uniforms makes the ``k``-th run of misses and the stretch after
        it, which take one position at least.
        """
        num_positions = num_tokens + MAX_DRAFT
        uniform = stream(seed, "acceptance", request_id).random((num_positions, 2)) + 2.0**-54
        misses = self._misses(uniform[:, 0], num_positions)
        copied = self._copied(uniform[:, 1], num_positions)
        end = np.cumsum(misses + copied + 1)
        start = end - copied - 1
        is_inside = start < num_positions
        change = np.zeros(num_positions + 1, dtype=np.int64)
        np.add.at(change, start[is_inside], 1)
        np.add.at(change, np.minimum(end[is_inside], num_positions), -1)
        matched = np.cumsum(change[:-1]) > 0
        copies = matched.copy()
        parting = end - 1
        copies[parting[parting < num_positions]] = False
        unknown = np.full(num_positions, np.nan)
        return Tape(unknown, unknown, copies[None, :], matched=matched)

    def _misses(self, uniform: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.int64]:
        """Return how many searches fail in a row: P(at least n) = (1 - h)^n."""
        if self.hit_probability >= 1.0:
            return np.zeros(uniform.size, dtype=np.int64)
        if self.hit_probability <= 0.0:
            return np.full(uniform.size, most, dtype=np.int64)
        count = np.floor(np.log(uniform) / np.log1p(-self.hit_probability))
        return np.asarray(np.minimum(count, most), dtype=np.int64)

    def _copied(self, uniform: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.int64]:
        """Return how many tokens each stretch copies: P(at least n) = r_n."""
        rates = np.array(self.rates)
        within = np.searchsorted(-rates, -uniform, side="left").astype(np.int64)
        going_on = _last_conditional(self.rates)
        if rates[-1] <= 0.0 or going_on <= 0.0:
            return within
        beyond = np.floor(np.log(np.minimum(uniform / rates[-1], 1.0)) / np.log(going_on))
        return np.asarray(np.minimum(within + beyond, most), dtype=np.int64)

    def statistics(self, max_draft: int, threshold: float) -> RoundStatistics:
        """Return the distributions of m and a: rounds counted over a stretch or a miss.

        Raises
        ------
        ConfigError
            A threshold above 0: there is no confidence to compare with it.
        """
        if threshold > 0.0:
            raise ConfigError(
                f"confidence_threshold {threshold:g} needs a confidence distribution and lookup "
                "has none; set confidence_threshold to 0"
            )
        survival = self._survival()
        rounds = -(-survival.size // (max_draft + 1))
        table = np.zeros(rounds * (max_draft + 1))
        table[: survival.size] = survival
        # Column i: rounds of a stretch that accept i drafts or more.
        at_least = self.hit_probability * table.reshape(rounds, -1).sum(axis=0)
        total = 1.0 - self.hit_probability + at_least[0]
        at_least = at_least / total
        drafted = np.zeros(max_draft + 1)
        drafted[0], drafted[-1] = 1.0 - at_least[0], at_least[0]
        accepted = at_least - np.append(at_least[1:], 0.0)
        accepted[0] += drafted[0]
        return RoundStatistics(drafted, accepted, all_accepted=float(at_least[-1]))

    def _survival(self) -> npt.NDArray[np.float64]:
        """Return r_0 = 1, r_1, … until stretches are as good as over."""
        rates = [1.0, *self.rates]
        going_on = _last_conditional(self.rates)
        if going_on > 0.0 and rates[-1] > _NEGLIGIBLE:
            length = int(np.log(_NEGLIGIBLE / rates[-1]) / np.log(going_on)) + 1
            rates += (rates[-1] * going_on ** np.arange(1, length + 1)).tolist()
        return np.array(rates)

    def describe(self) -> str:
        """Return one sentence that states every assumption."""
        return self.sentence
