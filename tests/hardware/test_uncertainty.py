"""Errors of profiles: where they come from, and a device on which one number is wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from simspec.core.errors import ProfileError
from simspec.hardware.load import load_engine, load_hardware, load_hardware_config
from simspec.hardware.profile import NO_ERROR, AllReduceFit, FitError, KernelFit, Link
from simspec.hardware.uncertainty import default_errors, error_groups, fit_error
from tests.cost.factory import hardware


def test_a_median_error_is_read_as_that_of_a_normal_law() -> None:
    """Half of a normal law lies within 0.6745 sigma: a median of 5 % is ln 1.05 / 0.6745."""
    error = fit_error("gemm", 0.05, calibrated=True)
    assert error.relative == pytest.approx(math.log(1.05) / 0.6745)
    assert error.borrowed == 0.0
    assert fit_error("gemm", 0.0, calibrated=True) == NO_ERROR


def test_what_was_not_judged_on_the_device_is_less_sure() -> None:
    """Borrowed coefficients add the distance between devices; unjudged ones have it alone."""
    borrowed = default_errors().kernels["gemm"]
    own = fit_error("gemm", 0.05, calibrated=True).relative
    assert fit_error("gemm", None, calibrated=True) == FitError(0.0, borrowed)
    both = fit_error("gemm", 0.05, calibrated=False)
    assert both == FitError(own, borrowed)
    assert both.of_times == pytest.approx(math.hypot(own, borrowed))


def test_profiles_bring_their_errors_in_si_units() -> None:
    """A standard error has the unit of its coefficient: 0.2 µs of overhead are 0.2e-6 s."""
    config, device = load_hardware_config("h100_sxm"), load_hardware("h100_sxm")
    entry, fit = config.kernels.gemm["bf16"], device.gemm["bf16"]
    assert entry.held_out_error is not None
    errors = dict(fit.error.standard_error)
    assert errors["overhead_s"] == pytest.approx(1e-6 * entry.standard_error["overhead_us"])
    assert errors["flop_efficiency"] == entry.standard_error["flop_efficiency"]
    assert fit.error.relative == pytest.approx(math.log1p(entry.held_out_error.median) / 0.6745)
    assert config.link is not None
    assert device.link is not None
    rates = dict(device.link.all_reduce["ring"].error.standard_error)
    stated = config.link.all_reduce["ring"].standard_error["bandwidth_gb_s"]
    assert rates["bandwidth_bytes_per_s"] == pytest.approx(1e9 * stated)


def test_a_coefficient_nobody_knows_is_refused(tmp_path: Path) -> None:
    """A misspelt standard error would be an error of nothing."""
    (tmp_path / "typo.yaml").write_text(
        "extends: h100_sxm\nkernels: {elementwise: {standard_error: {bandwith_efficiency: 0.1}}}\n",
        encoding="utf-8",
    )
    with pytest.raises(ProfileError, match=r"typo.yaml:2.*bandwith_efficiency"):
        load_hardware(str(tmp_path / "typo.yaml"))


def test_an_engine_states_its_error_or_has_that_of_unjudged_ones(tmp_path: Path) -> None:
    """The group ``uncertainty`` of an engine profile is optional, its source is not."""
    assert load_engine("ideal").model_error == 0.0
    base = Path("hardware_profiles/engines/ideal.yaml").read_text(encoding="utf-8")
    silent = tmp_path / "silent.yaml"
    silent.write_text(base[: base.index("\nuncertainty:")], encoding="utf-8")
    engine = load_engine(str(silent))
    assert engine.model_error == default_errors().engine.model_error
    assert "nobody judged" in engine.sources["uncertainty"]
    stated = tmp_path / "stated.yaml"
    stated.write_text(
        "extends: ideal\n"
        "uncertainty: {model_error: 0.08, host_error: 0.2, source: measured here}\n",
        encoding="utf-8",
    )
    engine = load_engine(str(stated))
    assert (engine.model_error, engine.host_error) == (0.08, 0.2)


def test_a_form_that_is_wrong_moves_every_time_of_the_fit() -> None:
    """Rates fall and overheads grow by the same factor, so all its times do."""
    error = FitError(relative=0.2)
    fit = KernelFit(0.8, 0.5, 3e-6, 2.0, error=error)
    device = replace(hardware(KernelFit(0.8, 0.5, 3e-6)), gemm={"bf16": fit})
    (group,) = error_groups(device, load_engine("ideal"))
    slow = group.slowed.hardware.gemm["bf16"]
    factor = math.exp(0.2)
    assert slow.flop_efficiency == pytest.approx(0.8 / factor)
    assert slow.bandwidth_efficiency == pytest.approx(0.5 / factor)
    assert slow.overhead_s == pytest.approx(3e-6 * factor)
    assert slow.sharpness == fit.sharpness
    assert group.slowed.hardware.elementwise == device.elementwise


def test_each_coefficient_is_wrong_alone() -> None:
    """A time grows by its error, a rate falls by the same share, an exponent ends at 1."""
    errors = (("bandwidth_efficiency", 0.05), ("overhead_s", 1e-6), ("sharpness", 9.0))
    fit = KernelFit(0.8, 0.5, 3e-6, 2.0, error=FitError(standard_error=errors))
    device = replace(hardware(KernelFit(0.8, 0.5, 3e-6)), gemm={"bf16": fit})
    (group,) = error_groups(device, load_engine("ideal"))
    assert group.common == ()
    found = [altered.hardware.gemm["bf16"] for altered in group.coefficients]
    assert found[0] == replace(fit, bandwidth_efficiency=pytest.approx(0.5 * math.exp(-0.1)))
    assert found[1] == replace(fit, overhead_s=pytest.approx(4e-6))
    assert found[2] == replace(fit, sharpness=1.0)


def test_algorithms_of_a_link_are_wrong_together() -> None:
    """They were fitted together, the faster one explaining a row: slower means both."""
    error = FitError(relative=0.1)
    fits = {
        "one_shot": AllReduceFit(4e-6, 1e-7, 1e11, error),
        "ring": AllReduceFit(1e-5, 0.0, 3e11),
    }
    device = hardware(link=Link("link", 1e12, 8, fits))
    groups = [g for g in error_groups(device, load_engine("ideal")) if "link" in g.slowed.name]
    (group,) = groups
    assert group.common == ((0.1, default_errors().shared.kernel),)
    link = group.slowed.hardware.link
    assert link is not None
    assert link.all_reduce["ring"].latency_s == pytest.approx(1e-5 * math.exp(0.1))
    assert link.all_reduce["one_shot"].bandwidth_bytes_per_s == pytest.approx(1e11 * math.exp(-0.1))


def test_host_times_are_wrong_together() -> None:
    """One error for all times of the host, where an engine states it."""
    engine = replace(load_engine("vllm"), host_error=0.5)
    (group,) = error_groups(hardware(KernelFit(1.0, 1.0, 0.0)), engine)
    slow = group.slowed.engine
    assert slow.host_time_per_step_s == pytest.approx(engine.host_time_per_step_s * math.exp(0.5))
    assert slow.host_time_per_draft_step_s > engine.host_time_per_draft_step_s
    assert slow.memory_fraction == engine.memory_fraction


def test_a_device_without_errors_has_no_group() -> None:
    """Made by hand, a fit is exact."""
    assert KernelFit(1.0, 1.0, 0.0).error == NO_ERROR
    assert list(error_groups(hardware(KernelFit(1.0, 1.0, 0.0)), load_engine("ideal"))) == []
