"""The example of ``docs/extending/measurement_table.md`` is a reader that works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simspec.validation._base import Comparison, LeftOut, MeasurementTable
from tests.helpers.shared import REPO_ROOT

PAGE = REPO_ROOT / "docs/extending/measurement_table.md"


def test_the_example_reads_a_table() -> None:
    """Known rows are compared, unknown devices and empty cells are left out with a reason."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    module: dict[str, Any] = {"__name__": "steps"}
    exec(compile(code[1], "measurement_table.md", "exec"), module)
    step = {"hardware": "H100", "model": "Llama-3.1-8B", "batch": 1.0, "context": 1000.0}
    rows = [step, {**step, "hardware": "abacus"}, {**step, "batch": float("nan")}]
    frame = pd.DataFrame([{**row, "step_ms": 7.1} for row in rows])
    assert set(frame.columns) >= module["COLUMNS"] >= module["NUMBERS"]
    compared, unknown, empty = module["compare"](MeasurementTable(Path("steps.csv"), frame))
    assert isinstance(compared, Comparison)
    assert compared.predicted == pytest.approx(7.1, rel=0.25)
    assert compared.line == 2
    assert isinstance(unknown, LeftOut)
    assert unknown.reason == "no profile of abacus or no architecture of Llama-3.1-8B"
    assert isinstance(empty, LeftOut)
    assert empty.reason == "no batch or no context"
