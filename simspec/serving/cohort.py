"""The decoding sequences that move together, brought up to date when somebody looks.

As long as nothing interferes, every decoding sequence takes part in every step, and all that a
step needs of them are sums. A plain step adds one token to each: the sum of contexts grows by the
number of sequences, the step in which a sequence ends is known when it joins, and so is the one in
which it needs its next block, from its context modulo the block size; a step costs the same
whatever the batch. A round of drafts differs from sequence to sequence and is read from each one's
tape.

What a sequence holds (tokens, blocks, gaps) is written down by :meth:`Cohort.sync`: when it ends,
when somebody sits out, is preempted or stalls, and for the checks of the laws. Between steps
a sequence with ``c`` tokens in the KV holds ``ceil(c / block_size)`` blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import nan

from simspec.memory.blocks import BlockPool
from simspec.serving.plan import SequenceState

_KEPT_STEPS = 4096
"""Durations that are remembered; then everybody is brought up to date."""


class Cohort(ABC):
    """Decoding sequences in order of admission, all of which took part in the last step.

    Either every sequence that could decode is a member, or nobody is.

    Parameters
    ----------
    blocks : BlockPool
        The replica's.
    max_draft : int
        K.

    Attributes
    ----------
    members : list
        Their states are stale until :meth:`sync`.
    last_token_s : float
        When the last tokens of all of them came out.
    count, context : lists (K + 1,)
        After :meth:`reserve`: how many members draft m tokens, and the sum of their contexts.
    num_steps : int
        After :meth:`reserve`: the largest m.
    num_drafted : int
        After :meth:`reserve`: the sum of m.
    num_gaps, gap_context : int
        After :meth:`reserve`: members whose m >= 1 drafts are all accepted, and the sum of their
        c + m.
    """

    def __init__(self, blocks: BlockPool, max_draft: int) -> None:
        self.blocks = blocks
        self.max_draft = max_draft
        self.members: list[SequenceState] = []
        self.last_token_s = nan
        self.count = [0] * (max_draft + 1)
        self.context = [0] * (max_draft + 1)
        self.num_steps = self.num_drafted = self.num_gaps = self.gap_context = 0
        self._block_size = blocks.block_size_tokens
        self._round = 0
        self._first_kept = 0
        self._durations_s: list[float] = []

    def join(self, sequence: SequenceState) -> None:
        """Take in a sequence whose last token came out when the others' did."""
        sequence.synced_round = self._round
        self.members.append(sequence)

    @abstractmethod
    def reserve(self, budget: int) -> bool:
        """Take the slots of everybody's round, if the budget and the pool have them.

        Nothing is taken otherwise.
        """

    @abstractmethod
    def advance(self, start_s: float, now: float) -> tuple[list[SequenceState], int, int]:
        """End the round that was reserved.

        Returns
        -------
        list
            Those that are done, brought up to date and no longer members.
        int, int, tokens
            Accepted, and of the tokens yielded those beyond the end of an answer.
        """

    @abstractmethod
    def contexts(self) -> list[int]:
        """Return the KV tokens of each member before its round."""

    def drafted(self) -> list[int]:
        """Return m of each member's round."""
        return [sequence.drafted_at[sequence.emitted] for sequence in self.members]

    def accepted(self) -> list[int]:
        """Return a of each member's round."""
        return [sequence.accepted_at[sequence.emitted] for sequence in self.members]

    def sync(self) -> None:
        """Bring every member up to date."""
        for sequence in self.members:
            self._sync(sequence)

    def dissolve(self) -> None:
        """Bring every member up to date and let it go."""
        self.sync()
        self.members = []
        self._forget()

    def _sync(self, sequence: SequenceState) -> None:
        rounds = self._round - sequence.synced_round
        if not rounds:
            return
        self._sync_tokens(sequence, rounds)
        sequence.num_rounds += rounds
        sequence.last_token_s = self.last_token_s
        longest_s = max(self._durations_s[sequence.synced_round - self._first_kept :])
        sequence.max_gap_s = max(sequence.max_gap_s, longest_s)
        sequence.synced_round = self._round
        due = -(-sequence.context_len // self._block_size)
        held = sequence.capacity_tokens // self._block_size
        self.blocks.assign(sequence.request_id, due - held)
        sequence.capacity_tokens = due * self._block_size

    def _sync_tokens(self, sequence: SequenceState, rounds: int) -> None:  # noqa: B027 (no hook is needed)
        """Count the tokens of some rounds, where a round did not count its own."""

    def _passed(self, start_s: float, now: float) -> None:
        self._round += 1
        self.last_token_s = now
        self._durations_s.append(now - start_s)

    def _remove(self, done: list[SequenceState]) -> None:
        for sequence in done:
            self._sync(sequence)
            self.members.remove(sequence)

    def _trim(self) -> None:
        if len(self._durations_s) >= _KEPT_STEPS:
            self.sync()
            self._forget()

    def _forget(self) -> None:
        self._durations_s.clear()
        self._first_kept = self._round


def cohort_of(blocks: BlockPool, max_draft: int) -> Cohort:
    """Return an empty cohort for rounds of at most ``max_draft`` drafts."""
    return DraftingCohort(blocks, max_draft) if max_draft else PlainCohort(blocks)


class PlainCohort(Cohort):
    """Everybody yields one token a step."""

    def __init__(self, blocks: BlockPool) -> None:
        super().__init__(blocks, 0)
        self._ending: dict[int, list[SequenceState]] = {}
        # Members by (context - round) modulo the block size: their next block's round.
        self._by_phase = [0] * self._block_size

    def join(self, sequence: SequenceState) -> None:
        """Take in a sequence whose last token came out when the others' did."""
        super().join(sequence)
        last = self._round + sequence.output_len - sequence.emitted
        self._ending.setdefault(last, []).append(sequence)
        self.context[0] += sequence.context_len
        self._by_phase[(sequence.context_len - self._round) % self._block_size] += 1
        self.count[0] += 1

    def reserve(self, budget: int) -> bool:
        """Take one slot for everybody, if the budget and the pool have them."""
        needed = self._by_phase[-self._round % self._block_size]
        if self.count[0] > budget or not self.blocks.can_allocate(needed):
            return False
        self.blocks.reserve(needed)
        return True

    def advance(self, start_s: float, now: float) -> tuple[list[SequenceState], int, int]:
        """End the step: one token for everybody."""
        self._passed(start_s, now)
        self.context[0] += self.count[0]
        done = self._ending.pop(self._round, None)
        if done is None:
            self._trim()
            return [], 0, 0
        self._remove(done)
        for sequence in done:
            self.count[0] -= 1
            self.context[0] -= sequence.context_len
            self._by_phase[(sequence.context_len - self._round) % self._block_size] -= 1
        self._trim()
        return done, 0, 0

    def contexts(self) -> list[int]:
        """Return the KV tokens of each member before its step."""
        now = self._round
        return [sequence.context_len + now - sequence.synced_round for sequence in self.members]

    def dissolve(self) -> None:
        """Bring every member up to date and let it go."""
        super().dissolve()
        self._ending.clear()
        self.count[0] = self.context[0] = 0
        self._by_phase = [0] * self._block_size

    def _sync_tokens(self, sequence: SequenceState, rounds: int) -> None:
        sequence.context_len += rounds
        sequence.emitted += rounds


class DraftingCohort(Cohort):
    """Everybody takes a round of drafts; positions and contexts are always up to date."""

    def __init__(self, blocks: BlockPool, max_draft: int) -> None:
        super().__init__(blocks, max_draft)
        self._held = 0

    def join(self, sequence: SequenceState) -> None:
        """Take in a sequence whose last token came out when the others' did."""
        super().join(sequence)
        self._held += sequence.capacity_tokens // self._block_size

    def reserve(self, budget: int) -> bool:
        """Take K + 1 slots for everybody, if the budget and the pool have them."""
        members, block_size = self.members, self._block_size
        max_draft = self.max_draft
        if len(members) * (max_draft + 1) > budget:
            return False
        count = [0] * (max_draft + 1)
        context = [0] * (max_draft + 1)
        # ceil((c + K + 1) / size) blocks hold c tokens and the slots of a round.
        spare = max_draft + block_size
        needed = -self._held
        num_gaps = gap_context = 0
        for sequence in members:
            position = sequence.emitted
            m = sequence.drafted_at[position]
            c = sequence.context_len
            count[m] += 1
            context[m] += c
            needed += (c + spare) // block_size
            if m and sequence.accepted_at[position] == m:
                num_gaps += 1
                gap_context += c + m
        if not self.blocks.can_allocate(needed):
            return False
        self.blocks.reserve(needed)
        self._held += needed
        self.count, self.context = count, context
        self.num_gaps, self.gap_context = num_gaps, gap_context
        self.num_drafted = num_steps = 0
        for m, n in enumerate(count):
            if n:
                num_steps = m
                self.num_drafted += m * n
        self.num_steps = num_steps
        return True

    def advance(self, start_s: float, now: float) -> tuple[list[SequenceState], int, int]:
        """End the round: a + 1 tokens for everybody, and the blocks of the others go back."""
        self._passed(start_s, now)
        block_size = self._block_size
        above = block_size - 1
        done: list[SequenceState] = []
        num_accepted = num_cut = held = 0
        for sequence in self.members:
            position = sequence.emitted
            a = sequence.accepted_at[position]
            sequence.num_drafted += sequence.drafted_at[position]
            sequence.num_accepted += a
            num_accepted += a
            sequence.context_len = c = sequence.context_len + a + 1
            held += (c + above) // block_size
            position += a + 1
            if position >= sequence.output_len:
                num_cut += position - sequence.output_len
                position = sequence.output_len
                done.append(sequence)
            sequence.emitted = position
        self.blocks.reserve(held - self._held)
        self._held = held
        if done:
            self._remove(done)
            self._held -= sum(sequence.capacity_tokens for sequence in done) // block_size
        self._trim()
        return done, num_accepted, num_cut

    def contexts(self) -> list[int]:
        """Return the KV tokens of each member before its round."""
        return [sequence.context_len for sequence in self.members]

    def dissolve(self) -> None:
        """Bring every member up to date and let it go."""
        super().dissolve()
        self._held = 0
