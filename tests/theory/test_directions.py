"""What must rise, what must fall, and the one absolute time everybody knows.

Closed form only; ``test_closed_form_vs_simulation`` ties the simulation to it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.yamlio import parse_mapping
from simspec.scenarios.breakdown import step_breakdown
from simspec.scenarios.build import Deployment, build
from simspec.scenarios.closed_form import estimate, estimate_round
from simspec.scenarios.schema import DeploymentConfig

BATCHES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0])
PUBLISHED = [0.505, 0.225, 0.10, 0.045, 0.02, 0.007]


def deployment(**fields: Any) -> Deployment:
    data = {
        "model": "llama-3.1-8b",
        "hardware": "h100_sxm",
        "method": "autoregressive",
        **fields,
    }
    return build(parse_mapping(data, DeploymentConfig, "test"))


def kangaroo(num_drafts: int = 3, acceptance: Any = 0.8, **fields: Any) -> Deployment:
    method = {
        "name": "kangaroo",
        "exit_layer": 2,
        "num_speculative_tokens": num_drafts,
        "confidence_threshold": 0,
    }
    return deployment(method=method, acceptance=acceptance, **fields)


def step_ms(**fields: Any) -> float:
    return float(estimate(deployment(**fields), 1, 1024)["step_time_ms"])  # type: ignore[arg-type]


def test_a_decode_step_of_llama_3_1_8b_on_an_h100() -> None:
    """bf16, batch 1, context 1024: between 6 and 8 ms (vLLM measures about 7.1), read-bound.

    The 15 GB that a token needs (16.06 GB less the embedding table, of which one row is read) take
    4.5 ms at 3.35 TB/s: the floor under every such step.
    """
    found = step_breakdown(deployment(), batch=1, context=1024)
    assert 6.0 < found.totals["step_time_ms"] < 8.0
    floor_ms = (16.06e9 - 128256 * 4096 * 2) / 3.35e12 * 1e3
    assert found.totals["device_time_ms"] > floor_ms
    parts = sum(row["time_us"] for row in found.rows) / 1e3
    assert parts == pytest.approx(found.totals["device_time_ms"], rel=1e-9)
    bound = {row["operator"]: row["bound"] for row in found.rows}
    assert {bound[name] for name in ("qkv", "o", "gate_up", "down", "lm_head")} == {"memory"}


def test_half_the_bandwidth_takes_nearly_twice_as_long(tmp_path: Path) -> None:
    """One number changed in a YAML: a decode step is bound by reading weights.

    Not quite twice: host time and kernel overheads stay.
    """
    half = {
        "extends": "h100_sxm",
        "name": "half",
        "memory": {"bandwidth_gb_s": 3350 / 2, "source": "half of an H100"},
    }
    path = tmp_path / "half.yaml"
    path.write_text(json.dumps(half))
    ratio = step_ms(hardware=str(path)) / step_ms()
    assert 1.7 < ratio < 2.0
    ideal = step_ms(hardware=str(path), engine="ideal") / step_ms(engine="ideal")
    assert ratio < ideal < 2.0


def test_tensor_parallel_steps_pay_for_all_reduces() -> None:
    """TP=8 is faster than one GPU, far from eight times, and collectives are a visible share."""
    one, eight = (estimate(deployment(tp=tp), 1, 1024) for tp in (1, 8))
    assert one["network_share"] == 0.0
    assert 0.1 < eight["network_share"] < 0.6  # type: ignore[operator]
    assert 1.0 < one["step_time_ms"] / eight["step_time_ms"] < 6.0  # type: ignore[operator]
    shares = [estimate(deployment(tp=tp), 1, 1024)["network_share"] for tp in (2, 4, 8)]
    assert shares == sorted(shares)  # type: ignore[type-var]
    rows = step_breakdown(deployment(tp=8), batch=1, context=1024).rows
    assert any("all_reduce" in row["operator"] for row in rows)


@pytest.mark.parametrize("num_drafts", [2, 4, 6])
@pytest.mark.parametrize("acceptance", [0.6, 0.8, PUBLISHED])
def test_speedup_falls_with_the_batch(num_drafts: int, acceptance: Any) -> None:
    """Verification turns compute-bound: beyond small batches more sequences never help.

    At small batches the host's fixed share per round is still being shared out, so the law is
    asked from 8 sequences on, and of the ends; short contexts, because KV reads speak for
    speculation again.
    """
    speedup = np.asarray(estimate_round(kangaroo(num_drafts, acceptance), BATCHES, 128).speedup)
    assert np.all(np.diff(speedup[3:]) <= 1e-3)
    assert speedup[-1] < 0.8 * speedup[0]


@pytest.mark.parametrize("acceptance", [0.6, 0.8, 0.9])
def test_the_best_draft_length_never_rises_with_the_batch(acceptance: float) -> None:
    """With compute the scarce resource, drafts that may be rejected cost more."""
    drafts = range(1, 9)
    by_length = [estimate_round(kangaroo(k, acceptance), BATCHES, 128).speedup for k in drafts]
    best = np.argmax(np.stack([np.asarray(s) for s in by_length]), axis=0) + 1
    assert np.all(np.diff(best) <= 0), best
    assert best[0] > best[-1]


def test_speculation_pays_longer_at_long_context() -> None:
    """Reading the KV cache once for several tokens is what speculation saves at batch 64."""
    short, long = (float(estimate_round(kangaroo(), 64, c).speedup) for c in (256, 16384))
    assert long > short


@given(
    rates=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    num_drafts=st.integers(1, 8),
    batch=st.sampled_from([1, 7, 64]),
)
def test_more_acceptance_is_never_slower(
    rates: tuple[float, float], num_drafts: int, batch: int
) -> None:
    """At the same work, a higher acceptance yields at least as many tokens."""
    low, high = sorted(rates)
    slow, fast = (estimate_round(kangaroo(num_drafts, a), batch, 512) for a in (low, high))
    assert float(fast.tpot_s) <= float(slow.tpot_s) * (1 + 1e-12)
    assert float(fast.round_time_s) == pytest.approx(float(slow.round_time_s), rel=1e-12)


@pytest.mark.parametrize("batch", [1, 5, 64])
def test_drafting_nothing_is_autoregression(batch: int) -> None:
    """The plain step is the same number as a method's baseline and as its own round."""
    plain = estimate_round(deployment(), batch, 777)
    assert float(plain.round_time_s) == float(plain.step_time_s)
    assert float(plain.speedup) == 1.0
    assert plain.statistics.tokens_per_round == 1.0
    assert float(estimate_round(kangaroo(), batch, 777).step_time_s) == float(plain.step_time_s)


