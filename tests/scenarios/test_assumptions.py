"""The defaults in force are stated, as ranges where deployments differ."""

from __future__ import annotations

from typing import Any

import pytest

from simspec.core.yamlio import parse_mapping
from simspec.scenarios.api import simulate
from simspec.scenarios.assumptions import assumptions
from simspec.scenarios.build import build
from simspec.scenarios.report import baseline_of
from simspec.scenarios.schema import ScenarioConfig
from tests.sweeps.factory import SCENARIO


def stated(*changes: dict[str, Any]) -> str:
    """Return the sentences on scenarios that differ from the common one."""
    configs = [parse_mapping({**SCENARIO, **each}, ScenarioConfig, "test") for each in changes]
    return " ".join(assumptions([build(config) for config in configs], configs))


def test_engine_defaults_are_numbers_in_the_text() -> None:
    """What vLLM's profile says: limits, share of the memory, host times."""
    text = stated({})
    assert "at most 256 sequences and 8,192 tokens per step, chunked prefill on." in text
    assert "(90% of the device memory less weights, activations and reserve), KV in bf16" in text
    host = "0.753 ms host time per step, 10 µs per sequence, 0.157 ms per draft step"
    assert f"{host}, 0.649 ms per verification" in text
    assert "without those that MSER-5 finds in each run (warm-up) and, in a closed loop" in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scheduler": {"max_num_seqs": 8}}, "at most 8 to 256 sequences"),
        ({"scheduler": {"chunked_prefill": False}}, "chunked prefill on or off"),
        ({"kv_dtype": "fp8"}, "KV in bf16 or fp8"),
        ({"engine": "ideal"}, "Engine ideal: 0 ms host time per step"),
        ({"memory": {"memory_fraction": 0.5}}, "50% to 90% of the device memory"),
        ({"memory": {"num_kv_blocks": 60}}, "(as given, or 90% of the device memory"),
        ({"memory": {"block_size_tokens": 32}}, "blocks of 16 to 32 tokens"),
        ({"simulation": {"warmup": 0.25}}, "the first 25%, or those that MSER-5 finds"),
    ],
)
def test_what_differs_is_a_range(change: dict[str, Any], says: str) -> None:
    """No sentence about several deployments gives one of them for all."""
    assert says in stated({}, change)


def test_a_given_pool_is_not_called_a_share_of_the_memory() -> None:
    """Blocks written in the scenario come from nowhere else."""
    text = stated({"memory": {"num_kv_blocks": 60}})
    assert "KV cache: 60 blocks of 16 tokens per GPU (as given)" in text


def test_a_simulation_states_both_pools() -> None:
    """The baseline has no adapter in memory, hence more blocks."""
    document = simulate(SCENARIO)
    config = parse_mapping(SCENARIO, ScenarioConfig, "test")
    ours, plain = build(config).num_blocks, baseline_of(config, None)[1].num_blocks
    assert ours < plain
    assert any(f"{ours:,} to {plain:,} blocks" in text for text in document["assumptions"])
    assert document["kv_dtype"] == "bf16"


def test_the_speedup_says_when_its_two_runs_may_measure_different_requests() -> None:
    """MSER-5 cuts each run by itself; a given share cuts both alike and needs no caution."""
    assert "different requests" in stated({})
    assert "different requests" not in stated({"simulation": {"warmup": 0.25}})
