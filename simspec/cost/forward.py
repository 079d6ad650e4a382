"""What a forward pass and an engine step cost: the one place that turns work into seconds.

A pass runs the kernels of its layers once over all its rows; attention is priced per row group
(decode-like, prefill-like) with its own kernel, and adds. Device time of a pass is the sum of
its kernels under captured graphs, and at least ``launches * launch_time_s`` in eager mode, where
kernels hide behind the launching thread. A step adds the host time that nothing hides. Where
both are used, numbers (a lookup in tables) and arrays (the same formulas, vectorised) agree.

Everything is per rank. Tensor-parallel ranks work alike. With attention data parallelism rows are
those of the whole deployment: its sequences are dealt evenly to the groups, the group with
``ceil(B / dp)`` of them rules, and the experts work on the tokens of all groups. Left out:
pipeline bubbles, overlap of communication with computation, cold caches after a change of batch
shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from simspec.core.errors import ConfigError, nearest
from simspec.cost.collectives._base import device_link
from simspec.cost.groups import of_busiest, on_busiest
from simspec.cost.operators._base import RowKernel, gemm_compute_dtype
from simspec.cost.operators._pairs import PairKernel
from simspec.cost.roofline import Bound, attention_seconds, larger
from simspec.cost.scalar import DecodePass, decode_pass
from simspec.cost.segment import NOTHING, RowTable, Segment, Totals, head_table
from simspec.cost.template import StepTemplate
from simspec.cost.work import Pass, Phase, Quantity, Rows, Stack
from simspec.hardware.profile import EngineProfile, Hardware
from simspec.models.counts import check_tensor_parallel
from simspec.models.dtypes import dtype

_NUMBER = (int, float)


class WeightedWork(Protocol):
    """A pass and the expected number of times it takes place."""

    @property
    def weight(self) -> Quantity:
        """Probability or expected count."""
        ...

    @property
    def work(self) -> Pass:
        """The pass."""
        ...


@dataclass(frozen=True, slots=True)
class StepCost:
    """What one engine step costs; fields are numbers or arrays like the rows they came from."""

    total_s: Quantity
    """``device_s + host_s``."""
    device_s: Quantity
    host_s: Quantity
    by_phase: Mapping[str, Quantity]
    """Seconds of draft, verify, decode, prefill, catch_up and host; they add up to the total.

    Prompt chunks that ride in a pass of another phase are charged what they add to it.
    """
    network_s: Quantity
    """Of ``device_s``, the seconds of collectives."""
    flop: Quantity
    """Per rank."""
    bytes: Quantity
    """Device memory traffic, per rank."""


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """One kernel of a pass in a breakdown; sums over its ``count`` launches."""

    operator: str
    stack: str
    phase: Phase
    """Of the pass it belongs to."""
    count: int
    seconds: float
    flop: float
    bytes: float
    """Device memory traffic; of collectives, their messages."""
    bound: Bound


class CostModel:
    """Prices passes and steps of some stacks on one device and engine.

    Parameters
    ----------
    stacks : mapping
        By the name passes use.
    hardware : Hardware
        The device of every rank.
    engine : EngineProfile
        Host times and whether kernels replay from captured graphs.

    Raises
    ------
    ConfigError
        A stack's tensor-parallel degree does not divide its heads, or no link joins that many
        devices.
    """

    def __init__(
        self, stacks: Mapping[str, Stack], hardware: Hardware, engine: EngineProfile
    ) -> None:
        self.stacks = dict(stacks)
        self.hardware = hardware.with_kernels(engine.kernels)
        self._in_steps = self.hardware.in_steps(engine.kernels_in_steps)
        self.engine = engine
        # Captured graphs replay without the host: launching costs nothing.
        self._launch_s = 0.0 if engine.graph_capture else engine.launch_time_s
        self._segments: dict[tuple[str, int, int, bool], Segment] = {}
        self._heads: dict[str, RowTable] = {}
        self._decode_passes: dict[tuple[str, int, int, bool, bool], DecodePass | None] = {}
        for stack in self.stacks.values():
            check_tensor_parallel(
                stack.blocks, stack.tp, ep=stack.ep, attention_dp=stack.attention_dp
            )
            if stack.num_ranks > 1:
                device_link(hardware, stack.tp, attention_dp=stack.attention_dp)
        # A draft runs beside its target, on the sequences of its group.
        self._attention_dp = max((s.attention_dp for s in self.stacks.values()), default=1)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the tables, which a worker process builds again in milliseconds."""
        return CostModel, (self.stacks, self.hardware, self.engine)

    def pass_seconds(self, work: Pass) -> Quantity:
        """Return the device time of one pass in seconds."""
        return self.totals(work, work.rows).seconds

    def step(self, passes: Sequence[Pass], num_sequences: Quantity) -> StepCost:
        """Return the cost of one engine step.

        Parameters
        ----------
        passes : sequence of Pass
            In the order they run.
        num_sequences : number or array
            B, sequences in the step, prompts included.
        """
        return self._sum([(1.0, work) for work in passes], num_sequences)

    def template(self, passes: Sequence[Pass]) -> StepTemplate:
        """Return the step made of ``passes`` as a function of the numbers of their rows.

        Parameters
        ----------
        passes : sequence of Pass
            Over rows from ``simspec.cost.template.slot_rows``.
        """
        return StepTemplate(self, passes)

    def expected_step(self, weighted: Iterable[WeightedWork], num_sequences: Quantity) -> StepCost:
        """Return the expected cost of a step whose passes take place with some probability.

        Parameters
        ----------
        weighted : iterable of WeightedWork
            Passes with their probabilities; all arrays broadcast against each other.
        num_sequences : number or array
            B, sequences in the step.
        """
        return self._sum([(entry.weight, entry.work) for entry in weighted], num_sequences)

    def breakdown(self, passes: Sequence[Pass]) -> list[OperatorCost]:
        """Return every kernel of the passes; their seconds add up to the step's device time.

        In eager mode the time in which the device waits for launches is a line of its own,
        ``launch_wait``, bound by overhead. Rows must be numbers, not arrays.
        """
        return [line for work in passes for line in self._pass_breakdown(work)]

    def peak_flop_per_s(self, stack: str = "target") -> float:
        """Return the compute roof of a stack: the dense peak its layer products run at."""
        form = dtype(self._stack(stack).weight_dtype)
        return self.hardware.peak_flop_per_s[gemm_compute_dtype(self.hardware, form)]

    # -- the sum over passes ---------------------------------------------------------------

    def _sum(self, weighted: Sequence[tuple[Quantity, Pass]], num_sequences: Quantity) -> StepCost:
        engine = self.engine
        phases: dict[str, Quantity] = {
            "draft": 0.0, "verify": 0.0, "decode": 0.0, "prefill": 0.0, "catch_up": 0.0, "host": 0.0
        }  # fmt: skip
        device_s: Quantity = 0.0
        network_s: Quantity = 0.0
        flop: Quantity = 0.0
        num_bytes: Quantity = 0.0
        draft_steps: Quantity = 0.0
        verifications: Quantity = 0.0
        trees: Quantity = 0.0
        lookups: Quantity = 0.0
        prompts: Quantity = 0.0
        previous: Phase | None = None
        for weight, work in weighted:
            totals = self.totals(work, work.rows)
            seconds = weight * totals.seconds
            device_s = device_s + seconds
            network_s = network_s + weight * totals.network_s
            flop = flop + weight * totals.flop
            num_bytes = num_bytes + weight * totals.num_bytes
            phase = work.phase
            if len(work.rows) > 1 and phase != "prefill":
                rest_s = weight * self._without_prefill_s(work)
                phases["prefill"] = phases["prefill"] + (seconds - rest_s)
                seconds = rest_s
            phases[phase] = phases[phase] + seconds
            if self.is_draft_step(work, previous):
                draft_steps = draft_steps + weight
            if engine.verification_costs and self.ends_verification(work):
                verified = weight * _verifies(work)
                verifications = verifications + verified
                trees = trees + verified if work.has_tree else trees
            previous = phase
            lookups = lookups + weight * work.host_lookups
            if engine.host_time_per_prompt_s and work.embeds:
                prompts = prompts + weight * _prompts(work)
        host_s = self.host_s(
            num_sequences, draft_steps, verifications, lookups, prompts, trees=trees
        )
        phases["host"] = host_s
        return StepCost(device_s + host_s, device_s, host_s, phases, network_s, flop, num_bytes)

    def is_draft_step(self, work: Pass, previous: Phase | None) -> bool:
        """Return whether the host sets up a draft step for a pass that follows ``previous``."""
        phase = work.phase
        return (phase == "draft" or phase == "catch_up") and (work.embeds or phase != previous)  # noqa: PLR1714 (a set costs more)

    def ends_verification(self, work: Pass) -> bool:
        """Return whether the pass is the last one that checks drafts."""
        return work.phase == "verify" and work.last_layer >= len(self._stack(work.stack).blocks)

    def host_s(
        self,
        num_sequences: Quantity,
        draft_steps: Quantity,
        verifications: Quantity,
        lookups: Quantity,
        prompts: Quantity,
        *,
        trees: Quantity = 0.0,
    ) -> Quantity:
        """Return the host time of a step that nothing hides.

        Parameters
        ----------
        num_sequences, prompts : number or array
            Sequences in the step, and those of them that compute a prompt chunk.
        draft_steps, verifications, lookups : number or array
            Draft steps, rounds in which any draft was checked, texts searched.
        trees : number or array
            Of the verifications, those of trees.
        """
        engine = self.engine
        return (
            engine.host_time_per_step_s
            + engine.host_time_per_sequence_s * of_busiest(num_sequences, self._attention_dp)
            + engine.host_time_per_draft_step_s * draft_steps
            + engine.host_time_per_round_s * verifications
            + engine.host_time_per_tree_s * trees
            + engine.host_time_per_lookup_s * lookups
            + engine.host_time_per_prompt_s * prompts
        )

    def _without_prefill_s(self, work: Pass) -> Quantity:
        rows = tuple(group for group in work.rows if group.kind != "prefill")
        return self.totals(work, rows).seconds

    # -- one pass --------------------------------------------------------------------------

    def totals(self, work: Pass, rows: Sequence[Rows]) -> Totals:
        """Return what a pass over ``rows`` takes on the device and does there."""
        segment = self._segment(work)
        for group in rows:
            if not (
                type(group.num_tokens) in _NUMBER
                and type(group.kv_tokens) in _NUMBER
                and type(group.attended_tokens) in _NUMBER
                and type(group.logit_rows) in _NUMBER
                and type(group.num_sequences) in _NUMBER
            ):
                return self._array_totals(work, segment, [_as_arrays(group) for group in rows])
        return self._number_totals(work, segment, rows)

    def _number_totals(self, work: Pass, segment: Segment, rows: Sequence[Rows]) -> Totals:
        if len(rows) == 1 and rows[0].kind == "decode" and rows[0].num_tokens:
            group = rows[0]
            price = self.decode_pass(work, has_logits=bool(group.logit_rows))
            if price is not None:
                return Totals(
                    *price(
                        group.num_sequences,
                        group.num_tokens,
                        group.kv_tokens,
                        group.attended_tokens,
                        group.logit_rows,
                    )
                )
        gathered: Any = 0
        if self._attention_dp > 1:
            gathered = sum(group.num_tokens for group in rows)
            rows = [on_busiest(group, self._attention_dp) for group in rows]
        tokens: Any = 0
        logit_rows: Any = 0
        for group in rows:
            tokens += group.num_tokens
            logit_rows += group.logit_rows
        if tokens == 0:
            return NOTHING
        seconds, network_s, flop, num_bytes = segment.tokens.at(tokens)
        launches = segment.tokens.launches
        if segment.gathered.launches:
            of_experts = segment.gathered.at(gathered)
            launches += segment.gathered.launches
            seconds += of_experts.seconds
            network_s += of_experts.network_s
            flop += of_experts.flop
            num_bytes += of_experts.num_bytes
        for group in rows:
            if group.num_tokens == 0:
                continue
            launches += segment.attention_launches[group.kind]
            for kernel, count in segment.attention[group.kind]:
                kernel_flop, kernel_bytes = kernel.work(group)
                seconds += count * attention_seconds(
                    group.num_sequences, group.num_tokens, kernel_flop, kernel_bytes, kernel.rate
                )
                flop += count * kernel_flop
                num_bytes += count * kernel_bytes
        if logit_rows:
            head = self._head(work)
            of_head = head.at(logit_rows)
            launches += head.launches
            seconds += of_head.seconds
            network_s += of_head.network_s
            flop += of_head.flop
            num_bytes += of_head.num_bytes
        return Totals(larger(seconds, launches * self._launch_s), network_s, flop, num_bytes)

    def _array_totals(self, work: Pass, segment: Segment, rows: Sequence[Rows]) -> Totals:
        gathered = sum((group.num_tokens for group in rows), start=np.zeros(()))
        if self._attention_dp > 1:
            rows = [on_busiest(group, self._attention_dp) for group in rows]
        tokens = sum((group.num_tokens for group in rows), start=np.zeros(()))
        logit_rows = sum((group.logit_rows for group in rows), start=np.zeros(()))
        parts = [(segment.tokens.totals(tokens), segment.tokens.launches, tokens > 0)]
        if segment.gathered.launches:
            of_experts = segment.gathered.totals(gathered)
            parts.append((of_experts, segment.gathered.launches, gathered > 0))
        for group in rows:
            for kernel, count in segment.attention[group.kind]:
                kernel_flop, kernel_bytes = kernel.work(group)
                kernel_s = attention_seconds(
                    group.num_sequences, group.num_tokens, kernel_flop, kernel_bytes, kernel.rate
                )
                totals = Totals(count * kernel_s, 0.0, count * kernel_flop, count * kernel_bytes)
                parts.append((totals, count, group.num_tokens > 0))
        if np.any(logit_rows > 0):
            head = self._head(work)
            parts.append((head.totals(logit_rows), head.launches, logit_rows > 0))
        total = [sum(np.where(runs, part[i], 0.0) for part, _, runs in parts) for i in range(4)]
        launches = sum(np.where(runs, count, 0) for _, count, runs in parts)
        total[0] = np.maximum(total[0], launches * self._launch_s)
        return Totals(*(float(x) if np.ndim(x) == 0 else np.asarray(x) for x in total))

    def _pass_breakdown(self, work: Pass) -> list[OperatorCost]:
        segment = self._segment(work)
        gathered = float(sum(group.num_tokens for group in work.rows))
        rows: Sequence[Rows] = work.rows
        if self._attention_dp > 1:
            rows = [on_busiest(group, self._attention_dp) for group in rows]
        tokens = float(sum(group.num_tokens for group in rows))
        logit_rows = float(sum(group.logit_rows for group in rows))
        if tokens == 0:
            return []
        lines = [_line(work, kernel, count, tokens) for kernel, count in segment.tokens.kernels]
        lines += [_line(work, k, count, gathered) for k, count in segment.gathered.kernels]
        for group in rows:
            if group.num_tokens:
                lines += [
                    _line(work, k, count, group) for k, count in segment.attention[group.kind]
                ]
        if logit_rows:
            head = self._head(work)
            lines += [_line(work, kernel, count, logit_rows) for kernel, count in head.kernels]
        busy_s = sum(line.seconds for line in lines)
        launches = sum(line.count for line in lines)
        wait_s = launches * self._launch_s - busy_s
        if wait_s > 0:
            wait = ("launch_wait", work.stack, work.phase, launches, wait_s, 0.0, 0.0)
            lines.append(OperatorCost(*wait, "overhead"))
        return lines

    def decode_pass(self, work: Pass, *, has_logits: bool) -> DecodePass | None:
        """Return the price of a pass as a function of the numbers of one decode-like row group.

        None where groups of ranks share the rows: then they have to be divided first.

        Parameters
        ----------
        work : Pass
            Its stack and layers; its rows are not looked at.
        has_logits : bool
            Whether any row goes through the LM head.
        """
        key = (work.stack, work.first_layer, work.last_layer, work.embeds, has_logits)
        if key not in self._decode_passes:
            segment = self._segment(work)
            shares = self._attention_dp > 1 or segment.gathered.launches > 0
            head = self._head(work) if has_logits else None
            self._decode_passes[key] = (
                None if shares else decode_pass(segment, head, self._launch_s)
            )
        return self._decode_passes[key]

    # -- lookups ---------------------------------------------------------------------------

    def _segment(self, work: Pass) -> Segment:
        key = (work.stack, work.first_layer, work.last_layer, work.embeds)
        segment = self._segments.get(key)
        if segment is None:
            stack = self._stack(work.stack)
            first, last = work.first_layer, work.last_layer
            if not 0 <= first <= last <= len(stack.blocks):
                raise ConfigError(
                    f"stack {stack.name!r}: no layers [{first}, {last}); it has "
                    f"[0, {len(stack.blocks)})"
                )
            segment = Segment(stack, self._in_steps, first, last, embeds=work.embeds)
            self._segments[key] = segment
        return segment

    def _head(self, work: Pass) -> RowTable:
        head = self._heads.get(work.stack)
        if head is None:
            stack = self._stack(work.stack)
            if not stack.vocab_size:
                raise ConfigError(f"stack {stack.name!r}: logits asked for, but it has no LM head")
            head = self._heads[work.stack] = head_table(stack, self._in_steps)
        return head

    def _stack(self, name: str) -> Stack:
        if name not in self.stacks:
            raise ConfigError(f"unknown stack {name!r}; {nearest(name, self.stacks)}")
        return self.stacks[name]


