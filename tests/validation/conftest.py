"""Small tables of measurements, written for a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GEMM = "kernel_source,latency_ms,engine,engine_version,gemm_dtype,m,n,k,hardware"
ROW = "torch,0.0151600195,vllm,0.24,bfloat16,16,4096,4096,h100_sxm"
"""A product that takes what the fit of the profile says."""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes lines into a file and returns its path."""

    def written(*lines: str, name: str = "table.csv", end: str = "\n") -> Path:
        path = tmp_path / name
        path.write_bytes("".join(f"{line}{end}" for line in lines).encode())
        return path

    return written
