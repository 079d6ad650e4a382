"""What the errors of profiles mean for a simulated run, beside chance."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from simspec.core.stats import Interval
from simspec.core.yamlio import parse_mapping
from simspec.scenarios.api import simulate
from simspec.scenarios.build import build
from simspec.scenarios.calibrated import calibration_of, run_sentence, sweep_sentence
from simspec.scenarios.closed_form import calibration_sigma
from simspec.scenarios.schema import ScenarioConfig
from simspec.workloads.request import Request
from simspec.workloads.workload import WorkloadRun
from tests.sweeps.factory import SCENARIO


def workload(*lengths: tuple[int, int], concurrency: int | None = None) -> WorkloadRun:
    requests = tuple(Request(i, 0.0, *each) for i, each in enumerate(lengths))
    return WorkloadRun(requests, concurrency, None, 0, 0, 0, "made up", ())


def scenario(**changes: Any) -> ScenarioConfig:
    return parse_mapping({**copy.deepcopy(SCENARIO), **changes}, ScenarioConfig, "test")


def found(config: ScenarioConfig, run: WorkloadRun, **intervals: Interval | None) -> Any:
    return calibration_of(build(config), run, 4.0, intervals)


def test_the_mean_context_is_that_of_an_output_token() -> None:
    """100 + 10 and 300 + 30 tokens: (10 * 105 + 30 * 315) / 40."""
    told = found(scenario(), workload((100, 10), (300, 30)))
    assert told["context"] == pytest.approx((10 * 105 + 30 * 315) / 40)
    assert told["prompt"] == 200
    assert told["sigma"] == pytest.approx(
        calibration_sigma(build(scenario()), 4.0, told["context"], 200)
    )


def test_parts_and_together() -> None:
    """Chance of 3 % and calibration add in squares on the logarithm."""
    told = found(scenario(), workload((100, 10)), tpot_ms=Interval(10.0, 9.7, 10.3, 5))
    parts, sigma = told["intervals"]["tpot_ms"], told["sigma"]["tpot"]
    assert parts["replications"] == [9.7, 10.3]
    assert parts["calibration"][1] == pytest.approx(10.0 * math.exp(1.96 * sigma))
    both = math.hypot(0.03, 1.96 * sigma)
    assert parts["together"] == pytest.approx([10.0 * math.exp(-both), 10.0 * math.exp(both)])


def test_one_replication_has_the_part_of_calibration_alone() -> None:
    """There is no chance to add, and the report must not pretend there is none."""
    told = found(scenario(), workload((100, 10)), tpot_ms=Interval(10.0, None, None, 1))
    parts = told["intervals"]["tpot_ms"]
    assert parts["replications"] is None
    assert parts["together"] == parts["calibration"]


def test_the_throughput_of_an_open_loop_is_its_load() -> None:
    """Only in a closed loop does a slower step deliver less."""
    rate = Interval(100.0, 99.0, 101.0, 5)
    opened = found(scenario(), workload((100, 10)), throughput_tokens_per_s=rate)
    closed = found(scenario(), workload((9, 9), concurrency=4), throughput_tokens_per_s=rate)
    assert "throughput_tokens_per_s" not in opened["intervals"]
    assert "throughput_tokens_per_s" in closed["intervals"]


def test_nothing_ran_says_nothing() -> None:
    """Without a batch there is no question."""
    assert calibration_of(build(scenario()), workload((9, 9)), None, {}) is None
    assert run_sentence(None) == []


def test_a_simulation_states_both_and_their_sum() -> None:
    """In the document, in the sentences of its report."""
    document = simulate(SCENARIO)
    calibration = document["calibration"]
    parts = calibration["intervals"]["speedup"]
    assert parts["together"][0] <= min(parts["calibration"][0], document["speedup"])
    assert parts["together"][1] >= max(parts["calibration"][1], document["speedup"])
    assert any(text.startswith("Calibration: at batch") for text in document["assumptions"])


def test_a_sweep_states_the_widest() -> None:
    """Each kind of deployment once; an engine that states no error is less sure."""
    vllm, ideal = build(scenario()), build(scenario(engine="ideal"))
    (sure,) = sweep_sentence([ideal], 1024)
    assert sweep_sentence([ideal, vllm], 1024) == sweep_sentence([vllm, ideal, vllm], 1024)
    assert sweep_sentence([ideal, vllm], 1024) == sweep_sentence([vllm], 1024) != [sure]
    assert "1,024 tokens" in sure
    assert "in speedup" in sure
    assert sweep_sentence([], 1024) == []
