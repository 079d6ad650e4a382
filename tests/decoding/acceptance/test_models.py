"""The three chain models: what their fields mean."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from pydantic import ValidationError

from simspec.core.registry import PluginConfig
from simspec.decoding._base import ACCEPTANCE_MODELS, AcceptanceConfig
from simspec.decoding.acceptance._common import conditional_rates

KANGAROO_MATH = [0.505, 0.225, 0.10, 0.045, 0.02, 0.007]
"""CTAR of Kangaroo's Math subtask, positions 1-6, arXiv 2404.18911 figure 1 (read by eye)."""


def model(**fields: object) -> AcceptanceConfig:
    """Return an acceptance configuration."""
    config = ACCEPTANCE_MODELS.parse(fields)
    assert isinstance(config, AcceptanceConfig)
    return config


def rates_of(config: AcceptanceConfig, max_draft: int) -> list[float]:
    """Return P(first i drafts accepted), i = 1..K, at threshold 0."""
    pmf = config.at(None).statistics(max_draft, 0.0).accepted_pmf
    return np.cumsum(pmf[::-1])[::-1][1:].tolist()


def test_per_position_rates_come_out_as_given() -> None:
    """P(a >= i) is the i-th rate, and tokens per round are 1 plus their sum."""
    config = model(name="per_position", rates=KANGAROO_MATH)
    assert rates_of(config, 6) == pytest.approx(KANGAROO_MATH, rel=1e-12)
    tokens = config.at(None).statistics(6, 0.0).tokens_per_round
    assert tokens == pytest.approx(1 + sum(KANGAROO_MATH))


def test_the_last_conditional_rate_continues_beyond_the_list() -> None:
    """Rates .6, .3 continue as .15, .075, …"""
    assert rates_of(model(name="per_position", rates=[0.6, 0.3]), 5) == pytest.approx(
        [0.6, 0.3, 0.15, 0.075, 0.0375]
    )


def test_a_rate_of_zero_ends_the_chain() -> None:
    """A position that is never accepted, as in Lookahead's published list, is no division by 0."""
    assert rates_of(model(name="per_position", rates=[0.49, 0.27, 0.115, 0.0]), 5) == pytest.approx(
        [0.49, 0.27, 0.115, 0.0, 0.0]
    )
    assert conditional_rates([0.5, 0.0, 0.0])[1:4] == (0.0, 0.0, 0.0)


def test_constant_is_per_position_with_powers() -> None:
    """alpha equals the list alpha, alpha^2, … in every probability."""
    constant = model(name="constant", alpha=0.7).at(None).statistics(4, 0.0)
    listed = model(name="per_position", rates=[0.7, 0.49]).at(None).statistics(4, 0.0)
    np.testing.assert_allclose(constant.accepted_pmf, listed.accepted_pmf, rtol=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.4, 0.8])
@pytest.mark.parametrize("curve", [{"slope": 0.5}, {"slope": 3.0}, {"curve": "independent"}])
def test_solved_offsets_give_the_published_rates(rho: float, curve: dict[str, object]) -> None:
    """Whatever the curve and the clustering, threshold 0 reproduces the list."""
    config = model(
        name="beta_curve",
        confidence={"a": 1.5, "b": 1.0},
        autocorrelation=rho,
        rates=KANGAROO_MATH,
        **curve,
    )
    assert rates_of(config, 6) == pytest.approx(KANGAROO_MATH, rel=1e-8)


@pytest.mark.parametrize("rates", [[0.5, 0.0], [1.0, 1.0, 0.4], [0.9]])
def test_certain_and_impossible_positions_can_be_solved(rates: list[float]) -> None:
    """Rates of 0 and 1 have infinite offsets and still come out."""
    config = model(
        name="beta_curve", confidence={"a": 2.0, "b": 1.0}, autocorrelation=0.5, rates=rates
    )
    assert rates_of(config, len(rates)) == pytest.approx(rates, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.7])
def test_alpha_is_the_share_of_text_positions(rho: float) -> None:
    """The mean of the tape's accept row is alpha, whatever the clustering.

    200 requests of 2,000 positions; 4 standard errors over requests, false alarm 6e-5.
    """
    config = model(
        name="beta_curve", confidence={"a": 4.5, "b": 1.8}, autocorrelation=rho, alpha=0.7
    )
    process = config.at(None)
    shares = np.array([process.tape(5, r, 2000).accept[0].mean() for r in range(200)])
    error = shares.std(ddof=1) / np.sqrt(shares.size)
    assert shares.mean() == pytest.approx(0.7, abs=4 * error)


def test_accepted_tokens_were_more_confident() -> None:
    """With a logistic curve, accepted positions have a higher mean confidence; else equal."""
    for curve, gap in [({"slope": 1.0}, True), ({"curve": "independent"}, False)]:
        config = model(name="beta_curve", confidence={"a": 2.0, "b": 2.0}, alpha=0.5, **curve)
        text = config.at(None).tape(1, 1, 20_000)
        accepted = text.accept[0]
        difference = text.confidence[accepted].mean() - text.confidence[~accepted].mean()
        # sd of a Beta(2, 2) is 0.22: the standard error of the difference is 0.0032.
        assert (difference > 10 * 0.0032) == gap
        assert gap or abs(difference) < 4 * 0.0032


