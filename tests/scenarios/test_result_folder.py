"""The result folder: what is in it, and that it is whole or absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simspec.core.errors import ConfigError
from simspec.core.parquet import read_frame
from simspec.scenarios import result_folder
from simspec.scenarios.report import simulate_file
from simspec.scenarios.result_folder import (
    OURS,
    REPORT,
    REQUESTS,
    RESULT,
    TIME_SERIES,
    TRACE,
    VLLM_BENCH,
    FolderOptions,
)
from tests.sweeps.factory import SCENARIO, write_yaml


def written(folder: Path, options: FolderOptions | None = None, **fields: Any) -> Path:
    path = write_yaml(folder / "scenario.yaml", {**SCENARIO, **fields})
    simulate_file(path, output=folder / "out", baseline=False, options=options)
    return folder / "out"


def test_the_files_of_a_simulation(tmp_path: Path) -> None:
    """All of them, nothing else, and every request of every replication has its row."""
    out = written(tmp_path)
    assert {path.name for path in out.iterdir()} == OURS - {REPORT}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "scenario.yaml"]
    result = json.loads((out / RESULT).read_text())
    requests, series = read_frame(out / REQUESTS), read_frame(out / TIME_SERIES)
    replications = set(range(result["replications"]))
    assert set(requests["replication"]) == set(series["replication"]) == replications
    measured = requests[requests["is_measured"] & (requests["fate"] == "finished")]
    means = measured.groupby("replication")["ttft_ms"].mean()
    assert means.tolist() == pytest.approx(result["by_replication"]["ttft_ms"])
    assert means.mean() == pytest.approx(result["ttft_ms"])
    assert result["definitions"]["ttft_ms"]["unit"] == "ms"
    assert json.loads((out / VLLM_BENCH).read_text())["completed"] > 0
    events = json.loads((out / TRACE).read_text())
    assert {"traceEvents", "displayTimeUnit", "otherData"} == events.keys()


def test_units_stand_in_the_names(tmp_path: Path) -> None:
    """Columns are counts of something named, shares, rates or times with their unit."""
    ends = ("_ms", "_s", "_share", "_tokens", "_blocks_used", "_requests", "_sequences")
    plain = {
        "replication", "replica", "priority", "request_id", "fate", "reason", "is_measured",
        "is_within_slo", "rounds",
        "preemptions", "steps",
    }  # fmt: skip
    out = written(tmp_path)
    for name in (REQUESTS, TIME_SERIES):
        for column in read_frame(out / name).columns:
            assert column in plain or column.endswith(ends), column


def test_the_options_have_their_effects(tmp_path: Path) -> None:
    """Fewer rows, fewer events, another stretch."""
    whole = written(tmp_path)
    all_rows = len(read_frame(whole / TIME_SERIES))
    (tmp_path / "b").mkdir()
    cut = written(tmp_path / "b", FolderOptions(0.0, 0.05, 100, 4))
    replications = read_frame(cut / TIME_SERIES)["replication"].nunique()
    assert len(read_frame(cut / TIME_SERIES)) == 4 * replications < all_rows
    events = json.loads((cut / TRACE).read_text())
    assert len(events["traceEvents"]) < len(json.loads((whole / TRACE).read_text())["traceEvents"])
    assert events["otherData"]["to_s"] <= 0.05


def test_options_without_a_folder_are_refused(tmp_path: Path) -> None:
    """They would have no effect; and a stretch of no length shows nothing."""
    path = write_yaml(tmp_path / "scenario.yaml", SCENARIO)
    with pytest.raises(ConfigError, match="no effect without --output"):
        simulate_file(path, options=FolderOptions())
    with pytest.raises(ConfigError, match="is not after"):
        simulate_file(path, output=tmp_path / "out", options=FolderOptions(2.0, 1.0))


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("before", [False, True])
def test_nothing_half_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: Any, before: bool
) -> None:
    """Ctrl-C or a full disk at the last moment: the earlier result stays, or nothing."""
    if before:
        written(tmp_path)
    earlier = {p.name: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def fail(*args: object) -> None:
        raise stop

    monkeypatch.setattr(result_folder, "write_json", fail)
    with pytest.raises((KeyboardInterrupt, ConfigError)):
        written(tmp_path)
    now = {p.name: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert now == {**earlier, "scenario.yaml": now["scenario.yaml"]}
    assert (tmp_path / "out").exists() == before


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    """Every file; the second time over the first, whose page is taken away with it."""
    out = written(tmp_path)
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    (out / REPORT).write_text("stale")
    written(tmp_path)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == first
