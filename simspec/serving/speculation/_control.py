"""Puts the mode a policy chose in force: tapes, cohort, slots, prices, and the debt of coming back.

While nothing is drafted, a drafter with KV of its own reads neither prompts nor new tokens, so
that a step costs what autoregression costs; under an unverified exit the deep layers do not see
new tokens. When a mode that needs that KV comes into force, the first step also pays for all that
is missing, over every running sequence at once:

    the drafter's prompt passes over n tokens each       after a pause of drafting
    F(E, L, n)                                           after unverified tokens

A sequence keeps count of its tokens that are whole (``SequenceState.whole_tokens``); a preempted
one starts again at nothing. Decision: docs/decisions/0006-speculation-debts.md.

Left out: a limit on the tokens of a catch-up (they are no part of the step's token budget), and
the room in which states that a drafter reads are kept meanwhile, and that prompts found in the
cache may have been computed while the drafter paused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from simspec.cost.work import Pass, Rows
from simspec.decoding.tape import Outcomes, Tape
from simspec.decoding.unverified_exit import UnverifiedExit
from simspec.serving.cohort import Cohort, cohort_of
from simspec.serving.plan import EngineState, SequenceState, ServingSetup
from simspec.serving.round_price import RoundPricer
from simspec.serving.speculation._base import Load, Mode, Speculation
from simspec.serving.speculation._modes import drafter_passes
from simspec.serving.speculation._prices import EnginePrices

_MOST_SEEN = 64
"""Rounds of a step that a policy is shown at most, spread over the batch."""


class TapeOutcomes:
    """The tape of a sequence, and what each mode makes of it once it was asked for."""

    __slots__ = ("by_mode", "output_len", "raw", "tape")

    def __init__(self, tape: Tape, output_len: int) -> None:
        self.tape = tape
        self.output_len = output_len
        self.raw: dict[int, Outcomes] = {}
        self.by_mode: dict[int, tuple[list[int], list[int]]] = {}


class SpeculationControl:
    """Asks the policy of one replica and follows it.

    Parameters
    ----------
    setup : ServingSetup
        Of the replica.
    speculation : Speculation
        The policy and its modes.
    state : EngineState
        The replica's.
    nothing_drafted : sequence of int
        Zeros, as long as the longest answer.
    """

    def __init__(
        self,
        setup: ServingSetup,
        speculation: Speculation,
        state: EngineState,
        nothing_drafted: Sequence[int],
    ) -> None:
        self.modes = speculation.modes
        self.in_force = 0
        self._setup = setup
        self._state = state
        self._nothing = nothing_drafted
        prices = EnginePrices(setup.cost)
        self._policy = speculation.config.build(self.modes, prices)
        self._pricers = [RoundPricer(mode.method, setup.cost) for mode in self.modes]
        self._cohorts: dict[int, Cohort] = {}
        self._load = Load()
        self._same_text = [_longer_with_the_same_stop(self.modes, mode) for mode in self.modes]
        self._repaid_tokens = 0
        self._previous = 0

    @property
    def mode(self) -> Mode:
        """The mode in force."""
        return self.modes[self.in_force]

    @property
    def pricer(self) -> RoundPricer:
        """Prices the rounds of the mode in force."""
        return self._pricers[self.in_force]

    def wants_to_switch(self) -> bool:
        """Ask the policy; return whether another mode is now in force."""
        state, load = self._state, self._load
        load.num_running = len(state.running)
        load.num_waiting = len(state.waiting)
        load.kv_tokens = state.blocks.num_used_blocks * state.blocks.block_size_tokens
        chosen = self._policy.choose(self.in_force, load)
        if chosen == self.in_force:
            return False
        self._previous = self.in_force
        self.in_force = chosen
        return True

    def enter(self, cohort: Cohort | None) -> Cohort | None:
        """Make everybody follow the mode that has just come into force.

        Parameters
        ----------
        cohort : Cohort or None
            Of the mode before; it is left empty.

        Returns
        -------
        Cohort or None
            Of this mode, with the same members; None if there was none.
        """
        state = self._state
        members: list[SequenceState] = []
        if cohort is not None:
            members, last_token_s = cohort.members, cohort.last_token_s
            cohort.dissolve()
        for sequence in state.running:
            self._follow(sequence)
        self._settle_debts(self.modes[self._previous], self.mode)
        if cohort is None:
            return None
        if self.in_force not in self._cohorts:
            self._cohorts[self.in_force] = cohort_of(state.blocks, self.mode.max_draft)
        entered = self._cohorts[self.in_force]
        entered.last_token_s = last_token_s
        for sequence in members:
            entered.join(sequence)
        return entered

    def admit(self, sequence: SequenceState) -> None:
        """Let a sequence that was taken in follow the mode in force."""
        self._follow(sequence)

    # -- what the policy sees --------------------------------------------------------------

    def show_rounds(self, decoding: Sequence[SequenceState]) -> tuple[int, int, int]:
        """Show the policy the rounds of a step, before their tokens are handed out.

        Returns
        -------
        int, int, int
            What the records keep: most drafts in force, the mode, and the tokens whose missing KV
            the step made up for.
        """
        if self._policy.observes and self.mode.depth and decoding:
            seen = decoding[:: -(-len(decoding) // _MOST_SEEN)]
            self._policy.see_rounds(_Rounds(self, seen))
        paid, self._repaid_tokens = self._repaid_tokens, 0
        return self.mode.max_draft, self.in_force, paid

    def show_step(self, prompt_tokens: int, emitted: int) -> None:
        """Show the policy what a step did."""
        if self._policy.observes:
            self._policy.see_step(prompt_tokens, emitted)

    # -- tapes -----------------------------------------------------------------------------

    def outcomes(self, sequence: SequenceState, mode: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return m and a of the round that starts at each text position, under a mode."""
        acceptance = self._setup.acceptance
        if not self.modes[mode].depth or acceptance is None:
            return self._nothing, self._nothing
        tape = sequence.tape
        if not isinstance(tape, TapeOutcomes):
            # A round that starts at the last token still drafts K positions beyond it.
            num_tokens = sequence.output_len + self._setup.method.max_draft + 1
            drawn = acceptance.tape(self._setup.seed, sequence.request_id, num_tokens)
            tape = sequence.tape = TapeOutcomes(drawn, sequence.output_len)
        if mode not in tape.by_mode:
            raw = self._raw(tape, mode)
            drafted, accepted = (c[: tape.output_len].tolist() for c in (raw.drafted, raw.accepted))
            tape.by_mode[mode] = drafted, accepted
        return tape.by_mode[mode]

    def _raw(self, tape: TapeOutcomes, mode: int) -> Outcomes:
        longer = self._same_text[mode]
        if longer is not None:
            whole, depth = self._raw(tape, longer), self.modes[mode].depth
            return Outcomes(np.minimum(whole.drafted, depth), np.minimum(whole.accepted, depth))
        if mode not in tape.raw:
            tape.raw[mode] = self.modes[mode].method.outcomes(tape.tape)
        return tape.raw[mode]

    def _follow(self, sequence: SequenceState) -> None:
        sequence.drafted_at, sequence.accepted_at = self.outcomes(sequence, self.in_force)

    # -- debts -----------------------------------------------------------------------------

    def _settle_debts(self, left: Mode, entered: Mode) -> None:
        if left.leaves_debt == entered.leaves_debt:
            return
        if entered.leaves_debt:
            for sequence in (*self._state.running, *self._state.waiting):
                sequence.whole_tokens = sequence.context_len + sequence.swapped_tokens
            return
        # KV in host memory is paid for with the others, before it comes back.
        away = [sequence for sequence in self._state.waiting if sequence.swapped_tokens]
        sequences = [*self._state.running, *away]
        owed = [missing_tokens(sequence, left) for sequence in sequences]
        if any(owed):
            contexts = [s.context_len + s.swapped_tokens for s in sequences]
            self.pricer.owed = repayment(left, entered, contexts, owed)
            self._repaid_tokens = sum(owed)


