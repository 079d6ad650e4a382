"""Every field of a scenario can be an axis, and none is ignored.

Each leaf field of each variant is set to another value: the numbers must change, or the scenario
must be refused. A new field makes the first test fail until another value is given for it here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from simspec.core.errors import SimspecError
from simspec.core.registry import PluginConfig
from simspec.core.yamlio import load_yaml, parse, parse_mapping
from simspec.decoding._base import ACCEPTANCE_MODELS, METHODS
from simspec.scenarios.build import build
from simspec.scenarios.closed_form import estimate
from simspec.scenarios.run import simulate_scenario
from simspec.scenarios.schema import ScenarioConfig
from simspec.serving.speculation._base import SPECULATIONS
from simspec.sweeps.grid import expand
from simspec.sweeps.schema import SweepConfig
from simspec.workloads._base import ARRIVALS, LENGTHS
from tests.sweeps.factory import write_sweep

LOG = "log.csv"
LOG_TEXT = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2024-05-10 00:00:{second:02d}.5,{40 + 9 * second},{4 + second}\n" for second in range(8)
)
BASE: dict[str, Any] = {
    "model": "llama-3.2-1b",
    "hardware": "h100_sxm",
    "engine": "vllm",
    "tp": 1,
    "dtype": "bf16",
    "kv_dtype": "bf16",
    "method": {
        "name": "kangaroo",
        "exit_layer": 2,
        "num_speculative_tokens": 3,
        "confidence_threshold": 0.5,
    },
    "acceptance": {
        "name": "beta_curve",
        "rates": [0.6, 0.3, 0.2],
        "slope": 1.0,
        "confidence": {"a": 1.5, "b": 1.0},
        "off_track_confidence": {"a": 1.0, "b": 1.5},
        "autocorrelation": 0.3,
        "reference_exit_layer": 3,
        "log_odds_per_layer": 0.2,
        "confidence_log_odds_per_layer": 0.1,
        "source": "made up",
    },
    "scheduler": {"policy": "continuous", "max_num_seqs": 8, "max_num_batched_tokens": 96},
    "memory": {"memory_fraction": 0.5, "block_size_tokens": 16},
    "workload": {
        "arrivals": {"name": "poisson", "rate_per_s": 300.0},
        "lengths": {
            "name": "lognormal",
            "prompt": {"median": 60, "sigma": 1.0, "max": 200},
            "output": {"mean": 12, "sigma": 0.8, "max": 40},
        },
        "num_requests": 12,
        "max_context_tokens": 150,
        "over_context": "clip",
    },
    "slo": {"ttft_ms": 1e6, "tpot_ms": 1e6, "e2e_ms": 1e6},
    "simulation": {"seed": 5, "replications": 2, "warmup": 0.0},
}


def changed(**fields: Any) -> dict[str, Any]:
    """Return the base scenario with sections replaced."""
    return copy.deepcopy({**BASE, **fields})


def with_load(arrivals: Any, lengths: Any = None, **fields: Any) -> dict[str, Any]:
    workload = {"arrivals": arrivals, "lengths": lengths, "num_requests": 8, **fields}
    return changed(workload={k: v for k, v in workload.items() if v is not None})


FIXED = {"name": "fixed", "prompt_len": 30, "output_len": 6}
BETA = BASE["acceptance"]
PARTS = {
    key: BETA[key]
    for key in (
        "confidence",
        "off_track_confidence",
        "reference_exit_layer",
        "log_odds_per_layer",
        "confidence_log_odds_per_layer",
        "source",
    )
}
OF_NO_LAYER = {key: BETA[key] for key in BETA if "layer" not in key}
RANKS = {
    "name": "tree_ranks",
    "hit_rates": [[0.6, 0.7, 0.75], [0.4, 0.5, 0.55]],
    "persistence": 0.2,
    "source": "made up",
}
DRAFTS = {"num_speculative_tokens": 3, "confidence_threshold": 0.5}
TRACE = "trace.jsonl"
TRACE_TEXT = '{"accepted": [0, 2, 1, 0, 0, 3, 2, 1, 0, 1, 0]}\n{"accepted": [1, 0, 0, 2, 1, 0]}\n'
VARIANTS: dict[str, dict[str, Any]] = {
    "base": BASE,
    "alpha": changed(
        acceptance={**{k: BETA[k] for k in BETA if k not in {"rates", "slope"}}, "alpha": 0.5}
    ),
    "offsets": changed(
        acceptance={**{k: BETA[k] for k in BETA if k != "rates"}, "offsets": [0.5, -1.0]}
    ),
    "constant": changed(acceptance={"name": "constant", "alpha": 0.6, **PARTS}),
    "per_position": changed(
        acceptance={"name": "per_position", "rates": [0.6, 0.3], **PARTS}
    ),
    "published_mean": changed(
        acceptance={
            "name": "tokens_per_round", "tokens_per_round": 2.0, "num_speculative_tokens": 3,
            **PARTS,
        }
    ),
    "published_rate": changed(
        acceptance={
            "name": "tokens_per_round", "acceptance_rate": 0.4, "num_speculative_tokens": 3,
            **PARTS,
        }
    ),
    "by_exit_layer": changed(
        method={"name": "layerskip", "exit_layer": 3, "num_speculative_tokens": 3},
        acceptance={
            "name": "by_exit_layer",
            "layers": [
                {"exit_layer": 2, "acceptance": 0.5}, {"exit_layer": 5, "acceptance": 0.8}
            ],
            "source": "made up",
        },
    ),
    "catalog": changed(
        method={"name": "layerskip", "exit_layer": 3, "num_speculative_tokens": 3},
        acceptance={"name": "catalog", "profile": "layerskip-llama-2-7b-cnn-text"},
    ),
    "blocks": changed(memory={"num_kv_blocks": 400, "block_size_tokens": 16}),
    "closed_loop": with_load({"name": "closed_loop", "concurrency": 3}, FIXED),
    "constant_rate": with_load({"name": "constant", "rate_per_s": 100.0}, FIXED),
    "gamma": with_load({"name": "gamma", "rate_per_s": 100.0, "cv": 2.0}, FIXED),
    "empirical": with_load(
        {"name": "closed_loop", "concurrency": 3},
        {"name": "empirical", "profile": "azure_conv_2023"},
        max_context_tokens=100,
        over_context="clip",
    ),
    "replay": with_load(
        {"name": "replay", "path": LOG, "format": "azure", "rate_scale": 100.0, "limit": 7},
        num_requests=None,
    ),
    "plain": changed(method={"name": "autoregressive"}, acceptance=None),
    "dual_model": changed(
        method={
            "name": "dual_model",
            "draft_model": "llama-3.2-1b",
            "draft_dtype": "bf16",
            "draft_kv_dtype": "bf16",
            "draft_tp": 1,
            "catch_up": "pass",
            **DRAFTS,
        },
        acceptance=OF_NO_LAYER,
        tp=2,
    ),
    "layerskip": changed(method={"name": "layerskip", "exit_layer": 3, "share_kv": True, **DRAFTS}),
    "windowed": changed(
        method={"name": "windowed", "window_tokens": 60, "sink_tokens": 4, **DRAFTS},
        acceptance=OF_NO_LAYER,
    ),
    "draft_and_verify": changed(
        method={
            "name": "draft_and_verify", "skipped_attention": 6, "skipped_mlp": [1, 2], **DRAFTS
        },
        acceptance=OF_NO_LAYER,
    ),
    "prompt_lookup": changed(
        method={"name": "prompt_lookup", "num_speculative_tokens": 3},
        acceptance={
            "name": "lookup", "hit_probability": 0.4, "rates": [0.6, 0.5], "source": "made up"
        },
    ),
    "two_state": changed(
        method={"name": "layerskip", "exit_layer": 3, "num_speculative_tokens": 3},
        acceptance={
            "name": "two_state", "rates": [0.6, 0.3], "hard_share": 0.3, "log_odds_gap": 2.0,
            "autocorrelation": 0.7, "source": "made up",
        },
    ),
    "trace": changed(
        method={"name": "layerskip", "exit_layer": 3, "num_speculative_tokens": 3},
        acceptance={"name": "replay", "path": TRACE, "source": "made up"},
    ),
    "trace_in_place": changed(
        method={"name": "layerskip", "exit_layer": 3, "num_speculative_tokens": 3},
        acceptance={"name": "replay", "accepted": [[0, 2, 1, 0, 1, 0]], "source": "made up"},
    ),
    "eagle": changed(
        method={
            "name": "eagle",
            "num_speculative_tokens": 3,
            "top_k": 3,
            "num_nodes": 8,
            "intermediate_size": 2048,
            "num_kv_heads": 4,
        },
        acceptance=RANKS,
    ),
    "eagle_3": changed(
        method={"name": "eagle", "version": 3, "top_k": 1, "draft_vocab_size": 32000},
        acceptance=RANKS,
    ),
    "static_tree": changed(
        method={"name": "eagle", "version": 3, "tree": [[0], [0, 0]]}, acceptance=RANKS
    ),
    "medusa": changed(
        method={
            "name": "medusa",
            "num_nodes": 3,
            "num_heads": 2,
            "head_accuracies": [[0.5, 0.6], [0.3, 0.4]],
        },
        acceptance=RANKS,
    ),
    "mtp": changed(method={"name": "mtp", "num_speculative_tokens": 3}, acceptance=RANKS),
    "unverified_exit": changed(method={"name": "unverified_exit", "exit_layer": 2}),
    "off_above": changed(speculation={"name": "off_above", "batch_size": 6, "resume_below": 4}),
    "tracking": changed(
        speculation={
            "name": "tracking", "draft_lengths": [1, 2], "smoothing": 0.2, "interval_rounds": 5,
            "warmup_rounds": 3, "down_hysteresis": 0.0, "up_hysteresis": -0.25,
        }
    ),
    "goodput": changed(
        speculation={
            "name": "goodput", "thresholds": [0.8], "min_gain": 0.01, "memory_rounds": 10_000,
        }
    ),
    "unverified_fallback": changed(
        method={"name": "layerskip", "exit_layer": 3, **DRAFTS},
        speculation={
            "name": "unverified_fallback", "num_waiting": 3, "batch_size": 7, "resume_share": 0.9,
        },
    ),
}  # fmt: skip
OTHER: dict[str, Any] = {
    "acceptance.tokens_per_round": 2.5,
    "acceptance.acceptance_rate": 0.7,
    "acceptance.num_speculative_tokens": 6,
    "acceptance.layers": [
        {"exit_layer": 2, "acceptance": 0.2},
        {"exit_layer": 5, "acceptance": 0.4},
    ],
    "acceptance.profile": "layerskip-llama-2-7b-cnn-summaries",
    "model": "llama-3.1-8b",
    "hardware": "l40s",
    "engine": "pytorch",
    "tp": 2,
    "expert_parallel": 2,
    "attention_data_parallel": 2,
    "dtype": "fp8",
    "kv_dtype": "fp8",
    "method": "autoregressive",
    "method.exit_layer": 4,
    "method.num_speculative_tokens": 5,
    "method.confidence_threshold": 0.9,
    "method.draft_kv_dtype": "fp8",
    "method.catch_up": "first_step",
    "method.share_kv": False,
    "method.window_tokens": 30,
    "method.sink_tokens": 20,
    "method.skipped_attention": [0, 5],
    "method.skipped_mlp": 9,
    "method.version": 1,
    "method.top_k": 2,
    "method.num_nodes": 4,
    "method.tree": [[0], [1]],
    "method.draft_model": "llama-3.1-8b",
    "method.draft_vocab_size": 1000,
    "method.intermediate_size": 4096,
    "method.num_kv_heads": 2,
    "method.draft_dtype": "fp8",
    "method.draft_tp": 2,
    "method.num_heads": 3,
    "method.head_accuracies": [[0.9, 0.91], [0.8, 0.9]],
    "method.num_modules": 2,
    "acceptance": 0.3,
    "acceptance.alpha": 0.9,
    "acceptance.hit_probability": 0.9,
    "acceptance.hard_share": 0.6,
    "acceptance.log_odds_gap": 5.0,
    "acceptance.path": "other.jsonl",
    "acceptance.drafter": "unknown",
    "acceptance.accepted": [[3, 2, 1, 0]],
    "acceptance.rates": [0.9, 0.8],
    "acceptance.offsets": [2.0],
    "acceptance.slope": 3.0,
    "acceptance.curve": "independent",
    "acceptance.autocorrelation": 0.9,
    "acceptance.hit_rates": [[0.8, 0.9, 0.95]],
    "acceptance.persistence": 0.9,
    "acceptance.confidence.a": 9.0,
    "acceptance.confidence.b": 9.0,
    "acceptance.off_track_confidence.a": 9.0,
    "acceptance.off_track_confidence.b": 9.0,
    "acceptance.reference_exit_layer": 9,
    "acceptance.log_odds_per_layer": -2.0,
    "acceptance.confidence_log_odds_per_layer": -2.0,
    "speculation": {"name": "off_above", "batch_size": 1},
    "speculation.batch_size": 3,
    "speculation.resume_below": 2,
    "speculation.draft_lengths": [1],
    "speculation.smoothing": 0.9,
    "speculation.interval_rounds": 1,
    "speculation.warmup_rounds": 20,
    "speculation.down_hysteresis": -0.9,
    "speculation.up_hysteresis": -0.9,
    "speculation.thresholds": [0.1, 0.3],
    "speculation.min_gain": 0.9,
    "speculation.memory_rounds": 10,
    "speculation.num_waiting": 1,
    "speculation.resume_share": 0.1,
    "scheduler.policy": "static",
    "scheduler.max_num_seqs": 1,
    "scheduler.max_num_batched_tokens": 40,
    "scheduler.chunked_prefill": False,
    "scheduler.preemption": "none",
    "memory.memory_fraction": 0.4,
    "memory.num_kv_blocks": 30,
    "memory.block_size_tokens": 1000,
    "workload.arrivals": {"name": "closed_loop", "concurrency": 2},
    "workload.arrivals.rate_per_s": 3.0,
    "workload.arrivals.cv": 0.5,
    "workload.arrivals.concurrency": 1,
    "workload.arrivals.path": "other.csv",
    "workload.arrivals.format": "unknown",
    "workload.arrivals.rate_scale": 7.0,
    "workload.arrivals.limit": 4,
    "workload.lengths": {"name": "fixed", "prompt_len": 20, "output_len": 9},
    "workload.lengths.prompt_len": 20,
    "workload.lengths.output_len": 9,
    "workload.lengths.profile": "unknown",
    "workload.lengths.prompt.median": 20,
    "workload.lengths.prompt.mean": 20,
    "workload.lengths.prompt.sigma": 0.1,
    "workload.lengths.prompt.max": 50,
    "workload.lengths.output.median": 3,
    "workload.lengths.output.mean": 3,
    "workload.lengths.output.sigma": 0.1,
    "workload.lengths.output.max": 5,
    "workload.num_requests": 6,
    "workload.max_context_tokens": 60,
    "workload.over_context": "drop",
    "slo.ttft_ms": 1e-6,
    "slo.tpot_ms": 1e-6,
    "slo.e2e_ms": 1e-6,
    "simulation.seed": 6,
    "simulation.replications": 3,
    "simulation.warmup": 0.5,
    "simulation.max_simulated_s": 0.02,
}
OTHER_OF = {
    ("plain", "method"): {"name": "kangaroo", "confidence_threshold": 0},
    ("dual_model", "tp"): 4,
}
LABELS = {"name", "description", "acceptance.source"}
"""Printed with the results; no number can depend on them."""
NOT_OF_A_CLOSED_FORM = {"scheduler.policy"}
"""Steady decoding of one batch schedules nothing."""


def leaves(config: BaseModel, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all fields, those of models inside included."""
    for name in type(config).model_fields:
        if name == "name" and isinstance(config, PluginConfig):
            continue
        value = getattr(config, name)
        dotted = f"{prefix}{name}"
        if isinstance(value, BaseModel):
            if isinstance(value, PluginConfig):
                yield dotted
            yield from leaves(value, f"{dotted}.")
        else:
            yield dotted


