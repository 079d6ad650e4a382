"""Copied text: matches and how far they go, on the tape and in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from simspec.core.errors import ConfigError
from simspec.decoding._chain import chain_outcomes
from simspec.decoding.acceptance.lookup import Config, LookupProcess
from tests.decoding.factories import walk

RATES = (0.6, 0.45, 0.38, 0.33)


def lookup(hit_probability: float = 0.3, rates: tuple[float, ...] = RATES) -> LookupProcess:
    return Config(hit_probability=hit_probability, rates=rates).at(None)


def test_one_draft_by_hand() -> None:
    """h = 0.5, stretches of at most one token (r = 0.4, 0): rounds per miss or stretch.

    K = 1: 0.5 without a draft, 0.5 (r_0 + r_2 + …) = 0.5 with one, of which 0.5 x 0.4 accept it.
    """
    statistics = lookup(0.5, (0.4, 0.0)).statistics(1, 0.0)
    assert statistics.drafted_pmf.tolist() == [0.5, 0.5]
    assert statistics.accepted_pmf == pytest.approx([0.8, 0.2])
    assert statistics.all_accepted == pytest.approx(0.2)


def test_long_copies_take_several_rounds() -> None:
    """h = 1, all stretches 5 tokens long, K = 1: rounds at 5, 3 and 1 tokens left.

    Three rounds accept one token each and take two positions: the last one's second token is
    where the copy ends.
    """
    statistics = lookup(1.0, (1.0, 1.0, 1.0, 1.0, 1.0, 0.0)).statistics(1, 0.0)
    assert statistics.accepted_pmf == pytest.approx([0.0, 1.0])
    # K = 2 at 5 tokens: accepts 2, bonus, accepts 2, and the sixth position is the target's.
    assert lookup(1.0, (1.0,) * 5 + (0.0,)).statistics(2, 0.0).accepted_pmf == pytest.approx(
        [0.0, 0.0, 1.0]
    )
    # K = 4: 4 and bonus, then nothing left of the stretch, found and rejected.
    assert lookup(1.0, (1.0,) * 5 + (0.0,)).statistics(4, 0.0).accepted_pmf == pytest.approx(
        [0.5, 0.0, 0.0, 0.0, 0.5]
    )


@pytest.mark.parametrize("max_draft", [1, 3, 10])
@pytest.mark.parametrize("hit_probability", [0.05, 0.3, 1.0])
def test_the_closed_form_is_the_walk_of_the_tape(hit_probability: float, max_draft: int) -> None:
    """P(m = 0), E[a] and P(all accepted) over 60,000 rounds, within 4.5 standard errors.

    Errors over 60 blocks of 1,000 rounds; false alarm 7e-6 per comparison.
    """
    process = lookup(hit_probability, (0.7, 0.6, 0.55))
    text = process.tape(3, 1, 61_000 * (max_draft + 1))
    drafted, accepted = walk(chain_outcomes(text, max_draft, 0.0), 60_000)
    statistics = process.statistics(max_draft, 0.0)
    for seen, expected in (
        (drafted == 0, statistics.drafted_pmf[0]),
        (accepted, statistics.accepted_per_round),
        ((drafted > 0) & (accepted == drafted), statistics.all_accepted),
    ):
        blocks = seen.reshape(60, -1).mean(axis=1)
        error = blocks.std(ddof=1) / np.sqrt(60)
        assert blocks.mean() == pytest.approx(expected, abs=4.5 * error + 1e-12)


def test_acceptance_rises_along_a_stretch() -> None:
    """Given a hit, conditional acceptance rises with the position as the rates say."""
    pmf = lookup(0.2, (0.5, 0.3, 0.21, 0.168, 0.1428)).statistics(5, 0.0).accepted_pmf
    at_least = np.cumsum(pmf[::-1])[::-1][1:]
    conditional = at_least[1:] / at_least[:-1]
    assert (np.diff(conditional) > 0).all()


def test_hits_persist_inside_a_stretch() -> None:
    """A stretch is found from every position in it and from the one at which it ends."""
    text = lookup(0.1, (1.0, 1.0, 1.0, 0.0)).tape(0, 0, 5000)
    assert text.matched is not None
    copied = text.accept[0]
    begins = np.flatnonzero(copied[1:-4] & ~copied[:-5]) + 1
    assert begins.size > 100
    for i in range(3):
        assert copied[begins + i].all()
    assert not copied[begins + 3].any()
    assert text.matched[begins[:, None] + np.arange(4)].all()


def test_a_longer_tape_begins_with_the_shorter_one() -> None:
    """Row k of the uniforms makes the k-th stretch, whatever the length."""
    short, long = lookup().tape(5, 2, 200), lookup().tape(5, 2, 4000)
    assert short.matched is not None
    assert long.matched is not None
    size = short.matched.size
    np.testing.assert_array_equal(short.matched, long.matched[:size])
    np.testing.assert_array_equal(short.accept, long.accept[:, :size])


def test_nothing_is_found_or_everything() -> None:
    """h = 0 drafts nothing; r = 0 accepts nothing."""
    nothing = lookup(0.0)
    assert nothing.statistics(4, 0.0).drafted_per_round == 0.0
    assert nothing.tape(0, 0, 100).matched is not None
    assert not nothing.tape(0, 0, 100).matched.any()  # type: ignore[union-attr]
    assert lookup(1.0, (0.0,)).statistics(4, 0.0).tokens_per_round == 1.0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"rates": [1.0]}, "would never end"),
        ({"rates": [0.5, 0.5]}, "would never end"),
        ({"rates": [0.3, 0.4]}, "position 2 has rate 0.4"),
        ({"hit_probability": 1.2}, "hit_probability"),
        ({"persistence": 0.5}, "persistence"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], says: str) -> None:
    """Each mistake in one message."""
    with pytest.raises(ValidationError, match=says):
        Config.model_validate({"hit_probability": 0.3, "rates": RATES, **fields})


def test_thresholds_need_confidences() -> None:
    """There are none, and the sentence says so."""
    with pytest.raises(ConfigError, match="lookup has none"):
        lookup().statistics(4, 0.5)
