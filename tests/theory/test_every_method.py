"""Laws that every decoding method keeps, on every kind of hardware.

Each registered method is taken as its own examples give it, on a model they are written for, so a
method that is added is judged without a line here.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simspec.core.errors import ConfigError
from simspec.core.yamlio import parse_mapping
from simspec.decoding._base import METHODS
from simspec.scenarios.build import Deployment, build
from simspec.scenarios.closed_form import RoundEstimate, estimate, estimate_round
from simspec.scenarios.run import simulate_scenario
from simspec.scenarios.schema import DeploymentConfig, ScenarioConfig
from tests.decoding.factories import examples

TARGET = "llama-2-13b"
CARDS = (("h100_sxm", 1), ("h100_sxm", 2), ("h100_sxm", 8), ("rtx_4090", 1), ("m2_ultra", 1))
"""And the tensor-parallel degree."""
BATCHES = np.array([1.0, 2.0, 7.0, 32.0, 100.0, 256.0])
CONTEXTS = np.array([128.0, 1000.0, 2048.0, 16_000.0, 100_000.0])
GIVEN = [(c.name, c.model_dump(exclude_unset=True)) for c in examples(METHODS)]
SPECULATING = [data for name, data in GIVEN if name not in {"autoregressive", "unverified_exit"}]
FIRST = [next(data for other, data in GIVEN if other == name) for name in METHODS.names()]
GROWING = ("num_speculative_tokens", "num_nodes", "exit_layer", "num_heads", "num_modules")
"""Fields that add work to a round, whatever the method."""

each_method = pytest.mark.parametrize("method", FIRST, ids=lambda data: data["name"])
each_speculating = pytest.mark.parametrize("method", SPECULATING, ids=str)
methods, cards = st.sampled_from(SPECULATING), st.sampled_from(CARDS)
some = settings(max_examples=60)


def with_threshold(method: dict[str, Any], threshold: float) -> dict[str, Any]:
    """Return the method with a confidence threshold, if it has one."""
    if "confidence_threshold" in METHODS.config_class(method["name"]).model_fields:
        return {**method, "confidence_threshold": threshold}
    return method


def deployment(
    method: dict[str, Any], alpha: float | None = 0.7, card: str = "h100_sxm", tp: int = 1
) -> Deployment:
    acceptance = {"name": "constant", "alpha": alpha, "confidence": {"a": 2.0, "b": 1.0}}
    return _built(json.dumps(method), json.dumps(acceptance), card, tp)


@cache
def _built(method: str, acceptance: str, card: str, tp: int) -> Deployment:
    data: dict[str, Any] = {
        "model": TARGET,
        "hardware": card,
        "tp": tp,
        "method": json.loads(method),
        "scheduler": {"max_num_seqs": 32},
    }
    if data["method"]["name"] != "autoregressive":
        data["acceptance"] = json.loads(acceptance)
    return build(parse_mapping(data, DeploymentConfig, "test"))


def rounds(one: Deployment) -> RoundEstimate:
    """Return the rounds of all batches (rows) and contexts (columns)."""
    return estimate_round(one, BATCHES[:, None], CONTEXTS[None, :])


@some
@given(method=methods, card=cards, alpha=st.floats(0, 1), threshold=st.sampled_from([0.0, 0.6]))
def test_no_speedup_beyond_the_tokens_of_a_round(
    method: dict[str, Any], card: tuple[str, int], alpha: float, threshold: float
) -> None:
    """Every layer verifies every round, so a round is never shorter than a plain step."""
    found = rounds(deployment(with_threshold(method, threshold), alpha, *card))
    assert np.all(np.asarray(found.speedup) <= found.statistics.tokens_per_round * (1 + 1e-9))


@some
@given(method=methods, card=cards)
def test_no_free_lunch(method: dict[str, Any], card: tuple[str, int]) -> None:
    """Where nothing is accepted a round yields one token, later than a plain step does."""
    found = rounds(deployment(with_threshold(method, 0.0), 0.0, *card))
    assert found.statistics.tokens_per_round == pytest.approx(1.0, abs=1e-12)
    assert np.all(np.asarray(found.speedup) < 1.0)


@each_speculating
def test_everything_accepted_yields_the_depth_and_one(method: dict[str, Any]) -> None:
    """K + 1 tokens of a chain, D + 1 of a tree, and never more."""
    one = deployment(with_threshold(method, 0.0), 1.0)
    statistics = one.method.statistics(one.acceptance)
    tree = getattr(one.method, "tree", None)
    chain_or_levels = getattr(one.method, "depth", one.method.max_draft)
    depth = chain_or_levels if tree is None else tree.depth
    assert statistics.tokens_per_round == pytest.approx(depth + 1, abs=1e-9)


@some
@given(method=st.sampled_from([data for _, data in GIVEN]), card=cards)
def test_a_round_is_the_sum_of_its_parts(method: dict[str, Any], card: tuple[str, int]) -> None:
    """Drafts, verification and host are the whole round, and longer work takes longer."""
    found = rounds(deployment(method, 0.7, *card))
    time = np.asarray(found.round_time_s)
    parts = np.asarray(found.draft_s + found.verify_s + found.host_s)
    np.testing.assert_allclose(parts, time, rtol=1e-12)
    assert np.all(np.diff(time, axis=0) > 0)
    assert np.all(np.diff(time, axis=1) > 0)


@each_method
def test_an_estimate_says_the_parts(method: dict[str, Any]) -> None:
    """The same of what ``simspec estimate`` prints."""
    found: dict[str, Any] = estimate(deployment(with_threshold(method, 0.0)), 3, 300)
    parts = [found[f"time_{part}_ms"] for part in ("draft", "verify", "host")]
    assert sum(parts) == pytest.approx(found["round_time_ms"], rel=1e-12)
    assert found["status"] == "ok"


@some
@given(method=methods, card=cards, field=st.sampled_from(GROWING))
def test_more_to_draft_takes_longer(
    method: dict[str, Any], card: tuple[str, int], field: str
) -> None:
    """A longer chain, a larger tree, a deeper exit or another head never shortens a round."""
    method = with_threshold(method, 0.0)
    now = getattr(METHODS.parse(method), field, None)
    if now is None:
        return
    before = np.asarray(rounds(deployment(method, 0.7, *card)).round_time_s)
    try:
        more = deployment({**method, field: now + 1}, 0.7, *card)
    except ConfigError:
        return  # as many as there can be
    assert np.all(np.asarray(rounds(more).round_time_s) >= before * (1 - 1e-9))


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the cards with half the bandwidth of their memory."""
    folder, found = tmp_path_factory.mktemp("halves"), {}
    for card, _ in CARDS:
        full = deployment({"name": "autoregressive"}, None, card).hardware
        half = full.memory_bandwidth_bytes_per_s / 2e9
        data = {
            "extends": card,
            "name": f"half_{card}",
            "memory": {"bandwidth_gb_s": half, "source": "half of the card"},
        }
        path: Path = folder / f"{card}.yaml"
        path.write_text(json.dumps(data))
        found[card] = str(path)
    return found