def _verifies(work: Pass) -> Quantity:
    """Return 1 where the pass checks a draft of any sequence, else 0."""
    tokens, sequences = work.rows[0].num_tokens, work.rows[0].num_sequences
    if type(tokens) in _NUMBER and type(sequences) in _NUMBER:
        return 1.0 if tokens > sequences else 0.0
    return np.where(np.asarray(tokens) > np.asarray(sequences), 1.0, 0.0)


def _prompts(work: Pass) -> Quantity:
    """Return the sequences of a pass that compute a prompt chunk."""
    return sum((group.num_sequences for group in work.rows if group.kind == "prefill"), start=0.0)


def _as_arrays(group: Rows) -> Rows:
    return Rows(
        kind=group.kind,
        num_sequences=np.asarray(group.num_sequences, dtype=np.float64),
        num_tokens=np.asarray(group.num_tokens, dtype=np.float64),
        kv_tokens=np.asarray(group.kv_tokens, dtype=np.float64),
        attended_tokens=np.asarray(group.attended_tokens, dtype=np.float64),
        logit_rows=np.asarray(group.logit_rows, dtype=np.float64),
    )


def _line(
    work: Pass, kernel: RowKernel | PairKernel, count: int, rows: float | Rows
) -> OperatorCost:
    done: Any = kernel.work(rows)  # type: ignore[arg-type]  # rows fit the kernel they came with
    return OperatorCost(
        operator=kernel.name,
        stack=work.stack,
        phase=work.phase,
        count=count,
        seconds=float(count * kernel.seconds(rows)),  # type: ignore[arg-type]
        flop=float(count * done.flop),
        bytes=float(count * done.num_bytes),
        bound=kernel.bound(rows),  # type: ignore[arg-type]
    )
