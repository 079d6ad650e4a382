"""The closed form and the simulation are two roads to one number where both apply.

They share the cost model and the acceptance process, nothing else: the simulation reads tapes and
schedules steps, the closed form integrates over the process.

The closed form is taken at the mean context of the run, prompt + output / 2: a step's time is
affine in the context as long as the same roof binds, so its mean over a run is its value at the
mean.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from simspec.core.stats import Interval, mean_interval, ratio_interval
from simspec.core.yamlio import parse_mapping
from simspec.scenarios.build import build
from simspec.scenarios.closed_form import estimate_round
from simspec.scenarios.report import baseline_of
from simspec.scenarios.run import Outcome, simulate_scenario
from simspec.scenarios.schema import ScenarioConfig

THRESHOLDS = (0.0, 0.4, 0.65, 0.9)
DRAFTS = (1, 3, 6)
QUANTITIES = ("drafted_per_round", "accepted_per_round", "speedup")
PROMPT, OUTPUT = 128, 4000
# 36 comparisons are made. Each is held to the interval that makes all 36 true together in 95 of
# 100 seeds (Bonferroni), and of the nine of a threshold no more than two may lie outside their own
# 95 % interval (P(three by chance) = 0.8 %). The seed is fixed: the test always says the same.
CONFIDENCE_OF_EACH = 1 - 0.05 / (len(THRESHOLDS) * len(DRAFTS) * len(QUANTITIES))
MOST_OUTSIDE_95 = 2


def scenario(threshold: float, num_drafts: int, **workload: Any) -> ScenarioConfig:
    data = {
        "model": "llama-3.1-8b",
        "hardware": "h100_sxm",
        "method": {
            "name": "kangaroo",
            "exit_layer": 3,
            "num_speculative_tokens": num_drafts,
            "confidence_threshold": threshold,
        },
        "acceptance": {
            "name": "beta_curve",
            "alpha": 0.9,
            "confidence": {"a": 3.0, "b": 1.5},
            "off_track_confidence": {"a": 1.5, "b": 1.5},
            "autocorrelation": 0.3,
        },
        "workload": workload,
        "simulation": {"seed": 11, "replications": 10, "warmup": 0.0},
    }
    return parse_mapping(data, ScenarioConfig, "test")


def one_user(threshold: float, num_drafts: int, output: int = OUTPUT) -> ScenarioConfig:
    return scenario(
        threshold,
        num_drafts,
        arrivals={"name": "closed_loop", "concurrency": 1},
        lengths={"name": "fixed", "prompt_len": PROMPT, "output_len": output},
        num_requests=2,
    )


def numbers(values: list[float | None]) -> list[float]:
    assert None not in values
    return [value for value in values if value is not None]


@cache
def plain_of_one_user() -> Outcome:
    return simulate_scenario(*baseline_of(one_user(0.0, 1), None))


Both = dict[str, tuple[float, list[list[float]]]]


def both(threshold: float, num_drafts: int) -> Both:
    """Return per quantity the closed form's number, and the simulation's replications.

    Those are one list, or two of which the ratio is meant.
    """
    config = one_user(threshold, num_drafts)
    deployment = build(config)
    expected = estimate_round(deployment, 1, PROMPT + OUTPUT / 2)
    run = simulate_scenario(config, deployment).replications
    plain = plain_of_one_user().replications
    return {
        "drafted_per_round": (
            expected.statistics.drafted_per_round,
            [numbers(run["drafted_per_round"])],
        ),
        "accepted_per_round": (
            expected.statistics.accepted_per_round,
            [numbers(run["accepted_per_round"])],
        ),
        "speedup": (
            float(expected.speedup),
            [numbers(plain["tpot_ms"]), numbers(run["tpot_ms"])],
        ),
    }


def interval(samples: list[list[float]], confidence: float) -> Interval:
    if len(samples) == 1:
        return mean_interval(samples[0], confidence)
    return ratio_interval(*samples, confidence)


def holds(found: Interval, value: float) -> bool:
    # A chain that always drafts K has no spread; rounding is not disagreement.
    slack = 1e-9 * abs(value)
    assert found.low is not None
    assert found.high is not None
    return found.low - slack <= value <= found.high + slack


@pytest.mark.slow
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_one_user(threshold: float) -> None:
    """At batch 1 drafted and accepted tokens per round and the speedup agree within 1 %."""
    outside = []
    for num_drafts in DRAFTS:
        for name, (expected, samples) in both(threshold, num_drafts).items():
            found = interval(samples, CONFIDENCE_OF_EACH)
            assert holds(found, expected), (num_drafts, name, expected, found)
            assert expected == pytest.approx(found.mean, rel=0.01), (num_drafts, name)
            if not holds(interval(samples, 0.95), expected):
                outside.append((num_drafts, name))
    assert len(outside) <= MOST_OUTSIDE_95, outside


def test_a_plain_step_agrees() -> None:
    """Nothing is random in plain decoding: only the first token of each answer is not a step."""
    expected = estimate_round(build(one_user(0.0, 1)), 1, PROMPT + OUTPUT / 2)
    step, *others = numbers(plain_of_one_user().replications["round_time_ms"])
    assert float(expected.step_time_s) * 1e3 == pytest.approx(step, rel=1e-4)
    assert others == [step] * len(others)


def test_the_threshold_of_a_single_draft_changes_nothing() -> None:
    """K = 1 drafts one token whatever its confidence, in both engines."""
    runs, rounds = [], []
    for threshold in THRESHOLDS:
        config = one_user(threshold, 1, output=100)
        deployment = build(config)
        runs.append(simulate_scenario(config, deployment).replications)
        rounds.append(float(estimate_round(deployment, 1, PROMPT).round_time_s))
    assert runs == [runs[0]] * len(THRESHOLDS)
    assert rounds == pytest.approx([rounds[0]] * len(THRESHOLDS), rel=1e-12)


@pytest.mark.parametrize(("threshold", "num_drafts"), [(0.0, 3), (0.65, 6)])
def test_sixteen_users(threshold: float, num_drafts: int) -> None:
    """At batch 16, lock-step rounds included, both agree within 1 %, phase by phase.

    Prompts share steps with decoding here, which the closed form leaves out: with 32 output
    tokens for each prompt token they add 0.3 % to a round, the known part of the difference.
    """
    batch, prompt, output = 16, 32, 1024
    config = scenario(
        threshold,
        num_drafts,
        arrivals={"name": "closed_loop", "concurrency": batch},
        lengths={"name": "fixed", "prompt_len": prompt, "output_len": output},
        num_requests=4 * batch,
    )
    deployment = build(config)
    expected = estimate_round(deployment, batch, prompt + output / 2)
    run = simulate_scenario(config, deployment).replications
    plain = simulate_scenario(*baseline_of(config, None)).replications
    for name, value in (
        ("drafted_per_round", expected.statistics.drafted_per_round),
        ("accepted_per_round", expected.statistics.accepted_per_round),
        ("time_draft_ms", float(expected.draft_s) * 1e3),
        ("time_verify_ms", float(expected.verify_s) * 1e3),
        ("time_host_ms", float(expected.host_s) * 1e3),
        ("mean_batch_size", batch),
    ):
        assert value == pytest.approx(mean_interval(numbers(run[name])).mean, rel=0.01), name
    speedup = ratio_interval(numbers(plain["tpot_ms"]), numbers(run["tpot_ms"]))
    assert float(expected.speedup) == pytest.approx(speedup.mean, rel=0.01)
