"""Draft models, self-speculation and lookup: both roads agree, and known shapes come out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simspec.core.errors import DoesNotFit
from simspec.core.stats import mean_interval, ratio_interval
from simspec.core.yamlio import parse_mapping
from simspec.scenarios.build import Deployment, build
from simspec.scenarios.closed_form import estimate, estimate_round
from simspec.scenarios.report import baseline_of
from simspec.scenarios.run import simulate_scenario
from simspec.scenarios.schema import DeploymentConfig, ScenarioConfig

BETA = {
    "name": "beta_curve",
    "alpha": 0.85,
    "confidence": {"a": 3.0, "b": 1.5},
    "off_track_confidence": {"a": 1.5, "b": 1.5},
    "autocorrelation": 0.3,
}
COPIES = {"name": "lookup", "hit_probability": 0.3, "rates": [0.7, 0.55, 0.48]}
CLUSTERED = {
    "name": "two_state",
    "rates": [0.7, 0.5, 0.35],
    "hard_share": 0.3,
    "log_odds_gap": 2.0,
    "autocorrelation": 0.6,
}
EXIT = {"num_speculative_tokens": 4, "confidence_threshold": 0.5}
SMALL = {"name": "dual_model", "draft_model": "llama-3.2-1b"}
METHODS: dict[str, tuple[dict[str, Any], Any]] = {
    "dual model": ({**SMALL, **EXIT}, BETA),
    "dual model, first step": ({**SMALL, "catch_up": "first_step"}, CLUSTERED),
    "layerskip": ({"name": "layerskip", **EXIT}, BETA),
    "layerskip, two caches": ({"name": "layerskip", "share_kv": False}, CLUSTERED),
    "prompt lookup": ({"name": "prompt_lookup", "num_speculative_tokens": 5}, COPIES),
    # A window inside the prompt: its cost is then linear in the context, as the comparison needs.
    "windowed": ({"name": "windowed", "window_tokens": 24, **EXIT}, BETA),
    "draft and verify": (
        {"name": "draft_and_verify", "skipped_attention": 16, "skipped_mlp": 8, **EXIT},
        BETA,
    ),
}


def deployed(method: Any, acceptance: Any = 0.7, **fields: Any) -> Deployment:
    data = {"model": "llama-3.1-8b", "hardware": "h100_sxm", "method": method, **fields}
    if acceptance is not None:
        data["acceptance"] = acceptance
    return build(parse_mapping(data, DeploymentConfig, "test"))


def numbers(values: list[float | None]) -> list[float]:
    assert None not in values
    return [value for value in values if value is not None]


# -- two roads -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("batch", "prompt", "output", "requests"), [(1, 128, 4000, 4), (16, 32, 1024, 64)]
)
def test_closed_form_and_simulation_agree(
    name: str, batch: int, prompt: int, output: int, requests: int
) -> None:
    """Tokens, round time by phase and speedup within 1 %, at batch 1 and 16.

    The simulated means have a standard error near 0.2 %. At batch 16 prompts share steps with
    decoding, which the closed form leaves out and which adds 0.3 % to a round.
    """
    method, acceptance = METHODS[name]
    data = {
        "model": "llama-3.1-8b",
        "hardware": "h100_sxm",
        "method": method,
        "acceptance": acceptance,
        "workload": {
            "arrivals": {"name": "closed_loop", "concurrency": batch},
            "lengths": {"name": "fixed", "prompt_len": prompt, "output_len": output},
            "num_requests": requests,
        },
        "simulation": {"seed": 3, "replications": 10, "warmup": 0.0},
    }
    config = parse_mapping(data, ScenarioConfig, "test")
    deployment = build(config)
    expected = estimate_round(deployment, batch, prompt + output / 2)
    run = simulate_scenario(config, deployment, check=True).replications
    plain = simulate_scenario(*baseline_of(config, None)).replications
    for column, value in (
        ("drafted_per_round", expected.statistics.drafted_per_round),
        ("accepted_per_round", expected.statistics.accepted_per_round),
        ("round_time_ms", float(expected.round_time_s) * 1e3),
        ("time_draft_ms", float(expected.draft_s) * 1e3),
        ("time_host_ms", float(expected.host_s) * 1e3),
    ):
        assert value == pytest.approx(mean_interval(numbers(run[column])).mean, rel=0.01), column
    speedup = ratio_interval(numbers(plain["tpot_ms"]), numbers(run["tpot_ms"]))
    assert float(expected.speedup) == pytest.approx(speedup.mean, rel=0.01)


# -- shapes ----------------------------------------------------------------------------------


def tiny_draft(folder: Path) -> str:
    """Return a model of 160M parameters whose heads 8 ranks can share."""
    path = folder / "tiny.json"
    config = {
        "model_type": "llama", "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 16, "intermediate_size": 3072, "vocab_size": 32000,
        "max_position_embeddings": 2048, "tie_word_embeddings": True,
    }  # fmt: skip
    path.write_text(json.dumps(config))
    return str(path)


def drafted_by(draft_model: str, draft_tp: int, target: str, engine: str = "vllm") -> Deployment:
    """Return a target on eight H100 and its draft on some of them."""
    method = {"name": "dual_model", "draft_model": draft_model, "draft_tp": draft_tp}
    return deployed(method, model=target, tp=8, engine=engine)


def draft_ms(draft_model: str, draft_tp: int, target: str, engine: str = "vllm") -> float:
    """Return the draft time of a round at batch 1."""
    found = drafted_by(draft_model, draft_tp, target, engine)
    return float(estimate_round(found, 1, 1000.0).draft_s) * 1e3


def test_a_tiny_draft_is_faster_on_one_rank(tmp_path: Path) -> None:
    """Its all-reduces cost more than the weights they spare; an 8B is faster on eight ranks.

    With captured graphs and one-shot all-reduces of a few microseconds that holds for 160M; in
    eager mode, where every all-reduce is one more launch, for 1B too.
    """
    tiny, large = tiny_draft(tmp_path), "llama-3.1-70b"
    assert draft_ms(tiny, 1, "llama-2-70b") < draft_ms(tiny, 8, "llama-2-70b")
    assert draft_ms("llama-3.1-8b", 8, large) < 0.5 * draft_ms("llama-3.1-8b", 1, large)
    eager = [draft_ms("llama-3.2-1b", tp, large, "pytorch") for tp in (1, 8)]
    assert eager[0] < 0.9 * eager[1]


def test_every_all_reduce_of_the_draft_is_paid(tmp_path: Path) -> None:
    """A draft step of 12 layers has 24 of them and a gather; on one rank there is no network."""
    tiny = tiny_draft(tmp_path)
    times = []
    for tp in (1, 2, 8):
        found = drafted_by(tiny, tp, "llama-2-70b")
        step, *_ = found.method.round_passes([1000], [1], [0], None)
        network = [x for x in found.cost.breakdown([step]) if x.operator == "all_reduce"]
        assert sum(line.count for line in network) == (24 if tp > 1 else 0)
        times.append(float(found.cost.step([step], 1).network_s))
    assert times[0] == 0.0 < times[1] < times[2]


BATCHES = np.array([1.0, 4, 16, 64, 128])


def speedups(method: dict[str, Any], context: float) -> np.ndarray:
    found = deployed({"num_speculative_tokens": 3, **method}, 0.8)
    return np.asarray(estimate_round(found, BATCHES, context).speedup)


def test_a_window_gains_with_the_batch_at_long_contexts() -> None:
    """MagicDec (arXiv 2408.11049): where reading the KV rules, larger batches gain *more*.

    A draft step reads all weights but 512 tokens of KV: at 16k tokens each doubling of the batch
    pays more and the gain passes 2 at 128. At 512 tokens it never pays. A draft model that reads
    its whole KV stays where it is, one that saves layers moves by a tenth.
    """
    window = {"name": "windowed"}
    long, short = speedups(window, 16384.0), speedups(window, 512.0)
    assert (np.diff(long) > 0).all()
    assert long[0] < 1.0
    assert long[-1] > 2.0
    assert short.max() < 1.0
    for other in (SMALL, {"name": "layerskip", "exit_layer": 8}):
        found = speedups(other, 16384.0)
        assert found[-1] / found[0] < 1.1 < long[-1] / long[0]


@pytest.mark.parametrize("profile", ["m3_max", "m4_max"])
def test_a_70b_on_a_64_gb_mac_has_no_room_for_a_draft_model(tmp_path: Path, profile: str) -> None:
    """4-bit weights, one text of 32k tokens, three quarters of the memory for the GPU.

    Alone: 39.7 GB of weights and 10.7 GB of KV (2 x 80 x 8 x 128 values of 2 bytes, 32,768 times)
    in 51.5 GB. An 8B in 4 bit adds 4.5 GB and 4.3 GB of KV of its own. LayerSkip adds nothing.
    """
    path = tmp_path / "mac.json"
    memory = {"capacity_gb": 68.72, "nominal_gb": 64}
    path.write_text(json.dumps({"extends": profile, "name": "mac_64", "memory": memory}))
    where = {
        "model": "llama-3.1-70b", "hardware": str(path), "engine": "llama_cpp",
        "dtype": "q4_0", "kv_dtype": "fp16",
    }  # fmt: skip
    alone = deployed("autoregressive", None, **where)
    skipping = deployed({"name": "layerskip", "exit_layer": 10}, **where)
    for fits in (alone, skipping):
        assert estimate(fits, 1, 32768)["fits"]
        assert fits.budget.weights_bytes == pytest.approx(39.7e9, rel=0.002)
        assert fits.budget.kv_bytes_per_token * 32768 == pytest.approx(10.74e9, rel=0.001)
    draft = {"name": "dual_model", "draft_model": "llama-3.1-8b"}
    with pytest.raises(DoesNotFit, match=r"4\.52 GB weights of the decoding method") as refused:
        estimate(deployed(draft, **where), 1, 32768)
    assert str(refused.value).endswith("or a decoding method without memory of its own")
    # In 16 bit the draft would not fit even if the GPU could have all of the memory.
    half = {**draft, "draft_dtype": "fp16"}
    with pytest.raises(DoesNotFit):
        estimate(deployed(half, memory={"memory_fraction": 1.0}, **where), 1, 32768)


def test_a_draft_model_costs_sequences() -> None:
    """CodeLlama-34B in fp8 on one H100 with a 13B draft in bf16: sequences of 2,048 by hand.

    The draft takes 13,015,864,320 x 2 bytes and 2 x 40 x 40 x 128 x 2 bytes a token, four times
    the target's 2 x 48 x 8 x 128 x 2. Sequences hold whole blocks of 16 for their context and the
    six slots of a round.
    """
    pair = {"name": "dual_model", "draft_model": "llama-2-13b", "draft_dtype": "bf16"}
    where = {"model": "codellama-34b", "dtype": "fp8", "kv_dtype": "bf16"}
    alone, both = deployed("autoregressive", None, **where), deployed(pair, **where)
    left = alone.budget.left_bytes
    target_kv, draft_kv = 2 * 48 * 8 * 128 * 2, 2 * 40 * 40 * 128 * 2
    assert alone.budget.kv_bytes_per_token == target_kv
    assert both.budget.kv_bytes_per_token == target_kv + draft_kv
    assert both.budget.left_bytes == pytest.approx(left - 2 * 13_015_864_320)
    blocks = (left - 2 * 13_015_864_320) // (16 * (target_kv + draft_kv))
    per_sequence = -(-(2048 + 6) // 16)
    assert both.max_sequences(2048) == blocks // per_sequence
    assert alone.max_sequences(2048) == left // (16 * target_kv) // -(-(2048 + 1) // 16)
    assert both.max_sequences(2048) < alone.max_sequences(2048) / 8


def test_24_gb_of_draft_cost_the_sequences_they_would_have_held() -> None:
    """Llama-3.1-8B on an 80 GB card: 24 GB are 24e9 / 131,072 tokens, 88 sequences of 2,064."""
    from simspec.memory.capacity import memory_budget

    alone = deployed("autoregressive", None)
    asked = alone.budget.inputs
    less = memory_budget(
        asked.hardware, asked.engine, arch=asked.arch, target=asked.target,
        extra_weights_bytes=24e9, max_num_batched_tokens=asked.max_num_batched_tokens,
        max_num_seqs=asked.max_num_seqs,
    )  # fmt: skip
    blocks = -(-(2048 + 1) // 16)
    lost = alone.max_sequences(2048) - less.num_blocks // blocks
    assert lost in (88, 89)
    assert lost == pytest.approx(24e9 / (131_072 * 16 * blocks), abs=1)


def test_the_window_is_set_aside_for_every_sequence() -> None:
    """512 and four tokens of 131,072 bytes for 256 sequences: 17.3 GB less for the KV pool."""
    alone = deployed("autoregressive", None)
    found = deployed({"name": "windowed", "num_speculative_tokens": 3})
    buffers = 256 * 516 * 131_072
    assert found.budget.buffer_bytes == buffers
    assert alone.budget.left_bytes - found.budget.left_bytes == pytest.approx(buffers)
    few = deployed({"name": "windowed", "num_speculative_tokens": 3}, scheduler={"max_num_seqs": 8})
    assert few.budget.buffer_bytes == buffers / 32


def test_a_search_pays_even_if_few_are_found() -> None:
    """One token in seven copied at next to no cost: a gain at batch 1, where a draft model loses.

    GSM8K's n-gram acceptance (docs/theory/acceptance.md) gives 1.16 tokens a round; a 1B draft
    accepted as rarely is far below 1.
    """
    rare = {"name": "lookup", "hit_probability": 0.13, "rates": [0.56, 0.31, 0.18]}
    search = deployed({"name": "prompt_lookup", "num_speculative_tokens": 3}, rare)
    found = estimate_round(search, 1, 1000.0)
    assert found.statistics.tokens_per_round == pytest.approx(1.16, abs=0.01)
    assert 1.1 < float(found.speedup) < found.statistics.tokens_per_round
    assert float(estimate_round(deployed(SMALL, 0.13), 1, 1000.0).speedup) < 0.6
