"""Published speeds of whole models: single streams, prompts, static batches, and throughput.

One measured figure per line: ``tokens_per_s`` over all sequences, ``tpot_ms`` or ``ttft_ms``. How
a row becomes a prediction is :mod:`simspec.validation.speed_rows`; which rows a fit has used is
:mod:`simspec.calibration.splits`. Rows that their transcriber calls ``suspect`` are left out, as
are those that arithmetic refutes: weights that would have to be read faster than the memory
allows, or products above the peak.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from simspec.calibration.splits import is_fitted
from simspec.core.units import from_ms
from simspec.models.counts import active_params, model_params, weights_bytes
from simspec.scenarios.build import Deployment
from simspec.validation._base import Comparison, LeftOut, MeasurementTable, Quantity
from simspec.validation._physics import below_compute_floor, below_weight_floor
from simspec.validation.speed_rows import deployment_of, predict

COLUMNS = frozenset(
    {"engine", "hardware", "num_gpus", "tp", "model", "weight_dtype", "kv_dtype", "phase"}
    | {"batch_or_concurrency", "input_len", "output_len", "metric", "value", "subset", "quality"}
    | {"context_depth"}
)
DESCRIPTION = "published speeds of whole models"
NUMBERS = frozenset(
    {"num_gpus", "tp", "batch_or_concurrency", "input_len", "output_len", "value", "context_depth"}
)

_QUANTITIES: dict[str, Quantity] = {
    "tokens_per_s_total": "tokens_per_s",
    "tpot_ms": "tpot_ms",
    "ttft_ms": "ttft_ms",
}

_SIZES: dict[str, float | None] = {
    "num_gpus": 1.0,
    "tp": None,
    "batch_or_concurrency": None,
    "input_len": None,
    "output_len": None,
    "context_depth": None,
}
"""Columns of whole numbers and the least of each; None: the cell may be empty, or 0."""
_MOST = 1e7
_PROCESSED = {
    "prefill": ("input_len", "batch_or_concurrency"),
    "decode": ("output_len", "batch_or_concurrency"),
    "end_to_end": ("input_len", "output_len", "batch_or_concurrency"),
}
"""Columns that hold at least 1 where they hold something, by phase."""


def compare(table: MeasurementTable) -> Iterator[Comparison | LeftOut]:
    """Yield every row: its figure beside the prediction, or why it is left out."""
    for index, record in enumerate(table.frame.to_dict("records")):
        row = {str(name): _cell(value) for name, value in record.items()}
        yield _judged(row, table.line(index))


def _cell(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _judged(row: Mapping[str, Any], line: int) -> Comparison | LeftOut:
    names = ("hardware", "engine", "model", "weight_dtype")
    group = " / ".join(str(row[name]) for name in names)
    if row["quality"] == "suspect":
        reason = "its neighbours contradict it" + (f": {row['notes']}" if row.get("notes") else "")
        return LeftOut(line, "suspect", reason, row, group)
    quantity = _QUANTITIES.get(str(row["metric"]))
    if quantity is None or row["value"] is None or not row["value"] > 0:
        return LeftOut(line, "unsupported", f"no rule for {row['metric']}", row, group)
    wrong = next((name for name in _SIZES if not _is_size(row[name], _SIZES[name])), None)
    wrong = wrong or next(
        (name for name in _PROCESSED.get(row["phase"], ()) if row[name] == 0), None
    )
    if wrong is None and row["phase"] == "prefill" and row["input_len"] is None:
        wrong = "input_len"
    if wrong is not None:
        return LeftOut(line, "unsupported", f"{wrong} is out of range", row, group)
    deployment = deployment_of(row)
    if isinstance(deployment, str):
        return LeftOut(line, "unsupported", deployment, row, group)
    predicted = predict(row, deployment)
    if isinstance(predicted, str):
        return LeftOut(line, "unsupported", predicted, row, group)
    refuted = _refuted(row, deployment)
    if refuted is not None:
        return LeftOut(line, "refuted", refuted, row, group)
    return Comparison(
        quantity=quantity,
        measured=float(row["value"]),
        predicted=predicted.value,
        group=group,
        line=line,
        subject=row,
        role="fitted" if is_fitted(row) else "held_out",
        breakdown=predicted.breakdown,
        family=f"{row['engine']}, {_kind(row)}{_bus(deployment)}",
    )


def _is_size(value: float | None, least: float | None) -> bool:
    """Return whether a cell holds a whole number of things, or nothing where that is allowed."""
    if value is None:
        return least is None
    return (least or 0.0) <= value <= _MOST and value % 1 == 0


def _kind(row: Mapping[str, Any]) -> str:
    if row["phase"] != "end_to_end":
        return str(row["phase"])
    return "throughput" if row["batch_or_concurrency"] is None else "static batch"


def _bus(deployment: Deployment) -> str:
    """Return what sets apart ranks that talk over the bus of a host, which no profile knows."""
    link = deployment.hardware.link
    is_shared = deployment.target.tp > 1 and link is not None and link.name.startswith("PCIe")
    return " over PCIe" if is_shared else ""


def _refuted(row: Mapping[str, Any], deployment: Deployment) -> str | None:
    """Return the arithmetic that refutes a figure, None where nothing does."""
    value, batch = float(row["value"]), row["batch_or_concurrency"]
    architecture, tp = deployment.architecture, deployment.target.tp
    hardware = deployment.hardware
    is_dense = all(block.moe is None for block in architecture.blocks)
    peak = deployment.peak_flop_per_s
    embedding = float(architecture.vocab_size * architecture.hidden_size)
    tables = embedding if architecture.tied_embeddings else 2.0 * embedding
    flop = 2.0 * (active_params(architecture) - tables)
    if row["phase"] == "prefill":
        tokens = float(row["input_len"] or 0)
        if row["metric"] == "ttft_ms":
            tokens, seconds = tokens * float(batch or 1), from_ms(value)
        else:
            seconds = tokens / value
        return below_compute_floor(
            seconds, flop=flop * tokens / tp, peak_flop_per_s=peak, device=hardware.name
        )
    if batch is None:
        prompts = float(row["input_len"] or 0) / float(row["output_len"] or 1)
        return below_compute_floor(
            1.0,
            flop=flop * value * (1.0 + prompts) / tp,
            peak_flop_per_s=peak,
            device=hardware.name,
        )
    step_s = from_ms(value) if row["metric"] == "tpot_ms" else float(batch) / value
    if not is_dense:
        return None
    whole = weights_bytes(architecture, deployment.target.weight_dtype, tp)
    share = 1.0 if architecture.tied_embeddings else 1.0 - embedding / model_params(architecture)
    return below_weight_floor(
        step_s,
        weight_bytes=whole * share,
        bandwidth_bytes_per_s=hardware.memory_bandwidth_bytes_per_s,
        device=hardware.name,
    )
