"""Rows of closed-loop benchmarks as deployments and loads: what reader and fit both work on.

A row says hardware, engine, model, formats, parallel layout, concurrency and lengths. What it
does not say is the engine's default (:data:`KV_CACHES`) or a property of the benchmark, stated
here once:

* rows dated by ``measured_on`` draw both lengths uniformly from 80 % to 100 % of nominal, the
  others have requests of equal length;
* a run makes ten requests for each user, so that a tenth of them meets the burst of the start;
* the next prompt of a user reaches the engine when the next step has begun, and prompts whose
  forerunners ended together arrive one by one;
* the SGLang runs of :data:`IN_STEP` are bursts of all users: their TTFT is half the time of all
  prompts, at every output length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from simspec.calibration.engines import ServingGroup, is_fitted
from simspec.calibration.robust import Array, halves
from simspec.core.errors import SimspecError
from simspec.core.yamlio import parse_mapping
from simspec.cost.forward import CostModel
from simspec.cost.work import Quantity
from simspec.hardware.load import engine_names, hardware_names
from simspec.hardware.profile import EngineProfile
from simspec.models.hf_config import catalog_names
from simspec.models.names import catalog_name_of
from simspec.scenarios.build import Deployment, build
from simspec.scenarios.closed_loop import ClosedLoop, ClosedLoopEstimate, closed_loop
from simspec.scenarios.schema import DeploymentConfig
from simspec.scenarios.uncertainty import Errors, sigma_of
from simspec.validation._base import unknown
from simspec.validation._serving_physics import refutations

if TYPE_CHECKING:
    import pandas as pd

NIGHTLY_SPREAD = 0.2
REQUESTS_PER_USER = 10.0
PROMPTS_TOGETHER = 1.0
TURNAROUND_STEPS = 1.0
IN_STEP = frozenset({"0.5.1.post1", "0.5.8.post1"})
"""SGLang versions of the runs that keep all users in step."""

ENGINE_OF_VERSION = {"vllm 0.12.0": "vllm_0_12"}
"""Versions that differ enough from the others of their engine to have a profile of their own."""

DEFAULT_SEATS = {"vllm": 1024}
"""Most requests served at once where an engine's default differs from its profile: vLLM's since
0.9.1 on devices with 70 GiB and more, as all of these have (EngineArgs.get_batch_defaults)."""

SEATS = {"vllm 0.11.2": 128, "vllm": 128}
"""The same of runs that show another: by Little's law 96 to 106 of the 512 users of every run of
0.11.2, and of those of no version, decode, on 2, 4 and 8 GPUs alike."""

STEADY = frozenset({"0.12.0"})
"""Versions of vLLM whose runs hold no burst of their start: their TTFT is of the steady state."""

FITTED_HARDWARE = frozenset({"h100_sxm", "h200_sxm"})
"""Devices whose rows engines are fitted to; all others judge."""

OUT_OF_STEP = frozenset({"0.12.0", "0.5.6.post2"})
"""Versions of vLLM and SGLang whose undated runs keep their users apart: their TTFT holds no
wait for a neighbour's prompt."""

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


FASTER = 0.8
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
    ttft_s: Array
    tpot_s: Array
    doubts: Sequence[Doubt | None]
    """Why a row is not judged, and no fit may use it; None for the others."""

    def predict(self, cost: CostModel | None = None) -> ClosedLoopEstimate:
        """Return the closed form of every row, or that of other kernels or another engine."""
        cost = cost or self.deployment.cost
        load = replace(self.load, front_end_s=cost.engine.front_end_s)
        return closed_loop(replace(self.deployment, engine=cost.engine), load, cost)

    def serving_group(self) -> ServingGroup:
        """Return the rows that nothing speaks against, as a fit of the engine takes them."""
        kept = np.array([doubt is None for doubt in self.doubts], dtype=np.bool_)
        own = self.deployment.cost
        tpot_sigma, ttft_sigma = self._kernel_sigma()

        def price(engine: EngineProfile) -> tuple[Array, Array]:
            found = self.predict(CostModel(own.stacks, own.hardware, engine))
            return found.tpot_s[kept], found.ttft_s[kept]

        return ServingGroup(
            name=self.name,
            is_moe=self.family == "moe",
            is_fitted=self.is_fitted,
            price=price,
            tpot_s=self.tpot_s[kept],
            ttft_s=self.ttft_s[kept],
            kernel_sigma=(tpot_sigma[kept], ttft_sigma[kept]),
        )

    def sigma(self) -> tuple[Array, Array]:
        """Return 1 sigma of the logarithm of each TPOT and TTFT, from errors of the profiles."""
        engine, has_experts = self.deployment.engine, self.family == "moe"
        tpot, ttft = self._kernel_sigma()
        return (
            np.hypot(tpot, engine.error_of_steps(has_experts=has_experts)),
            np.hypot(ttft, engine.error_of_first_tokens(has_experts=has_experts)),
        )

    def _kernel_sigma(self) -> tuple[Array, Array]:
        """Return the same without what the engine's fit misses of whole runs."""
        own = self.deployment.cost
        judged = replace(own.engine, model_error=0.0, mixture_error=None)
        effects = Errors(CostModel(own.stacks, own.hardware, judged)).effects(self._latencies)
        tpot, ttft = (
            np.broadcast_to(np.asarray(sigma_of(effects, name)), self.tpot_s.shape)
            for name in ("tpot", "ttft")
        )
        return tpot, ttft

    def _latencies(self, cost: CostModel) -> dict[str, Quantity]:
        found = self.predict(cost)
        return {"tpot": found.tpot_s, "ttft": found.ttft_s}


