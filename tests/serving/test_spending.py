"""Joules and dollars against sums written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simspec.hardware.profile import Power, Price
from simspec.serving.measured import Roofs
from simspec.serving.metrics import summarise
from simspec.serving.simulate import simulate
from simspec.serving.spending import rejected_s
from simspec.workloads.request import Request
from tests.serving.fakes import FakeCost, poisson, setup

ROOFS = Roofs(
    peak_flop_per_s=1e9,
    bandwidth_bytes_per_s=1e9,
    num_devices=2,
    power=Power(tdp_w=500.0, idle_w=100.0),
    price=Price(usd_per_hour=3.6, as_of="2026-01-01", source="made up"),
)


def test_joules_and_dollars_of_a_run_written_out() -> None:
    """Idle watts between the steps, rent all the time, both for every device."""
    load = [Request(0, 0.0, 32, 2), Request(1, 8.0, 32, 2)]
    run = simulate(setup(load, cost=FakeCost(pass_s=1.0, token_s=0.0, kv_token_s=0.0)))
    got = summarise(run, roofs=ROOFS, warmup=0.0, cooldown=0.0)
    share = (32 + 33) / 1e9
    joules = 2 * (100.0 * 8 + 400.0 * share)
    assert got["energy_per_token_j"] == pytest.approx(joules / 2)
    assert got["energy_per_request_j"] == pytest.approx(joules / 1)
    assert got["cost_per_request_usd"] == pytest.approx(2 * 3.6 * 8 / 3600)
    assert got["cost_per_million_tokens_usd"] == pytest.approx(1e6 * 2 * 3.6 * 8 / 3600 / 2)
    assert got["rejected_cost_share"] == got["rejected_energy_share"] == 0.0


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_what_rejected_drafts_lose(alpha: float) -> None:
    """All of the drafting when nothing is accepted, nothing when everything is."""
    run = simulate(setup(poisson(8, 50.0, prompt_len=9, output_len=30), max_draft=3, alpha=alpha))
    steps = run.steps
    lost = rejected_s(steps)
    assert np.all((lost >= 0) & (lost <= steps.duration_s))
    draft_s, verify_s = steps.phase_s[:, 2], steps.phase_s[:, 3]
    rounds = steps.num_decoding > 0
    if alpha == 0.0:
        expected = (draft_s + verify_s * 0.75)[rounds]
        assert lost[rounds] == pytest.approx(expected)
    if alpha == 1.0:
        assert lost.sum() == 0.0
    got = summarise(run, roofs=ROOFS, warmup=0.0, cooldown=0.0)
    assert 0.0 <= got["rejected_energy_share"] <= 1.0
    assert (got["rejected_cost_share"] > 0) == (alpha < 1.0)


def test_without_power_and_price_nothing_is_guessed() -> None:
    """The profile of a device may have neither."""
    run = simulate(setup([Request(0, 0.0, 32, 2)]))
    got = summarise(run, roofs=Roofs(1.0, 1.0))
    names = ("energy_per_token_j", "energy_per_request_j", "cost_per_million_tokens_usd")
    assert all(math.isnan(got[name]) for name in names)


def test_ttft_is_queueing_and_prefill() -> None:
    """The two parts add up."""
    run = simulate(setup(poisson(40, 200.0, prompt_len=40, output_len=20), num_blocks=20))
    got = summarise(run, warmup=0.0)
    assert got["ttft_queue_ms"] > 0
    assert got["ttft_queue_ms"] + got["ttft_prefill_ms"] == pytest.approx(got["ttft_ms"])
