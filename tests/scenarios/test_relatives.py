"""Uncalibrated profiles are named with the one whose efficiencies they have, in every report."""

from __future__ import annotations

import pytest

from simspec.reports.dashboards.compare import _borrowing
from simspec.reports.dashboards.simulation import _manifest
from simspec.scenarios.build import Deployment, build_without_acceptance
from simspec.scenarios.closed_form import deployment_facts
from simspec.scenarios.schema import DeploymentConfig
from simspec.sweeps.describe import _named


def deployment(hardware: str, engine: str) -> Deployment:
    """Return plain decoding of an 8B model."""
    return build_without_acceptance(
        DeploymentConfig.model_validate(
            {
                "model": "llama-3.1-8b",
                "hardware": hardware,
                "engine": engine,
                "dtype": "q4_0",
                "kv_dtype": "fp16",
                "method": "autoregressive",
            }
        )
    )


@pytest.mark.parametrize(
    ("hardware", "engine", "relative"),
    [
        ("rtx_5090", "vllm", "rtx_4090"),
        # llama.cpp brings its own kernels, which were measured on another card.
        ("rtx_5090", "llama_cpp_cuda", "rtx_3090"),
        ("rtx_4090", "llama_cpp_cuda", "rtx_3090"),
        ("m4_pro", "mlx", "m4_max"),
        ("m4_pro", "llama_cpp", "m2_ultra"),
        ("m1_max_24core", "llama_cpp_2024", "m1_max"),
    ],
)
def test_results_name_the_relative(hardware: str, engine: str, relative: str) -> None:
    """The closed form, a sweep, a simulation page and a comparison say the same name."""
    built = deployment(hardware, engine)
    facts = deployment_facts(built)
    assert facts["calibrated"] is False
    assert facts["efficiencies_of"] == relative
    said = f"{hardware}: efficiencies of {relative}"
    assert _named(built.hardware) == said
    assert _borrowing(facts) == said
    assert _manifest(facts)["uncalibrated_hardware"] == [said]


@pytest.mark.parametrize(
    ("hardware", "engine"),
    [
        ("rtx_4090", "vllm"),
        ("rtx_3090", "llama_cpp_cuda"),
        ("m4_max", "mlx"),
        ("m2_ultra", "llama_cpp"),
        ("m1", "llama_cpp_2024"),
    ],
)
def test_fitted_kernels_have_no_relative(hardware: str, engine: str) -> None:
    """What was measured on the device under that engine is calibrated, and says nothing more."""
    facts = deployment_facts(deployment(hardware, engine))
    assert facts["calibrated"] is True
    assert "efficiencies_of" not in facts
    assert "uncalibrated_hardware" not in _manifest(facts)
