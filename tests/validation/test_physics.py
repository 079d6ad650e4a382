"""What arithmetic refutes, on figures of public reports."""

from __future__ import annotations

import math

import pytest

from simspec.validation import _physics as physics

H100_BANDWIDTH = 3.35e12
WEIGHTS_8B = 2 * (8_030_261_248 - 128_256 * 4096)  # bf16, without the gathered embedding


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_nothing_measured_is_zero(value: float) -> None:
    """A TTFT of 0 ms, a negative or a missing one is no measurement."""
    assert "ttft_ms" in str(physics.not_positive("ttft_ms", value))
    assert physics.not_positive("ttft_ms", 1e-9) is None


def test_a_client_that_counts_two_events_per_token_is_caught() -> None:
    """3.47 ms per token of an 8B model needs 4.3 TB/s on a card with 3.35; 7.2 ms does not."""
    said = physics.below_weight_floor(
        3.47e-3,
        weight_bytes=WEIGHTS_8B,
        bandwidth_bytes_per_s=H100_BANDWIDTH,
        device="h100_sxm",
    )
    assert said == (
        "reading 15.0 GB of weights at 3.47 ms per token takes 4.33 TB/s, "
        "and h100_sxm has 3.35 TB/s"
    )
    fine = physics.below_weight_floor(
        7.2e-3, weight_bytes=WEIGHTS_8B, bandwidth_bytes_per_s=H100_BANDWIDTH
    )
    assert fine is None


def test_a_round_may_yield_several_tokens() -> None:
    """With 4.68 tokens per pass the same 3.47 ms are possible."""
    possible = physics.below_weight_floor(
        3.47e-3,
        weight_bytes=WEIGHTS_8B,
        bandwidth_bytes_per_s=H100_BANDWIDTH,
        tokens_per_pass=4.68,
    )
    assert possible is None
    said = physics.below_weight_floor(
        0.5e-3,
        weight_bytes=WEIGHTS_8B,
        bandwidth_bytes_per_s=H100_BANDWIDTH,
        tokens_per_pass=4.68,
    )
    assert "once every 4.68 tokens" in str(said)


def test_rounding_is_no_contradiction() -> None:
    """A figure one per cent below a bound is a rounded one."""
    floor = WEIGHTS_8B / H100_BANDWIDTH
    for share, refuted in ((0.99, False), (0.97, True)):
        said = physics.below_weight_floor(
            share * floor, weight_bytes=WEIGHTS_8B, bandwidth_bytes_per_s=H100_BANDWIDTH
        )
        assert (said is not None) is refuted


def test_bandwidth_floor() -> None:
    """1 GB takes 298.5 µs at 3.35 TB/s."""
    known = {"num_bytes": 1e9, "bandwidth_bytes_per_s": H100_BANDWIDTH}
    assert physics.below_bandwidth_floor(299e-6, **known) is None
    said = physics.below_bandwidth_floor(200e-6, **known, device="h100_sxm")
    assert said == "1.00 GB in 200 µs are 5.00 TB/s, and h100_sxm has 3.35 TB/s"


def test_compute_floor() -> None:
    """1,024 prompt tokens of 8e9 parameters are 16.4 TFLOP: 16.6 ms at 989 TFLOP/s."""
    flop = 2 * 8e9 * 1024
    assert physics.below_compute_floor(17e-3, flop=flop, peak_flop_per_s=989e12) is None
    said = physics.below_compute_floor(10e-3, flop=flop, peak_flop_per_s=989e12, device="h100_sxm")
    assert said == "16.4 TFLOP in 10.0 ms are 1,638 TFLOP/s, and h100_sxm has 989"


def test_users_times_speed() -> None:
    """384 users at 44.6 tokens/s may make 1,536 (most wait), never 20,000."""
    known = {"users": 384.0, "tokens_per_s_per_user": 44.6}
    assert physics.users_times_speed(**known, tokens_per_s=1536.0) is None
    said = physics.users_times_speed(**known, tokens_per_s=20_000.0)
    assert said == (
        "384 users at 44.6 tokens/s receive 17,126 tokens/s together, and the total is given as "
        "20,000"
    )


def test_no_round_yields_more_than_it_drafts() -> None:
    """Five drafts give at most six tokens; 6.1 is within rounding, 6.3 is not."""
    assert physics.beyond_draft(6.1, max_draft=5) is None
    assert "at most 6" in str(physics.beyond_draft(6.3, max_draft=5))


def test_a_tpot_must_follow_from_its_own_latency() -> None:
    """480 ms with a TTFT of 31 and 62 tokens are 7.36 ms per token, not 3.47."""
    run = {"e2e_s": 0.480, "ttft_s": 0.031, "output_len": 62.0}
    assert physics.latency_contradiction(**run, tpot_s=7.2e-3) is None
    assert "7.36 ms" in str(physics.latency_contradiction(**run, tpot_s=3.47e-3))
    assert physics.latency_contradiction(e2e_s=1, ttft_s=1, tpot_s=9, output_len=1) is None
