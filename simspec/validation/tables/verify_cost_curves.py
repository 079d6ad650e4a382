"""What a forward pass over several tokens costs, beside one over a single token.

The number that decides about speculation on a device: ``step_cost_ratio`` is the time of a pass
over n tokens of one sequence (a verify pass), or over one token of n sequences (a batched decode),
divided by that of a single token on the same device, build, model and context. The pass over the
single token itself is compared as ``tpot_ms``.

``pp512 at ubatch n`` in the notes is a prompt of 512 tokens in microbatches: its passes see 256
tokens of context on average, beside ``context_depth``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

from simspec.core.errors import SimspecError
from simspec.core.units import from_ms, ms
from simspec.cost.forward import CostModel, StepCost
from simspec.cost.work import Pass, Rows
from simspec.hardware.load import engine_names, hardware_names
from simspec.models.dtypes import DTYPES
from simspec.models.hf_config import catalog_names
from simspec.models.names import catalog_name_of
from simspec.scenarios.build import Deployment, build_without_acceptance
from simspec.scenarios.schema import DeploymentConfig
from simspec.scenarios.uncertainty import Errors, interval_95, sigma_of, sigma_of_ratio
from simspec.validation._base import Comparison, LeftOut, MeasurementTable, unknown
from simspec.validation._base import Quantity as Measured
from simspec.validation._names import hardware_of
from simspec.validation._physics import below_bandwidth_floor

COLUMNS = frozenset(
    {"hardware", "engine", "build", "model", "weight_dtype", "n_tokens_per_forward"}
    | {"context_depth", "ms_per_forward", "kind"}
)
DESCRIPTION = "forward passes over 1 to n tokens"
NUMBERS = frozenset({"n_tokens_per_forward", "context_depth", "ms_per_forward", "tokens_per_s"})

_ENGINES = {"llama.cpp": "llama_cpp", "MLX": "mlx", "vLLM": "vllm", "SGLang": "sglang"}
_DOUBTS = ("not point measurements", "old Metal kernels")
"""What the notes of a row say that makes it no measurement of this engine."""
_PROMPT_LEN = 512
_MOST_TOKENS = 1e8
_FITTED = frozenset({("m2_ultra", "qwen2.5-coder-7b"), ("m2_ultra", "gpt-oss-20b")})

Kind = Literal["verify", "batched"]
_Key = tuple[str, ...]


def compare(table: MeasurementTable) -> Iterator[Comparison | LeftOut]:
    """Yield every pass: the single token in milliseconds, all others as a ratio to it."""
    rows = [{str(k): _cell(v) for k, v in r.items()} for r in table.frame.to_dict("records")]
    singles = {
        _curve(row): float(row["ms_per_forward"])
        for row in rows
        if row["n_tokens_per_forward"] == 1 and (row["ms_per_forward"] or 0) > 0
    }
    for index, row in enumerate(rows):
        yield _judged(row, singles.get(_curve(row)), table.line(index))


def _cell(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _curve(row: Mapping[str, Any]) -> _Key:
    names = ("hardware", "engine", "build", "model", "weight_dtype", "context_depth", "kind")
    return tuple(str(row[name]) for name in names)


def _judged(row: Mapping[str, Any], single_ms: float | None, line: int) -> Comparison | LeftOut:
    group = " / ".join(str(row[name]) for name in ("hardware", "engine", "model", "weight_dtype"))
    doubt = next((text for text in _DOUBTS if text in str(row.get("notes"))), None)
    if doubt is not None:
        return LeftOut(line, "suspect", f"its notes say: {doubt}", row, group)
    num_tokens, measured = row["n_tokens_per_forward"], row["ms_per_forward"]
    is_count = num_tokens is not None and 1 <= num_tokens <= _MOST_TOKENS and num_tokens % 1 == 0
    if not is_count or not measured or not 0 <= (row["context_depth"] or 0) <= _MOST_TOKENS:
        return LeftOut(line, "unsupported", "no number of tokens or no time", row, group)
    built = _deployment(row)
    if isinstance(built, str):
        return LeftOut(line, "unsupported", built, row, group)
    deployment, errors = built
    kind: Kind = "verify" if str(row["kind"]).startswith("verify") else "batched"
    num_sequences = {"one": 1, "many": 1 if kind == "verify" else int(num_tokens)}
    passes = {
        "one": _pass(deployment, 1, _context(row), kind),
        "many": _pass(deployment, int(num_tokens), _context(row), kind),
    }

    def steps(cost: CostModel) -> dict[str, StepCost]:
        return {name: cost.step([work], num_sequences[name]) for name, work in passes.items()}

    one, many = steps(deployment.cost).values()
    refuted = below_bandwidth_floor(
        from_ms(float(measured)),
        num_bytes=float(one.bytes),
        bandwidth_bytes_per_s=deployment.hardware.memory_bandwidth_bytes_per_s,
        device=deployment.hardware.name,
    )
    if refuted is not None:
        return LeftOut(line, "refuted", refuted, row, group)
    if num_tokens != 1 and single_ms is None:
        reason = "its curve has no pass over a single token to divide by"
        return LeftOut(line, "unsupported", reason, row, group)

    effects = errors.effects(lambda cost: {k: step.total_s for k, step in steps(cost).items()})
    quantity: Measured = "tpot_ms" if single_ms is None or num_tokens == 1 else "step_cost_ratio"
    if quantity == "tpot_ms":
        predicted, sigma = ms(float(one.total_s)), sigma_of(effects, "one")
    else:
        predicted = float(many.total_s) / float(one.total_s)
        sigma = sigma_of_ratio(effects, "many", "one")
        measured = float(measured) / float(single_ms or 1.0)
    low, high = interval_95(predicted, float(sigma))
    return Comparison(
        quantity=quantity,
        measured=float(measured),
        predicted=predicted,
        group=group,
        line=line,
        subject=row,
        role="fitted" if _is_fitted(row, deployment) else "held_out",
        interval=(low, high),
        breakdown={"device_s": float(many.device_s), "host_s": float(many.host_s)},
        family=f"{deployment.engine.name}, {kind}",
    )


def _is_fitted(row: Mapping[str, Any], deployment: Deployment) -> bool:
    """Return whether a plan of :mod:`simspec.calibration.speed_fits` has used the curve."""
    if deployment.hardware.name == "rtx_3090":
        return True
    return (deployment.hardware.name, str(row["model"])) in _FITTED


def _context(row: Mapping[str, Any]) -> int:
    depth = int(row["context_depth"] or 0)
    return depth + (_PROMPT_LEN // 2 if "pp512" in str(row.get("notes")) or not depth else 0)


def _deployment(row: Mapping[str, Any]) -> tuple[Deployment, Errors] | str:
    """Return the deployment of a row, or why there is none."""
    hardware = hardware_of(str(row["hardware"]).split("(", maxsplit=1)[0])
    if hardware is None:
        return unknown("hardware profile", str(row["hardware"]), hardware_names())
    engine = _ENGINES.get(str(row["engine"]))
    if engine is None or engine not in engine_names():
        return unknown("engine profile", str(row["engine"]), engine_names())
    model = catalog_name_of(str(row["model"]))
    if model is None:
        return unknown("architecture", str(row["model"]), catalog_names())
    if row["weight_dtype"] not in DTYPES:
        return unknown("data type", str(row["weight_dtype"]), tuple(DTYPES))
    try:
        return _built(model, hardware, engine, str(row["weight_dtype"]))
    except SimspecError as error:
        return str(error)


@lru_cache(maxsize=64)
def _built(model: str, hardware: str, engine: str, dtype: str) -> tuple[Deployment, Errors]:
    config = DeploymentConfig.model_validate(
        {
            "model": model,
            "hardware": hardware,
            "engine": engine,
            "dtype": dtype,
            "kv_dtype": "fp16",
            "method": "autoregressive",
        }
    )
    deployment = build_without_acceptance(config)
    return deployment, Errors(deployment.cost)


def _pass(deployment: Deployment, num_tokens: int, context: int, kind: Kind) -> Pass:
    """Return one pass over ``num_tokens``, all of one sequence or one of each."""
    batch, new = (1, num_tokens) if kind == "verify" else (num_tokens, 1)
    rows = Rows(
        kind="decode",
        num_sequences=batch,
        num_tokens=batch * new,
        kv_tokens=batch * (context + new),
        attended_tokens=batch * new * (context + (new + 1) / 2),
        logit_rows=batch * new,
    )
    last = deployment.architecture.num_layers
    return Pass("target", 0, last, "decode", (rows,), embeds=True)
