"""The closed form prices a lock-step round like the rounds it stands for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simspec.cost.forward import CostModel
from simspec.cost.work import Stack
from simspec.decoding._base import ACCEPTANCE_MODELS
from simspec.decoding.kangaroo import Config
from simspec.hardware.profile import Hardware, KernelFit
from simspec.models.arch import MoE
from tests.cost.factory import engine, hardware
from tests.decoding.factories import target


def device(sharpness: float) -> Hardware:
    """Return a device with the ratios of an H100: 989 TFLOP/s and 3.35 TB/s (data sheet)."""
    fit = KernelFit(0.8, 0.9, 2e-6, sharpness)
    return replace(
        hardware(fit), peak_flop_per_s={"bf16": 989e12}, memory_bandwidth_bytes_per_s=3.35e12
    )


def mixture() -> Stack:
    """Return a target with eight experts of which a token takes two (Mixtral's shape)."""
    dense = target()
    block = replace(dense.blocks[0], intermediate_size=0, moe=MoE(8, 2, 14336))
    return replace(dense, blocks=(block,) * 32)


@pytest.mark.parametrize("sharpness", [4.0, float("inf")])
@pytest.mark.parametrize("stack", [target(), mixture()], ids=["dense", "experts"])
@pytest.mark.parametrize("batch_size", [1, 16, 64, 256])
def test_expected_round_time_is_the_mean_of_simulated_rounds(
    batch_size: int, stack: Stack, sharpness: float
) -> None:
    """Within 0.5 % plus 4 standard errors of the mean over 400 rounds, draft and verify alike.

    Every round draws each sequence's m from the closed form's law, independently: that is what
    lock-step rounds of independent texts are. 4 standard errors: false alarm 6e-5.
    """
    method = Config(exit_layer=4, num_speculative_tokens=6, confidence_threshold=0.65).build(stack)
    acceptance = ACCEPTANCE_MODELS.parse(
        {"name": "constant", "alpha": 0.7, "confidence": {"a": 4.5, "b": 1.8}}
    ).at(4)
    statistics = method.statistics(acceptance)
    cost = CostModel(method.stacks(), device(sharpness), engine(per_draft_step_s=7e-4))
    context = 1000
    rng = np.random.default_rng(batch_size)
    drafted = rng.choice(7, size=(400, batch_size), p=statistics.drafted_pmf)
    contexts = [context] * batch_size
    seen = np.zeros((400, 4))
    for row, m in zip(seen, drafted.tolist(), strict=True):
        step = cost.step(method.round_passes(contexts, m, m, None), batch_size)
        row[:] = step.total_s, step.by_phase["draft"], step.by_phase["verify"], step.host_s
    weighted = method.expected_passes(batch_size, context, statistics)
    expected = cost.expected_step(weighted, batch_size)
    phases = expected.by_phase
    errors = seen.std(axis=0, ddof=1) / np.sqrt(400)
    for mean, error, value in zip(
        seen.mean(axis=0),
        errors,
        (expected.total_s, phases["draft"], phases["verify"], expected.host_s),
        strict=True,
    ):
        assert mean == pytest.approx(value, abs=0.005 * mean + 4 * error)


def test_each_draft_token_costs_one_host_turn() -> None:
    """The host pays its draft-step time m times: the closing pass decides nothing."""
    method = Config(exit_layer=4).build(target())
    cost = CostModel(method.stacks(), device(4.0), engine(per_draft_step_s=1e-3))
    for m in (1, 4):
        step = cost.step(method.round_passes([500], [m], [0], None), 1)
        assert step.host_s == pytest.approx(m * 1e-3)
