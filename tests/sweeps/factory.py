"""A small sweep that computes in a second, to be changed by each test where it is about."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simspec.sweeps.plan import SweepPlan, plan_sweep

GPU = {
    "extends": "h100_sxm",
    "name": "mine",
    "memory": {"bandwidth_gb_s": 2000, "source": "made up for a test"},
}
SCENARIO: dict[str, Any] = {
    "model": "llama-3.2-1b",
    "hardware": "h100_sxm",
    "method": {
        "name": "kangaroo",
        "exit_layer": 2,
        "num_speculative_tokens": 3,
        "confidence_threshold": 0,
    },
    "acceptance": 0.7,
    "workload": {
        "arrivals": {"name": "closed_loop", "concurrency": 2},
        "lengths": {"name": "fixed", "prompt_len": 32, "output_len": 8},
        "num_requests": 6,
    },
    "simulation": {"seed": 1, "replications": 2},
}
GRID: dict[str, Any] = {
    "load": {
        "low": {"workload.arrivals": {"name": "closed_loop", "concurrency": 1}},
        "high": {"workload.arrivals": {"name": "closed_loop", "concurrency": 4}},
    },
    "method.exit_layer": [2, 3],
    "method.num_speculative_tokens": [1, 2],
}


def sweep_data(**changes: Any) -> dict[str, Any]:
    """Return the data of a sweep: two loads, four configurations, two baselines."""
    data = {
        "name": "small",
        "scenario": SCENARIO,
        "grid": GRID,
        "sweep": {"curve_batches": [1, 4], "curve_context": 256},
    }
    return copy.deepcopy({**data, **changes})


def write_yaml(path: Path, data: Mapping[str, Any]) -> Path:
    """Write data as a YAML file (JSON is YAML), in its own order, and return its path."""
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return path


def write_sweep(folder: Path, **changes: Any) -> Path:
    """Write the sweep and return its path."""
    return write_yaml(folder / "sweep.yaml", sweep_data(**changes))


def plan(folder: Path, **changes: Any) -> SweepPlan:
    """Write and plan the sweep."""
    return plan_sweep(write_sweep(folder, **changes))


TABLES = ("points.parquet", "curves.parquet")


def result_bytes(output: Path, folder: Path | None = None) -> dict[str, bytes]:
    """Return the content of every file that must not depend on how a sweep was run.

    The line with the commit is left out: it moves while a developer works. ``folder`` is that of
    the sweep file, whose path is an input's name; it is left out too when given.
    """
    manifest = (output / "manifest.json").read_text().splitlines()
    kept = "\n".join(line for line in manifest if '"git_commit"' not in line)
    if folder is not None:
        kept = kept.replace(str(folder), "FOLDER")
    return {
        "manifest.json": kept.encode(),
        **{name: (output / name).read_bytes() for name in TABLES},
    }
