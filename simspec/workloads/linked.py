"""What a log says beyond times and lengths: shared prefixes, sessions, rejected lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

MAX_KEPT_SENTENCES = 100
"""Rejected lines whose sentence is kept; all are counted."""


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Prefix blocks of prompts ``0..n-1``.

    Attributes
    ----------
    hashes : tuple of tuple of int
        Per prompt, one id for each block, the last possibly partial; two prompts are equal up to
        the first id that differs.
    block_tokens : int, tokens
        Tokens of a whole block.
    """

    hashes: tuple[tuple[int, ...], ...]
    block_tokens: int

    def take(self, keep: npt.NDArray[np.bool_]) -> Prefixes:
        """Return those of the prompts that are kept, (n,)."""
        kept = (own for own, stays in zip(self.hashes, keep.tolist(), strict=True) if stays)
        return Prefixes(tuple(kept), self.block_tokens)

    def cut_to(self, prompt_lens: npt.NDArray[np.int64]) -> Prefixes:
        """Return the blocks of prompts cut at their end to ``prompt_lens`` (n,) tokens."""
        num_blocks = -(-prompt_lens // self.block_tokens)
        pairs = zip(self.hashes, num_blocks.tolist(), strict=True)
        return Prefixes(tuple(own[:blocks] for own, blocks in pairs), self.block_tokens)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Which of requests ``0..n-1`` is sent only after another has been answered.

    Attributes
    ----------
    follows : array (n,)
        Index of the request it waits for, always a smaller one; -1: none, it has its own time.
    think_s : array (n,), seconds
        Time between that answer and the request; in a closed loop, between the answer its client
        got last and the request.
    """

    follows: npt.NDArray[np.int64]
    think_s: npt.NDArray[np.float64]

    def take(self, keep: npt.NDArray[np.bool_]) -> Sessions:
        """Return the sessions without the requests that are not kept, (n,).

        Who waited for a request that is left out waits for the one before it, and for both
        think times.
        """
        follows, think_s = self.follows.copy(), self.think_s.copy()
        # In order, so that a row's predecessor already points at a kept one.
        for i in np.flatnonzero(follows >= 0).tolist():
            before = int(follows[i])
            if not keep[before]:
                follows[i] = follows[before]
                think_s[i] += think_s[before]
        place = np.cumsum(keep) - 1
        kept = follows[keep]
        return Sessions(np.where(kept >= 0, place[kept], -1), think_s[keep])


@dataclass(slots=True)
class Rejections:
    """Lines of a log that are no request, each with a sentence.

    Attributes
    ----------
    count : int
        All of them.
    sentences : list of str
        The first hundred: ``file:line: what is wrong``.
    """

    path: Path
    count: int = 0
    sentences: list[str] = field(default_factory=list)

    def __call__(self, number: int, what: str) -> None:
        """Note that line ``number`` is no request."""
        self.count += 1
        if len(self.sentences) < MAX_KEPT_SENTENCES:
            self.sentences.append(f"{self.path}:{number}: {what}")


def shown_of(sentences: Sequence[str], count: int, at_most: int) -> Iterator[str]:
    """Yield up to ``at_most`` sentences on rejected lines, and one that counts the rest."""
    yield from sentences[:at_most]
    if (rest := count - min(at_most, len(sentences))) > 0:
        yield f"and {rest:,} more"
