"""Fits of acceptance: what was put in comes out, and texts that were not seen judge it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml

from simspec.calibration.acceptance import (
    AcceptanceFit,
    accepted_of_rounds,
    fit_acceptance,
    fit_lookup,
    halves,
    predicted_tokens,
    tokens_per_round,
)
from simspec.core.errors import CalibrationError
from simspec.decoding._base import ACCEPTANCE_MODELS
from simspec.decoding._chain import chain_outcomes
from simspec.traces.accepted import AcceptedText

LOOKUP = {"name": "lookup", "hit_probability": 0.2, "rates": [0.6, 0.42, 0.315, 0.252, 0.0]}
TWO_STATE = {
    "name": "two_state",
    "rates": [0.66, 0.43, 0.27, 0.17, 0.1, 0.06, 0.04, 0.02, 0.01, 0.005],
    "hard_share": 0.3,
    "log_odds_gap": 2.0,
    "autocorrelation": 0.7,
}


def texts_of(fields: dict[str, Any], num_texts: int = 300, size: int = 600) -> list[AcceptedText]:
    """Return texts drawn from a model, as a trace would record them."""
    process = ACCEPTANCE_MODELS.parse(fields).at(None)
    texts = []
    for request in range(num_texts):
        text = process.tape(9, request, size)
        accepted = chain_outcomes(text, 40, 0.0).accepted[:size]
        matched = None if text.matched is None else text.matched[:size]
        texts.append(AcceptedText(accepted, matched))
    return texts


def test_rounds_are_walked_along_each_text() -> None:
    """Accepted lengths 3 2 1 0 | 1 0 0: three tokens at a time, then two, then one."""
    texts = [AcceptedText(np.array([3, 2, 1, 0])), AcceptedText(np.array([1, 0, 0]))]
    assert accepted_of_rounds(texts, 10).tolist() == [3, 1, 0]
    assert accepted_of_rounds(texts, 1).tolist() == [1, 1, 1, 0]
    assert tokens_per_round(texts, 2).tolist() == pytest.approx([1.75, 1.75])


def test_halves_hold_the_same_mix_of_lengths() -> None:
    """Every second text in order of length; together they are all texts."""
    texts = [AcceptedText(np.zeros(size, dtype=np.int64)) for size in (5, 1, 4, 2, 3)]
    first, second = halves(texts)
    assert [text.accepted.size for text in first] == [1, 3, 5]
    assert [text.accepted.size for text in second] == [2, 4]


def test_a_lookup_comes_back_with_its_matches() -> None:
    """With matches recorded, h and the rates come back within 4 standard errors.

    About 130,000 searches after text that was not copied: h has a standard error of 0.0011, a
    rate of at most 0.003.
    """
    fields = fit_lookup(texts_of(LOOKUP))
    assert fields["hit_probability"] == pytest.approx(0.2, abs=4 * 0.0011)
    assert fields["rates"][:4] == pytest.approx(LOOKUP["rates"][:4], abs=4 * 0.003)


def test_without_matches_the_assumption_is_said() -> None:
    """First copied tokens accepted like second ones: h r_1 is measured, r_1 = r_2 / r_1."""
    blind = [AcceptedText(text.accepted) for text in texts_of(LOOKUP)]
    fit = fit_acceptance(blind, "lookup")
    assert fit.fields["hit_probability"] * fit.fields["rates"][0] == pytest.approx(0.12, rel=0.03)
    assert fit.fields["rates"][0] == pytest.approx(0.42 / 0.6, rel=0.03)
    assert "hit probability is not in the trace" in fit.source("t")
    known = fit_acceptance(blind, "lookup", hit_probability=0.2)
    assert known.fields["rates"][:2] == pytest.approx([0.6, 0.42], rel=0.03)
    assert known.assumed == ""
    with pytest.raises(CalibrationError, match="below the 0.1"):
        fit_acceptance(blind, "lookup", hit_probability=0.01)


def test_two_states_explain_every_draft_length() -> None:
    """Fitted to one half of texts of its own law: within 2 % on the other at K = 1…10.

    Half of 300 texts of 600 tokens holds 33,000 rounds; the mean of two halves has a standard error
    near 0.5 %, and what is left when both ways are averaged is the model's own.
    """
    fit = fit_acceptance(texts_of(TWO_STATE), "two_state")
    assert fit.worst_held_out < 0.02
    assert fit.bias < 0.005
    assert fit.predicted == pytest.approx(fit.measured, rel=0.005)


LONG_COPIES = {"name": "lookup", "hit_probability": 0.15, "rates": [0.7, 0.5, 0.4, 0.33, 0.28]}


@pytest.mark.parametrize(("law", "better"), [(LONG_COPIES, "lookup"), (TWO_STATE, "two_state")])
def test_the_better_model_is_taken(law: dict[str, Any], better: str) -> None:
    """Without a wish, the model that is off least once the halves' own difference cancels."""
    assert fit_acceptance(texts_of(law, 80)).fields["name"] == better


def test_what_is_printed_is_what_was_judged() -> None:
    """The YAML reads back as a model with the same predictions and says where it comes from."""
    fit = fit_acceptance(texts_of(LOOKUP, 40), "lookup")
    fields = yaml.safe_load(fit.yaml("some trace"))
    assert fields["source"].startswith("fitted to some trace (40 texts, 24,000 positions)")
    assert predicted_tokens(fields).tolist() == fit.predicted.tolist()


def test_held_out_errors_are_of_the_other_half() -> None:
    """If the halves differ, a constant fails by the difference: alpha 0.5 against 0.25."""
    easy = [AcceptedText(np.array([1, 0] * size)) for size in (10, 30, 50)]
    hard = [AcceptedText(np.array([1, 0, 0, 0] * (size // 2))) for size in (20, 40, 60)]
    fit: AcceptanceFit = fit_acceptance([*easy, *hard], "constant")
    # Rounds of one draft: 'easy' accepts all of them, of 'hard' one in three.
    assert fit.held_out[:, 0] == pytest.approx([2 / (4 / 3) - 1, (4 / 3) / 2 - 1], rel=1e-3)


@pytest.mark.parametrize(
    ("texts", "model", "says"),
    [
        ([np.array([1, 0])] * 3, None, "3 texts are too few"),
        ([np.array([0, 0])] * 4, "two_state", "no draft of this trace was accepted"),
        ([np.array([0, 0])] * 4, "lookup", "no draft of this trace was accepted"),
        ([np.array([1, 0])] * 4, "two_states", "did you mean 'two_state'"),
    ],
)
def test_what_cannot_be_fitted_is_refused(texts: list[Any], model: str | None, says: str) -> None:
    """One sentence each."""
    with pytest.raises(CalibrationError, match=says):
        fit_acceptance([AcceptedText(text) for text in texts], model)
