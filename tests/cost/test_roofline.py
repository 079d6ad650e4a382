"""The roofline of one kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import ProfileError
from simspec.cost.roofline import (
    fit_of,
    kernel_rate,
    kernel_seconds,
    larger,
    ruling_bound,
    smaller,
    smooth_max,
)
from simspec.hardware.profile import KernelFit
from tests.cost.factory import IDEAL, PEAK, hardware

amounts = st.floats(min_value=0.0, max_value=1e15)
sharpnesses = st.one_of(st.just(math.inf), st.floats(min_value=1.0, max_value=50.0))


@given(amounts, amounts, sharpnesses)
def test_smooth_maximum_stays_between_the_maximum_and_its_corner(x, y, s):
    """max <= smooth_max <= 2**(1/s) max."""
    value = smooth_max(x, y, s)
    assert max(x, y) <= value * (1 + 1e-12)
    assert value <= max(x, y) * 2 ** (1 / s) * (1 + 1e-12)


def test_smooth_maximum_is_the_p_norm_of_its_arguments():
    """With s = 2 it is the hypotenuse: 3 and 4 give 5."""
    assert smooth_max(3.0, 4.0, 2.0) == pytest.approx(5.0, rel=1e-14)
    assert smooth_max(4.0, 3.0, 2.0) == pytest.approx(5.0, rel=1e-14)


def test_smooth_maximum_of_microseconds_does_not_underflow():
    """(1e-6)**60 is zero in floating point; the result must not be."""
    assert smooth_max(1e-6, 1e-6, 60.0) == pytest.approx(1e-6 * 2 ** (1 / 60), rel=1e-12)


@given(st.lists(st.tuples(amounts, amounts), min_size=1, max_size=8), sharpnesses)
def test_arrays_equal_loops(pairs, s):
    """A vectorised kernel time is the time of each entry."""
    rate = kernel_rate(hardware(), KernelFit(0.8, 0.9, 1e-6, s), "bf16")
    flop, num_bytes = (np.array(column) for column in zip(*pairs, strict=True))
    looped = [kernel_seconds(f, b, rate) for f, b in pairs]
    np.testing.assert_allclose(kernel_seconds(flop, num_bytes, rate), looped, rtol=1e-12)
    np.testing.assert_array_equal(larger(flop, num_bytes), [larger(f, b) for f, b in pairs])
    np.testing.assert_array_equal(smaller(flop, 1.0), [smaller(f, 1.0) for f, _ in pairs])


def test_a_kernel_takes_the_longer_of_compute_and_memory_plus_its_overhead():
    """2e9 FLOP at half of 1e12 FLOP/s take 4 ms, 1e8 bytes at 80 % of 1e11 B/s take 1.25 ms."""
    rate = kernel_rate(hardware(), KernelFit(0.5, 0.8, 1e-3), "bf16")
    assert kernel_seconds(2e9, 1e8, rate) == pytest.approx(4e-3 + 1e-3)
    assert kernel_seconds(2e8, 1e8, rate) == pytest.approx(1.25e-3 + 1e-3)


@pytest.mark.parametrize(
    ("flop", "num_bytes", "bound"),
    [(1e10, 1e8, "compute"), (1e8, 1e9, "memory"), (1e3, 1e3, "overhead")],
)
def test_the_bound_is_the_largest_term(flop, num_bytes, bound):
    """What rules is named after the longest of the three times."""
    rate = kernel_rate(hardware(), KernelFit(1.0, 1.0, 1e-6), "bf16")
    assert ruling_bound(flop, num_bytes, rate) == bound


def test_rates_use_the_peak_of_their_data_type():
    """fp8 computes at its own peak."""
    assert kernel_rate(hardware(), IDEAL, "fp8").flop_per_s == 2 * PEAK


def test_a_missing_peak_is_refused_with_the_ones_there_are():
    """The message names the device, what is missing and the choices."""
    with pytest.raises(ProfileError, match=r"'ideal'.*'fp4'.*did you mean 'fp8'.*bf16, fp8"):
        kernel_rate(hardware(), IDEAL, "fp4")


def test_a_missing_fit_is_refused_with_the_ones_there_are():
    """The message names the device, the kind of kernel and the choices."""
    with pytest.raises(ProfileError, match=r"'ideal'.*decode attention.*'int8'.*choices: bf16"):
        fit_of(hardware(), "decode attention", {"bf16": IDEAL}, "int8")
