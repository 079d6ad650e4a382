"""Fit the ring of ``hardware_profiles/l40s_switched.yaml`` to published speeds of servers.

::

    python benchmarks/fit_l40s_link.py ../shared/reference/measured_inference.csv

The bandwidth of the ring over the PCIe switches of NVIDIA's L40S servers, from the static tables
of TensorRT-LLM 0.8 and 0.9 with 2, 4 and 8 cards; judged on its prefill tables and on those of
in-flight batching (0.10 to 0.12). Everything else is as the profiles have it.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from simspec.calibration.robust import Array, Coefficient, fit, held_out
from simspec.calibration.splits import is_fitted
from simspec.core.units import from_gb_s
from simspec.cost.forward import CostModel
from simspec.scenarios.build import Deployment
from simspec.validation.speed_rows import Predicted, deployment_of, predict

NUMBERS = ("num_gpus", "tp", "batch_or_concurrency", "input_len", "output_len", "context_depth")


def main(path: str) -> None:
    """Print the bandwidth, its standard error and the errors on both parts."""
    with open(path, encoding="utf-8") as file:
        rows = [_row(record) for record in csv.DictReader(file)]
    rows = [
        row
        for row in rows
        if row["engine"] == "TensorRT-LLM" and row["hardware"] == "L40S" and (row["tp"] or 1) > 1
    ]
    priced = [(row, deployment_of(row)) for row in rows if row["quality"] != "suspect"]
    usable = [(row, found) for row, found in priced if isinstance(found, Deployment)]
    fitted = [pair for pair in usable if is_fitted(pair[0])]
    estimate = fit(
        lambda values: 1.0 / _figures(fitted, float(values[0])),
        [Coefficient("bandwidth_gb_s", 0.1, 64.0, start=15.0)],
        1.0 / np.array([row["value"] for row, _ in fitted]),
        groups=[f"{row['model']} {row['tp']} {row['weight_dtype']}" for row, _ in fitted],
        loss_scale=0.1,
        what="L40S behind switches",
    )
    value, error = float(estimate.values[0]), float(estimate.standard_error[0])
    print(f"bandwidth_gb_s: {value:.4g} +- {error:.2g}")
    judged = [pair for pair in usable if not is_fitted(pair[0])]
    for name, chosen in (("fitted", fitted), ("judged", judged)):
        measured = np.array([row["value"] for row, _ in chosen])
        found = held_out(_figures(chosen, value), measured)
        print(f"{name}: {found.rows} rows, median {found.median:.3f}, 90 % below {found.p90:.3f}")


def _row(record: dict[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {name: value or None for name, value in record.items()}
    return row | {
        name: float(row[name]) if row[name] else None for name in (*NUMBERS, "value") if name in row
    }


def _figures(rows: list[tuple[dict[str, Any], Deployment]], bandwidth_gb_s: float) -> Array:
    values = []
    for row, deployment in rows:
        cost = deployment.cost
        link = cost.hardware.link
        assert link is not None
        ring = replace(link.all_reduce["ring"], bandwidth_bytes_per_s=from_gb_s(bandwidth_gb_s))
        hardware = replace(
            cost.hardware, link=replace(link, all_reduce={**link.all_reduce, "ring": ring})
        )
        other = replace(deployment, cost=CostModel(cost.stacks, hardware, cost.engine))
        found = predict(row, other)
        values.append(found.value if isinstance(found, Predicted) else np.nan)
    return np.array(values)


if __name__ == "__main__":
    main(sys.argv[1])
