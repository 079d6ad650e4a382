"""Published means and exit layers as acceptance, and the catalog that holds them."""

from __future__ import annotations

import re
from math import exp, log

import pytest
from pydantic import ValidationError

from simspec.core.errors import ConfigError, ProfileError
from simspec.core.yamlio import parse_mapping
from simspec.decoding._base import ACCEPTANCE_MODELS, METHODS, AcceptanceConfig
from simspec.decoding.acceptance._profiles import (
    default_profile,
    load_profile,
    profile_names,
    profiles_of,
)
from simspec.decoding.acceptance._shorthand import parse_acceptance
from simspec.decoding.acceptance.tokens_per_round import alpha_of_mean

PROFILES = profile_names()


def tokens(config: AcceptanceConfig, drafts: int, exit_layer: int | None = None) -> float:
    """Return the tokens of a round of ``drafts`` at threshold 0."""
    return config.at(exit_layer).statistics(drafts, 0.0).tokens_per_round


@pytest.mark.parametrize(
    ("mean", "drafts", "alpha"),
    [
        (1.5, 1, 0.5),
        (1.75, 2, 0.5),  # 1 + 1/2 + 1/4
        (1.0, 7, 0.0),
        (8.0, 7, 1.0),
        (2.6224, 4, 0.68),  # 1 + .68 + .68^2 + ... by hand: .4624, .3144, .2138
    ],
)
def test_alpha_inverts_the_truncated_geometric_sum(mean: float, drafts: int, alpha: float) -> None:
    """1 + alpha + ... + alpha^K is the published mean."""
    tolerance = 0.02 if alpha == 0.68 else 1e-9
    assert alpha_of_mean(mean, drafts) == pytest.approx(alpha, abs=tolerance)
    total = sum(alpha_of_mean(mean, drafts) ** i for i in range(drafts + 1))
    assert total == pytest.approx(mean, rel=1e-12)


def test_a_rate_is_accepted_over_drafted() -> None:
    """76 % of 8 drafts are 6.08 accepted tokens: 7.08 per round (LayerSkip, TOPv2, E = 6)."""
    config = parse_acceptance(
        {"name": "tokens_per_round", "acceptance_rate": 0.76, "num_speculative_tokens": 8}
    )
    assert tokens(config, 8) == pytest.approx(7.08)
    assert "solved from 0.76 of the drafts accepted at 8 drafts" in config.at(None).describe()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tokens_per_round": 4.5}, "4.5 is more than the 4 that 3 drafts"),
        ({}, "give either tokens_per_round or acceptance_rate"),
        ({"tokens_per_round": 2, "acceptance_rate": 0.5}, "give either"),
        ({"tokens_per_round": 0.5}, "greater than or equal to 1"),
    ],
)
def test_means_that_cannot_be_are_refused(fields: dict[str, float], message: str) -> None:
    """More tokens than K + 1, two means, or none."""
    with pytest.raises(ValidationError, match=message):
        ACCEPTANCE_MODELS.config_class("tokens_per_round").model_validate(
            {"num_speculative_tokens": 3, **fields}
        )


def layers(**more: object) -> AcceptanceConfig:
    """Return acceptance 0.5 at layer 2 and 0.8 at layer 6."""
    return parse_acceptance(
        {
            "name": "by_exit_layer",
            "layers": [
                {"exit_layer": 2, "acceptance": 0.5},
                {"exit_layer": 6, "acceptance": 0.8},
            ],
            **more,
        }
    )


def test_measured_layers_are_themselves_and_log_odds_are_linear_between() -> None:
    """Log-odds 0 at layer 2 and log 4 at layer 6: log 2 at layer 4, which is 2/3."""
    assert tokens(layers(), 1, 2) == pytest.approx(1.5)
    assert tokens(layers(), 1, 6) == pytest.approx(1.8)
    assert tokens(layers(), 1, 4) == pytest.approx(1 + 2 / 3)
    third = 1 / (1 + exp(-0.25 * log(4)))
    assert tokens(layers(), 1, 3) == pytest.approx(1 + third)


@pytest.mark.parametrize("exit_layer", [1, 7, None])
def test_layers_outside_the_measured_ones_have_no_answer(exit_layer: int | None) -> None:
    """Nothing is extrapolated."""
    with pytest.raises(ConfigError, match="known at exit layers 2, 6 and not outside them"):
        layers().at(exit_layer)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([(2, 0.5)], "at least 2"),
        ([(6, 0.8), (2, 0.5)], "from shallow to deep"),
        ([(2, 0.5), (2, 0.6)], "from shallow to deep"),
        ([(2, 0.5), (6, {"name": "lookup", "hit_probability": 1, "rates": [0.5]})], "interpolated"),
    ],
)
def test_layers_that_cannot_be_interpolated(
    entries: list[tuple[int, object]], message: str
) -> None:
    """One layer, layers out of order, or a law without log-odds by position."""
    given = [{"exit_layer": e, "acceptance": a} for e, a in entries]
    with pytest.raises(ValidationError, match=message):
        parse_acceptance({"name": "by_exit_layer", "layers": given})