def scenario(variant: str) -> ScenarioConfig:
    return parse_mapping(VARIANTS[variant], ScenarioConfig, variant)


CASES = sorted(
    (variant, field)
    for variant in VARIANTS
    for field in leaves(scenario(variant))
    # What is the same section in several variants is tried once.
    if (variant == "base" or VARIANTS[variant].get(key := field.split(".")[0]) != BASE.get(key))
    # Where numbers were measured is a label to a method without an exit layer.
    and (
        VARIANTS[variant]["acceptance"] != OF_NO_LAYER or not field.endswith("reference_exit_layer")
    )
)


BEFORE: dict[str, Any] = {}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / LOG).write_text(LOG_TEXT)
    (tmp_path / TRACE).write_text(TRACE_TEXT)
    (tmp_path / "other.jsonl").write_text('{"accepted": [3, 2, 1, 0, 1, 0]}\n')
    (tmp_path / "other.csv").write_text(LOG_TEXT.replace(",4", ",14"))
    return tmp_path


def with_field(folder: Path, variant: str, field: str, value: Any) -> tuple[Any, Any]:
    """Return the scenario with a field set by an axis, and where it was written."""
    path = write_sweep(
        folder, scenario=VARIANTS[variant], grid={field: [value]}, sweep={"baseline": False}
    )
    document = load_yaml(path)
    (point,) = expand(parse(document, SweepConfig), document)
    return point.config, point.place


