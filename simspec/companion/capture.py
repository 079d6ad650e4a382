"""Run decoding methods on prompts and write down what every round did.

Configurations take turns: each decodes one group of prompts, then the next one does, so that a slow
minute of the machine hits all alike and the same prompts are compared. The first group is decoded
once before anything counts, since first calls are slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from simspec.companion.decoding._base import Loop, Round
from simspec.companion.decoding.generate import going_on
from simspec.traces.schema import Prefill, Step, TraceRecord
from simspec.traces.schema import Round as RoundRecord


@dataclass(frozen=True, slots=True)
class Run:
    """One configuration: how its loop is made, and how many texts it decodes at once."""

    make: Callable[[int], Loop]
    """Given the number of the group, which seeds its draws."""
    batch: int
    is_plain: bool
    """Autoregression: its records are steps."""


def captured(
    runs: Sequence[Run], prompts: Sequence[Sequence[int]], num_tokens: int
) -> Iterator[tuple[int, list[TraceRecord], list[list[int]]]]:
    """Yield the records and answers of one group of prompts of one run after the other.

    Parameters
    ----------
    runs : sequence of Run
        Take turns.
    prompts : sequence of sequences of int
        A run with batch B decodes them in groups of B; the last group may be smaller.
    num_tokens : int
        Tokens to decode for each.

    Yields
    ------
    int
        Number of the run.
    list of TraceRecord
        Prefills, then rounds or steps, numbered through within the run.
    list of list of int
        What was decoded for each prompt of the group.
    """
    for run in runs:
        loop = run.make(0)
        loop.start(prompts[: run.batch], min(num_tokens, 8))
        for _ in going_on(loop, [len(p) + min(num_tokens, 8) for p in prompts[: run.batch]]):
            pass
    next_step = [0] * len(runs)
    starts = [0] * len(runs)
    group = 0
    while any(start < len(prompts) for start in starts):
        for number, run in enumerate(runs):
            first = starts[number]
            # Runs with small batches take more groups before the others have their next turn.
            if first >= len(prompts) or first > min(starts):
                continue
            some = prompts[first : first + run.batch]
            loop = run.make(group)
            records, answers, steps = _group(
                run, loop, some, first=first, step=next_step[number], num_tokens=num_tokens
            )
            next_step[number] += steps
            starts[number] = first + len(some)
            yield number, records, answers
        group += 1


def _group(
    run: Run,
    loop: Loop,
    prompts: Sequence[Sequence[int]],
    *,
    first: int,
    step: int,
    num_tokens: int,
) -> tuple[list[TraceRecord], list[list[int]], int]:
    prefill_s, _ = loop.start(prompts, num_tokens)
    batch = len(prompts)
    records: list[TraceRecord] = [
        Prefill(first + row, step, 0, batch, len(prompt), prefill_s)
        for row, prompt in enumerate(prompts)
    ]
    answers = [text[len(p) :] for text, p in zip(loop.texts, prompts, strict=True)]
    taken = 1
    for numbers, done in going_on(loop, [len(prompt) + num_tokens for prompt in prompts]):
        records.extend(_records(run, done, [first + n for n in numbers], step + taken))
        for number, tokens in zip(numbers, done.tokens, strict=True):
            answers[number].extend(tokens)
        taken += 1
    return records, [answer[:num_tokens] for answer in answers], taken


def _records(run: Run, done: Round, ids: Sequence[int], step: int) -> Iterator[TraceRecord]:
    total_s = done.draft_s + done.verify_s
    for row, sequence in enumerate(ids):
        context = done.context_lens[row]
        if run.is_plain:
            yield Step(sequence, step, context, len(ids), total_s)
            continue
        yield RoundRecord(
            sequence,
            step,
            context,
            len(ids),
            done.drafted[row],
            done.accepted[row],
            None if done.confidences is None else done.confidences[row],
            None if done.agreements is None else done.agreements[row],
            done.draft_s,
            done.verify_s,
            total_s,
        )
