"""Chain drafting: outcomes on a tape and the rows of a lock-step round."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import ConfigError
from simspec.cost.work import Rows
from simspec.decoding._chain import chain_outcomes, expected_round, observed_round
from simspec.decoding.tape import RoundStatistics, Tape
from tests.decoding.factories import tape


def outcome_step_by_step(text: Tape, start: int, max_draft: int, tau: float) -> tuple[int, int]:
    """Draft one token after the other as the method describes it."""
    drafted = accepted = 0
    on_track = True
    for i in range(max_draft):
        position = start + i
        if position == text.confidence.size:
            break
        drafted += 1
        source = text.confidence if on_track else text.off_track_confidence
        on_track = on_track and bool(text.accept[min(i, text.accept.shape[0] - 1), position])
        accepted += on_track
        if source[position] < tau:
            break
    return drafted, accepted


@given(
    seed=st.integers(0, 10_000),
    max_draft=st.integers(1, 20),
    tau=st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0]),
    depth=st.sampled_from([1, 4, 16]),
    num_positions=st.integers(1, 60),
)
def test_outcomes_follow_the_drafting_loop(
    seed: int, max_draft: int, tau: float, depth: int, num_positions: int
) -> None:
    """Every start position gives what drafting token by token from there gives."""
    text = tape(num_positions, seed=seed, depth=depth)
    outcomes = chain_outcomes(text, max_draft, tau)
    for start in range(num_positions):
        assert outcome_step_by_step(text, start, max_draft, tau) == (
            outcomes.drafted[start],
            outcomes.accepted[start],
        )


def test_the_token_below_the_threshold_is_kept_and_can_be_accepted() -> None:
    """The threshold stops further drafting; the token that fell below it is verified."""
    unsure = Tape(np.full(9, 0.1), np.full(9, 0.1), np.ones((1, 9), dtype=np.bool_))
    outcomes = chain_outcomes(unsure, 4, 0.5)
    assert outcomes.drafted.tolist() == [1] * 9
    assert outcomes.accepted.tolist() == [1] * 9


def test_drafting_goes_on_after_a_wrong_token_at_its_own_confidence() -> None:
    """The first wrong token still has an on-track confidence; the next ones are off track."""
    on_track = np.array([0.9, 0.9, 0.1, 0.9, 0.9, 0.9, 0.9, 0.9])
    off_track = np.array([0.1, 0.1, 0.9, 0.9, 0.1, 0.9, 0.9, 0.9])
    accept = np.array([[True, False] + [True] * 6])
    outcomes = chain_outcomes(Tape(on_track, off_track, accept), 6, 0.5)
    # Positions 0 (accepted), 1 (wrong), 2 and 3 (off track, sure), 4 (off track, unsure).
    assert (outcomes.drafted[0], outcomes.accepted[0]) == (5, 1)


def test_a_larger_threshold_never_drafts_or_accepts_more() -> None:
    """m and a fall with tau and rise with K, at every start position."""
    text = tape(300, seed=3)
    for low, high in [(0.0, 0.2), (0.2, 0.5), (0.5, 0.9), (0.9, 1.0)]:
        loose, strict = chain_outcomes(text, 6, low), chain_outcomes(text, 6, high)
        assert (loose.drafted >= strict.drafted).all()
        assert (loose.accepted >= strict.accepted).all()
    for short, long in [(1, 2), (2, 5), (5, 16)]:
        few, many = chain_outcomes(text, short, 0.3), chain_outcomes(text, long, 0.3)
        assert (many.drafted >= few.drafted).all()
        assert (many.accepted >= few.accepted).all()


def test_a_threshold_without_confidences_is_refused() -> None:
    """Without confidences a threshold would silently do nothing, so it is an error."""
    with pytest.raises(ConfigError, match=r"0\.5 needs confidences.*add 'confidence'"):
        chain_outcomes(tape(confidences=False), 3, 0.5)
    assert chain_outcomes(tape(confidences=False), 3, 0.0).drafted.max() == 3


def _sum_over_sequences(parts: list[tuple[int, int]]) -> tuple[int, int, int, float]:
    """Return sequences, tokens, KV tokens and attended pairs of (context, new tokens)."""
    return (
        len(parts),
        sum(n for _, n in parts),
        sum(c + n for c, n in parts),
        sum(n * (c + (n + 1) / 2) for c, n in parts),
    )


def _totals(rows: Rows) -> tuple[object, ...]:
    return rows.num_sequences, rows.num_tokens, rows.kv_tokens, rows.attended_tokens


@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 8)), min_size=1, max_size=40).filter(
        lambda batch: any(m for _, m in batch)
    )
)
def test_rows_of_a_round_are_sums_over_its_sequences(batch: list[tuple[int, int]]) -> None:
    """Step j adds one token at c + j - 1 where m >= j; closing at c + m; verify m + 1 at c."""
    chain = observed_round([c for c, _ in batch], [m for _, m in batch])
    assert len(chain.draft_steps) == max(m for _, m in batch)
    for j, alternatives in enumerate(chain.draft_steps, start=1):
        (step,) = alternatives
        assert step.weight == 1.0
        drafting = [(c + j - 1, 1) for c, m in batch if m >= j]
        assert _totals(step.rows) == _sum_over_sequences(drafting)
    assert _totals(chain.closing) == _sum_over_sequences([(c + m, 1) for c, m in batch])
    (verify,) = chain.verification
    assert _totals(verify.rows) == _sum_over_sequences([(c, m + 1) for c, m in batch])
    assert verify.rows.logit_rows == verify.rows.num_tokens


PMF = RoundStatistics(
    drafted_pmf=np.array([0.0, 0.3, 0.2, 0.1, 0.4]), accepted_pmf=np.array([0.4, 0.3, 0.2, 0.1, 0])
)


@pytest.mark.parametrize("batch_size", [1, 2, 16, 200])
def test_the_expected_round_has_the_mean_work(batch_size: int) -> None:
    """Means that the cost is linear in come out exactly: B s_j, B (m + 1), contexts, pairs."""
    context = 700.0
    chain = expected_round(batch_size, context, PMF)
    for j, (alternatives, reach) in enumerate(
        zip(chain.draft_steps, PMF.step_probability, strict=True), start=1
    ):
        tokens = sum(w * rows.num_tokens for w, rows in alternatives)
        pairs = sum(w * rows.attended_tokens for w, rows in alternatives)
        runs = sum(w for w, _ in alternatives)
        assert tokens == pytest.approx(batch_size * reach, rel=1e-9)
        assert pairs == pytest.approx(batch_size * reach * (context + j), rel=1e-9)
        assert runs == pytest.approx(1 - (1 - reach) ** batch_size, rel=1e-9)
    m = np.arange(5)
    tokens = sum(w * rows.num_tokens for w, rows in chain.verification)
    kv_tokens = sum(w * rows.kv_tokens for w, rows in chain.verification)
    pairs = sum(w * rows.attended_tokens for w, rows in chain.verification)
    assert sum(w for w, _ in chain.verification) == pytest.approx(1.0, rel=1e-9)
    assert tokens == pytest.approx(batch_size * ((m + 1) @ PMF.drafted_pmf), rel=1e-9)
    assert kv_tokens == pytest.approx(batch_size * ((context + m + 1) @ PMF.drafted_pmf), rel=1e-9)
    expected_pairs = ((m + 1) * (context + (m + 2) / 2)) @ PMF.drafted_pmf
    assert pairs == pytest.approx(batch_size * expected_pairs, rel=1e-9)


def test_arrays_of_batches_give_what_numbers_give() -> None:
    """A grid of batches and contexts equals a loop over its points."""
    batches, contexts = np.array([[1.0], [7.0], [64.0]]), np.array([[100.0, 4000.0]])
    grid = expected_round(batches, contexts, PMF)
    for i, batch_size in enumerate(batches[:, 0].tolist()):
        for k, context in enumerate(contexts[0].tolist()):
            point = expected_round(batch_size, context, PMF)
            for many, one in [
                *zip(grid.draft_steps, point.draft_steps, strict=True),
                (grid.verification, point.verification),
            ]:
                total = np.zeros((3, 2))
                for weight, rows in many:
                    total = total + np.broadcast_to(weight * rows.kv_tokens**0.5, (3, 2))
                assert total[i, k] == pytest.approx(sum(w * r.kv_tokens**0.5 for w, r in one))