class _Rounds:
    """The rounds of a step, as the policy may see them."""

    def __init__(self, control: SpeculationControl, sequences: Sequence[SequenceState]) -> None:
        self._control = control
        self._sequences = sequences
        self.in_force = control.in_force
        self.size = len(sequences)

    def of(self, mode: int) -> tuple[list[int], list[int]]:
        """Return m and a of each round, had it been drafted in ``mode``."""
        modes = self._control.modes
        assert modes[self.in_force].shows(modes[mode]), (modes[self.in_force], modes[mode])
        drafted, accepted = [], []
        for sequence in self._sequences:
            m, a = sequence.drafted_at, sequence.accepted_at
            if mode != self.in_force:
                m, a = self._control.outcomes(sequence, mode)
            drafted.append(m[sequence.emitted])
            accepted.append(a[sequence.emitted])
        return drafted, accepted


def missing_tokens(sequence: SequenceState, left: Mode) -> int:
    """Return how many KV tokens of a sequence are not whole after a mode that leaves debts."""
    whole, kept = sequence.whole_tokens, sequence.context_len + sequence.swapped_tokens
    if not left.is_verified:
        # Prompts pass every layer, those of preempted answers too.
        whole = max(whole, min(sequence.prefill_target, kept))
    return max(0, kept - whole)


def repayment(
    left: Mode, entered: Mode, context_lens: Sequence[int], owed: Sequence[int]
) -> list[Pass]:
    """Return the passes that make up for what a mode has left undone.

    Parameters
    ----------
    left, entered : Mode
        The one that leaves debts and the one that needs its KV.
    context_lens, owed : sequences (B,), tokens
        Of each sequence, and how many of its last tokens are missing.
    """
    if isinstance(left.method, UnverifiedExit):
        return [left.method.repayment(context_lens, owed)]
    pairs = sum(n * (c - n + (n + 1) / 2) for c, n in zip(context_lens, owed, strict=True))
    visible = sum(c for c, n in zip(context_lens, owed, strict=True) if n)
    rows = Rows("prefill", sum(1 for n in owed if n), sum(owed), visible, pairs, 0)
    return [replace(work, phase="catch_up") for work in drafter_passes(entered.method, rows)]


def _longer_with_the_same_stop(modes: Sequence[Mode], mode: Mode) -> int | None:
    """Return the first mode whose chains, cut short, are those of ``mode``; None: there is none."""
    for index, other in enumerate(modes):
        if other is mode:
            return None
        if other.threshold == mode.threshold and other.shows(mode):
            return index
    return None
