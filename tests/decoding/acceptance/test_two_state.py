"""Easy and hard stretches: rates come out as given, clustering shows where it should."""

from __future__ import annotations

import numpy as np
import pytest

from simspec.core.errors import ConfigError
from simspec.decoding.acceptance.per_position import Config as PerPosition
from simspec.decoding.acceptance.two_state import Config, TwoStateProcess

RATES = (0.66, 0.43, 0.27, 0.17)


def process(gap: float = 1.7, autocorrelation: float = 0.7, share: float = 0.3) -> TwoStateProcess:
    config = Config(
        rates=RATES, hard_share=share, log_odds_gap=gap, autocorrelation=autocorrelation
    )
    return config.at(None)


@pytest.mark.parametrize("autocorrelation", [0.0, 0.5, 0.95])
def test_the_rates_come_out_at_their_own_draft_length(autocorrelation: float) -> None:
    """Rounds of K = 4 accept i drafts at rate i, whatever the clustering."""
    pmf = process(autocorrelation=autocorrelation).statistics(4, 0.0).accepted_pmf
    assert np.cumsum(pmf[::-1])[::-1][1:] == pytest.approx(RATES, abs=1e-9)


@pytest.mark.parametrize(("gap", "autocorrelation"), [(0.0, 0.7), (1.7, 0.0)])
def test_without_contrast_or_memory_it_is_per_position(gap: float, autocorrelation: float) -> None:
    """No gap, or no memory: at K <= 4 the rates are those of independent positions."""
    plain = PerPosition(rates=RATES).at(None)
    for max_draft in (1, 2, 3):
        assert process(gap, autocorrelation).statistics(max_draft, 0.0).tokens_per_round == (
            pytest.approx(plain.statistics(max_draft, 0.0).tokens_per_round)
        )


def test_short_drafts_start_in_easier_places() -> None:
    """With clustering a round of one draft does better than the first draft of long rounds."""
    first = process(3.0, 0.9).statistics(1, 0.0).tokens_per_round - 1.0
    assert first > RATES[0] + 0.01


def test_states_have_their_share_and_memory() -> None:
    """Over 200,000 positions: the share of easy ones and the lag-1 correlation of acceptance.

    With offsets so far apart that acceptance is the state (gap 20). Standard error of the share
    0.0011 sqrt((1 + rho) / (1 - rho)) = 0.0026; 4.5 of them, false alarm 7e-6.
    """
    rho, share = 0.7, 0.3
    states = TwoStateProcess("", (-10.0,) * 16, share, 20.0, rho)
    accept = states.tape(1, 1, 200_000).accept[0].astype(float)
    assert accept.mean() == pytest.approx(1 - share, abs=4.5 * 0.0026)
    assert np.corrcoef(accept[:-1], accept[1:])[0, 1] == pytest.approx(rho, abs=0.01)


def test_a_longer_tape_begins_with_the_shorter_one() -> None:
    """A position's state comes from the uniforms at and before it."""
    short, long = process().tape(5, 2, 100), process().tape(5, 2, 3000)
    np.testing.assert_array_equal(short.accept, long.accept[:, : short.accept.shape[1]])


def test_thresholds_need_confidences() -> None:
    """There are none, and the sentence names a model that has them."""
    with pytest.raises(ConfigError, match="use beta_curve"):
        process().statistics(4, 0.5)
