"""Replay of a captured trace: what a real drafter did, position by position.

The trace says for every position of some texts how many drafts a round starting there accepts
(:mod:`simspec.traces.accepted` lists the kinds of files). Its texts are laid end to end in a circle
and each request reads on from a place of its own, drawn from (seed, request): blocks of real text
with all their difficulty, whatever K. Nothing is fitted, so nothing is known beyond the trace: no
other exit layer, and thresholds only where the trace has confidences.

The closed form walks the circle from everywhere at once: mass on start positions moves on by
a + 1, and after the first rounds its rounds are counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, model_validator

from simspec.core.errors import ConfigError
from simspec.core.rng import stream
from simspec.decoding._base import AcceptanceConfig
from simspec.decoding._chain import MAX_DRAFT, chain_outcomes
from simspec.decoding.acceptance._process import below_one
from simspec.decoding.tape import RoundStatistics, Tape
from simspec.traces.accepted import AcceptedText, read_accepted

_ROUNDS_LEFT_OUT = 60
_ROUNDS_COUNTED = 200

Accepted = Annotated[int, Field(ge=0, le=10_000)]


class Config(AcceptanceConfig):
    """A trace file, or its numbers in place."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "replay",
                    "accepted": [
                        [0, 2, 1, 0, 0, 4, 3, 2, 1, 0, 1, 0, 2, 1, 0, 0, 3, 1, 1, 0],
                        [1, 0, 0, 5, 4, 3, 2, 1, 0, 0, 0, 2, 2, 1, 0, 1, 0],
                    ],
                }
            ]
        }
    )

    name: Literal["replay"] = "replay"
    path: str | None = Field(default=None, min_length=1)
    """The trace file, looked up beside the scenario; or give ``accepted``."""
    drafter: str | None = Field(default=None, min_length=1)
    """Which drafter of a file that has several, for example ``eagle``."""
    accepted: (
        Annotated[
            tuple[Annotated[tuple[Accepted, ...], Field(min_length=1)], ...], Field(min_length=1)
        ]
        | None
    ) = None
    """For each text, the drafts that a round starting at each position accepts."""
    source: str = ""
    """Where the trace comes from; printed in every report."""

    @model_validator(mode="after")
    def _one_trace(self) -> Self:
        if (self.path is None) == (self.accepted is None):
            given = "both are given" if self.path is not None else "none is given"
            raise ValueError(f"give either path or accepted; {given}")
        if self.drafter is not None and self.path is None:
            raise ValueError("drafter chooses within a file and there is none; remove it")
        return self

    def resolved(self, resolve: Callable[[str], str]) -> Self:
        """Return the same model with its file looked up beside the scenario."""
        if self.path is None:
            return self
        return self.model_copy(update={"path": resolve(self.path)})

    def at(self, exit_layer: int | None) -> ReplayProcess:
        """Return the process; the exit layer makes no difference.

        Raises
        ------
        TraceError
            The file is not such a trace.
        """
        if self.path is not None:
            file = Path(self.path)
            texts = _read(file, self.drafter, _stamp(file))
            what = f"replay of {file.name}" + (f", drafter {self.drafter}" if self.drafter else "")
        else:
            texts = tuple(AcceptedText(np.array(text)) for text in self.accepted or ())
            what = "replay of given accepted lengths"
        where = "" if exit_layer is None else f", taken as the same at exit layer {exit_layer}"
        origin = f"source: {self.source}" if self.source else "no source given"
        process = process_of(texts)
        sentence = (
            f"{what} ({process.size:,} positions of {len(texts):,} texts, digest "
            f"{process.digest}){where}; "
            f"{'confidences as captured' if process.has_confidences else 'no confidences'}; "
            f"{origin}"
        )
        return replace(process, sentence=sentence)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=8)
def _read(path: Path, drafter: str | None, stamp: object) -> tuple[AcceptedText, ...]:
    return read_accepted(path, drafter)