def other(folder: Path, variant: str, field: str) -> tuple[Any, Any]:
    value = OTHER_OF.get((variant, field), OTHER.get(field, "another"))
    return with_field(folder, variant, field, value)


def unchanged(folder: Path, variant: str) -> tuple[Any, Any]:
    seed = VARIANTS[variant]["simulation"]["seed"]
    return with_field(folder, variant, "simulation.seed", seed)


def simulated(config: Any, place: Any) -> dict[str, Any]:
    return simulate_scenario(config, build(config, place), place).as_dict()


def in_closed_form(config: Any, place: Any) -> dict[str, Any]:
    """Return the numbers of the closed form, without what only repeats the scenario."""
    told = {"acceptance", "dtype", "engine", "hardware", "kv_dtype", "method_options"}
    told |= {"model", "tp"}
    found = estimate(build(config, place), 4, 200)
    return {key: value for key, value in found.items() if key not in told}


def refusal(make: Callable[[], Any]) -> str | None:
    """Return the sentence with which ``make`` refuses, or None."""
    try:
        make()
    except SimspecError as error:
        return str(error)
    return None


def test_another_value_is_known_for_every_field() -> None:
    """The tables above cover every field of a scenario and of every plug-in it can name."""
    assert {field for _, field in CASES} == set(OTHER) | LABELS
    for registry, section in (
        (METHODS, "method"),
        (ACCEPTANCE_MODELS, "acceptance"),
        (ARRIVALS, "workload.arrivals"),
        (LENGTHS, "workload.lengths"),
        (SPECULATIONS, "speculation"),
    ):
        used = set()
        for data in VARIANTS.values():
            value: Any = data
            for key in section.split("."):
                value = (value or {}).get(key)
            used |= {value["name"]} if value else set()
        if section == "speculation":
            used.add("fixed")
        assert used == set(registry.names()), f"no variant with some {registry.kind}"


