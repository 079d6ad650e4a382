"""Prediction intervals of the closed form, against errors carried through by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simspec.core.yamlio import parse_mapping
from simspec.cost.forward import CostModel
from simspec.cost.work import Pass, Rows
from simspec.hardware.profile import FitError, Hardware, KernelFit
from simspec.hardware.uncertainty import default_errors
from simspec.scenarios.build import Deployment, build
from simspec.scenarios.closed_form import calibration_sigma, estimate
from simspec.scenarios.schema import DeploymentConfig
from simspec.scenarios.uncertainty import Errors, interval_95
from tests.cost.factory import IDEAL, hardware

KANGAROO = {"name": "kangaroo", "confidence_threshold": 0}
SPECULATIVE: dict[str, Any] = {"method": KANGAROO, "acceptance": 0.7}


def deployment(device: Hardware | None = None, **fields: Any) -> Deployment:
    """A 1B model under an engine without host times; ``device`` instead of the named one."""
    data = {
        "model": "llama-3.2-1b",
        "hardware": "h100_sxm",
        "engine": "ideal",
        "method": "autoregressive",
        **fields,
    }
    made = build(parse_mapping(data, DeploymentConfig, "test"))
    if device is None:
        return made
    cost = CostModel(made.cost.stacks, device, made.engine)
    return replace(made, hardware=device, cost=cost)


def device(relative: float = 0.0, **standard_error: float) -> Hardware:
    """The ideal device with errors of its GEMM."""
    error = FitError(relative, standard_error=tuple(standard_error.items()))
    return replace(hardware(), gemm={"bf16": replace(IDEAL, error=error)})


def share_of_gemm(one: Deployment, batch: int, context: int) -> float:
    """The share of a plain step that matrix products take on the ideal device."""
    rows = Rows("decode", batch, batch, batch * (context + 1), batch * (context + 1), batch)
    work = Pass("target", 0, one.architecture.num_layers, "decode", (rows,), True)
    lines = one.cost.breakdown([work])
    gemm = sum(line.seconds for line in lines if line.flop and "attention" not in line.operator)
    assert gemm > 0
    return gemm / sum(line.seconds for line in lines)


def test_one_coefficient_by_hand() -> None:
    """Memory-bound products at an efficiency of 1 +- 0.1 take exp(0.1) as long, and only they."""
    one = deployment(device(bandwidth_efficiency=0.1))
    share = share_of_gemm(one, 1, 512)
    by_hand = math.log(1.0 + share * (math.exp(0.1) - 1.0))
    sigma = calibration_sigma(one, 1, 512)
    assert sigma["round_time"] == pytest.approx(by_hand, rel=1e-9)
    assert 0.5 * 0.1 < by_hand < 0.1
    values = estimate(one, 1, 512)
    low, high = values["tpot_ms_interval"]  # type: ignore[misc]
    assert low == pytest.approx(values["tpot_ms"] * math.exp(-1.96 * by_hand))  # type: ignore[operator]
    assert high == pytest.approx(values["tpot_ms"] * math.exp(1.96 * by_hand))  # type: ignore[operator]


def test_errors_that_are_independent_add_in_squares() -> None:
    """Two errors of one fit: the root of the sum of squares of each alone."""
    form = float(calibration_sigma(deployment(device(0.2)), 4, 512)["tpot"])
    own = float(calibration_sigma(deployment(device(bandwidth_efficiency=0.1)), 4, 512)["tpot"])
    both = calibration_sigma(deployment(device(0.2, bandwidth_efficiency=0.1)), 4, 512)["tpot"]
    assert both == pytest.approx(math.hypot(form, own))


def test_a_larger_error_is_a_wider_interval() -> None:
    """Twice the standard error, twice sigma to first order; no error, no width."""
    sigmas = [
        float(calibration_sigma(deployment(device(bandwidth_efficiency=e)), 1, 512)["tpot"])
        for e in (0.0, 0.01, 0.02, 0.04)
    ]
    assert sigmas[0] == 0.0
    assert sigmas[2] == pytest.approx(2 * sigmas[1], rel=0.01)
    assert sigmas[3] == pytest.approx(2 * sigmas[2], rel=0.02)
    values = estimate(deployment(hardware()), 1, 512)
    assert values["tpot_ms_interval"] == [values["tpot_ms"]] * 2


def test_an_error_of_nothing_used_is_no_error() -> None:
    """FP8 products of a bf16 model and the link of one GPU say nothing."""
    unused = replace(hardware(), gemm={"bf16": IDEAL, "fp8": replace(IDEAL, error=FitError(0.5))})
    assert calibration_sigma(deployment(unused), 1, 512)["tpot"] == 0.0


def test_a_speedup_is_surer_than_two_independent_steps() -> None:
    """What moves both steps alike cancels."""
    sigma = calibration_sigma(deployment(**SPECULATIVE), 4, 1024)
    apart = math.hypot(float(sigma["step_time"]), float(sigma["round_time"]))
    assert 0.0 < float(sigma["speedup"]) < apart


def test_a_speedup_by_hand() -> None:
    """A whole-step error s with correlation rho: sqrt(2 (1 - rho)) s; without one, nothing."""
    one = deployment(hardware(), **SPECULATIVE)
    engine = replace(one.cost.engine, model_error=0.1)
    one = replace(one, cost=CostModel(one.cost.stacks, one.cost.hardware, engine))
    rho = default_errors().shared.step
    sigma = calibration_sigma(one, 4, 1024, 512)
    assert sigma["speedup"] == pytest.approx(math.sqrt(2 * (1 - rho)) * 0.1)
    assert sigma["tpot"] == sigma["ttft"] == pytest.approx(0.1)


def test_a_coefficient_common_to_both_steps_cancels() -> None:
    """A device on which everything is bandwidth has the same speedup at any bandwidth."""
    errors = FitError(standard_error=(("bandwidth_efficiency", 1e-7),))
    slow = KernelFit(1.0, 1e-6, 0.0, error=errors)
    only = replace(
        hardware(slow),
        decode_attention={"bf16": replace(slow, error=FitError())},
        elementwise=KernelFit(1.0, 1.0, 0.0),
    )
    sigma = calibration_sigma(deployment(only, **SPECULATIVE), 1, 1)
    assert float(sigma["round_time"]) > 0.09
    assert float(sigma["speedup"]) < 0.002


def test_plain_decoding_is_exactly_as_fast_as_itself() -> None:
    """A speedup of 1 has no error."""
    values = estimate(deployment(), 4, 1024)
    assert values["speedup_interval"] == [1.0, 1.0]
    assert values["tpot_ms_interval"] != [values["tpot_ms"]] * 2


def test_borrowed_coefficients_are_less_sure(tmp_path: Any) -> None:
    """The H100's numbers on a device nobody measured."""
    path = tmp_path / "what_if.yaml"
    path.write_text("extends: h100_sxm\n", encoding="utf-8")
    ours, theirs = deployment(), deployment(hardware="h100_sxm")
    borrowed = deployment(hardware=str(path))
    assert calibration_sigma(ours, 1, 512) == calibration_sigma(theirs, 1, 512)
    for name, sigma in calibration_sigma(borrowed, 1, 512, 512).items():
        if name != "speedup":
            assert float(sigma) > 1.3 * float(calibration_sigma(ours, 1, 512, 512)[name]), name


