"""Bare numbers for a method that exits on confidence: a calibrated drafter, and it says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.decoding._base import ACCEPTANCE_MODELS
from simspec.decoding.acceptance._shorthand import calibrated_beta


@given(st.floats(0.0, 1.0), st.integers(1, 8), st.floats(0.0, 1.0))
def test_one_number_is_the_acceptance_of_a_first_draft(
    alpha: float, max_draft: int, threshold: float
) -> None:
    """Without an exit the geometric law of alpha comes out; with one, never more is accepted."""
    process = ACCEPTANCE_MODELS.parse(calibrated_beta([alpha])).at(2)
    free = process.statistics(max_draft, 0.0)
    expected = sum(alpha**i for i in range(1, max_draft + 1))
    assert free.accepted_per_round == pytest.approx(expected, abs=1e-5)
    gated = process.statistics(max_draft, threshold)
    assert gated.accepted_per_round <= free.accepted_per_round + 1e-5
    assert 1.0 - 1e-9 <= gated.drafted_per_round <= max_draft + 1e-9


def test_rates_are_kept() -> None:
    """Published per-position rates come out at threshold 0."""
    rates = [0.505, 0.225, 0.10, 0.045, 0.02, 0.007]
    statistics = ACCEPTANCE_MODELS.parse(calibrated_beta(rates)).at(2).statistics(6, 0.0)
    assert statistics.accepted_per_round == pytest.approx(sum(rates), abs=1e-5)


def test_the_assumption_is_in_the_sentence() -> None:
    """Whoever reads the report learns that the confidences were assumed."""
    sentence = ACCEPTANCE_MODELS.parse(calibrated_beta([0.7])).at(2).describe()
    assert "assumed to be calibrated" in sentence