def test_drafts_that_are_never_accepted_only_cost() -> None:
    """With acceptance 0 every round yields one token, later than a plain step does."""
    found = estimate_round(kangaroo(4, 0.0), 1, 512)
    assert found.statistics.tokens_per_round == 1.0
    assert float(found.round_time_s) > float(found.step_time_s)


def test_drafts_that_are_always_accepted_yield_k_and_one() -> None:
    """With acceptance 1 a round yields K + 1 tokens."""
    assert estimate_round(kangaroo(4, 1.0), 1, 512).statistics.tokens_per_round == 5.0


def test_smaller_weights_are_faster_at_batch_one() -> None:
    """Half the bits to read, and the step is shorter."""
    bf16, fp8, int4 = (step_ms(dtype=name) for name in ("bf16", "fp8", "int4_g128"))
    assert int4 < fp8 < bf16


def test_longer_contexts_and_larger_batches_take_longer() -> None:
    """Time is monotone in the work."""
    by_context = [float(estimate_round(deployment(), 8, c).step_time_s) for c in (1, 512, 8192)]
    by_batch = np.asarray(estimate_round(deployment(), BATCHES, 512).step_time_s)
    assert by_context == sorted(by_context)
    assert np.all(np.diff(by_batch) > 0)


def test_a_longer_prompt_waits_longer_for_its_first_token() -> None:
    """TTFT on an idle replica grows with the prompt, also where it is cut into chunks."""
    one = deployment()
    ttft = [estimate(one, 1, 64, prompt)["ttft_ms"] for prompt in (1, 100, 1000, 8192, 8193, 30000)]
    assert ttft == sorted(ttft)  # type: ignore[type-var]
