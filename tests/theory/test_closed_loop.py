"""Closed loops: the closed form against the simulation, and against what it must reduce to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simspec.core.errors import ConfigError
from simspec.scenarios.build import Deployment, build
from simspec.scenarios.closed_form import estimate_round, prefill_time_s
from simspec.scenarios.closed_loop import ClosedLoop, closed_loop
from simspec.scenarios.schema import DeploymentConfig
from simspec.serving.plan import ServingSetup
from simspec.serving.simulate import simulate
from simspec.workloads.request import Request

BASE = {
    "model": "llama-3.1-8b",
    "hardware": "h100_sxm",
    "engine": "vllm",
    "method": "autoregressive",
}
ROUNDS = 10


def deployment(**given: Any) -> Deployment:
    return build(DeploymentConfig.model_validate({**BASE, **given}))


def simulated(
    of: Deployment, users: int, prompt: int, output: int, spread: float
) -> tuple[float, float, int]:
    """Return mean TPOT and TTFT over a run of ten requests per user, and its preemptions."""
    rng = np.random.default_rng(7)
    count = ROUNDS * users
    if spread:
        prompts = rng.integers(round(prompt * (1 - spread)), prompt + 1, count).tolist()
        outputs = rng.integers(round(output * (1 - spread)), output + 1, count).tolist()
    else:
        prompts, outputs = [prompt] * count, [output] * count
    requests = [
        Request(i, 0.0, p, o) for i, (p, o) in enumerate(zip(prompts, outputs, strict=True))
    ]
    run = simulate(
        ServingSetup(
            requests=requests,
            concurrency=users,
            method=of.method,
            acceptance=None,
            seed=0,
            cost=of.cost,
            num_blocks=of.num_blocks,
            block_size_tokens=of.block_size_tokens,
            limits=of.limits,
        )
    ).requests
    decode_s = (run.last_token_s - run.first_token_s) / (run.output_len - 1)
    wait_s = run.first_token_s - run.arrival_s
    return float(decode_s.mean()), float(wait_s.mean()), int(run.num_preemptions.sum())


LLAMA_70B = {"model": "llama-3.1-70b", "hardware": "h200_sxm", "dtype": "fp8", "tp": 2}


@pytest.mark.parametrize(
    ("given", "users", "prompt", "output"),
    [
        ({}, 16, 1024, 256),
        ({}, 64, 1024, 256),
        ({}, 32, 4096, 512),
        ({}, 16, 8192, 256),
        (LLAMA_70B, 64, 1024, 512),
        ({"model": "qwen3-30b-a3b"}, 16, 1024, 256),
        ({"engine": "sglang"}, 32, 1024, 512),
        ({"engine": "sglang"}, 16, 4096, 256),
        ({"engine": "trtllm"}, 32, 1024, 512),
        ({"engine": "trtllm"}, 16, 4096, 256),
    ],
)
def test_closed_form_and_simulation_agree_where_lengths_vary(
    given: dict[str, Any], users: int, prompt: int, output: int
) -> None:
    """Lengths from 80 % to 100 %: TPOT within 3 %, TTFT within 10 %."""
    of = deployment(**given)
    tpot_s, ttft_s, preemptions = simulated(of, users, prompt, output, 0.2)
    found = closed_loop(
        of, ClosedLoop(users, prompt, output, length_spread=0.2, requests_per_user=ROUNDS)
    )
    assert preemptions == 0
    assert float(found.tpot_s) == pytest.approx(tpot_s, rel=0.03)
    assert float(found.ttft_s) == pytest.approx(ttft_s, rel=0.10)


@pytest.mark.parametrize(
    ("given", "users", "prompt", "output"),
    [
        ({}, 8, 1024, 128),
        ({}, 64, 1024, 256),
        ({}, 32, 2048, 128),
        ({}, 8, 16000, 128),
        ({"engine": "sglang"}, 16, 1024, 256),
        ({"engine": "sglang"}, 64, 2048, 128),
    ],
)
def test_closed_form_and_simulation_agree_where_requests_stay_in_step(
    given: dict[str, Any], users: int, prompt: int, output: int
) -> None:
    """Equal lengths: those that start together end together. TPOT within 5 %, TTFT 10 %."""
    of = deployment(**given)
    tpot_s, ttft_s, _ = simulated(of, users, prompt, output, 0.0)
    found = closed_loop(of, ClosedLoop(users, prompt, output, requests_per_user=ROUNDS))
    assert float(found.tpot_s) == pytest.approx(tpot_s, rel=0.05)
    assert float(found.ttft_s) == pytest.approx(ttft_s, rel=0.10)


def test_closed_form_and_simulation_agree_where_the_cache_is_too_small() -> None:
    """85 of 128 users fit: the queue is within 15 %, TPOT within 15 % (preemption costs)."""
    of = deployment(hardware="l40s")
    tpot_s, ttft_s, preemptions = simulated(of, 128, 2048, 1024, 0.2)
    found = closed_loop(
        of, ClosedLoop(128, 2048, 1024, length_spread=0.2, requests_per_user=ROUNDS)
    )
    assert preemptions > 0
    assert float(found.in_service) < 100
    assert float(found.ttft_s) == pytest.approx(ttft_s, rel=0.15)
    assert float(found.tpot_s) == pytest.approx(tpot_s, rel=0.15)


def test_one_user_is_a_prompt_and_then_steps_of_one() -> None:
    """Nobody stalls anybody: TTFT is the prefill, TPOT the step at the mean context."""
    of = deployment()
    found = closed_loop(of, ClosedLoop(1, 1000, 501))
    assert float(found.stall_s) == 0.0
    assert float(found.tpot_s) == pytest.approx(
        float(estimate_round(of, 1, 1000 + 501 / 2).step_time_s), rel=1e-9
    )
    assert float(found.ttft_s) == pytest.approx(prefill_time_s(of, 1000), rel=0.05)


def test_every_seat_serves_one_request_per_cycle() -> None:
    """Little's law: users = throughput times sojourn, whether they are served or queue."""
    of = deployment(hardware="l40s")
    users = np.array([4.0, 64.0, 256.0])
    found = closed_loop(of, ClosedLoop(users, 2048.0, 512.0))
    sojourn = found.ttft_s + 511.0 * found.tpot_s
    assert found.throughput_requests_per_s * sojourn == pytest.approx(users, rel=1e-9)


