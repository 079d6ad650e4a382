"""Rounds of a drafter that runs a stack of its own and leaves the whole target to verification.

    m x [F_draft(1) + H_draft(1)]            draft, in lock-step
    F(0, L, m + 1) + H(m + 1)                verify
    F_draft(1) of the last draft             catch up, where all m drafts were accepted

Draft models, the target's first layers with a cache of their own, the target behind a window and
the target with sublayers left out are this round with different stacks. What differs besides is
the KV of the last draft: no draft step reads it, so a drafter with a cache of its own misses it
once the whole chain was accepted. Docs: docs/theory/rounds.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from simspec.cost.work import Pass, Quantity, Rows, Stack
from simspec.decoding._base import AcceptanceProcess, Footprint, WeightedPass
from simspec.decoding._chain import (
    ChainRound,
    WeightedRows,
    chain_outcomes,
    expected_catch_up,
    expected_round,
    merged,
    observed_catch_up,
    observed_round,
    plain_pass,
    plain_rows,
    required,
    without_logits,
)
from simspec.decoding.tape import Outcomes, RoundStatistics, Tape

CatchUp: TypeAlias = Literal["pass", "first_step", "none"]


@dataclass(frozen=True, slots=True)
class StackDrafter:
    """A chain drafter bound to a target.

    Attributes
    ----------
    name : str
        The method's file name.
    target, drafter : Stack
        What verifies and what drafts, its head included.
    extra : Footprint
        The method's memory.
    max_draft : int
        K.
    threshold : float
        tau; 0 always drafts K.
    catch_up : {"pass", "first_step", "none"}
        How the drafter reads the last draft of a fully accepted round: a pass of its own after
        verification, a second row of the next round's first draft step, or not at all (its KV
        is the target's, which verification has filled). The row of a first step is charged to
        the round that leaves the gap.
    reads_prompt : bool
        Whether prompts pass the drafter as well, to fill its KV.
    """

    name: str
    target: Stack
    drafter: Stack
    extra: Footprint
    max_draft: int
    threshold: float
    catch_up: CatchUp
    reads_prompt: bool

    def stacks(self) -> Mapping[str, Stack]:
        """Return the target and the drafter."""
        return {"target": self.target, self.drafter.name: self.drafter}

    def footprint(self) -> Footprint:
        """Return the extra memory."""
        return self.extra

    def outcomes(self, tape: Tape) -> Outcomes:
        """Return m and a of the round that starts at each text position."""
        return chain_outcomes(tape, self.max_draft, self.threshold)

    def statistics(self, acceptance: AcceptanceProcess | None) -> RoundStatistics:
        """Return the closed form of m and a."""
        return required(acceptance, self.name).statistics(self.max_draft, self.threshold)

    def round_passes(
        self,
        context_lens: Sequence[int],
        drafted: Sequence[int],
        accepted: Sequence[int],
        prefill: Rows | None,
    ) -> list[Pass]:
        """Return the passes of one lock-step round; plain decoding if nothing is drafted."""
        if any(drafted):
            chain = observed_round(context_lens, drafted)
            gaps = observed_catch_up(context_lens, drafted, accepted)
            return [work for _, work in self.chain_passes(chain, gaps, prefill)]
        rows = plain_rows(len(context_lens), sum(context_lens)) if context_lens else None
        passes = [plain_pass(self.target, rows, prefill)]
        if prefill is not None and self.reads_prompt:
            passes.append(self._draft_pass("prefill", without_logits(prefill)))
        return passes

    def expected_passes(
        self, batch_size: Quantity, context_len: Quantity, statistics: RoundStatistics
    ) -> list[WeightedPass]:
        """Return the passes of one round in expectation over independent sequences."""
        if statistics.drafted_per_round == 0.0:
            rows = plain_rows(batch_size, batch_size * context_len)
            return [WeightedPass(1.0, plain_pass(self.target, rows, None))]
        chain = expected_round(batch_size, context_len, statistics)
        gaps = expected_catch_up(batch_size, context_len, statistics)
        return [WeightedPass(weight, work) for weight, work in self.chain_passes(chain, gaps, None)]

    def chain_passes(
        self, chain: ChainRound, gaps: list[WeightedRows], prefill: Rows | None
    ) -> Iterator[tuple[Quantity, Pass]]:
        """Yield the passes of a round that drafts."""
        first, *others = chain.draft_steps
        if self.catch_up == "first_step":
            first = merged(first, gaps)
        for alternatives in (first, *others):
            for weight, rows in alternatives:
                yield weight, self._draft_pass("draft", rows)
        riding = () if prefill is None else (prefill,)
        for weight, rows in chain.verification:
            seen = (rows, *riding)
            yield weight, Pass("target", 0, len(self.target.blocks), "verify", seen, True)
        if self.catch_up == "pass":
            for weight, rows in gaps:
                yield weight, self._draft_pass("catch_up", without_logits(rows))
        if prefill is not None and self.reads_prompt:
            yield 1.0, self._draft_pass("prefill", without_logits(prefill))

    def _draft_pass(self, phase: Literal["draft", "catch_up", "prefill"], rows: Rows) -> Pass:
        return Pass(self.drafter.name, 0, len(self.drafter.blocks), phase, (rows,), True)
