"""The scenarios whose fields are all changed, and the other value of each field."""

from __future__ import annotations

import copy
from typing import Any

LOG = "log.csv"
TORN_LOG = "torn.csv"
CLIENTS = "clients"
CLIENT_FILES = {
    "chunk-1-trace.csv": "0,20,1,Gamma,1,0.05\n600,9,1,Gamma,1,0.1\n",
    "chunk-1-dataset.json": '{"0": {"input_tokens": "{9: 1}", "output_tokens": "{4: 1}"}}',
    "chunk-2-trace.csv": "0,10,2,Weibull,0.6,0.1\n600,0,0,,0,0\n",
    "chunk-2-dataset.json": '{"0": {"input_tokens": "{30: 1}", "output_tokens": "{6: 1}"}}',
}
LOG_TEXT = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2024-05-10 00:00:{second:02d}.5,{40 + 9 * second},{4 + second}\n"
    for second in (0, 1, 2, 3, 4, 4, 6, 7)
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
    "logged": changed(
        memory={
            "memory_fraction": 0.5, "weights_gib": 1.0, "activation_gib": 1.0, "non_torch_gib": 0.5
        },
    ),
    "blocks": changed(memory={"num_kv_blocks": 400, "block_size_tokens": 16}),
    "priority": with_load(
        {"name": "poisson", "rate_per_s": 150.0},
        {"name": "lognormal", "prompt": {"median": 60, "sigma": 1.0, "max": 200},
         "output": {"mean": 12, "sigma": 0.8, "max": 40}},
        num_requests=20,
        priority_classes=[{"priority": 0, "weight": 1}, {"priority": 1, "weight": 3}],
        max_context_tokens=150,
        over_context="clip",
    )
    | {
        "scheduler": {
            **BASE["scheduler"], "max_num_seqs": 2,
            "policy": {"name": "priority", "class_ttft_ms": {1: 5.0, 0: 20.0}},
        },
    },
    "swap": with_load(
        {"name": "constant", "rate_per_s": 1000.0},
        {"name": "fixed", "prompt_len": 100, "output_len": 40},
    )
    | {
        "scheduler": {**BASE["scheduler"], "preemption": {"name": "swap"}},
        "memory": {"num_kv_blocks": 60},
    },
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
        {
            "name": "replay", "path": TORN_LOG, "format": "azure", "rejected_lines": "skip",
            "rate_scale": 100.0, "limit": 7, "time_window_s": [1.0, 9.0],
        },
        num_requests=None,
    ),
    "clients": with_load(
        {"name": "servegen", "path": CLIENTS, "duration_s": 1.0}, num_requests=None
    ),
    "think": with_load({"name": "closed_loop", "concurrency": 3, "think_time_s": 0.01}, FIXED),
    "ramp": with_load(
        {"name": "ramp", "from_rate_per_s": 50.0, "to_rate_per_s": 400.0, "duration_s": 0.1},
        FIXED,
    ),
    "wave": with_load(
        {"name": "diurnal", "mean_rate_per_s": 100.0, "amplitude": 0.5, "period_s": 0.1}, FIXED
    ),
    "hours": with_load({"name": "diurnal", "rates_per_s": [100.0, 0.0, 50.0]}, FIXED),
    "logged_lengths": with_load(
        {"name": "constant", "rate_per_s": 100.0}, {"name": "log", "path": LOG}
    ),
    "classes": with_load(
        {"name": "constant", "rate_per_s": 2000.0},
        {"name": "fixed", "prompt_len": 70, "output_len": 6},
        priority_classes=[{"priority": 1, "weight": 1}, {"priority": 0, "weight": 1}],
    )
    | {"scheduler": {**BASE["scheduler"], "policy": "priority", "max_num_seqs": 2}},
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
        },
        # Long enough for the policy to look more than once.
        workload={**BASE["workload"], "num_requests": 40},
    ),
    "unverified_fallback": changed(
        method={"name": "layerskip", "exit_layer": 3, **DRAFTS},
        speculation={
            "name": "unverified_fallback", "num_waiting": 3, "batch_size": 7, "resume_share": 0.9,
        },
    ),
    "batches": changed(
        simulation={
            "seed": 5, "replications": 1, "warmup": 0.0, "intervals": "batch_means",
            "num_batches": 2,
        }
    ),
    "precise": changed(
        simulation={
            "seed": 5, "replications": 2, "warmup": 0.0, "target_half_width": 0.25,
            "metric": "tpot_ms", "max_replications": 10,
        }
    ),
}  # fmt: skip
VARIANTS["least_loaded"] = changed(replicas=2, router={"name": "least_loaded", "by": "requests"})
VARIANTS["random"] = changed(replicas=3, router={"name": "random", "choices": 1})
VARIANTS["apart"] = changed(
    disaggregation={
        "prefill_replicas": 1,
        "decode_replicas": 1,
        "link": {"bandwidth_gb_s": 1.0, "latency_us": 10.0},
    }
)
VARIANTS["over_network"] = changed(
    disaggregation={"prefill_replicas": 1, "decode_replicas": 2, "prefill_tp": 1}
)
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
    "scheduler.policy.order": "deadline",
    "scheduler.policy.class_ttft_ms": {1: 2.0, 0: 500.0},
    "scheduler.policy.preempts": False,
    "scheduler.preemption": "none",
    "scheduler.preemption.swap_space_gb": 0.001,
    "scheduler.prefix_caching": False,
    "memory.memory_fraction": 0.4,
    "memory.num_kv_blocks": 30,
    "memory.block_size_tokens": 1000,
    "memory.weights_gib": 3.0,
    "memory.activation_gib": 3.0,
    "memory.non_torch_gib": 3.0,
    "workload.arrivals": {"name": "closed_loop", "concurrency": 2},
    "workload.arrivals.rate_per_s": 3.0,
    "workload.arrivals.cv": 0.5,
    "workload.arrivals.concurrency": 1,
    "workload.arrivals.path": "other.csv",
    "workload.arrivals.format": "unknown",
    "workload.arrivals.rate_scale": 7.0,
    "workload.arrivals.limit": 4,
    "workload.arrivals.time_window_s": [3.0, 5.0],
    "workload.arrivals.spread_ties": True,
    "workload.arrivals.rejected_lines": "refuse",
    "workload.arrivals.think_time_s": 0.5,
    "workload.arrivals.clients": [2],
    "workload.arrivals.start_s": 300.0,
    "workload.arrivals.think_cv": 0.0,
    "workload.arrivals.from_rate_per_s": 5.0,
    "workload.arrivals.to_rate_per_s": 5.0,
    "workload.arrivals.duration_s": 3.0,
    "workload.arrivals.mean_rate_per_s": 5.0,
    "workload.arrivals.amplitude": 1.0,
    "workload.arrivals.peak_s": 0.05,
    "workload.arrivals.rates_per_s": [20.0, 30.0],
    "workload.arrivals.period_s": 0.02,
    "workload.lengths": {"name": "fixed", "prompt_len": 20, "output_len": 9},
    "workload.lengths.prompt_len": 20,
    "workload.lengths.output_len": 9,
    "workload.lengths.profile": "unknown",
    "workload.lengths.path": "other.csv",
    "workload.lengths.format": "unknown",
    "workload.lengths.order": "random",
    "workload.lengths.prompt.median": 20,
    "workload.lengths.prompt.mean": 20,
    "workload.lengths.prompt.sigma": 0.1,
    "workload.lengths.prompt.max": 50,
    "workload.lengths.output.median": 3,
    "workload.lengths.output.mean": 3,
    "workload.lengths.output.sigma": 0.1,
    "workload.lengths.output.max": 5,
    "workload.num_requests": 6,
    "workload.priority_classes": [{"priority": 0, "weight": 1}, {"priority": 1, "weight": 9}],
    "workload.max_context_tokens": 60,
    "workload.over_context": "drop",
    "replicas": 2,
    "disaggregation": {"prefill_replicas": 1, "decode_replicas": 1},
    "disaggregation.prefill_replicas": 2,
    "disaggregation.decode_replicas": 2,
    "disaggregation.prefill_tp": 2,
    "disaggregation.link": {"bandwidth_gb_s": 0.1},
    "disaggregation.link.bandwidth_gb_s": 0.1,
    "disaggregation.link.latency_us": 5000.0,
    "router": "round_robin",
    "router.by": "prompt_tokens",
    "router.choices": 3,
    "slo.ttft_ms": 1e-6,
    "slo.tpot_ms": 1e-6,
    "slo.e2e_ms": 1e-6,
    "simulation.seed": 6,
    "simulation.replications": 3,
    "simulation.warmup": 0.5,
    "simulation.max_simulated_s": 0.02,
    "simulation.intervals": "batch_means",
    "simulation.num_batches": 3,
    "simulation.target_half_width": 0.4,
    "simulation.metric": "drafted_per_round",
    "simulation.max_replications": 6,
}
OTHER_OF = {
    ("plain", "method"): {"name": "kangaroo", "confidence_threshold": 0},
    ("dual_model", "tp"): 4,
    ("over_network", "disaggregation.decode_replicas"): 1,
    ("least_loaded", "replicas"): 3,
    ("random", "replicas"): 4,
    ("base", "simulation.target_half_width"): 0.02,
    ("batches", "simulation.intervals"): "replications",
    ("batches", "simulation.target_half_width"): 0.02,
    ("precise", "simulation.target_half_width"): 0.9,
    ("precise", "simulation.replications"): 6,
    ("precise", "simulation.max_replications"): 3,
}
LABELS = {"name", "description", "acceptance.source"}
"""Printed with the results; no number can depend on them."""
NOT_OF_A_CLOSED_FORM = {
    "scheduler.policy", "scheduler.policy.order", "scheduler.policy.class_ttft_ms",
    "scheduler.policy.preempts", "scheduler.preemption.swap_space_gb", "scheduler.prefix_caching",
}  # fmt: skip
"""Steady decoding of one batch schedules nothing, preempts nobody and finds no prompt."""