def test_borrowed_coefficients_move_both_steps_alike() -> None:
    """The same sigma of either kind: a borrowed one leaves a speedup far surer."""
    fits = {
        name: replace(hardware(), gemm={"bf16": replace(IDEAL, error=error)})
        for name, error in (("form", FitError(0.2)), ("borrowed", FitError(0.0, 0.2)))
    }
    sigma = {
        name: calibration_sigma(deployment(each, **SPECULATIVE), 4, 512)
        for name, each in fits.items()
    }
    assert sigma["form"]["tpot"] == pytest.approx(sigma["borrowed"]["tpot"])
    assert float(sigma["borrowed"]["speedup"]) < 0.5 * float(sigma["form"]["speedup"])


def test_both_kinds_add_in_squares() -> None:
    """A form that misses and coefficients of another device."""
    one, other, both = (
        float(
            calibration_sigma(
                deployment(replace(hardware(), gemm={"bf16": replace(IDEAL, error=error)})), 4, 512
            )["tpot"]
        )
        for error in (FitError(0.02), FitError(0.0, 0.03), FitError(0.02, 0.03))
    )
    assert both == pytest.approx(math.hypot(one, other), rel=0.01)


def test_arrays_give_what_numbers_give() -> None:
    """A grid of batches at once; the models of altered devices are built once."""
    one = deployment(**SPECULATIVE)
    errors = Errors(one.cost)
    grid = calibration_sigma(one, np.array([1.0, 16.0]), np.array([512.0, 2048.0]), errors=errors)
    for i, (batch, context) in enumerate(((1, 512), (16, 2048))):
        alone = calibration_sigma(one, batch, context, errors=errors)
        for name, sigma in alone.items():
            assert np.asarray(grid[name])[i] == pytest.approx(sigma, rel=1e-6), name


def test_an_interval_holds_its_value() -> None:
    """It is symmetric in the logarithm."""
    low, high = interval_95(8.0, 0.1)
    assert low * high == pytest.approx(64.0)
    assert high / 8.0 == pytest.approx(math.exp(0.196))


def test_the_throughput_moves_against_the_time() -> None:
    """Both have the same width in the logarithm."""
    values: dict[str, Any] = estimate(deployment(**SPECULATIVE), 4, 1024)
    slow, fast = values["tpot_ms_interval"]
    assert values["throughput_tokens_per_s_interval"][0] == pytest.approx(4e3 / fast)
    assert values["throughput_tokens_per_s_interval"][1] == pytest.approx(4e3 / slow)
