"""Unit conversions: definitions, inverses, and reading what people write."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core import units

INVERSES = [
    (units.ms, units.from_ms),
    (units.us, units.from_us),
    (units.ns, units.from_ns),
    (units.gb, units.from_gb),
    (units.gib, units.from_gib),
    (units.gb_s, units.from_gb_s),
    (units.tflops, units.from_tflops),
]


def test_gb_is_decimal_and_gib_binary() -> None:
    """80 GiB is 85.9 GB: the two are never mixed (IEC 80000-13)."""
    assert units.from_gib(1.0) == 1_073_741_824
    assert units.from_gb(1.0) == 1_000_000_000
    assert units.gb(units.from_gib(80.0)) == pytest.approx(85.899, abs=5e-4)


@given(st.floats(min_value=1e-12, max_value=1e18))
def test_each_conversion_has_its_inverse(value: float) -> None:
    """Out of SI and back is the same number."""
    for out, back in INVERSES:
        assert back(out(value)) == pytest.approx(value, rel=1e-15)


def test_arrays_convert_like_numbers() -> None:
    """A conversion is elementwise."""
    seconds = np.array([0.001, 0.25])
    np.testing.assert_allclose(units.ms(seconds), [1.0, 250.0])


@pytest.mark.parametrize(
    ("name", "stem", "symbol"),
    [
        ("bandwidth_gb_s", "bandwidth", "GB/s"),
        ("capacity_gib", "capacity", "GiB"),
        ("ttft_ms", "ttft", "ms"),
        ("max_simulated_s", "max_simulated", "s"),
        ("bf16_tflops", "bf16", "TFLOP/s"),
        ("tdp_w", "tdp", "W"),
        ("throughput_tokens_per_s", "throughput_tokens_per_s", None),
        ("exit_layer", "exit_layer", None),
        ("ms", "ms", None),
    ],
)
def test_unit_is_the_last_part_of_a_name(name: str, stem: str, symbol: str | None) -> None:
    """The longest known suffix is the unit; a rate per second is not a time."""
    found, unit = units.split_name(name)
    assert found == stem
    assert (unit.symbol if unit else None) == symbol


@pytest.mark.parametrize(
    ("text", "si"),
    [
        ("3.35 TB/s", 3.35e12),
        ("3350GB/s", 3.35e12),
        ("80 GiB", 80 * 2**30),
        ("2.5 us", 2.5e-6),
        ("2.5 µs", 2.5e-6),
        ("2.5 \u03bcs", 2.5e-6),
        ("989 TFLOPS", 989e12),
        ("989 TFLOP/s", 989e12),
        ("700 W", 700.0),
        (" 1e3 ms ", 1.0),
    ],
)
def test_written_quantity_is_read(text: str, si: float) -> None:
    """A number followed by a unit gives both, however it is spelled."""
    read = units.parse_quantity(text)
    assert read is not None
    number, unit = read
    assert unit is not None
    assert number * unit.to_si == pytest.approx(si)


@pytest.mark.parametrize("text", ["3 furlongs", "3 Gb/s", "3 Gbps"])
def test_unknown_unit_is_still_a_quantity(text: str) -> None:
    """A unit that is not ours (bits among them) is recognised as one, without a meaning."""
    assert units.parse_quantity(text) == (3.0, None)


@pytest.mark.parametrize("text", ["3.35", "TB/s", "", "fast", "1 2 GB", "h100"])
def test_other_text_is_no_quantity(text: str) -> None:
    """A bare number or a word is not a number with a unit."""
    assert units.parse_quantity(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.format_seconds(0.00712), "7.12 ms"),
        (units.format_seconds(12.34), "12.3 s"),
        (units.format_seconds(3.5e-6), "3.50 µs"),
        (units.format_seconds(0.0), "0.00 s"),
        (units.format_seconds(0.9999), "1.00 s"),
        (units.format_seconds(-0.25), "-250 ms"),
        (units.format_bytes(16.06e9), "16.1 GB"),
        (units.format_bytes(131072), "131 kB"),
        (units.format_bytes(0), "0 B"),
        (units.format_bytes(float("nan")), "nan B"),
    ],
)
def test_quantities_are_shown_with_three_digits(text: str, expected: str) -> None:
    """A person sees three significant digits and the fitting prefix."""
    assert text == expected
