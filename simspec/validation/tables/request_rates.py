"""Serving engines under offered rates of requests: time per output token and its plausibility.

A row states what was offered and achieved, and the means of end-to-end latency, TTFT and TPOT.
Clients that count stream events instead of tokens report TPOTs that cannot be, so two bounds are
asked first, and a row that breaks one is left out with the arithmetic:

* TPOT is (end-to-end - TTFT) / (tokens - 1), by definition;
* no step is shorter than the reading of the weights.

The others are predicted at the number of requests in flight that Little's law gives,
``achieved x end-to-end``, and never more than ``max_num_seqs``; a queue outside the engine does
not decode.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from simspec.core.errors import SimspecError
from simspec.core.units import from_ms, ms
from simspec.hardware.load import engine_names, hardware_names
from simspec.models.counts import weights_bytes
from simspec.models.hf_config import catalog_names
from simspec.models.names import catalog_name_of
from simspec.scenarios.build import Deployment, build_without_acceptance
from simspec.scenarios.closed_loop import ClosedLoop, closed_loop
from simspec.scenarios.schema import DeploymentConfig, SchedulerConfig
from simspec.validation._base import Comparison, LeftOut, MeasurementTable, unknown
from simspec.validation._names import hardware_of, weight_format_of
from simspec.validation._physics import below_weight_floor, latency_contradiction

COLUMNS = frozenset(
    {"hardware", "engine", "model", "weight_dtype", "max_num_seqs", "prompt_len", "output_len"}
    | {"offered_per_s", "achieved_per_s", "e2e_ms", "ttft_ms", "tpot_ms"}
)
DESCRIPTION = "serving engines under offered rates of requests"
NUMBERS = frozenset(
    {"max_num_seqs", "prompt_len", "output_len", "offered_per_s", "achieved_per_s"}
    | {"e2e_ms", "ttft_ms", "tpot_ms"}
)

_MOST = {
    "max_num_seqs": 100_000.0, "prompt_len": 1e7, "output_len": 1e6, "offered_per_s": 1e9,
    "achieved_per_s": 1e9, "e2e_ms": 1e9, "ttft_ms": 1e9, "tpot_ms": 1e9,
}  # fmt: skip
_LEAST = {"max_num_seqs": 1.0, "prompt_len": 1.0, "output_len": 2.0}


def compare(table: MeasurementTable) -> Iterator[Comparison | LeftOut]:
    """Yield the TPOT of every row, or why it is left out."""
    for index, record in enumerate(table.frame.to_dict("records")):
        cells = {str(key): _cell(value) for key, value in record.items()}
        yield _judged(cells, table.line(index))


def _cell(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _judged(row: Mapping[str, Any], line: int) -> Comparison | LeftOut:
    group = " / ".join(str(row[name]) for name in ("hardware", "engine", "model", "weight_dtype"))
    for name, most in _MOST.items():
        value = row[name]
        if value is None or not max(_LEAST.get(name, 0.0), 1e-9) <= value <= most:
            reason = f"{name} is {'missing' if value is None else f'{value:g}'}, out of range"
            return LeftOut(line, "unsupported", reason, row, group)
    built = _deployment(row)
    if isinstance(built, str):
        return LeftOut(line, "unsupported", built, row, group)
    refuted = _refuted(row, built)
    if refuted is not None:
        return LeftOut(line, "refuted", refuted, row, group)
    in_flight = row["achieved_per_s"] * from_ms(row["e2e_ms"])
    users = min(max(1.0, in_flight), float(built.limits.max_num_seqs))
    load = ClosedLoop(users, row["prompt_len"], row["output_len"], out_of_step=True)
    try:
        found = closed_loop(built, load)
    except SimspecError as error:
        return LeftOut(line, "unsupported", str(error), row, group)
    return Comparison(
        quantity="tpot_ms",
        measured=float(row["tpot_ms"]),
        predicted=ms(float(np.asarray(found.tpot_s))),
        group=group,
        line=line,
        subject=row,
        breakdown={
            "decode_s": float(np.asarray(found.decode_s)),
            "stall_s": float(np.asarray(found.stall_s)),
        },
        family=built.engine.name,
    )


def _deployment(row: Mapping[str, Any]) -> Deployment | str:
    """Return what was served, or what simspec does not have of it."""
    hardware = hardware_of(str(row["hardware"] or ""))
    if hardware is None:
        return unknown("hardware profile", str(row["hardware"]), hardware_names())
    engine = str(row["engine"] or "").split(" ", maxsplit=1)[0].lower().replace("-", "")
    engine = {"tensorrtllm": "trtllm"}.get(engine, engine)
    if engine not in engine_names():
        return unknown("engine profile", engine, engine_names())
    model = catalog_name_of(str(row["model"] or ""))
    if model is None:
        return unknown("architecture", str(row["model"]), catalog_names())
    form = weight_format_of(str(row["weight_dtype"] or ""))
    if form is None:
        return f"no data type {row['weight_dtype']!r}"
    try:
        return build_without_acceptance(
            DeploymentConfig(
                model=model,
                hardware=hardware,
                engine=engine,
                dtype=form,
                method="autoregressive",
                scheduler=SchedulerConfig(max_num_seqs=int(row["max_num_seqs"])),
            )
        )
    except SimspecError as error:
        return str(error)


def _refuted(row: Mapping[str, Any], deployment: Deployment) -> str | None:
    """Return the sentence that refutes the row's TPOT; dense models alone read all weights."""
    contradiction = latency_contradiction(
        e2e_s=from_ms(row["e2e_ms"]),
        ttft_s=from_ms(row["ttft_ms"]),
        tpot_s=from_ms(row["tpot_ms"]),
        output_len=row["output_len"],
    )
    target = deployment.target
    if any(block.moe is not None for block in target.blocks):
        return contradiction
    embedding = target.vocab_size * target.hidden_size * 2.0
    read = weights_bytes(deployment.architecture, target.weight_dtype) - embedding
    floor = below_weight_floor(
        from_ms(row["tpot_ms"]),
        weight_bytes=max(read, 1.0),
        bandwidth_bytes_per_s=deployment.hardware.memory_bandwidth_bytes_per_s,
        device=deployment.hardware.name,
    )
    return "; ".join(text for text in (contradiction, floor) if text) or None