def test_parts_add_up() -> None:
    """TPOT is decoding and stalls, TTFT is waits and the own prompt."""
    found = closed_loop(
        deployment(),
        ClosedLoop(
            np.array([1.0, 32.0]), 4096.0, 256.0, turnaround_steps=1.0, front_end_s=0.1,
            requests_per_user=10.0, prompts_together=1.0,
        ),
    )  # fmt: skip
    assert found.decode_s + found.stall_s == pytest.approx(found.tpot_s, rel=1e-12)
    parts = found.prefill_s + found.step_wait_s + found.burst_s + found.queue_s + found.front_end_s
    assert parts == pytest.approx(found.ttft_s, rel=1e-12)


def test_more_users_wait_longer_and_are_served_faster_together() -> None:
    """TPOT, TTFT and throughput all rise with the users."""
    found = closed_loop(deployment(), ClosedLoop(2.0 ** np.arange(8), 1024.0, 256.0, 0.2))
    assert np.all(np.diff(found.tpot_s) > 0)
    assert np.all(np.diff(found.ttft_s) > 0)
    assert np.all(np.diff(found.throughput_requests_per_s) > 0)


def test_a_method_that_drafts_is_refused() -> None:
    """Rounds of several tokens per step are not in these formulas."""
    of = build(
        DeploymentConfig.model_validate(
            {**BASE, "method": {"name": "prompt_lookup", "num_speculative_tokens": 3},
             "acceptance": 0.5}
        )
    )  # fmt: skip
    with pytest.raises(ConfigError, match="covers plain decoding; use simulate"):
        closed_loop(of, ClosedLoop(8, 1024, 128))
