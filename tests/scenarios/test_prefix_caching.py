"""Prefix caching from a scenario: the log's hashes reach the pool, and the engine has its say."""

from __future__ import annotations

from typing import Any

import pytest

from simspec.core.errors import ConfigError
from simspec.core.yamlio import parse_mapping
from simspec.scenarios.build import build
from simspec.scenarios.run import draw_workload, simulate_scenario
from simspec.scenarios.schema import ScenarioConfig
from tests.helpers.shared import shared
from tests.serving.test_prefix_caching import MOONCAKE, counted


def scenario(**changes: Any) -> ScenarioConfig:
    data = {
        "model": "llama-3.1-8b",
        "hardware": "h100_sxm",
        "method": "autoregressive",
        "workload": {
            "arrivals": {
                "name": "replay", "path": str(shared(MOONCAKE)), "format": "mooncake", "limit": 200,
            }
        },
        "memory": {"num_kv_blocks": 200_000},
        "simulation": {"seed": 1, "replications": 1, "warmup": 0.0},
    }  # fmt: skip
    return parse_mapping({**data, "kv_dtype": "fp8", "tp": 8, **changes}, ScenarioConfig, "test")


def hit_rate(config: ScenarioConfig) -> float | None:
    outcome = simulate_scenario(config, build(config))
    return outcome.replications["prefix_cache_hit_rate"][0]


def test_a_replayed_log_saves_what_a_count_of_its_hashes_says():
    """The engine profile caches prefixes; the metric is hits over prompt tokens."""
    config = scenario()
    load = list(draw_workload(config, 0, None).requests)
    due = sum(counted(load)) / sum(request.prompt_len for request in load)
    assert due > 0.02
    assert hit_rate(config) == pytest.approx(due, rel=1e-12)


def test_a_scenario_can_turn_it_off_and_on():
    """Off under vLLM on request; on under an engine whose profile does not have it."""
    assert hit_rate(scenario(scheduler={"prefix_caching": False})) == 0.0
    on = hit_rate(scenario(engine="ideal", scheduler={"prefix_caching": True}))
    assert on is not None
    assert on > 0.02
    assert hit_rate(scenario(engine="ideal")) == 0.0


def test_it_is_refused_for_prompts_that_say_nothing():
    """A setting without effect is an error, not a silence."""
    with pytest.raises(ConfigError, match="no request of the workload says what its prompt"):
        hit_rate(
            scenario(
                scheduler={"prefix_caching": True},
                workload={
                    "arrivals": {"name": "closed_loop", "concurrency": 2},
                    "lengths": {"name": "fixed", "prompt_len": 64, "output_len": 4},
                    "num_requests": 4,
                },
            )
        )
