"""Rows of whole-model speeds as deployments, and what simspec predicts for each.

What a row does not say is stated here once:

* llama.cpp of documents older than 2025 ran without flash attention and with slower launches: it
  is the engine ``llama_cpp_2024``; vLLM and TensorRT-LLM of these tables are of 2024 at the latest,
  ``vllm_2024`` and ``trtllm_2024``;
* a single stream over several GPUs without tensor parallelism is split by layers; one GPU works
  at a time, so it is as fast as one GPU large enough (the hand-over is left out);
* FP8 engines of TensorRT-LLM keep their cache in FP8, and its throughput runs give the cache
  0.99 of what weights, activations and one fp32 copy of the logits leave free
  (``--kv_cache_free_gpu_mem_fraction 0.99``, performance overview of its documentation);
* where lengths are not stated the context is short, and the weights decide.

Speeds are over all sequences. ``end_to_end``: sequences that start together are prefilled a
token budget at a time and then decode in step; where the KV cache holds fewer, they take turns.
Without a batch, requests are sent all at once and memory decides how many run: the closed loop
of :mod:`simspec.scenarios.closed_loop` with more users than seats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from simspec.calibration.single_stream import SpeedRow, run_seconds
from simspec.calibration.speed_tables import DEVICES, FORMATS, speed_row
from simspec.core.errors import SimspecError
from simspec.core.units import ms
from simspec.cost.work import Rows
from simspec.decoding._chain import plain_pass, plain_rows
from simspec.hardware.load import engine_names, hardware_names
from simspec.memory.footprint import layer_peak_bytes
from simspec.models.hf_config import catalog_names
from simspec.models.names import catalog_name_of
from simspec.scenarios.build import Deployment, build_without_acceptance
from simspec.scenarios.closed_loop import ClosedLoop, closed_loop
from simspec.scenarios.schema import DeploymentConfig
from simspec.validation._base import unknown
from simspec.validation._names import hardware_of

OLD_LLAMA_CPP = frozenset({"llamacpp_4167_apple", "xiongjiedai_llama3", "apple_singles"})
"""Documents whose llama.cpp is of 2023 or 2024."""
_SHARE_OF_FREE = 0.99
_LOGIT_BYTES = 4.0
SENT_AT_ONCE = 100_000.0
"""Requests of a run that lets memory decide: more than any cache holds."""

_ENGINES = {
    "MLX": "mlx",
    "mlx-lm": "mlx",
    "gpt-fast": "gpt_fast",
    "TensorRT-LLM": "trtllm_2024",
    "vLLM": "vllm_2024",
    "SGLang": "sglang",
}
_SERVERS = {"l40s": "l40s_switched"}
"""Several cards of NVIDIA's own servers, which TensorRT-LLM's tables come from."""
_FP8_CACHE = frozenset({"fp8"})


@dataclass(frozen=True, slots=True)
class Predicted:
    """A prediction in the unit of its metric, and where it comes from."""

    value: float
    breakdown: Mapping[str, float]


def deployment_of(row: Mapping[str, Any]) -> Deployment | str:
    """Return the deployment of a row, or why there is none.

    Parameters
    ----------
    row : mapping
        One line of the table; empty cells are None.
    """
    hardware = _hardware(row)
    if hardware is None:
        return unknown("hardware profile", str(row["hardware"]), hardware_names())
    engine = engine_of(row, hardware)
    if engine is None:
        return unknown("engine profile", str(row["engine"]), engine_names())
    model = catalog_name_of(str(row["model"]))
    if model is None:
        return unknown("architecture", str(row["model"]), catalog_names())
    dtype = FORMATS.get(str(row["weight_dtype"]))
    if dtype is None:
        return unknown("data type", str(row["weight_dtype"]), tuple(FORMATS))
    layout = _layout(row)
    if isinstance(layout, str):
        return layout
    try:
        cache = _kv_dtype(row, dtype)
        return _built(model, hardware, engine, dtype=dtype, kv_dtype=cache, tp=layout)
    except SimspecError as error:
        return str(error)


def engine_of(row: Mapping[str, Any], hardware: str) -> str | None:
    """Return the engine profile of a row; None where there is none."""
    published = str(row["engine"])
    if published == "llama.cpp":
        on_cuda = "" if str(row["hardware"]).startswith("Apple") else "_cuda"
        return f"llama_cpp{on_cuda}{'_2024' if row['subset'] in OLD_LLAMA_CPP else ''}"
    name = _ENGINES.get(published)
    return name if name in engine_names() else None


def predict(row: Mapping[str, Any], deployment: Deployment) -> Predicted | str:
    """Return the prediction of a row's metric, or why there is none."""
    phase, metric = row["phase"], row["metric"]
    if phase == "decode" and metric in ("tokens_per_s_total", "tpot_ms"):
        return _decode(row, deployment)
    if phase == "prefill" and metric == "tokens_per_s_total":
        return _prompt(row, deployment)
    if phase == "prefill" and metric == "ttft_ms":
        return _first_token(row, deployment)
    if phase == "end_to_end" and metric == "tokens_per_s_total":
        return _whole_requests(row, deployment)
    return f"no rule for {metric} of phase {phase}"


# -- one kind of row each ------------------------------------------------------------------------


def _decode(row: Mapping[str, Any], deployment: Deployment) -> Predicted:
    speed = _as_speed(row)
    seconds = _seconds(speed, deployment)
    parts = {"step_s": seconds}
    if row["metric"] == "tpot_ms":
        return Predicted(ms(seconds), parts)
    return Predicted(speed.batch / seconds, parts)


