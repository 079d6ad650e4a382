"""Paired differences of two simulations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import simspec
from simspec.core.errors import ConfigError
from simspec.core.stats import paired_difference
from simspec.scenarios.diff import diff_paths
from simspec.scenarios.report import SHOWN, simulate_file
from tests.sweeps.factory import GPU, SCENARIO, write_yaml

OPEN = {
    **SCENARIO,
    "workload": {
        "arrivals": {"name": "poisson", "rate_per_s": 20.0},
        "lengths": {"name": "fixed", "prompt_len": 64, "output_len": 20},
        "num_requests": 25,
    },
    "simulation": {"seed": 1, "replications": 3, "warmup": 0.0},
}


def scenario(folder: Path, name: str, **fields: Any) -> Path:
    return write_yaml(folder / f"{name}.yaml", {**OPEN, **fields})


def folder_of(folder: Path, name: str, **fields: Any) -> Path:
    simulate_file(scenario(folder, name, **fields), baseline=False, output=folder / name)
    return folder / name


def test_identical_runs_differ_by_exactly_nothing(tmp_path: Path) -> None:
    """A folder beside the scenario it came from: zero, with an interval of no width."""
    found = diff_paths(folder_of(tmp_path, "a"), tmp_path / "a.yaml").document
    assert found["changed"] == {}
    defined = [row for row in found["metrics"].values() if row["a"] is not None]
    assert len(defined) > 30
    for row in defined:
        assert (row["difference"], row["ci95_low"], row["ci95_high"]) == (0.0, 0.0, 0.0)
        assert row["excludes_zero"] is False


def test_less_bandwidth_is_slower(tmp_path: Path) -> None:
    """B minus A has the sign of the change, which is more than chance, and turns with the order."""
    write_yaml(tmp_path / "gpu.yaml", GPU)
    a = folder_of(tmp_path, "a")
    b = folder_of(tmp_path, "b", hardware="gpu.yaml")
    found = diff_paths(a, b)
    rows = found.document["metrics"]
    assert list(found.document["changed"]) == ["hardware"]
    assert rows["tpot_ms"]["difference"] > 0
    assert rows["tpot_ms"]["excludes_zero"]
    # The tapes are the same; which rounds fall into the window of rates is not quite.
    assert rows["tokens_per_round"]["difference"] == pytest.approx(0.0, abs=0.02)
    turned = diff_paths(b, a).document["metrics"]
    assert turned["tpot_ms"]["difference"] == -rows["tpot_ms"]["difference"]
    values = [
        json.loads((folder / "result.json").read_text())["by_replication"]["tpot_ms"]
        for folder in (a, b)
    ]
    interval = paired_difference(values[1], values[0])
    assert rows["tpot_ms"]["ci95_low"] == interval.low
    assert rows["tpot_ms"]["percent"] == pytest.approx(100 * interval.mean / rows["tpot_ms"]["a"])
    assert any("hardware" in line for line in found.header)


def test_python_gets_what_the_command_prints(tmp_path: Path) -> None:
    """``simspec.diff`` is the document of ``simspec diff --json``."""
    a, b = scenario(tmp_path, "a"), scenario(tmp_path, "b", dtype="fp8")
    assert simspec.diff(a, str(b)) == diff_paths(a, b).document


def test_rows_of_the_table(tmp_path: Path) -> None:
    """What ``simulate`` shows, or every metric."""
    path = scenario(tmp_path, "a")
    found = diff_paths(path, path)
    shown = [row["metric"] for row in found.rows(everything=False)]
    assert shown == list(SHOWN)
    assert set(shown) < {row["metric"] for row in found.rows(everything=True)}


def test_only_common_replications_are_paired(tmp_path: Path) -> None:
    """More of them on one side add nothing, and the header says so."""
    a = scenario(tmp_path, "a")
    b = scenario(tmp_path, "b", simulation={**OPEN["simulation"], "replications": 5})
    found = diff_paths(a, b)
    assert found.document["samples"] == 3
    assert found.document["metrics"]["tpot_ms"]["difference"] == 0.0
    assert any("A has 3 replications, B 5" in line for line in found.header)


def test_one_replication_has_a_difference_and_no_interval(tmp_path: Path) -> None:
    """And so no verdict."""
    one = {**OPEN["simulation"], "replications": 1}
    a = scenario(tmp_path, "a", simulation=one)
    b = scenario(tmp_path, "b", simulation=one, dtype="fp8")
    row = diff_paths(a, b).document["metrics"]["tpot_ms"]
    assert row["difference"] < 0
    assert row["ci95_low"] is None
    assert row["excludes_zero"] is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"simulation": {"seed": 2}}, "different seeds \\(1 and 2\\)"),
        ({"workload": {**OPEN["workload"], "num_requests": 24}}, "workload.num_requests"),
        (
            {"simulation": {**OPEN["simulation"], "intervals": "batch_means", "num_batches": 4}},
            "different simulation.intervals",
        ),
    ],
)
def test_what_cannot_be_paired_is_refused(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    """One sentence with what differs."""
    a, b = scenario(tmp_path, "a"), scenario(tmp_path, "b", **fields)
    with pytest.raises(ConfigError, match=words):
        diff_paths(a, b)


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    """An empty folder, broken JSON, and another file of that name."""
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ConfigError, match=r"no result\.json here"):
        diff_paths(empty, empty)
    (empty / "result.json").write_text("{")
    with pytest.raises(ConfigError, match="not valid JSON"):
        diff_paths(empty, empty)
    (empty / "result.json").write_text('{"method": 1}')
    with pytest.raises(ConfigError, match="simulate again"):
        diff_paths(empty, empty)