def process_of(texts: Sequence[AcceptedText]) -> ReplayProcess:
    """Return the replay of texts, laid end to end."""
    # A round ends with its text at the latest, so that every text is begun at its beginning.
    accepted = np.concatenate(
        [np.minimum(t.accepted, np.arange(t.accepted.size)[::-1]) for t in texts]
    )
    known = all(text.confidence is not None for text in texts)
    matches = [
        text.matched if text.matched is not None else np.ones(text.accepted.size, dtype=np.bool_)
        for text in texts
    ]
    return ReplayProcess(
        sentence="",
        accepted=accepted,
        matched=np.concatenate(matches) if any(t.matched is not None for t in texts) else None,
        confidence=np.concatenate([t.confidence for t in texts if t.confidence is not None])
        if known
        else None,
        off_track=np.concatenate([t.off_track for t in texts if t.off_track is not None])
        if known
        else None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class ReplayProcess:
    """Texts laid end to end in a circle.

    Attributes
    ----------
    sentence : str
        What :meth:`describe` returns.
    accepted : array (n,), tokens
        Drafts that a round starting at each position accepts.
    matched : array (n,), bool, or None
        Whether there is anything to draft from; None: always.
    confidence, off_track : arrays (n,), or None
        Draft confidences; both or neither.
    """

    sentence: str
    accepted: npt.NDArray[np.int64]
    matched: npt.NDArray[np.bool_] | None
    confidence: npt.NDArray[np.float64] | None
    off_track: npt.NDArray[np.float64] | None

    @property
    def size(self) -> int:
        """Positions in the circle."""
        return self.accepted.size

    @property
    def has_confidences(self) -> bool:
        """Whether thresholds above 0 can be answered."""
        return self.confidence is not None

    @property
    def digest(self) -> str:
        """Short hash of the trace's numbers."""
        hashed = hashlib.blake2b(digest_size=4)
        for part in (self.accepted, self.matched, self.confidence, self.off_track):
            hashed.update(b"-" if part is None else part.tobytes())
        return hashed.hexdigest()

    def tape(self, seed: int, request_id: int, num_tokens: int) -> Tape:
        """Return the tape of a request: the circle read on from a place of its own."""
        first = int(stream(seed, "acceptance", request_id).integers(self.size))
        return self._from(first, num_tokens + MAX_DRAFT)

    def _from(self, first: int, num_positions: int) -> Tape:
        places = (first + np.arange(num_positions)) % self.size
        accepted = self.accepted[places]
        depth = min(int(accepted.max()) + 1, MAX_DRAFT)
        accept = np.zeros((depth, num_positions), dtype=np.bool_)
        for i in range(min(depth, num_positions)):
            # Position t is the i-th draft (from 0) of the round that starts at t - i.
            accept[i, i:] = accepted[: num_positions - i] > i
        unknown = np.full(num_positions, np.nan)
        return Tape(
            confidence=unknown if self.confidence is None else below_one(self.confidence[places]),
            off_track_confidence=(
                unknown if self.off_track is None else below_one(self.off_track[places])
            ),
            accept=accept,
            matched=None if self.matched is None else self.matched[places],
        )

    def statistics(self, max_draft: int, threshold: float) -> RoundStatistics:
        """Return the distributions of m and a over the rounds of a long walk.

        Raises
        ------
        ConfigError
            A threshold above 0 and a trace without confidences.
        """
        if threshold > 0.0 and not self.has_confidences:
            raise ConfigError(
                f"confidence_threshold {threshold:g} needs confidences and the replayed trace has "
                "none; capture a trace with them, or set confidence_threshold to 0"
            )
        outcomes = chain_outcomes(self._from(0, self.size + MAX_DRAFT), max_draft, threshold)
        drafted, accepted = outcomes.drafted[: self.size], outcomes.accepted[: self.size]
        following = (np.arange(self.size) + accepted + 1) % self.size
        mass = np.full(self.size, 1.0 / self.size)
        share = np.zeros(self.size)
        for i in range(_ROUNDS_LEFT_OUT + _ROUNDS_COUNTED):
            if i >= _ROUNDS_LEFT_OUT:
                share += mass
            mass = np.bincount(following, weights=mass, minlength=self.size)
        share /= share.sum()
        everything = (drafted > 0) & (accepted == drafted)
        return RoundStatistics(
            drafted_pmf=_law(drafted, share, max_draft),
            accepted_pmf=_law(accepted, share, max_draft),
            all_accepted=float(share[everything].sum()),
        )

    def describe(self) -> str:
        """Return one sentence that states every assumption."""
        return self.sentence


def _law(
    values: npt.NDArray[np.int64], share: npt.NDArray[np.float64], largest: int
) -> npt.NDArray[np.float64]:
    """Return the distribution of ``values`` over 0..largest."""
    law = np.bincount(values, weights=share, minlength=largest + 1)
    return np.asarray(law, dtype=np.float64)
