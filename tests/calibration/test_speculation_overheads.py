"""Host times from rounds: what was put in comes out, and nothing is fitted from too little."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from simspec.calibration.speculation_overheads import (
    MeasuredRound,
    fit_host_times,
    predicted,
    with_times,
)
from simspec.core.errors import CalibrationError
from simspec.cost.forward import CostModel
from simspec.decoding._base import ACCEPTANCE_MODELS, METHODS
from simspec.hardware.load import load_engine, load_hardware
from simspec.hardware.profile import EngineProfile, Hardware
from tests.decoding.factories import target

FREE = ("per_step", "per_draft_step", "per_round", "per_launch")
PLANTED = {"per_step": 5000.0, "per_draft_step": 1200.0, "per_round": 3000.0, "per_launch": 60.0}
METHODS_RUN = (
    {"name": "kangaroo", "num_speculative_tokens": 2, "confidence_threshold": 0},
    {"name": "kangaroo", "num_speculative_tokens": 6, "confidence_threshold": 0},
    {"name": "layerskip", "num_speculative_tokens": 4},
    {"name": "prompt_lookup", "num_speculative_tokens": 8},
)


def runs(hardware: Hardware, engine: EngineProfile, machine: str = "") -> Iterator[MeasuredRound]:
    """Yield rounds as an engine with these host times would have measured them."""
    for settings in METHODS_RUN:
        method = METHODS.parse(settings).build(target())
        statistics = method.statistics(
            ACCEPTANCE_MODELS.parse({"name": "constant", "alpha": 0.6}).at(4)
        )
        for kind in ("ratio", "step_s", "round_s"):
            blank = MeasuredRound("", method, statistics, hardware, kind, 1.0, 1, 512, machine)
            yield replace(blank, name=f"{settings} {kind}", measured=predicted(blank, engine))


def test_planted_host_times_are_found_again() -> None:
    """Exact data: every coefficient within 1 %, and the factor of a second machine too."""
    hardware, start = load_hardware("a100_sxm_80gb"), load_engine("pytorch")
    here = list(runs(hardware, with_times(start, PLANTED)))
    there = list(runs(hardware, with_times(start, PLANTED, 0.5), "desktop"))
    found = fit_host_times([*here, *there], start, FREE)
    assert found.microseconds == pytest.approx(PLANTED, rel=0.01)
    assert found.machines == pytest.approx({"desktop": 0.5}, rel=0.01)
    assert max(abs(error) for _, error in found.errors) < 0.002
    assert "  per_round_us: 3000\n" in found.yaml()
    assert found.of("desktop")["per_step"] == pytest.approx(2500, rel=0.01)


def test_host_times_that_are_not_free_stay() -> None:
    start = load_engine("vllm")
    changed = with_times(start, {"per_round": 100.0})
    assert changed.host_time_per_round_s == pytest.approx(1e-4)
    assert changed.host_time_per_step_s == start.host_time_per_step_s
    assert changed.host_time_per_sequence_s == start.host_time_per_sequence_s


def test_too_few_runs_are_refused() -> None:
    some = list(runs(load_hardware("h100_sxm"), load_engine("vllm")))[:2]
    with pytest.raises(CalibrationError, match="2 runs do not determine 4 host times"):
        fit_host_times(some, load_engine("vllm"), FREE)


@pytest.mark.parametrize(
    ("settings", "has_tree"),
    [
        ({"name": "eagle", "version": 2}, True),
        ({"name": "eagle", "version": 2, "top_k": 1, "num_speculative_tokens": 3}, False),
        ({"name": "eagle", "version": 1, "num_speculative_tokens": 3}, False),
        ({"name": "eagle", "version": 1}, True),
        ({"name": "medusa"}, True),
        ({"name": "medusa", "tree": [[0], [0, 0]]}, False),
        ({"name": "prompt_lookup", "num_speculative_tokens": 3}, False),
    ],
)
def test_a_tree_costs_the_host_more_than_a_chain(settings: dict[str, Any], has_tree: bool) -> None:
    """per_tree: on top of per_round in a step that checks a tree, by step and by template."""
    hardware, plain = load_hardware("h100_sxm"), load_engine("vllm")
    dear = replace(plain, host_time_per_tree_s=1e-3)
    method = METHODS.parse(settings).build(target())
    for drafted, added_s in (([method.max_draft] * 2, 1e-3 * has_tree), ([0, 0], 0.0)):
        passes = method.round_passes([100, 200], drafted, [0, 0], None)
        host_s = [
            float(CostModel(method.stacks(), hardware, engine).step(passes, 2).host_s)
            for engine in (dear, plain)
        ]
        assert host_s[0] - host_s[1] == pytest.approx(added_s, abs=1e-12)


def test_a_verification_costs_the_host_once_and_a_plain_step_nothing() -> None:
    """per_round: in a step that checks drafts, whatever their number; not in plain decoding."""
    hardware, plain = load_hardware("h100_sxm"), load_engine("vllm")
    free = replace(plain, host_time_per_round_s=0.0)
    dear = replace(plain, host_time_per_round_s=1e-3)
    for settings in METHODS_RUN:
        method = METHODS.parse(settings).build(target())
        for drafted, added_s in (([2, 2], 1e-3), ([0, 2], 1e-3), ([0, 0], 0.0)):
            passes = method.round_passes([100, 200], drafted, [0, 0], None)
            host_s = [
                float(CostModel(method.stacks(), hardware, engine).step(passes, 2).host_s)
                for engine in (dear, free)
            ]
            assert host_s[0] - host_s[1] == pytest.approx(added_s, abs=1e-12)
