"""Candidates by rank: how often the text's token is among the drafter's first 1, 2, ..., k.

``hit_rates[i - 1][r - 1]`` is the share of text positions whose token is among the r most probable
candidates at depth i, given that the drafts before it are text: what Medusa publishes as the
top-1 to top-k accuracy of its heads, and what a tree of drafts needs. The rate of the r-th
candidate alone is the difference of neighbours. A chain drafts the first candidate.

One uniform variable per text position says how easy it is there: the text's token is the first
candidate whose cumulated rate exceeds it, at every depth. ``persistence`` is the probability that
a position is as easy as the one before it, else it is drawn anew: easy and hard stretches last,
and every position still has the given rates. At 0 positions are independent and the expected
accepted tokens are those of arXiv 2401.10774, section 2.3.3.

Closed form: only the cell between two neighbouring rates matters, so the text is a Markov chain
over cells, ``persistence I + (1 - persistence) 1 p``. Its mass is followed down the tree; rounds
start in steady state, a rejected token being followed by the next, a leaf by the bonus token.

Left out: confidences, so that no threshold can stop a chain; drafters that are sure of their
place in the text and shape their tree by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, ConfigDict, Field

from simspec.core.errors import ConfigError
from simspec.core.rng import stream
from simspec.decoding._base import AcceptanceConfig
from simspec.decoding._chain import MAX_DRAFT
from simspec.decoding.acceptance._common import Rate
from simspec.decoding.acceptance._process import TAPE_DEPTH
from simspec.decoding.tape import RoundStatistics, Tape

Array = npt.NDArray[np.float64]
Path = tuple[int, ...]
NOT_LISTED = 1 << 30
"""Rank of a token that is none of the candidates: further than any tree goes."""
_SLACK = 1e-9
"""Rounding of differences between cumulative rates."""


def _accuracies(rates: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    for depth, row in enumerate(rates, start=1):
        if len(row) != len(rates[0]):
            raise ValueError(
                f"depth {depth} has {len(row)} rates and depth 1 has {len(rates[0])}; give every "
                "depth as many candidates"
            )
        single = [here - before for before, here in pairwise((0.0, *row))]
        if min(single) < -_SLACK:
            raise ValueError(
                f"depth {depth} falls from one rate to the next; they are cumulative, the share "
                "of positions with the token among the first 1, 2, ... candidates"
            )
        for rank, (before, here) in enumerate(pairwise(single), start=2):
            if here > before + _SLACK:
                raise ValueError(
                    f"depth {depth}: candidate {rank} is right more often ({here:.3g}) than the "
                    f"one before it ({before:.3g}); list them from the most probable down"
                )
    return rates


Row = Annotated[tuple[Rate, ...], Field(min_length=1, max_length=64)]
HitRates = Annotated[
    tuple[Row, ...], Field(min_length=1, max_length=TAPE_DEPTH), AfterValidator(_accuracies)
]
"""Cumulative top-1, top-2, ... rates of depths 1, 2, ...; deeper drafts use the last row."""

VICUNA_7B = (
    (0.5604, 0.6717, 0.7271, 0.7599, 0.7799),
    (0.3164, 0.4236, 0.4851, 0.5282, 0.5625),
    (0.2010, 0.2879, 0.3475, 0.3834, 0.4169),
    (0.1474, 0.2250, 0.2737, 0.3109, 0.3397),
    (0.1175, 0.1866, 0.2346, 0.2721, 0.2998),
)
"""Medusa's heads 0..4 for Vicuna-7B: assets/medusa_acc.csv of FasterDecoding/Medusa."""


