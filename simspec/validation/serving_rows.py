"""Rows of closed-loop benchmarks as deployments and loads: what reader and fit both work on.

A row says hardware, engine, model, formats, parallel layout, concurrency and lengths. What it
does not say is the engine's default (:data:`KV_CACHES`) or a property of the benchmark, stated
here once:

* rows dated by ``measured_on`` draw both lengths uniformly from 80 % to 100 % of nominal, the
  others have requests of equal length;
* a run makes ten requests for each user, so that a tenth of them meets the burst of the start;
* the next prompt of a user reaches the engine when the next step has begun, and where lengths
  are equal at most two prompts of a group that ended together are still together then (TTFT of
  the TensorRT-LLM runs: four prompts' time at 8 users, of 1024, 2048 and 4096 tokens alike);
* the SGLang runs of :data:`IN_STEP` are bursts of all users: their TTFT is half the time of all
  prompts, at every output length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simspec.calibration.engines import is_fitted
from simspec.core.errors import SimspecError
from simspec.hardware.load import engine_names, hardware_names
from simspec.models.hf_config import catalog_names
from simspec.models.names import catalog_name_of
from simspec.scenarios.build import Deployment, build
from simspec.scenarios.closed_loop import ClosedLoop
from simspec.scenarios.schema import DeploymentConfig
from simspec.validation._base import unknown

if TYPE_CHECKING:
    import pandas as pd

NIGHTLY_SPREAD = 0.2
REQUESTS_PER_USER = 10.0
PROMPTS_TOGETHER = 2.0
TURNAROUND_STEPS = 1.0
IN_STEP = frozenset({"0.5.1.post1", "0.5.8.post1"})
"""SGLang versions of the runs that keep all users in step."""

FITTED_HARDWARE = frozenset({"h100_sxm", "h200_sxm"})
"""Devices whose rows engines are fitted to; all others judge."""

FORMATS = {
    ("fp8", "fp8"): "fp8",
    ("fp8_block", "fp8_block"): "fp8_block",
    ("fp8", "fp8_block"): "fp8_block",
    ("nvfp4", "nvfp4"): "nvfp4",
    ("int4_wo", "int4_wo"): "int4_g32_experts",
}
"""Weight format by the published modes of products and experts; none: bf16."""
BLOCK_SCALED = ("deepseek", "qwen3-235b", "minimax", "kimi", "qwen3.5", "glm")
"""Models published in fp8 with a scale for each 128 x 128 block, whatever mode a table names."""


STATIC_SCALES = ("llama",)
"""Models that TensorRT-LLM runs from NVIDIA's checkpoints, whose input scales are known before."""


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one deployment: what is split, fitted and summarised together."""

    name: str
    family: str
    is_fitted: bool
    """Whether an engine profile may have been fitted to these rows."""
    deployment: Deployment
    index: Sequence[int]
    """Rows of the table, from 0."""
    load: ClosedLoop
    """Of these rows, in order."""
    ttft_s: np.ndarray[Any, np.dtype[np.float64]]
    tpot_s: np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class NoGroup:
    """Rows that no deployment can be made of, and why."""

    name: str
    reason: str
    index: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Key:
    hardware: str
    engine: str
    model: str
    precision: str
    gemm: str
    experts: str
    tp: int
    attention_dp: int
    moe_tp: int
    moe_ep: int
    in_step: bool

    @property
    def name(self) -> str:
        layout = [f"tp{self.tp}"]
        layout += [f"dp{self.attention_dp}"] if self.attention_dp > 1 else []
        layout += [f"ep{self.moe_ep}"] if self.moe_ep > 1 else []
        model = self.model.rpartition("/")[2].lower()
        form = self.gemm if self.gemm == self.experts else f"{self.gemm}+{self.experts}"
        return f"{self.hardware} / {self.engine} / {model} / {form} / {' '.join(layout)}"


def groups(frame: pd.DataFrame) -> Iterator[Group | NoGroup]:
    """Yield the rows of a table by deployment, in the order the deployments appear."""
    found: dict[_Key, list[int]] = {}
    records = cast(list[dict[str, Any]], frame.to_dict("records"))
    for index, row in enumerate(records):
        found.setdefault(_key(row), []).append(index)
    for key, members in found.items():
        rows = [records[i] for i in members]
        try:
            deployment = _deployment(key)
        except (SimspecError, _Unknown) as error:
            yield NoGroup(key.name, str(error), members)
            continue
        is_moe = any(block.moe is not None for block in deployment.target.blocks)
        yield Group(
            name=key.name,
            family="moe" if is_moe else "dense",
            is_fitted=key.hardware in FITTED_HARDWARE
            and is_fitted(
                key.engine,
                deployment.architecture.name,
                key.hardware,
                deployment.target.num_ranks,
            ),
            deployment=deployment,
            index=members,
            load=_load(key, rows),
            ttft_s=_column(rows, "ttft_ms") / 1e3,
            tpot_s=_column(rows, "tpot_ms") / 1e3,
        )


class _Unknown(Exception):
    """What simspec does not have."""


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([float(row[name]) for row in rows], dtype=np.float64)


def _text(value: Any) -> str:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def _count(value: Any) -> int:
    number = float(value) if value is not None else math.nan
    return int(number) if number >= 1 else 0


def _key(row: Mapping[str, Any]) -> _Key:
    tp = _count(row["tp"]) or 1
    moe_tp, moe_ep = _count(row["moe_tp"]) or 1, _count(row["moe_ep"]) or 1
    # Where the layout of attention is not stated, all ranks hold experts and tp of them attend.
    attention_dp = _count(row["attention_dp"]) or max(1, moe_tp * moe_ep // tp)
    gemm = _text(row["gemm_quant_mode"]) or "bf16"
    return _Key(
        hardware=_text(row["hardware"]),
        engine=_text(row["engine"]),
        model=_text(row["model"]),
        precision=_text(row["precision"]),
        gemm=gemm,
        experts=_text(row["moe_quant_mode"]) or gemm,
        tp=tp,
        attention_dp=attention_dp,
        moe_tp=moe_tp,
        moe_ep=moe_ep,
        in_step=_text(row["engine_version"]) in IN_STEP,
    )


def _dtype(key: _Key, model: str) -> str:
    if key.gemm == "bf16":
        return "bf16"
    if model.startswith("gpt-oss"):
        return "mxfp4"
    form = FORMATS.get((key.gemm, key.experts))
    if form is None:
        raise _Unknown(f"no data type for {key.gemm!r} products with {key.experts!r} experts")
    if form == "fp8" and key.engine == "trtllm" and model.startswith(STATIC_SCALES):
        return "fp8_static"
    return "fp8_block" if form == "fp8" and model.startswith(BLOCK_SCALED) else form


def _kv_dtype(key: _Key, model: str) -> str:
    """Return the format of the cache by the engine's default for such weights.

    TensorRT-LLM caches in fp8 what was published with fp8 or fp4 weights by its own quantiser;
    vLLM and SGLang in 16 bit unless the checkpoint says fp8, as NVIDIA's do.
    """
    if key.gemm == "bf16":
        return "bf16"
    if key.engine == "trtllm" or key.model.startswith("nvidia/"):
        return "fp8"
    return "bf16"


@lru_cache(maxsize=512)
def _deployment(key: _Key) -> Deployment:
    if key.hardware not in hardware_names():
        raise _Unknown(unknown("hardware profile", key.hardware, hardware_names()))
    if key.engine not in engine_names():
        raise _Unknown(unknown("engine profile", key.engine, engine_names()))
    model = catalog_name_of(key.model)
    if model is None:
        raise _Unknown(unknown("architecture", key.model, catalog_names()))
    config = DeploymentConfig.model_validate(
        {
            "model": model,
            "hardware": key.hardware,
            "engine": key.engine,
            "tp": key.tp,
            "attention_data_parallel": key.attention_dp,
            "expert_parallel": key.moe_ep,
            "dtype": _dtype(key, model),
            "kv_dtype": _kv_dtype(key, model),
            "method": "autoregressive",
        }
    )
    return build(config)


def _load(key: _Key, rows: Sequence[Mapping[str, Any]]) -> ClosedLoop:
    varies = np.array([bool(_text(row["measured_on"])) for row in rows])
    return ClosedLoop(
        concurrency=_column(rows, "concurrency"),
        prompt_len=_column(rows, "input_len"),
        output_len=_column(rows, "output_len"),
        length_spread=np.where(varies, NIGHTLY_SPREAD, 0.0),
        requests_per_user=REQUESTS_PER_USER,
        prompts_together=np.inf if key.in_step else PROMPTS_TOGETHER,
        turnaround_steps=TURNAROUND_STEPS,
    )
