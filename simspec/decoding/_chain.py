"""Rounds of the methods that draft a chain of tokens and stop on low confidence.

Bookkeeping, the same for every method. Before a round a sequence has ``c`` tokens in the KV
cache and one newest token that is not in it yet. Draft step ``j`` (1..m) reads the newest token
of the chain, so it adds one token to a context of ``c + j - 1`` and proposes draft ``j``. The
closing step adds the last draft to ``c + m``. Verification adds all ``m + 1`` tokens to ``c``.
The round yields ``a + 1`` tokens and leaves ``c + a + 1`` in the cache: the newest token is the
target's own and again not in it.

Draft step ``j`` runs for the sequences with ``m >= j``, all in one pass (lock-step), so a round
has ``max m`` draft steps. Docs: docs/theory/rounds.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from simspec.core.errors import ConfigError
from simspec.cost.scalar import Numbers
from simspec.cost.work import Pass, Quantity, Rows, Stack
from simspec.decoding._base import ACCEPTANCE_MODELS, AcceptanceProcess
from simspec.decoding._quadrature import sum_nodes
from simspec.decoding.tape import Outcomes, RoundStatistics, Tape

MAX_DRAFT = 64
"""Longest chain, and the look-ahead of a tape beyond the text."""


def chain_outcomes(tape: Tape, max_draft: int, threshold: float) -> Outcomes:
    """Return m and a of the round that starts at each text position.

    Token ``i`` is drafted, then drafting stops if its confidence is below the threshold (the
    token is kept and verified, so m >= 1) or if ``i = K``. Its confidence is the on-track one up
    to and including the first rejected token of the round, the off-track one after it. The end
    of the tape ends drafting too. Where there is nothing to draft from, m = a = 0.

    Parameters
    ----------
    tape : Tape
        Of one request, ``n`` positions.
    max_draft : int
        K, at least 1.
    threshold : float
        tau, 0..1; 0 never stops.

    Raises
    ------
    ConfigError
        A threshold above 0 and a tape without confidences.
    """
    num_positions = tape.confidence.size
    if threshold > 0.0 and num_positions and np.isnan(tape.confidence[0]):
        raise ConfigError(
            f"confidence_threshold {threshold:g} needs confidences and the acceptance model has "
            "none; add 'confidence' to constant, per_position or beta_curve, or set "
            "confidence_threshold to 0"
        )
    drafted = np.zeros(num_positions, dtype=np.int64)
    accepted = np.zeros(num_positions, dtype=np.int64)
    always = np.ones(num_positions, dtype=np.bool_)
    is_drafting = always if tape.matched is None else tape.matched
    is_on_track = np.ones(num_positions, dtype=np.bool_)
    confident = tape.confidence >= threshold
    off_track_confident = tape.off_track_confidence >= threshold
    for j in range(min(max_draft, num_positions)):
        # Entry t of these views is the round that starts at t; it drafts position t + j.
        here = slice(j, num_positions)
        is_drafting = is_drafting[: num_positions - j]
        was_on_track = is_on_track[: num_positions - j]
        drafted[: num_positions - j] += is_drafting
        is_on_track = was_on_track & tape.accept[min(j, tape.accept.shape[0] - 1), here]
        accepted[: num_positions - j] += is_drafting & is_on_track
        if threshold > 0.0:
            goes_on = np.where(was_on_track, confident[here], off_track_confident[here])
            is_drafting = is_drafting & goes_on
    return Outcomes(drafted, accepted)


def required(acceptance: AcceptanceProcess | None, method: str) -> AcceptanceProcess:
    """Return the acceptance, or refuse a speculative method that is given none."""
    if acceptance is None:
        raise ConfigError(
            f"method {method} needs an acceptance model and simspec assumes none; "
            f"choices: {', '.join(ACCEPTANCE_MODELS.names())}",
        )
    return acceptance


class WeightedRows(NamedTuple):
    """Rows of a pass and the probability that it takes place like this."""

    weight: Quantity
    rows: Rows


@dataclass(frozen=True, slots=True)
class ChainRound:
    """Who adds how many tokens in each pass of a round.

    Attributes
    ----------
    draft_steps : list
        One entry per draft step; its rows are alternatives whose weights add up to the
        probability that the step runs.
    closing : Rows
        Every sequence adds its last draft.
    verification : list
        Every sequence adds m + 1 tokens; alternatives whose weights add up to 1.
    """

    draft_steps: list[list[WeightedRows]]
    closing: Rows
    verification: list[WeightedRows]


def plain_rows(batch_size: Quantity, total_context: Quantity) -> Rows:
    """Return the rows of plain decoding: each sequence adds its newest token.

    Parameters
    ----------
    batch_size : number or array
        B, sequences.
    total_context : number or array, tokens
        Sum of their contexts before the step.
    """
    return _one_token_each(batch_size, total_context)


def plain_pass(target: Stack, decode: Rows | None, prefill: Rows | None) -> Pass:
    """Return the pass in which every layer sees each decoding sequence's newest token.

    Its phase is ``decode`` as long as any sequence decodes, else ``prefill``.
    """
    return Pass(
        stack=target.name,
        first_layer=0,
        last_layer=len(target.blocks),
        phase="prefill" if decode is None else "decode",
        rows=tuple(rows for rows in (decode, prefill) if rows is not None),
        embeds=True,
    )


def observed_round(context_lens: Sequence[int], drafted: Sequence[int]) -> ChainRound:
    """Return the rows of a round whose drafts are known.

    Parameters
    ----------
    context_lens : sequence (B,), tokens
        c of each sequence, before the round.
    drafted : sequence (B,), tokens
        m of each sequence.
    """
    num_steps = max(drafted)
    count = [0] * (num_steps + 1)
    context = [0] * (num_steps + 1)
    for c, m in zip(context_lens, drafted, strict=True):
        count[m] += 1
        context[m] += c
    closing, verification, *steps = chain_numbers(count, context, num_steps)
    return ChainRound(
        [[WeightedRows(1.0, Rows("decode", *numbers))] for numbers in steps],
        Rows("decode", *closing),
        [WeightedRows(1.0, Rows("decode", *verification))],
    )


def chain_numbers(count: Sequence[int], context: Sequence[int], num_steps: int) -> list[Numbers]:
    """Return the numbers of the rows of a round: closing, verification, then each draft step.

    Parameters
    ----------
    count, context : sequences (more than num_steps,)
        How many sequences draft m tokens, and the sum of their contexts, for each m.
    num_steps : int
        The largest m.
    """
    num_sequences, total_context = sum(count), sum(context)
    left, left_context = num_sequences - count[0], total_context - context[0]
    num_drafted = 0
    attended: float = context[0] + count[0]
    steps: list[Numbers] = []
    for j in range(1, num_steps + 1):
        visible = left_context + left * j
        steps.append((left, left, visible, visible, left))
        n = count[j]
        if n:
            c = context[j]
            num_drafted += j * n
            attended += (j + 1) * (c + n * (j + 2) / 2)
            left -= n
            left_context -= c
    num_tokens = num_drafted + num_sequences
    kv_tokens = total_context + num_tokens
    closing = (num_sequences, num_sequences, kv_tokens, kv_tokens, num_sequences)
    verification = (num_sequences, num_tokens, kv_tokens, attended, num_tokens)
    return [closing, verification, *steps]


@runtime_checkable
class ChainMethod(Protocol):
    """A method whose rounds are chains, so that the simulator need not write out each round."""

    def chain_passes(
        self, chain: ChainRound, gaps: list[WeightedRows], prefill: Rows | None
    ) -> Iterable[tuple[Quantity, Pass]]:
        """Yield the passes of a round with at least one draft step, and their weights.

        Without speculation there is none. The rows may be known, expected or still to come: the
        passes depend on the number of draft steps, on whether there are gaps and prompts, and on
        nothing else.

        Parameters
        ----------
        chain : ChainRound
            Rows of the draft steps, the closing pass and verification.
        gaps : list
            Rows of :func:`observed_catch_up` or :func:`expected_catch_up`.
        prefill : Rows or None
            Prompt chunks that ride along.
        """
        ...


def expected_round(
    batch_size: Quantity, context_len: Quantity, statistics: RoundStatistics
) -> ChainRound:
    """Return the rows of a round in expectation over independent sequences.

    The number of sequences in draft step ``j`` is Binomial(B, P(m >= j)) and the verified
    tokens are a sum of B draws of m + 1; both are integrated by :func:`sum_nodes`.

    Parameters
    ----------
    batch_size : number or array
        B.
    context_len : number or array, tokens
        Mean c; broadcasts against ``batch_size``.
    statistics : RoundStatistics
        Of one sequence.
    """
    steps = []
    for j, probability in enumerate(statistics.step_probability.tolist(), start=1):
        if probability <= 0.0:
            break
        steps.append(
            [
                WeightedRows(weight, _one_token_each(count, count * (context_len + (j - 1))))
                for count, weight in _nodes(np.array([1.0 - probability, probability]), batch_size)
            ]
        )
    new_tokens = np.concatenate(([0.0], statistics.drafted_pmf))
    values = np.arange(new_tokens.size)
    # E[sum n^2 | sum n = T] is taken as T E[n^2] / E[n]; next to c T it hardly counts.
    square_per_token = float((values**2 @ new_tokens) / (values @ new_tokens))
    verification = [
        WeightedRows(
            weight,
            Rows(
                kind="decode",
                num_sequences=batch_size,
                num_tokens=tokens,
                kv_tokens=batch_size * context_len + tokens,
                attended_tokens=tokens * (context_len + (square_per_token + 1.0) / 2.0),
                logit_rows=tokens,
            ),
        )
        for tokens, weight in _nodes(new_tokens, batch_size)
    ]
    closing_context = batch_size * (context_len + statistics.drafted_per_round)
    return ChainRound(steps, _one_token_each(batch_size, closing_context), verification)


def observed_catch_up(
    context_lens: Sequence[int], drafted: Sequence[int], accepted: Sequence[int]
) -> list[WeightedRows]:
    """Return the last drafts that a drafter with a KV of its own has not read.

    Where all m drafts were accepted (m >= 1), draft m is part of the text but no draft step read
    it: one token at ``c + m`` for each such sequence.

    Parameters
    ----------
    context_lens, drafted, accepted : sequences (B,), tokens
        c, m and a of each sequence.

    Returns
    -------
    list
        Empty, or one entry of weight 1.
    """
    gaps = [c + m for c, m, a in zip(context_lens, drafted, accepted, strict=True) if m and a == m]
    return [WeightedRows(1.0, _one_token_each(len(gaps), sum(gaps)))] if gaps else []


def expected_catch_up(
    batch_size: Quantity, context_len: Quantity, statistics: RoundStatistics
) -> list[WeightedRows]:
    """Return :func:`observed_catch_up` in expectation over independent sequences.

    The number of sequences is Binomial(B, P(all accepted)); the weights add up to the
    probability that there is one. Their contexts are taken as ``c + E[m]``.
    """
    probability = statistics.all_accepted
    if probability <= 0.0:
        return []
    context = context_len + statistics.drafted_per_round
    return [
        WeightedRows(weight, _one_token_each(count, count * context))
        for count, weight in _nodes(np.array([1.0 - probability, probability]), batch_size)
    ]


def merged(step: list[WeightedRows], extra: list[WeightedRows]) -> list[WeightedRows]:
    """Return a draft step that also reads the tokens of a catch-up.

    Both take place independently; the sequences of ``extra`` are among those of ``step``, whose
    newest token sees the extra one anyway, so only the rows grow. No head reads them.
    """
    if not extra:
        return step
    nothing_extra = 1.0 - sum(weight for weight, _ in extra)
    alternatives = [WeightedRows(weight * nothing_extra, rows) for weight, rows in step]
    for weight, rows in step:
        for share, more in extra:
            both = Rows(
                rows.kind,
                rows.num_sequences,
                rows.num_tokens + more.num_tokens,
                rows.kv_tokens,
                rows.attended_tokens + more.attended_tokens,
                rows.logit_rows,
            )
            alternatives.append(WeightedRows(weight * share, both))
    return [entry for entry in alternatives if np.any(np.asarray(entry.weight) > 0.0)]


def without_logits(rows: Rows) -> Rows:
    """Return the same rows when none of them goes through a head."""
    # By position here and below: keywords double the cost of the simulator's hottest objects.
    return Rows(
        rows.kind, rows.num_sequences, rows.num_tokens, rows.kv_tokens, rows.attended_tokens, 0
    )


def _nodes(pmf: np.ndarray, batch_size: Quantity) -> list[tuple[Quantity, Quantity]]:
    values, weights = sum_nodes(pmf, batch_size)
    if isinstance(batch_size, np.ndarray):
        return [(v, w) for v, w in zip(values, weights, strict=True) if w.any()]
    return list(zip(values.tolist(), weights.tolist(), strict=True))


def _one_token_each(num_sequences: Quantity, total_context: Quantity) -> Rows:
    """Return the rows of sequences that add one token each to ``total_context`` in all."""
    visible = total_context + num_sequences
    return Rows("decode", num_sequences, num_sequences, visible, visible, num_sequences)
