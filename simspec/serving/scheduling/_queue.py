"""A waiting queue in an order of its own."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Any

from simspec.serving.plan import SequenceState
from simspec.serving.scheduling._base import Urgency


class OrderedQueue:
    """Waiting sequences, the most urgent first, whichever end they were added to.

    Parameters
    ----------
    urgency : callable
        The sort key, which must not change while a sequence waits; no two may be equal.
    """

    def __init__(self, urgency: Urgency) -> None:
        self._urgency = urgency
        self._entries: list[tuple[Any, SequenceState]] = []

    def append(self, sequence: SequenceState) -> None:
        """Add a sequence at its place."""
        insort(self._entries, (self._urgency(sequence), sequence))

    appendleft = append

    def popleft(self) -> SequenceState:
        """Take the most urgent sequence out."""
        return self._entries.pop(0)[1]

    def __getitem__(self, index: int) -> SequenceState:
        return self._entries[index][1]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[SequenceState]:
        return (sequence for _, sequence in self._entries)
