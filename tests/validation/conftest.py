"""Small tables of measurements, written for a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from simspec.validation._base import Comparison, MeasurementTable
from simspec.validation.tables import kernel_latencies

GEMM = "kernel_source,latency_ms,engine,engine_version,gemm_dtype,m,n,k,hardware"
_CELLS = ["torch", 1.0, "vllm", "0.24", "bfloat16", 16, 4096, 4096, "h100_sxm"]


def _predicted_ms() -> float:
    frame = pd.DataFrame([dict(zip(GEMM.split(","), _CELLS, strict=True))])
    (row,) = kernel_latencies.compare(MeasurementTable(Path("t.csv"), frame))
    assert isinstance(row, Comparison)
    return row.predicted


MS = _predicted_ms()
ROW = ",".join(map(str, [_CELLS[0], repr(MS), *_CELLS[2:]]))
"""A product that takes what the fit of the profile says, so that its error is 0."""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes lines into a file and returns its path."""

    def written(*lines: str, name: str = "table.csv", end: str = "\n") -> Path:
        path = tmp_path / name
        path.write_bytes("".join(f"{line}{end}" for line in lines).encode())
        return path

    return written