@each_method
@pytest.mark.parametrize("card", ["h100_sxm", "rtx_4090", "m2_ultra"])
def test_half_the_bandwidth_speeds_nothing_up(
    method: dict[str, Any], card: str, halves: dict[str, str]
) -> None:
    """Not a plain step, not a round, not its drafts, at any batch and context."""
    full, half = (rounds(deployment(method, 0.7, name)) for name in (card, halves[card]))
    for name in ("step_time_s", "round_time_s", "draft_s", "verify_s"):
        assert np.all(getattr(half, name) >= np.asarray(getattr(full, name)) * (1 - 1e-9)), name


@each_speculating
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_what_a_method_adds_is_in_the_memory(method: dict[str, Any], tp: int) -> None:
    """Its weights, its KV and its buffers are taken from the pool, and nothing is negative."""
    one, plain = (deployment(data, 0.7, "h100_sxm", tp) for data in (method, FIRST[0]))
    added = one.method.footprint()
    budget, without = one.budget, plain.budget
    assert min(added.extra_weights_bytes, added.extra_kv_bytes_per_token) >= 0.0
    assert added.reserved_slots == one.method.max_draft + 1
    assert budget.extra_weights_bytes == added.extra_weights_bytes
    assert budget.kv_bytes_per_token == without.kv_bytes_per_token + added.extra_kv_bytes_per_token
    buffers = added.extra_kv_bytes_per_sequence * one.limits.max_num_seqs
    assert budget.buffer_bytes == pytest.approx(buffers)
    if added.extra_weights_bytes or added.extra_kv_bytes_per_token or buffers:
        assert one.kv_capacity_tokens < plain.kv_capacity_tokens
    else:
        assert one.kv_capacity_tokens == plain.kv_capacity_tokens
    assert one.kv_capacity_tokens >= 0
    assert one.max_sequences(1000) <= plain.max_sequences(1000)


