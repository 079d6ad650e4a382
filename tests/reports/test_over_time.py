"""The figures over time of a simulation's page against its time series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simspec.core.parquet import read_frame
from simspec.reports.dashboards.simulation import read_simulation, write_simulation_report
from simspec.reports.figures import over_time
from simspec.reports.spec import FigureSpec
from simspec.reports.view import sweep_view
from simspec.scenarios.report import simulate_file
from tests.sweeps.factory import SCENARIO, write_yaml


def folder(path: Path, **fields: Any) -> Path:
    workload = {**SCENARIO["workload"], "num_requests": 40}
    scenario = write_yaml(path / "s.yaml", {**SCENARIO, "workload": workload, **fields})
    simulate_file(scenario, output=path / "out", baseline=False)
    return path / "out"


def drawn(out: Path) -> dict[str, FigureSpec]:
    view = sweep_view(read_simulation(out))
    made = (over_time.figure(view, chart) for chart in over_time.CHARTS)
    return {spec.name: spec for spec in made if spec is not None}


def curves(spec: FigureSpec) -> dict[str, list[float]]:
    return {trace["name"]: trace["y"] for trace in spec.base["data"]}  # type: ignore[attr-defined]


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_curves_are_those_of_the_table(tmp_path: Path, replicas: int) -> None:
    """Peaks and time averages agree, and shares stay shares."""
    out = folder(tmp_path, replicas=replicas)
    found = drawn(out)
    assert list(found) == ["over_time_load", "over_time_use"]
    frame = read_frame(out / "timeseries.parquet")
    frame = frame[frame["replication"] == 0]
    running = curves(found["over_time_load"])["Sequences running"]
    assert 1.0 <= max(running) <= 2.0
    used = curves(found["over_time_use"])
    assert all(0.0 <= share <= 100.0 for share in sum(used.values(), []))
    span_s = (frame["start_s"] + frame["duration_s"]).max() - frame["start_s"].min()
    mean = (frame["bandwidth_roof_share"] * frame["duration_s"]).sum() / span_s / replicas
    assert np.mean(used["Bandwidth roof"]) == pytest.approx(100 * mean, rel=0.05)


def test_they_are_on_the_page(tmp_path: Path) -> None:
    """In the report of the folder, with their lead."""
    page = write_simulation_report(folder(tmp_path)).read_text(encoding="utf-8")
    assert "What the engine did over time" in page
    assert "Queue and batch" in page


def test_a_changing_k_has_its_figure(tmp_path: Path) -> None:
    """And only then."""
    out = folder(tmp_path)
    path = out / "timeseries.parquet"
    frame = read_frame(path)
    frame.loc[frame.index % 2 == 0, "draft_in_force_tokens"] = 1.0
    frame.to_parquet(path)
    assert "over_time_draft" in drawn(out)


def test_a_result_without_a_series_has_no_figures(tmp_path: Path) -> None:
    """Such as one made by an earlier version."""
    out = folder(tmp_path)
    (out / "timeseries.parquet").unlink()
    assert drawn(out) == {}