@dataclass(frozen=True, slots=True)
class Doubt:
    """What speaks against a row."""

    cause: Literal["refuted", "suspect"]
    reason: str


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
    profile: str
    """Of the engine's version."""
    model: str
    precision: str
    gemm: str
    experts: str
    tp: int
    attention_dp: int
    moe_tp: int
    moe_ep: int
    in_step: bool
    seats: int
    """Most requests served at once; 0: as the engine's profile says."""

    @property
    def name(self) -> str:
        layout = [f"tp{self.tp}"]
        layout += [f"dp{self.attention_dp}"] if self.attention_dp > 1 else []
        layout += [f"ep{self.moe_ep}"] if self.moe_ep > 1 else []
        model = self.model.rpartition("/")[2].lower()
        form = self.gemm if self.gemm == self.experts else f"{self.gemm}+{self.experts}"
        return f"{self.hardware} / {self.engine} / {model} / {form} / {' '.join(layout)}"


def groups(frame: pd.DataFrame) -> list[Group | NoGroup]:
    """Return the rows of a table by deployment, in the order the deployments appear."""
    found: dict[_Key, list[int]] = {}
    records = cast(list[dict[str, Any]], frame.to_dict("records"))
    for index, row in enumerate(records):
        found.setdefault(_key(row), []).append(index)
    read = [_group(key, members, records) for key, members in found.items()]
    return _with_suspects(read, records)


def _group(key: _Key, members: list[int], records: list[dict[str, Any]]) -> Group | NoGroup:
    rows = [records[i] for i in members]
    try:
        deployment = _deployment(key)
    except (SimspecError, _Unknown) as error:
        return NoGroup(key.name, str(error), members)
    is_moe = any(block.moe is not None for block in deployment.target.blocks)
    load = _load(key, rows)
    ttft_s, tpot_s = _column(rows, "ttft_ms") / 1e3, _column(rows, "tpot_ms") / 1e3
    return Group(
        name=key.name,
        family="moe" if is_moe else "dense",
        is_fitted=_is_fitted(key, deployment),
        deployment=deployment,
        index=members,
        load=load,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        doubts=[
            None if reason is None else Doubt("refuted", reason)
            for reason in refutations(deployment, load, tpot_s, ttft_s)
        ],
    )


def _is_fitted(key: _Key, deployment: Deployment) -> bool:
    if key.hardware not in FITTED_HARDWARE:
        return False
    if key.profile != key.engine:
        # One model on one device: every other doubling would leave a single number of GPUs.
        return bool(halves([key.name])[0])
    return is_fitted(
        key.engine, deployment.architecture.name, key.hardware, deployment.target.num_ranks
    )


def _with_suspects(
    read: Sequence[Group | NoGroup], records: list[dict[str, Any]]
) -> list[Group | NoGroup]:
    """Doubt the rows whose own runs or neighbours contradict them.

    Not judged are the runs of a deployment and version of which two of one load differ by more
    than :data:`FASTER`: something that no column states tells them apart. And more users are not
    served faster: a row is doubted whose TPOT is less than :data:`FASTER` of one with half the
    users or fewer, at the same lengths of the same deployment.
    """
    members: dict[str, list[int]] = {}
    for group in read:
        members.setdefault(group.name, []).extend(group.index)
    found: list[Group | NoGroup] = []
    for group in read:
        if isinstance(group, NoGroup):
            found.append(group)
            continue
        doubts = list(group.doubts)
        unstated = _unstated(records, members[group.name])
        for place, index in enumerate(group.index):
            if doubts[place] is not None:
                continue
            run = _run(records[index])
            reason = unstated.get(run) or _outrun(records, members[group.name], index)
            if reason is not None:
                doubts[place] = Doubt("suspect", reason)
        found.append(replace(group, doubts=doubts))
    return found