class Config(AcceptanceConfig):
    """Hit rates by depth and rank."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "tree_ranks",
                    "hit_rates": [list(row) for row in VICUNA_7B],
                    "source": "Medusa heads of Vicuna-7B, medusa_acc.csv",
                },
                {"name": "tree_ranks", "hit_rates": [[0.7, 0.85, 0.9]], "persistence": 0.2},
            ]
        }
    )

    name: Literal["tree_ranks"] = "tree_ranks"
    hit_rates: HitRates
    """For each depth the share of positions with the token among the first 1, 2, … candidates."""
    persistence: float = Field(default=0.0, ge=0, le=0.99)
    """Probability that a text position is as easy as the one before it."""
    source: str = ""
    """Where the numbers come from; printed in every report."""

    def at(self, exit_layer: int | None) -> RankProcess:
        """Return the process for drafts made at ``exit_layer``."""
        rows = "; ".join(
            f"depth {depth}: {', '.join(f'{rate:g}' for rate in row)}"
            for depth, row in enumerate(self.hit_rates, start=1)
        )
        where = "" if exit_layer is None else f"; taken as the same at exit layer {exit_layer}"
        origin = f"source: {self.source}" if self.source else "no source given"
        return RankProcess(
            sentence=(
                f"text's token among the first 1, 2, … candidates at {rows} (last row reused), "
                f"a position as easy as the one before with probability {self.persistence:g}, "
                f"no confidence distribution{where}; {origin}"
            ),
            hit_rates=self.hit_rates,
            persistence=self.persistence,
        )


@dataclass(frozen=True, slots=True)
class RankProcess:
    """Ranks along a text.

    Attributes
    ----------
    sentence : str
        What :meth:`describe` returns.
    hit_rates : tuple of tuples
        Cumulative, by depth and rank.
    persistence : float
        Probability that a position is as easy as the one before it.
    """

    sentence: str
    hit_rates: tuple[tuple[float, ...], ...]
    persistence: float

    def tape(self, seed: int, request_id: int, num_tokens: int) -> Tape:
        """Return the tape of a request, with the look-ahead the longest draft needs.

        Row ``t`` of one table of uniforms makes everything at position ``t``, so a longer tape
        begins with the shorter one.
        """
        num_positions = num_tokens + MAX_DRAFT
        fresh, coin = stream(seed, "acceptance", request_id).random((num_positions, 2)).T
        drawn = np.where(coin < self.persistence, 0, np.arange(num_positions))
        # Position 0 is always drawn; the others keep the value of the last one that was.
        ease = fresh[np.maximum.accumulate(drawn)]
        rank = np.array([_ranks(row, ease) for row in self.hit_rates])
        unknown = np.full(num_positions, np.nan)
        return Tape(unknown, unknown, rank == 0, rank=rank, rank_rates=self.rank_rates())

    def rank_rates(self) -> Array:
        """Return the rate of each candidate alone, array (depth, ranks)."""
        return np.diff(np.array(self.hit_rates), axis=1, prepend=0.0)

    def survival(self, paths: Sequence[Path]) -> Array:
        """Return ``P(a >= d)``, d = 0..D, when every round drafts the tree ``paths``.

        Parameters
        ----------
        paths : sequence
            Nodes as paths of ranks.
        """
        return _survival(self.hit_rates, self.persistence, tuple(sorted(paths, key=len)))

    def statistics(self, max_draft: int, threshold: float) -> RoundStatistics:
        """Return the distributions of m and a for chains of first candidates.

        Raises
        ------
        ConfigError
            A threshold above 0: there are no confidences to compare it with.
        """
        if threshold > 0.0:
            raise ConfigError(
                f"confidence_threshold {threshold:g} needs a confidence distribution and "
                "tree_ranks has none; use beta_curve, or set confidence_threshold to 0"
            )
        reached = self.survival([(0,) * depth for depth in range(1, max_draft + 1)])
        drafted = np.zeros(max_draft + 1)
        drafted[max_draft] = 1.0
        accepted = reached - np.append(reached[1:], 0.0)
        return RoundStatistics(drafted, accepted, float(accepted[max_draft]))

    def describe(self) -> str:
        """Return one sentence that states every assumption."""
        return self.sentence


def _ranks(cumulative: tuple[float, ...], ease: Array) -> npt.NDArray[np.int64]:
    """Return the first candidate whose cumulated rate exceeds ``ease``."""
    rank = np.searchsorted(cumulative, ease, side="right")
    return np.where(rank == len(cumulative), NOT_LISTED, rank)


@lru_cache(maxsize=256)
def _survival(
    hit_rates: tuple[tuple[float, ...], ...], persistence: float, paths: tuple[Path, ...]
) -> Array:
    edges = np.unique(np.concatenate([[0.0, 1.0], *map(np.array, hit_rates)]))
    share = np.diff(edges)
    middle = (edges[:-1] + edges[1:]) / 2
    ranks = [_ranks(row, middle) for row in hit_rates]

    def advance(mass: Array) -> Array:
        fresh = mass.sum(axis=-1, keepdims=True) * share
        return np.asarray(persistence * mass + (1.0 - persistence) * fresh)

    def descend(start: Array) -> dict[Path, Array]:
        """Return the mass of each node, over the cell of its own text position."""
        found: dict[Path, Array] = {(): start}
        arrived: dict[Path, Array] = {(): start}
        for path in paths:
            above = path[:-1]
            if above not in arrived:
                arrived[above] = advance(found[above])
            is_next = ranks[min(len(above), len(ranks) - 1)] == path[-1]
            found[path] = arrived[above] * is_next
        return found

    start = share
    if persistence > 0.0:
        start = _steady_start(descend(np.eye(share.size)), advance)
    survival = np.zeros(max(map(len, paths)) + 1)
    for path, mass in descend(start).items():
        survival[len(path)] += mass.sum()
    return survival


def _steady_start(found: dict[Path, Array], advance: Callable[[Array], Array]) -> Array:
    """Return the law of the cell at round starts, which one round of masses leaves unchanged.

    Parameters
    ----------
    found : dict
        Mass of each node, arrays (cells, cells): row ``i`` for a round that starts in cell ``i``.
    advance : callable
        One text position further.
    """
    parents = {path[:-1] for path in found if path}
    last, lost = np.zeros_like(found[()]), np.zeros_like(found[()])
    for path, mass in found.items():
        if path in parents:
            lost += advance(mass) if path else mass
        else:
            last += mass
        if path:
            lost -= mass
    # After a rejected token comes the next one, after a leaf the bonus token and then the next.
    size = found[()].shape[0]
    equations = advance(lost + advance(last)).T - np.eye(size)
    equations[-1] = 1.0
    right = np.zeros(size)
    right[-1] = 1.0
    start = np.clip(np.linalg.solve(equations, right), 0.0, None)
    return np.asarray(start / start.sum())
