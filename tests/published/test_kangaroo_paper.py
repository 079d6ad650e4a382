"""Figures of the Kangaroo paper (arXiv 2404.18911) that follow from its construction."""

from __future__ import annotations

import pytest

from simspec.decoding._base import ACCEPTANCE_MODELS
from simspec.decoding.kangaroo import Config
from simspec.models.counts import block_params
from tests.decoding.factories import target


def test_the_adapter_has_67_million_parameters() -> None:
    """Abstract: 67 M for Vicuna-7B, 88.7 % fewer than Medusa-1's 591 M."""
    method = Config().build(target())
    parameters = block_params(method.adapter.blocks[0]).total
    assert parameters == 4 * 4096**2 + 2 * 4096
    assert parameters == pytest.approx(67e6, rel=0.005)
    assert 1 - parameters / 591e6 == pytest.approx(0.887, abs=0.001)


def test_the_adapter_of_the_13b_model() -> None:
    """The same construction at width 5120 (Vicuna-13B, exit layer 3 of 40): 105 M."""
    method = Config(exit_layer=3).build(target(40, hidden_size=5120, num_heads=40))
    assert block_params(method.adapter.blocks[0]).total == 4 * 5120**2 + 2 * 5120


def test_published_rates_are_nearly_geometric() -> None:
    """CTAR .505 .225 .10 .045 .02 .007 (Math, by eye): 1.90 tokens; .45 a position fits it.

    A geometric law after the first token, .505 x .45^(i-1), gives the same tokens within the
    reading error of .01 per bar.
    """
    rates = [0.505, 0.225, 0.10, 0.045, 0.02, 0.007]
    listed = ACCEPTANCE_MODELS.parse({"name": "per_position", "rates": rates}).at(2)
    geometric = ACCEPTANCE_MODELS.parse({"name": "per_position", "rates": [0.505, 0.505 * 0.45]})
    tokens = listed.statistics(6, 0.0).tokens_per_round
    assert tokens == pytest.approx(1.902, abs=1e-9)
    assert geometric.at(2).statistics(6, 0.0).tokens_per_round == pytest.approx(tokens, abs=0.01)
