"""What an engine makes of kernels timed alone: overheads, products over experts, routing."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from simspec.cost.operators.moe import distinct_experts
from simspec.hardware.load import load_engine, load_hardware
from simspec.hardware.profile import KernelsInSteps
from simspec.scenarios.build import build
from simspec.scenarios.closed_form import estimate_round
from simspec.scenarios.schema import DeploymentConfig


def step_s(model: str, batch: int, kernels: KernelsInSteps, **engine: float) -> float:
    of = build(
        DeploymentConfig.model_validate(
            {"model": model, "hardware": "h200_sxm", "engine": "ideal", "method": "autoregressive"}
        )
    )
    altered = replace(of.engine, kernels_in_steps=kernels, **engine)  # type: ignore[arg-type]
    cost = type(of.cost)(of.cost.stacks, of.hardware, altered)
    return float(estimate_round(replace(of, cost=cost), batch, 1024).step_time_s)


def test_one_token_hits_its_own_experts() -> None:
    """However unequal experts are, one token is sent to exactly k of them."""
    for shape in (0.3, 1.0, 10.0):
        assert distinct_experts(1, 128, 8, shape) == pytest.approx(8.0)


def test_shape_one_by_hand() -> None:
    """128 - 120 / (1 + 16 * 0.0645385) = 68.96 experts of 17 tokens, 85.3 where all are alike."""
    assert distinct_experts(17, 128, 8, 1.0) == pytest.approx(68.96, abs=0.01)
    assert distinct_experts(17, 128, 8) == pytest.approx(85.27, abs=0.01)


def test_equal_popularity_is_the_limit() -> None:
    """A gamma law without spread is independent uniform routing."""
    tokens = np.array([1.0, 7.0, 64.0, 500.0])
    assert distinct_experts(tokens, 256, 8, 1e7) == pytest.approx(
        distinct_experts(tokens, 256, 8), rel=1e-5
    )
    assert distinct_experts(tokens, 256, 8, math.inf) == pytest.approx(
        distinct_experts(tokens, 256, 8)
    )


def test_unequal_experts_are_hit_less() -> None:
    """The more unequal, the fewer; all of them in the end."""
    few = [distinct_experts(32, 128, 8, shape) for shape in (0.3, 1.0, 3.0, 100.0)]
    assert few == sorted(few)
    assert distinct_experts(1e9, 128, 8, 1.0) == pytest.approx(128.0, rel=1e-6)


def test_less_overhead_is_left_in_a_step() -> None:
    """Half the share takes off half of what all of it adds."""
    full, half, none = (
        step_s("llama-3.1-8b", 4, KernelsInSteps(overhead_share=share)) for share in (1.0, 0.5, 0.0)
    )
    assert full > none
    assert half == pytest.approx((full + none) / 2, rel=1e-9)


@pytest.mark.parametrize(
    "kernels",
    [
        KernelsInSteps(grouped_flop_share=0.05),
        KernelsInSteps(grouped_bandwidth_share=0.5),
        KernelsInSteps(grouped_overhead_s=2e-5),
        KernelsInSteps(grouped_padding_rows=512.0),
    ],
)
def test_products_over_experts_alone_are_slower(kernels: KernelsInSteps) -> None:
    """Each share slows a mixture and leaves a dense model as it is."""
    assert step_s("qwen3-30b-a3b", 64, kernels) > step_s("qwen3-30b-a3b", 64, KernelsInSteps())
    assert step_s("llama-3.1-8b", 64, kernels) == step_s("llama-3.1-8b", 64, KernelsInSteps())


def test_texts_that_share_experts_are_faster() -> None:
    """Fewer distinct experts are fewer weights to read."""
    shared = step_s("qwen3-30b-a3b", 16, KernelsInSteps(routing_shape=0.5))
    assert shared < step_s("qwen3-30b-a3b", 16, KernelsInSteps())


def test_static_scales_spare_the_quantise_step() -> None:
    """TensorRT-LLM's kernels for fp8 with known input scales have the overhead of bf16 ones."""
    kernels = load_hardware("h100_sxm").with_kernels(load_engine("trtllm").kernels)
    assert kernels.gemm["fp8_static"].quantise_s == 0.0
    assert kernels.gemm["fp8_static"].overhead_s == kernels.gemm["bf16"].overhead_s
    assert kernels.gemm["fp8"].overhead_s > 3 * kernels.gemm["bf16"].overhead_s


def test_an_engine_brings_its_collectives() -> None:
    """TensorRT-LLM's small all-reduces are faster than those of the device's own profile."""
    own = load_hardware("h100_sxm")
    engines = own.with_kernels("trtllm")
    assert own.link is not None
    assert engines.link is not None
    assert engines.link.all_reduce["one_shot"].latency_s < own.link.all_reduce["one_shot"].latency_s
