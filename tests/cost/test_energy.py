"""Joules and dollars."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simspec.core.errors import ProfileError
from simspec.cost.energy import dollars, joules, utilisation, watts
from simspec.hardware.profile import Power, Price
from tests.cost.factory import BANDWIDTH, PEAK, hardware

POWER = Power(tdp_w=700.0, idle_w=100.0)


def test_idle_and_full_load_draw_idle_and_rated_power():
    """The line runs from idle to rated power and not beyond."""
    assert watts(POWER, 0.0) == 100.0
    assert watts(POWER, 1.0) == 700.0
    assert watts(POWER, 1.01) == 700.0
    assert watts(POWER, 0.5) == pytest.approx(400.0)


def test_energy_is_power_times_time_times_devices():
    """8 devices at half load for 10 s: 400 W * 10 s * 8."""
    assert joules(POWER, 10.0, roof_share=0.5, num_devices=8) == pytest.approx(32_000.0)


def test_rent_is_paid_for_every_device_and_hour():
    """Half an hour of two devices at 3 $/h costs 3 $."""
    price = Price(3.0, "2026-01-01", "test")
    assert dollars(price, 1800.0, num_devices=2) == pytest.approx(3.0)


def test_utilisation_is_the_share_of_each_roof():
    """Half the FLOP and a tenth of the bytes one second allows."""
    used = utilisation(
        1.0,
        flop=PEAK / 2,
        num_bytes=BANDWIDTH / 10,
        hardware=hardware(),
        compute_dtype="bf16",
    )
    assert (used.compute, used.bandwidth) == (pytest.approx(0.5), pytest.approx(0.1))
    assert used.larger == pytest.approx(0.5)


def test_no_time_is_no_utilisation_in_numbers_and_arrays():
    """An empty run reports zero, not a division by zero."""
    device = hardware()
    assert utilisation(0.0, flop=0, num_bytes=0, hardware=device, compute_dtype="bf16").larger == 0
    spans = np.array([0.0, 2.0])
    flop = np.array([0.0, PEAK])
    used = utilisation(spans, flop=flop, num_bytes=0.0, hardware=device, compute_dtype="bf16")
    np.testing.assert_allclose(used.compute, [0.0, 0.5])


def test_an_unknown_roof_is_refused():
    """A device without the peak has no utilisation of it."""
    device = replace(hardware(), peak_flop_per_s={})
    with pytest.raises(ProfileError, match="no peak rate for 'bf16'"):
        utilisation(1.0, flop=1, num_bytes=1, hardware=device, compute_dtype="bf16")