def test_topv2_is_the_published_three_layers() -> None:
    """76.0, 97.6 and 98.9 % of 8 drafts at layers 6, 12 and 18 (arXiv 2404.16710)."""
    config = load_profile("layerskip-llama-1.5b-topv2").acceptance_config()
    found = [tokens(config, 8, layer) for layer in (6, 12, 18)]
    assert found == pytest.approx([7.08, 8.808, 8.912])
    assert found[0] < tokens(config, 8, 9) < found[1]


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_usable_and_says_where_it_comes_from(name: str) -> None:
    """Its options are fields of its method, its process answers, its sentence has the source."""
    profile = load_profile(name)
    known = set(METHODS.config_class(profile.method).model_fields)
    assert set(profile.options) <= known
    said = profile.process().describe()
    assert profile.source.split(":")[0][:20] in said
    assert name in said
    assert profile.derivation or profile.evidence != "derived"
    assert not (profile.derivation and profile.evidence == "vector figure")
    drafts, mean = profile.mean_tokens_as_measured()
    if mean is not None:
        assert drafts is not None
        assert 1.0 <= mean <= drafts + 1


@pytest.mark.parametrize("name", PROFILES)
def test_published_means_come_out_as_published(name: str) -> None:
    """A profile that quotes tokens per round gives them back at its own K."""
    profile = load_profile(name)
    if quoted := re.search(r"([\d.]+) tokens per round(?: at|;|$)", profile.source):
        assert profile.mean_tokens_as_measured()[1] == pytest.approx(float(quoted[1]), rel=1e-6)


def test_heads_and_tree_of_medusa_agree() -> None:
    """Accuracies by head through the published tree give Spec-Bench's tokens within 3 %.

    2.31 tokens per round were measured (leaderboard, A100); the accuracies come from elsewhere
    (medusa_acc.csv), so nothing ties the two but the tree.
    """
    mean = load_profile("medusa-vicuna-7b-heads").mean_tokens_as_measured()[1]
    assert mean == pytest.approx(2.31, rel=0.03)


def test_a_name_stands_for_its_profile() -> None:
    """``acceptance: NAME`` is the catalog's profile of that name."""
    config = parse_acceptance("layerskip-llama-2-7b-cnn-text")
    assert config == ACCEPTANCE_MODELS.parse(
        {"name": "catalog", "profile": "layerskip-llama-2-7b-cnn-text"}
    )
    assert tokens(config, 6, 8) == pytest.approx(1 + 6 * 0.6268)


@pytest.mark.parametrize("value", ["layerskip-llama-2-7b", "", "konstant"])
def test_an_unknown_name_offers_the_nearest(value: str) -> None:
    """Neither a model nor a profile: one sentence with choices."""
    from typing import Annotated

    from pydantic import BaseModel, BeforeValidator

    class Holder(BaseModel):
        acceptance: Annotated[object, BeforeValidator(parse_acceptance)]

    with pytest.raises(ConfigError, match="neither an acceptance model nor a profile"):
        parse_mapping({"acceptance": value}, Holder, "test")


def test_an_unknown_profile_is_one_sentence() -> None:
    with pytest.raises(ProfileError, match="did you mean 'kangaroo-vicuna-7b-math'"):
        load_profile("kangaroo-vicuna-7b-maths")


def test_the_default_is_of_the_target_if_there_is_one() -> None:
    """EAGLE on Llama-3.1-8B is EAGLE-3's chain, elsewhere EAGLE-2 as published for a 7B."""
    here, there = default_profile("eagle", "llama-3.1-8b"), default_profile("eagle", "qwen3-8b")
    assert here is not None
    assert there is not None
    assert (here.target, there.target) == ("llama-3.1-8b", "vicuna-7b")
    assert default_profile("autoregressive", "llama-3.1-8b") is None


@pytest.mark.parametrize("method", sorted({load_profile(name).method for name in PROFILES}))
def test_a_method_has_one_default_at_most_per_target(method: str) -> None:
    """Otherwise which one is taken would be an accident of the alphabet."""
    defaults = [p for p in profiles_of(method) if p.is_default]
    assert defaults
    targets = [p.target for p in defaults]
    assert len(set(targets)) == len(targets)
