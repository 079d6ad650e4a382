"""What each class got, in the result of a scenario."""

from __future__ import annotations

from typing import Any

import pytest

from simspec.core.yamlio import parse_mapping
from simspec.scenarios.build import build
from simspec.scenarios.classes import class_lines
from simspec.scenarios.run import Observed, Outcome, simulate_scenario
from simspec.scenarios.schema import ScenarioConfig

CLASSES = [{"priority": 0, "weight": 1}, {"priority": 5, "weight": 2}]


def outcome(policy: Any, classes: Any = CLASSES, **changes: Any) -> tuple[Outcome, list[Observed]]:
    config = parse_mapping(
        {
            "model": "llama-3.2-1b",
            "hardware": "h100_sxm",
            "method": "autoregressive",
            "workload": {
                "arrivals": {"name": "poisson", "rate_per_s": 60.0},
                "lengths": {"name": "fixed", "prompt_len": 400, "output_len": 40},
                "num_requests": 80,
                "priority_classes": classes,
            },
            "scheduler": {"policy": policy, "max_num_seqs": 4},
            "simulation": {"seed": 3, "replications": 2, "warmup": 0.0},
            **changes,
        },
        ScenarioConfig,
        "test",
    )
    seen: list[Observed] = []
    return simulate_scenario(config, build(config), observe=seen.append), seen


def test_a_row_per_class_is_the_mean_over_its_requests():
    """The counts add up, the means are those of the records, the urgent class waits less."""
    found, seen = outcome({"name": "priority", "class_ttft_ms": {5: 200.0}})
    urgent, other = found.facts["classes"]
    assert (urgent["priority"], other["priority"]) == (0, 5)
    assert urgent["num_measured"] + other["num_measured"] == 80
    assert urgent["ttft_ms"] < other["ttft_ms"]
    means, met = [], []
    for run in seen:
        requests = run.records.requests
        ttft_s = (requests.first_token_s - requests.arrival_s)[requests.priority == 5]
        means.append(1e3 * ttft_s.mean())
        met.append((ttft_s <= 0.2).mean())
    assert other["ttft_ms"] == pytest.approx(sum(means) / 2)
    assert other["ttft_target_met"] == pytest.approx(sum(met) / 2)
    assert 0.0 < other["ttft_target_met"] < 1.0
    assert "ttft_target_met" not in urgent
    lines = class_lines(found.facts["classes"])
    assert lines[0].startswith("class 0")
    assert lines[1].endswith("within 200 ms")


def test_one_class_has_no_rows():
    """A result without classes looks as it always did."""
    found, _ = outcome("continuous", classes=None)
    assert "classes" not in found.facts
    assert class_lines(found.facts.get("classes")) == []
