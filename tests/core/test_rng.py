"""Random streams depend on their name alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.rng import stream

key_parts = st.lists(st.one_of(st.integers(), st.text(max_size=8)), max_size=4)


def test_same_name_same_numbers() -> None:
    """A stream is a function of seed and key."""
    np.testing.assert_array_equal(stream(7, "a", 1).random(5), stream(7, "a", 1).random(5))


@given(st.integers(0, 2**63 - 1), key_parts, key_parts)
def test_different_names_different_numbers(
    seed: int, first: list[int | str], second: list[int | str]
) -> None:
    """Two keys never share a stream, also when they print alike (``1`` and ``"1"``)."""
    same = [(type(p), p) for p in first] == [(type(p), p) for p in second]
    # A text that holds the separator could be mistaken for two parts.
    if any("\x1f" in p for p in (*first, *second) if isinstance(p, str)):
        return
    equal = stream(seed, *first).integers(2**62) == stream(seed, *second).integers(2**62)
    assert equal == same


def test_a_number_is_not_its_text() -> None:
    """Request 1 and the purpose ``"1"`` do not share a stream."""
    assert stream(1, 1).integers(2**62) != stream(1, "1").integers(2**62)


def test_draws_of_one_consumer_do_not_shift_another() -> None:
    """Drawing more from one stream changes nothing in its neighbour."""
    alone = stream(1, "lengths").random(3)
    stream(1, "arrivals").random(1000)
    np.testing.assert_array_equal(stream(1, "lengths").random(3), alone)


def test_streams_of_neighbouring_requests_are_independent() -> None:
    """Correlation over 2000 neighbouring request ids is that of chance."""
    first = np.array([stream(5, "acceptance", i).random() for i in range(2000)])
    correlation = float(np.corrcoef(first[:-1], first[1:])[0, 1])
    # 4 standard errors of 1/sqrt(n): a false alarm in 16,000 seeds.
    assert abs(correlation) < 4 / np.sqrt(2000)
