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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from simspec.cost.work import Pass, Quantity, Rows, Stack
from simspec.decoding._base import Footprint
from simspec.decoding._chain import (
    ChainRound,
    WeightedRows,
    merged,
    without_logits,
)
from simspec.decoding._chain_method import ChainDrafter

CatchUp: TypeAlias = Literal["pass", "first_step", "none"]


@dataclass(frozen=True, slots=True)
class StackDrafter(ChainDrafter):
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

    @property
    def catches_up(self) -> bool:
        """Whether the drafter has a KV of its own."""
        return self.catch_up != "none"

    def prompt_passes(self, prefill: Rows) -> list[Pass]:
        """Return the drafter's pass, where it has to fill its KV."""
        return [self._draft_pass("prefill", without_logits(prefill))] if self.reads_prompt else []

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
        if prefill is not None:
            yield from ((1.0, work) for work in self.prompt_passes(prefill))

    def _draft_pass(self, phase: Literal["draft", "catch_up", "prefill"], rows: Rows) -> Pass:
        return Pass(self.drafter.name, 0, len(self.drafter.blocks), phase, (rows,), True)