def _run(row: Mapping[str, Any]) -> str:
    """Return the campaign a row belongs to: one version of one engine."""
    return f"{_text(row['engine'])} {_text(row['engine_version'])}".strip()


def _unstated(records: list[dict[str, Any]], members: Sequence[int]) -> dict[str, str]:
    """Return the runs of a deployment of which two of one load differ, and what they report."""
    slowest: dict[tuple[Any, ...], tuple[float, float]] = {}
    for index in members:
        row = records[index]
        load = (_run(row), row["concurrency"], row["input_len"], row["output_len"])
        low, high = slowest.get(load, (math.inf, 0.0))
        slowest[load] = min(low, float(row["tpot_ms"])), max(high, float(row["tpot_ms"]))
    return {
        load[0]: (
            f"two runs of this deployment and version with one load ({load[1]:g} users, "
            f"{load[2]:g} and {load[3]:g} tokens) report {low:.3g} and {high:.3g} ms per token: "
            "they differ in something no column states, speculation for one"
        )
        for load, (low, high) in slowest.items()
        if low < FASTER * high
    }


def _outrun(records: list[dict[str, Any]], members: Sequence[int], index: int) -> str | None:
    """Return what contradicts a row that is faster than one with far fewer users."""
    own = records[index]
    users, tpot = float(own["concurrency"]), float(own["tpot_ms"])
    for other in members:
        row = records[other]
        if any(row[name] != own[name] for name in ("input_len", "output_len")):
            continue
        others, their = float(row["concurrency"]), float(row["tpot_ms"])
        if others <= users / 2.0 and tpot < FASTER * their:
            return (
                f"{users:g} users at {tpot:.3g} ms per token, and {others:g} users of the same "
                f"deployment and lengths at {their:.3g} ms: more users are not served faster"
            )
    return None


class _Unknown(Exception):
    """What simspec does not have."""


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> Array:
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
        profile=ENGINE_OF_VERSION.get(_run(row), _text(row["engine"])),
        model=_text(row["model"]),
        precision=_text(row["precision"]),
        gemm=gemm,
        experts=_text(row["moe_quant_mode"]) or gemm,
        tp=tp,
        attention_dp=attention_dp,
        moe_tp=moe_tp,
        moe_ep=moe_ep,
        in_step=_text(row["engine_version"]) in IN_STEP,
        seats=SEATS.get(_run(row), DEFAULT_SEATS.get(_text(row["engine"]), 0)),
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
    if key.profile not in engine_names():
        raise _Unknown(unknown("engine profile", key.profile, engine_names()))
    model = catalog_name_of(key.model)
    if model is None:
        raise _Unknown(unknown("architecture", key.model, catalog_names()))
    config = parse_mapping(
        {
            "model": model,
            "hardware": key.hardware,
            "engine": key.profile,
            "tp": key.tp,
            "attention_data_parallel": key.attention_dp,
            "expert_parallel": key.moe_ep,
            "dtype": _dtype(key, model),
            "kv_dtype": _kv_dtype(key, model),
            "method": "autoregressive",
            **({"scheduler": {"max_num_seqs": key.seats}} if key.seats else {}),
        },
        DeploymentConfig,
        "row",
    )
    return build(config)


def _load(key: _Key, rows: Sequence[Mapping[str, Any]]) -> ClosedLoop:
    varies = np.array([bool(_text(row["measured_on"])) for row in rows])
    return ClosedLoop(
        concurrency=_column(rows, "concurrency"),
        prompt_len=_column(rows, "input_len"),
        output_len=_column(rows, "output_len"),
        length_spread=np.where(varies, NIGHTLY_SPREAD, 0.0),
        out_of_step=np.array([_text(row["engine_version"]) in OUT_OF_STEP for row in rows]),
        requests_per_user=np.array(
            [
                np.inf if _text(row["engine_version"]) in STEADY else REQUESTS_PER_USER
                for row in rows
            ]
        ),
        prompts_together=np.inf if key.in_step else PROMPTS_TOGETHER,
        turnaround_steps=TURNAROUND_STEPS,
    )
