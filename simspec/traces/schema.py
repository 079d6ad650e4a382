"""The round trace: what one run of a decoder did, round by round. Version 1.

A trace is a header, then one record per prefill, per decode round of a speculative method and
per autoregressive step, each of one sequence. It serves two purposes at once: *times* (how long
a step with this batch and context took) and *acceptance* (what was drafted, how confident the
draft was, what the target made of it).

Captured with confidence threshold 0 and the largest K, one trace answers every smaller
(threshold, K): ``agreements`` holds the target's verdict on *every* drafted position, given
the drafted tokens before it, also behind the first rejection.

Times are seconds here and milliseconds in the file (``simspec.traces.io``). They belong to the
engine step, so sequences that ran in the same batch repeat them with the same ``step_id``; a
fit counts a step once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """What was run, on what.

    Attributes
    ----------
    model, method, device, dtype : str
        Names as in a scenario where they have one there, otherwise the source's own.
    engine : str
        Program that ran the model, for example ``"vllm"``.
    tp : int
        Tensor-parallel degree.
    exit_layer : int or None
        E; None for methods without one.
    num_speculative_tokens : int or None
        K, most tokens drafted per round; None when unknown or without speculation.
    confidence_threshold : float or None
        tau; 0 means that no round stopped early; None when the method has none.
    temperature : float or None
        Sampling temperature, 0 for greedy; None when unknown.
    software : mapping of str to str
        Versions, for example ``{"torch": "2.9.0"}``.
    dataset, source, licence : str or None
        What text was decoded, where the trace comes from, on which terms.
    """

    model: str
    method: str
    device: str
    dtype: str
    engine: str
    tp: int = 1
    exit_layer: int | None = None
    num_speculative_tokens: int | None = None
    confidence_threshold: float | None = None
    temperature: float | None = None
    software: Mapping[str, str] = field(default_factory=dict)
    dataset: str | None = None
    source: str | None = None
    licence: str | None = None


@dataclass(frozen=True, slots=True)
class Prefill:
    """One prompt, or one chunk of it, of one sequence.

    Attributes
    ----------
    sequence_id : int
        Identifies the sequence within the trace.
    step_id : int
        Engine step; records of one step share its time.
    context_len : int, tokens
        KV entries of the sequence before the step.
    batch_size : int
        Sequences in the step.
    num_tokens : int, tokens
        Prompt tokens processed for this sequence.
    total_s : float or None, seconds
        The step; None when it was not timed.
    """

    sequence_id: int
    step_id: int
    context_len: int
    batch_size: int
    num_tokens: int
    total_s: float | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One speculative round of one sequence.

    Attributes
    ----------
    sequence_id, step_id, context_len, batch_size
        As in :class:`Prefill`.
    drafted : int, tokens
        m; 0 when the method had nothing to propose.
    accepted : int, tokens
        a; the round yields a + 1 tokens, the last from the target.
    confidences : tuple of float or None, (m,), 0..1
        Top-1 draft probability at each position; None when not recorded.
    agreements : tuple of bool or None, (m,)
        Whether the target accepts each position given the drafted ones before it; None when
        not recorded. The leading run of True is ``accepted`` long.
    draft_s, verify_s, total_s : float or None, seconds
        The step and its two parts; ``draft_s + verify_s <= total_s``. None when not timed.
    """

    sequence_id: int
    step_id: int
    context_len: int
    batch_size: int
    drafted: int
    accepted: int
    confidences: tuple[float, ...] | None = None
    agreements: tuple[bool, ...] | None = None
    draft_s: float | None = None
    verify_s: float | None = None
    total_s: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One autoregressive step of one sequence: one token.

    Attributes
    ----------
    sequence_id, step_id, context_len, batch_size, total_s
        As in :class:`Prefill`.
    """

    sequence_id: int
    step_id: int
    context_len: int
    batch_size: int
    total_s: float | None = None


TraceRecord: TypeAlias = Prefill | Round | Step


@dataclass(frozen=True, slots=True)
class RoundTrace:
    """A whole trace in memory, records in file order."""

    header: TraceHeader
    records: tuple[TraceRecord, ...]

    @property
    def prefills(self) -> tuple[Prefill, ...]:
        """The prefill records."""
        return tuple(r for r in self.records if isinstance(r, Prefill))

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The records of speculative rounds."""
        return tuple(r for r in self.records if isinstance(r, Round))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The records of autoregressive steps."""
        return tuple(r for r in self.records if isinstance(r, Step))


def accepted_run(agreements: tuple[bool, ...]) -> int:
    """Return a: how many drafts are accepted before the first rejection."""
    for position, agrees in enumerate(agreements):
        if not agrees:
            return position
    return len(agreements)