@pytest.mark.parametrize(("variant", "field"), [case for case in CASES if case[1] not in LABELS])
def test_every_field_changes_the_simulation_or_is_refused(
    folder: Path, variant: str, field: str
) -> None:
    """A field on an axis moves some number, or one sentence says why it cannot."""
    if variant not in BEFORE:
        BEFORE[variant] = simulated(*unchanged(folder, variant))
    after: dict[str, Any] = {}
    sentence = refusal(lambda: after.update(simulated(*other(folder, variant, field))))
    if sentence is None:
        assert after != BEFORE[variant]
    else:
        assert len(sentence.splitlines()) == 1


@pytest.mark.parametrize(
    ("variant", "field"),
    [
        (variant, field)
        for variant, field in CASES
        if field.split(".")[0] not in {"workload", "slo", "simulation"}
        and field not in LABELS | NOT_OF_A_CLOSED_FORM
        # What follows a load is refused by an estimate of one batch.
        and "speculation" not in VARIANTS[variant]
    ],
)
def test_every_field_of_a_deployment_changes_the_closed_form_or_is_refused(
    folder: Path, variant: str, field: str
) -> None:
    """The same for ``simspec estimate``, at a batch of 4 and a prompt of several chunks."""
    before = in_closed_form(*unchanged(folder, variant))
    after: dict[str, Any] = {}
    sentence = refusal(lambda: after.update(in_closed_form(*other(folder, variant, field))))
    if sentence is None:
        assert after != before
    else:
        assert len(sentence.splitlines()) == 1


@pytest.mark.parametrize("field", ["name", "description"])
def test_labels_of_a_scenario_are_no_axes(folder: Path, field: str) -> None:
    """What changes no number cannot be varied."""
    assert "only a label" in str(refusal(lambda: other(folder, "base", field)))


def test_the_source_of_an_acceptance_is_printed(folder: Path) -> None:
    """The one text that moves no number is in the sentence every report prints."""
    process = build(*other(folder, "base", "acceptance.source")).acceptance
    assert process is not None
    assert "source: another" in process.describe()