def test_a_calibrated_drafter_accepts_at_its_confidence() -> None:
    """slope 1 and offset 0: P(accept | c) = c, so the share accepted is the mean a / (a + b)."""
    config = model(name="beta_curve", confidence={"a": 4.5, "b": 1.8}, offsets=[0.0])
    statistics = config.at(None).statistics(1, 0.0)
    assert statistics.accepted_per_round == pytest.approx(4.5 / 6.3, rel=1e-6)


@pytest.mark.parametrize(
    "law",
    [
        {"name": "constant", "alpha": 0.6},
        {"name": "per_position", "rates": [0.6, 0.36]},
        {"name": "beta_curve", "confidence": {"a": 2.0, "b": 1.0}, "alpha": 0.6},
    ],
)
def test_deeper_exits_shift_the_log_odds(law: dict[str, object]) -> None:
    """Each layer beyond the reference adds log_odds_per_layer, at the reference nothing does."""
    config = model(reference_exit_layer=4, log_odds_per_layer=0.25, **law)
    tokens = [config.at(e).statistics(5, 0.0).tokens_per_round for e in (2, 4, 8)]
    assert tokens[1] == pytest.approx(model(**law).at(4).statistics(5, 0.0).tokens_per_round)
    assert all(low < high for low, high in pairwise(tokens))
    if law["name"] != "beta_curve":
        first = config.at(8).statistics(1, 0.0).accepted_per_round
        assert first == pytest.approx(1 / (1 + np.exp(-(np.log(0.6 / 0.4) + 1.0))))


def test_deeper_exits_can_be_more_confident() -> None:
    """confidence_log_odds_per_layer moves both confidences, so deeper exits draft longer."""
    config = model(
        name="constant",
        alpha=0.7,
        confidence={"a": 2.0, "b": 2.0},
        reference_exit_layer=2,
        confidence_log_odds_per_layer=0.5,
    )
    drafted = [config.at(e).statistics(6, 0.6).drafted_per_round for e in (1, 2, 4, 8)]
    assert all(low < high for low, high in pairwise(drafted))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "constant", "alpha": 1.2}, "alpha"),
        ({"name": "constant", "alpha": float("nan")}, "alpha"),
        ({"name": "constant"}, "alpha"),
        ({"name": "per_position", "rates": []}, "rates"),
        ({"name": "per_position", "rates": [0.4, 0.5]}, "position 2 has rate 0.5, above"),
        ({"name": "per_position", "rates": [0.9] * 17}, "rates"),
        ({"name": "constant", "alpha": 0.5, "log_odds_per_layer": 0.1}, "reference_exit_layer"),
        (
            {"name": "constant", "alpha": 0.5, "off_track_confidence": {"a": 1, "b": 1}},
            "no effect without confidence",
        ),
        ({"name": "beta_curve", "confidence": {"a": 1, "b": 1}}, "exactly one of alpha, rates"),
        (
            {"name": "beta_curve", "confidence": {"a": 1, "b": 1}, "alpha": 0.5, "rates": [0.5]},
            "given: alpha, rates",
        ),
        ({"name": "beta_curve", "alpha": 0.5}, "confidence"),
        ({"name": "beta_curve", "confidence": {"a": 0, "b": 1}, "alpha": 0.5}, "confidence"),
        (
            {
                "name": "beta_curve",
                "confidence": {"a": 1, "b": 1},
                "alpha": 0.5,
                "curve": "independent",
                "slope": 1.0,
            },
            "slope has no effect",
        ),
    ],
)
def test_nonsense_is_refused_with_its_field(fields: dict[str, object], message: str) -> None:
    """Out of range, contradictory or useless fields are named in the error."""
    with pytest.raises((ValidationError, ValueError), match=message):
        ACCEPTANCE_MODELS.config_class(str(fields["name"])).model_validate(fields)


def test_the_sentence_states_every_number() -> None:
    """A report shows parameters, exit layer and source, and says when there is no source."""
    config = model(
        name="beta_curve",
        confidence={"a": 1.5, "b": 1.25},
        off_track_confidence={"a": 0.8, "b": 2.5},
        autocorrelation=0.35,
        slope=1.75,
        rates=[0.505, 0.225],
        reference_exit_layer=2,
        log_odds_per_layer=0.125,
        source="CTAR of a paper",
    )
    sentence = config.at(6).describe()
    for part in ("1.5, 1.25", "0.8, 2.5", "0.35", "1.75", "0.505, 0.225", "+0.5", "+0.125"):
        assert part in sentence
    assert sentence.endswith("source: CTAR of a paper")
    assert "\n" not in sentence
    kept = model(name="constant", alpha=0.5, reference_exit_layer=3).at(5).describe()
    assert "measured at exit layer 3, acceptance taken as the same at 5" in kept
    assert "no source given" in model(name="constant", alpha=0.5).at(None).describe()
    assert isinstance(config, PluginConfig)