def _prompt(row: Mapping[str, Any], deployment: Deployment) -> Predicted | str:
    speed = _as_speed(row)
    if _several_gpus(row):
        return "prompts over several GPUs are pipelined in a way that is not stated"
    seconds = _seconds(speed, deployment)
    return Predicted(speed.tokens / seconds, {"prefill_s": seconds})


def _first_token(row: Mapping[str, Any], deployment: Deployment) -> Predicted:
    batch, prompt = float(row["batch_or_concurrency"] or 1), float(row["input_len"])
    seconds = _prefill_s(deployment, batch, prompt)
    return Predicted(ms(seconds), {"prefill_s": seconds})


def _whole_requests(row: Mapping[str, Any], deployment: Deployment) -> Predicted | str:
    prompt, output = row["input_len"], row["output_len"]
    if prompt is None or output is None:
        return "the lengths of prompt and answer are not stated"
    if row["batch_or_concurrency"] is None:
        deployment = replace(deployment, num_blocks=_blocks_left(deployment))
        if deployment.max_sequences(int(prompt + output)) < 1:
            return "no whole request fits in the KV cache"
        loop = closed_loop(deployment, ClosedLoop(SENT_AT_ONCE, prompt, output))
        rate = float(loop.throughput_requests_per_s)
        parts = {
            "in_service": float(loop.in_service),
            "decode_s": float(loop.decode_s),
            "stall_s": float(loop.stall_s),
        }
        return Predicted(rate * output, parts)
    batch = float(row["batch_or_concurrency"])
    # Arrays of one number: asked once, a table of all row counts would not pay.
    together = np.float64(min(batch, deployment.max_sequences(int(prompt + output))))
    if together < 1:
        return "no whole request fits in the KV cache"
    prefill_s = _prefill_s(deployment, together, prompt)
    context = prompt + output / 2.0
    rows = plain_rows(together, together * context)
    work = plain_pass(deployment.target, rows, None)
    decode_s = (output - 1.0) * float(deployment.cost.step([work], together).total_s)
    parts = {"together": float(together), "prefill_s": prefill_s, "decode_s": decode_s}
    return Predicted(float(together * output / (prefill_s + decode_s)), parts)


def _blocks_left(deployment: Deployment) -> int:
    """Return the KV blocks of an engine that takes a share of the memory that is free."""
    budget, target, limits = deployment.budget, deployment.target, deployment.limits
    states = max(
        layer_peak_bytes(block, limits.max_num_batched_tokens, tp=target.tp)
        for block in set(target.blocks)
    )
    logits = limits.max_num_seqs * target.vocab_size * _LOGIT_BYTES
    taken = budget.weights_bytes + budget.reserve_bytes + states + logits
    pool = _SHARE_OF_FREE * max(budget.capacity_bytes - taken, 0.0)
    return int(pool / (budget.kv_bytes_per_token * deployment.block_size_tokens))


def _prefill_s(deployment: Deployment, batch: float, prompt: float) -> float:
    """Return the seconds of ``batch`` prompts, a token budget at a time."""
    tokens = np.float64(min(batch * prompt, deployment.limits.max_num_batched_tokens))
    whole = np.maximum(tokens / prompt, 1.0)
    seen = (tokens + prompt) / 2.0 if tokens < prompt else tokens
    pairs = tokens * (prompt + 1.0) / 2.0
    rows = Rows("prefill", whole, tokens, seen, pairs, np.minimum(whole, batch))
    work = plain_pass(deployment.target, None, rows)
    step_s = float(deployment.cost.step([work], whole).total_s)
    return float(batch * prompt / tokens * step_s)


def _as_speed(row: Mapping[str, Any]) -> SpeedRow:
    speed = speed_row(row)
    return replace(speed, tokens_per_s=math.nan)


def _seconds(speed: SpeedRow, deployment: Deployment) -> float:
    return run_seconds(speed, deployment.cost, deployment.target)


# -- names ---------------------------------------------------------------------------------------


def _hardware(row: Mapping[str, Any]) -> str | None:
    published = str(row["hardware"])
    name = DEVICES.get(published)
    if name is None:
        name = hardware_of(published.split("(", maxsplit=1)[0])
    if row["engine"] == "TensorRT-LLM" and (row["tp"] or 1) > 1:
        name = _SERVERS.get(str(name), name)
    return name if name in hardware_names() else None


def _several_gpus(row: Mapping[str, Any]) -> bool:
    return float(row["num_gpus"]) > float(row["tp"] or 1)


def _layout(row: Mapping[str, Any]) -> int | str:
    """Return the tensor-parallel degree, or why the layout is not one simspec prices."""
    tp, gpus = int(row["tp"] or 1), int(row["num_gpus"])
    if gpus == tp:
        return tp
    is_stream = row["phase"] != "end_to_end" and (row["batch_or_concurrency"] or 1) == 1
    if tp == 1 and is_stream and row["engine"] == "llama.cpp":
        return 1
    return f"{gpus} GPUs at tp {tp}: the layout of the others is not stated"


def _kv_dtype(row: Mapping[str, Any], dtype: str) -> str:
    stated = row.get("kv_dtype")
    if stated is not None:
        return FORMATS.get(str(stated), str(stated))
    if dtype in _FP8_CACHE and row["engine"] == "TensorRT-LLM":
        return "fp8"
    return "bf16" if dtype == "bf16" else "fp16"


@lru_cache(maxsize=512)
def _built(
    model: str, hardware: str, engine: str, *, dtype: str, kv_dtype: str, tp: int
) -> Deployment:
    config = DeploymentConfig.model_validate(
        {
            "model": model,
            "hardware": hardware,
            "engine": engine,
            "dtype": dtype,
            "kv_dtype": kv_dtype,
            "tp": tp,
            "method": "autoregressive",
        }
    )
    return build_without_acceptance(config)
