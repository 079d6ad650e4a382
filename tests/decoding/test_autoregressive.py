"""Plain decoding: one token, every layer, one head row per sequence."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from simspec.cost.work import Rows
from simspec.decoding.autoregressive import Autoregressive, Config
from tests.decoding.factories import tape, target


def test_a_step_is_one_pass_over_every_layer() -> None:
    """F(0, L, 1) + H(1) for each sequence: it adds one token to c and sees c + 1."""
    (work,) = Autoregressive(target()).round_passes([10, 25], [0, 0], [0, 0], None)
    assert (work.stack, work.first_layer, work.last_layer, work.embeds) == ("target", 0, 32, True)
    assert work.phase == "decode"
    assert work.rows == (Rows("decode", 2, 2, 37, 37, 2),)


def test_prompt_chunks_ride_along_or_run_alone() -> None:
    """With decoding sequences the chunk shares their pass; without, it is one prefill pass."""
    chunk = Rows("prefill", 1, 128, 128, 128 * 64.5, 0)
    (shared,) = Autoregressive(target()).round_passes([10], [0], [0], chunk)
    assert shared.phase == "decode"
    assert shared.rows[1] is chunk
    (alone,) = Autoregressive(target()).round_passes([], [], [], chunk)
    assert alone.phase == "prefill"
    assert alone.rows == (chunk,)


def test_the_expectation_is_the_step_itself() -> None:
    """Nothing is random, so a batch of equal contexts costs the same in expectation."""
    method = Autoregressive(target())
    (expected,) = method.expected_passes(3, 50, method.statistics(None))
    assert expected.weight == 1.0
    assert [expected.work] == method.round_passes([50, 50, 50], [0, 0, 0], [0, 0, 0], None)


def test_every_round_yields_one_token() -> None:
    """m = a = 0, one token per round."""
    method = Autoregressive(target())
    assert method.outcomes(tape(30)).drafted.tolist() == [0] * 30
    assert method.statistics(None).tokens_per_round == 1.0
    assert method.statistics(None).step_probability.size == 0
    np.testing.assert_array_equal(method.statistics(None).drafted_pmf, [1.0])


def test_it_has_no_fields() -> None:
    """Fields of other methods would have no effect and are refused."""
    with pytest.raises(ValidationError, match="num_speculative_tokens"):
        Config.model_validate({"num_speculative_tokens": 3})
