"""Unverified exit: shallow steps, what is owed, and that it says it is not lossless."""

from __future__ import annotations

import re

import numpy as np
import pytest

from simspec.core.errors import ConfigError
from simspec.core.yamlio import parse_mapping
from simspec.cost.work import Rows
from simspec.decoding._base import ACCEPTANCE_MODELS, METHODS, MethodConfig
from simspec.decoding.layerskip import Config as LayerSkip
from simspec.decoding.unverified_exit import Config, expected_disagreement
from simspec.scenarios.build import build
from simspec.scenarios.closed_form import cautions, estimate
from simspec.scenarios.schema import DeploymentConfig
from tests.decoding.factories import target


def test_a_step_is_the_shallow_layers_and_the_head() -> None:
    """F(0, E, 1) + H(1) for each sequence."""
    (work,) = Config(exit_layer=4).build(target()).round_passes([10, 25], [0, 0], [0, 0], None)
    assert (work.first_layer, work.last_layer, work.phase, work.embeds) == (0, 4, "decode", True)
    assert work.rows == (Rows("decode", 2, 2, 37, 37, 2),)


def test_a_prompt_passes_all_layers_and_tokens_only_the_shallow_ones() -> None:
    """So that decoding can become verified; logits of the prompt come from the last layer."""
    chunk = Rows("prefill", 1, 64, 64, 64 * 32.5, 1)
    shallow, deep = Config(exit_layer=4).build(target()).round_passes([10], [0], [0], chunk)
    assert [rows.logit_rows for rows in shallow.rows] == [1, 0]
    assert (deep.first_layer, deep.last_layer, deep.phase, deep.rows) == (
        4,
        32,
        "prefill",
        (chunk,),
    )


def test_every_step_yields_one_token() -> None:
    """m = a = 0, whatever the acceptance."""
    method = Config().build(target())
    assert method.statistics(None).tokens_per_round == 1.0
    (expected,) = method.expected_passes(3, 50, method.statistics(None))
    assert [expected.work] == method.round_passes([50] * 3, [0] * 3, [0] * 3, None)


def test_the_debt_is_the_deep_layers_over_the_owed_tokens() -> None:
    """n tokens from c - n to c: each sees those before it and itself; no logits."""
    work = Config(exit_layer=4).build(target()).repayment([100, 30, 50], [2, 3, 0])
    assert (work.first_layer, work.last_layer, work.phase) == (4, 32, "catch_up")
    pairs = (99 + 100) + (28 + 29 + 30)
    assert work.rows == (Rows("prefill", 2, 5, 130, pairs, 0),)


def test_exit_states_are_kept_until_the_debt_is_paid() -> None:
    """d values per token, whole on every rank; no weights."""
    for tp in (1, 4):
        extra = Config().build(target(tp=tp)).footprint()
        assert extra.extra_kv_bytes_per_token == 2 * 4096
        assert extra.extra_weights_bytes == 0
        assert extra.reserved_slots == 1


def test_disagreement_is_one_minus_the_share_of_positions() -> None:
    """TOPv2's published exits: 76.0 % at layer 6 and 97.6 % at 12 (arXiv 2404.16710).

    Read at positions: clustering, which makes rounds start where text is hard, changes nothing.
    """
    for rho in (0.0, 0.8):
        acceptance = ACCEPTANCE_MODELS.parse(
            {
                "name": "beta_curve",
                "confidence": {"a": 3.0, "b": 1.5},
                "autocorrelation": rho,
                "alpha": 0.76,
            }
        ).at(6)
        slack = 0.0017 * (1 if rho == 0 else 3) * 3
        assert expected_disagreement(acceptance) == pytest.approx(0.24, abs=slack)


def test_it_says_that_it_is_not_lossless() -> None:
    """The one method so far whose output is not the target's."""
    configs = {name: METHODS.config_class(name) for name in METHODS.names()}
    lossy = [
        name
        for name, config in configs.items()
        if issubclass(config, MethodConfig) and not config.lossless
    ]
    assert lossy == ["unverified_exit"]


def _deployment(**fields: object) -> DeploymentConfig:
    base = {
        "model": "llama-3.1-8b",
        "hardware": "h100_sxm",
        "method": {"name": "unverified_exit", "exit_layer": 16},
        "acceptance": 0.9,
    }
    return parse_mapping({**base, **fields}, DeploymentConfig, "test")


def test_reports_state_the_share_of_tokens_that_differ() -> None:
    """In the acceptance sentence of every result, and as a caution of an estimate."""
    deployment = build(_deployment())
    point = estimate(deployment, 4, 500)
    share = re.search(r"not lossless, (\d+\.\d)% of the tokens", str(point["acceptance"]))
    assert share is not None
    assert float(share[1]) == pytest.approx(10.0, abs=0.4)
    assert point["tokens_per_round"] == 1.0
    assert 1.5 < float(point["speedup"]) < 2.0  # type: ignore[arg-type]
    assert any(
        "unverified_exit is not the model's" in said for said in cautions(deployment, 4, 500)
    )


def test_its_quality_is_never_assumed() -> None:
    """Without an acceptance the share of wrong tokens is unknown."""
    with pytest.raises(ConfigError, match="unverified_exit needs an acceptance model"):
        build(_deployment(acceptance=None))


def test_paying_back_eats_what_it_saved() -> None:
    """LayerSkip spent half a step per token; the debt of many tokens is one deep prefill.

    For 256 owed tokens at context 1000 that is more than one plain step and far less than the
    256 half steps saved.
    """
    deployment = build(_deployment())
    method = Config(exit_layer=16).build(deployment.target)
    debt_s = float(np.asarray(deployment.cost.pass_seconds(method.repayment([1000], [256]))))
    step_s = float(np.asarray(deployment.cost.pass_seconds(
        LayerSkip(exit_layer=16).build(deployment.target).round_passes([1000], [0], [0], None)[0]
    )))  # fmt: skip
    assert 0.5 * step_s < debt_s < 0.1 * 256 * 0.5 * step_s


@pytest.mark.parametrize("exit_layer", [32, 40])
def test_an_exit_at_the_last_layer_is_refused(exit_layer: int) -> None:
    """It would be plain decoding."""
    with pytest.raises(ConfigError, match=rf"exit_layer: {exit_layer} .* deepest exit is 31") as e:
        Config(exit_layer=exit_layer).build(target())
    assert e.value.field == "exit_layer"
