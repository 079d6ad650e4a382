"""Fit ``hardware_profiles/engines/trtllm_2024.yaml`` and ``vllm_2024.yaml`` to published tables.

::

    python benchmarks/fit_engines_2024.py ../shared/reference/measured_inference.csv trtllm_2024

Host time per step and per sequence, and the wait of an all-reduce for the slowest rank, from
measurements whose batch is stated: the static tables of TensorRT-LLM's documentation (0.5 to 0.9)
and the A100 of LLM-Inference-Bench; judged on the H100 of the latter and, for TensorRT-LLM, on its
tables of in-flight batching (0.10 to 0.12), where memory decides the batch. Several L40S are left
out: their link is that of another host.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from simspec.calibration.robust import Array, Coefficient, fit, held_out
from simspec.core.units import from_us
from simspec.cost.forward import CostModel
from simspec.scenarios.build import Deployment
from simspec.validation.speed_rows import deployment_of, predict

ENGINES = {"trtllm_2024": "TensorRT-LLM", "vllm_2024": "vLLM"}
BENCH = "argonne"
FITTED = (*(f"trtllm_static_v0.{minor}" for minor in ("5.0", "7.1", "8.0", "9.0")), BENCH)
JUDGED = (*(f"trtllm_ifb_v0.{minor}.0" for minor in (10, 11, 12)), BENCH)
COEFFICIENTS = (
    Coefficient("per_step_us", 0.0, 20_000.0, start=500.0),
    Coefficient("per_sequence_us", 0.0, 1_000.0, start=5.0),
    Coefficient("collective_overhead_us", 0.0, 1_000.0, start=50.0),
)
NUMBERS = ("num_gpus", "tp", "batch_or_concurrency", "input_len", "output_len", "context_depth")


def main(path: str, engine: str) -> None:
    """Print the coefficients, their standard errors and the errors on both halves."""
    with open(path, encoding="utf-8") as file:
        every = [_row(record) for record in csv.DictReader(file)]
    rows = [row for row in every if row["engine"] == ENGINES[engine]]
    fitted, judged = _usable(rows, FITTED, fits=True), _usable(rows, JUDGED)
    estimate = fit(
        lambda values: _seconds(fitted, values),
        COEFFICIENTS,
        _measured(fitted),
        groups=[f"{row['hardware']} {row['model']} {row['weight_dtype']}" for row, _ in fitted],
        loss_scale=0.1,
        what=engine,
    )
    for coefficient, value, error in zip(
        COEFFICIENTS, estimate.values, estimate.standard_error, strict=True
    ):
        print(f"{coefficient.name}: {value:.4g} +- {error:.2g}")
    chosen = {"fitted": fitted, "judged": judged}
    chosen |= {name: _usable(rows, (name,)) for name in JUDGED}
    for name, some in chosen.items():
        if some:
            print(name, held_out(_seconds(some, estimate.values), _measured(some)))


def _row(record: Mapping[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {name: value or None for name, value in record.items()}
    return row | {name: float(row[name]) for name in NUMBERS if row[name] is not None}


def _usable(
    rows: Sequence[dict[str, Any]], subsets: Sequence[str], *, fits: bool = False
) -> list[tuple[dict[str, Any], Deployment]]:
    found = []
    for row in rows:
        if row["subset"] not in subsets or row["quality"] == "suspect":
            continue
        is_a100 = str(row["hardware"]).startswith("A100")
        if row["subset"] == BENCH and is_a100 is not fits:
            continue
        if row["hardware"] == "L40S" and row["tp"] > 1:
            continue
        if row["subset"] == BENCH and row["batch_or_concurrency"] not in (1.0, 16.0, 64.0):
            continue
        deployment = deployment_of(row)
        if isinstance(deployment, Deployment) and not isinstance(predict(row, deployment), str):
            found.append((row, deployment))
    return found


def _seconds(rows: Sequence[tuple[dict[str, Any], Deployment]], values: Array) -> Array:
    """Return seconds per generated token of each row under one candidate."""
    step_us, sequence_us, wait_us = (float(v) for v in values)
    out = []
    for row, deployment in rows:
        engine = replace(
            deployment.engine,
            host_time_per_step_s=from_us(step_us),
            host_time_per_sequence_s=from_us(sequence_us),
            kernels_in_steps=replace(
                deployment.engine.kernels_in_steps, collective_overhead_s=from_us(wait_us)
            ),
        )
        cost = CostModel(deployment.cost.stacks, deployment.hardware, engine)
        predicted = predict(row, replace(deployment, engine=engine, cost=cost))
        assert not isinstance(predicted, str)
        out.append(1.0 / predicted.value)
    return np.array(out)


def _measured(rows: Sequence[tuple[dict[str, Any], Deployment]]) -> Array:
    return np.array([1.0 / float(row["value"]) for row, _ in rows])


if __name__ == "__main__":
    main(*sys.argv[1:])
