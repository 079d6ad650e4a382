"""Prompt lookup: rounds with and without a match, and what searching costs."""

from __future__ import annotations

import numpy as np
import pytest

from simspec.cost.forward import CostModel
from simspec.cost.work import Rows
from simspec.decoding._base import ACCEPTANCE_MODELS, METHODS
from simspec.decoding.prompt_lookup import Config, PromptLookup
from simspec.decoding.tape import Tape
from tests.cost.factory import engine, hardware
from tests.decoding.factories import target


def lookup(num_drafts: int = 4) -> PromptLookup:
    return Config(num_speculative_tokens=num_drafts).build(target())


def test_a_match_drafts_k_and_no_match_drafts_nothing() -> None:
    """m is K or 0 by ``Tape.matched``; acceptance counts only where something was drafted."""
    matched = np.array([True, False, True, True, False, True])
    unknown = np.full(6, np.nan)
    accept = np.array([[True, True, False, True, True, True]])
    outcomes = lookup(2).outcomes(Tape(unknown, unknown, accept, matched=matched))
    # The end of the tape leaves one token to the last round.
    assert outcomes.drafted.tolist() == [2, 0, 2, 2, 0, 1]
    assert outcomes.accepted.tolist() == [2, 0, 0, 2, 0, 1]


def test_a_sequence_without_a_match_adds_one_row() -> None:
    """Of three sequences one drafts 4: 5 + 1 + 1 tokens in one pass, and three searches."""
    (work,) = lookup().round_passes([100, 200, 300], [4, 0, 0], [1, 0, 0], None)
    assert (work.phase, work.embeds, work.host_lookups) == ("verify", True, 3)
    pairs = 5 * (100 + 3) + 201 + 301
    assert work.rows == (Rows("decode", 3, 7, 607, pairs, 7),)


def test_searching_in_vain_costs_the_host() -> None:
    """No match anywhere: plain decoding plus one search a sequence."""
    method = lookup()
    cost = CostModel(method.stacks(), hardware(), engine(per_lookup_s=1e-4))
    (work,) = method.round_passes([10, 20], [0, 0], [0, 0], None)
    assert work.phase == "decode"
    assert cost.step([work], 2).host_s == pytest.approx(2e-4)


def test_a_prompt_is_not_searched() -> None:
    """A chunk alone is a plain prefill; riding along it adds no search."""
    chunk = Rows("prefill", 1, 512, 512, 512 * 256.5, 1)
    (alone,) = lookup().round_passes([], [], [], chunk)
    assert (alone.phase, alone.host_lookups) == ("prefill", 0)
    (both,) = lookup().round_passes([100], [4], [4], chunk)
    assert both.rows[1] == chunk
    assert both.host_lookups == 1


def test_an_acceptance_without_matches_says_what_that_means() -> None:
    """A bare number drafts in every round; reports say so, and do not where there are matches."""
    number = ACCEPTANCE_MODELS.parse({"name": "constant", "alpha": 0.5}).at(None)
    copies = {"name": "lookup", "hit_probability": 0.3, "rates": [0.5]}
    said = Config().acceptance_sentence(number)
    assert said.endswith("; every search is taken to find something to copy")
    process = ACCEPTANCE_MODELS.parse(copies).at(None)
    assert Config().acceptance_sentence(process) == process.describe()


def test_it_needs_no_memory() -> None:
    """No weights, no KV, K + 1 slots."""
    footprint = lookup().footprint()
    assert (footprint.extra_weights_bytes, footprint.extra_kv_bytes_per_token) == (0, 0)
    assert footprint.reserved_slots == 5


def test_a_bare_name_copies_ten_tokens() -> None:
    """num_pred_tokens of the published code."""
    assert METHODS.parse("prompt_lookup").num_speculative_tokens == 10