@pytest.mark.parametrize(
    "method",
    [
        {"name": "dual_model", "draft_model": TARGET, "num_speculative_tokens": 3},
        {"name": "draft_and_verify", "skipped_attention": 0, "skipped_mlp": 0},
        {"name": "windowed", "window_tokens": 1_000_000, "num_speculative_tokens": 3},
    ],
    ids=lambda data: data["name"],
)
def test_a_drafter_that_is_the_target_costs_plain_steps(method: dict[str, Any]) -> None:
    """Draft step j is a plain step at a context of c + j - 1, less the host's share."""
    one = deployment(with_threshold({**method, "num_speculative_tokens": 3}, 0.0), 0.0)
    plain = deployment(FIRST[0], None)
    for batch, context in ((1, 500), (16, 4000)):
        found = estimate_round(one, np.array([float(batch)]), np.array([float(context)]))
        steps = estimate_round(
            plain, np.array([float(batch)]), context + np.arange(3, dtype=np.float64)
        )
        expected = float(np.sum(np.asarray(steps.verify_s)))
        assert float(np.asarray(found.draft_s)[0]) == pytest.approx(expected, rel=1e-9)


def test_a_search_that_never_finds_is_plain_decoding() -> None:
    """Prompt lookup without matches: one token a round, for a plain step and the search."""
    data = {
        "model": TARGET,
        "hardware": "h100_sxm",
        "method": "prompt_lookup",
        "acceptance": {"name": "lookup", "hit_probability": 0.0, "rates": [0.5]},
    }
    found = rounds(build(parse_mapping(data, DeploymentConfig, "test")))
    assert found.statistics.tokens_per_round == 1.0
    device = np.asarray(found.verify_s)
    plain = rounds(deployment(FIRST[0], None))
    np.testing.assert_allclose(device, np.asarray(plain.verify_s), rtol=1e-12)
    assert np.all(np.asarray(found.host_s) >= np.asarray(plain.host_s))


@each_method
def test_one_user_simulated_agrees(method: dict[str, Any]) -> None:
    """60 requests one after the other: TPOT and tokens per round within 3 %."""
    prompt, output = 256, 128
    method = with_threshold(method, 0.0)
    data: dict[str, Any] = {
        "model": TARGET,
        "hardware": "h100_sxm",
        "method": method,
        "workload": {
            "arrivals": {"name": "closed_loop", "concurrency": 1},
            "lengths": {"name": "fixed", "prompt_len": prompt, "output_len": output},
            "num_requests": 60,
        },
        "scheduler": {"max_num_seqs": 8},
        "simulation": {"seed": 3, "replications": 2, "warmup": 0.0},
    }
    if method["name"] != "autoregressive":
        data["acceptance"] = 0.6
    config = parse_mapping(data, ScenarioConfig, "test")
    one = build(config)
    expected = estimate_round(one, 1, prompt + output / 2)
    run = simulate_scenario(config, one).replications
    tokens = expected.statistics.tokens_per_round
    assert np.mean(run["tpot_ms"]) == pytest.approx(float(expected.tpot_s) * 1e3, rel=0.03)
    assert np.mean(run["tokens_per_round"]) == pytest.approx(tokens, rel=0.03)
