"""Engine steps that differ in their rows alone: the passes once, then one look-up per step.

A decoding method says its passes for rows whose numbers are still to come (:func:`slot_rows`); a
:class:`StepTemplate` prices them for any numbers, without the objects that a step is made of
otherwise. Every sum is taken in the order of ``CostModel.step``, so that both give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from simspec.cost.scalar import DecodePass, Numbers
from simspec.cost.work import Pass, Phase, RowKind, Rows

if TYPE_CHECKING:
    from simspec.cost.forward import CostModel

PHASES: tuple[str, ...] = get_args(Phase)
_PREFILL = PHASES.index("prefill")

Columns = tuple[float, ...]
"""Seconds of the step, of host and of collectives, FLOP, bytes, and seconds by ``PHASES``."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A number that each step gives anew: field ``field`` of the row groups ``slots``, summed."""

    field: int
    slots: tuple[int, ...]

    def __add__(self, other: Mark) -> Mark:
        assert self.field == other.field, (self, other)
        return Mark(self.field, self.slots + other.slots)


def slot_rows(slot: int, kind: RowKind = "decode") -> Rows:
    """Return rows that stand for the numbers at index ``slot``."""
    marks: list[Any] = [Mark(field, (slot,)) for field in range(5)]
    return Rows(kind, *marks)


class StepTemplate:
    """Passes over rows from :func:`slot_rows`, each taking place once.

    Parameters
    ----------
    model : CostModel
        Prices them.
    passes : sequence of Pass
        In the order they run.
    """

    def __init__(self, model: CostModel, passes: Sequence[Pass]) -> None:
        self._model = model
        engine = model.engine
        draft_steps = 0
        previous: Phase | None = None
        self._ops: list[tuple[DecodePass | None, int, int, Pass]] = []
        self._verifications: list[tuple[int, bool]] = []
        self._lookups: list[Any] = []
        self._prompts: list[Any] = []
        for work in passes:
            draft_steps += model.is_draft_step(work, previous)
            previous = work.phase
            slot, price = self._one_slot(work)
            self._ops.append((price, slot, PHASES.index(work.phase), work))
            if engine.verification_costs and model.ends_verification(work):
                self._verifications.append((slot, work.has_tree))
            if isinstance(work.host_lookups, Mark) or work.host_lookups != 0:
                self._lookups.append(work.host_lookups)
            if engine.host_time_per_prompt_s and work.embeds:
                prompts = [group for group in work.rows if group.kind == "prefill"]
                self._prompts += [group.num_sequences for group in prompts]
        self._draft_steps = float(draft_steps)

    def _one_slot(self, work: Pass) -> tuple[int, DecodePass | None]:
        """Return the slot of a pass's first group, and its price if that is all there is."""
        group = work.rows[0]
        first: Any = group.num_sequences
        assert isinstance(first, Mark), work
        slot = first.slots[0]
        fields: list[Any] = list(_fields(group))
        has_logits = isinstance(fields[4], Mark)
        whole = [Mark(field, (slot,)) for field in range(5 if has_logits else 4)]
        if len(work.rows) > 1 or group.kind != "decode" or fields[: len(whole)] != whole:
            return slot, None
        return slot, self._model.decode_pass(work, has_logits=has_logits)

    def price(self, numbers: Sequence[Numbers], num_sequences: int) -> Columns:
        """Return what a step costs.

        Parameters
        ----------
        numbers : sequence
            By slot; none of those in use is without tokens.
        num_sequences : int
            B, sequences in the step, prompts included.
        """
        device_s = network_s = flop = num_bytes = 0.0
        by_phase = [0.0] * len(PHASES)
        for price, slot, phase, work in self._ops:
            if price is not None:
                seconds, pass_network_s, pass_flop, pass_bytes = price(*numbers[slot])
                by_phase[phase] += seconds
            else:
                seconds, pass_network_s, pass_flop, pass_bytes = self._mixed(
                    work, phase, numbers, by_phase
                )
            device_s += seconds
            network_s += pass_network_s
            flop += pass_flop
            num_bytes += pass_bytes
        verifications = trees = 0.0
        for slot, has_tree in self._verifications:
            sequences, tokens, *_ = numbers[slot]
            verifications += tokens > sequences
            trees += has_tree and tokens > sequences
        lookups = sum((_number(given, numbers) for given in self._lookups), start=0.0)
        prompts = sum((_number(given, numbers) for given in self._prompts), start=0.0)
        host_s: Any = self._model.host_s(
            num_sequences, self._draft_steps, verifications, lookups, prompts, trees=trees
        )
        return (device_s + host_s, host_s, network_s, flop, num_bytes, *by_phase)

    def _mixed(
        self, work: Pass, phase: int, numbers: Sequence[Numbers], by_phase: list[float]
    ) -> Any:
        """Price a pass whose rows have to be written out, and count its phases."""
        rows = tuple(
            Rows(group.kind, *(_number(value, numbers) for value in _fields(group)))
            for group in work.rows
        )
        totals: Any = self._model.totals(work, rows)
        seconds = totals.seconds
        if len(rows) > 1 and work.phase != "prefill":
            rest: Any = self._model.totals(work, tuple(r for r in rows if r.kind != "prefill"))
            by_phase[_PREFILL] += seconds - rest.seconds
            seconds = rest.seconds
        by_phase[phase] += seconds
        return totals


def columns(price: Any) -> Columns:
    """Return the price of a step as :meth:`StepTemplate.price` does."""
    by_phase = price.by_phase
    return (
        float(price.total_s),
        float(price.host_s),
        float(price.network_s),
        float(price.flop),
        float(price.bytes),
        *[float(by_phase.get(phase, 0.0)) for phase in PHASES],
    )


def _fields(group: Rows) -> tuple[Any, Any, Any, Any, Any]:
    return (
        group.num_sequences,
        group.num_tokens,
        group.kv_tokens,
        group.attended_tokens,
        group.logit_rows,
    )


def _number(value: Any, numbers: Sequence[Numbers]) -> Any:
    if not isinstance(value, Mark):
        return value
    first, *others = value.slots
    total = numbers[first][value.field]
    for slot in others:
        total += numbers[slot][value.field]
    return total
