"""The command as a process: start-up time, pipes, full disks, files left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import GOLDEN
from tests.helpers.command import command, environment, simspec

SLOW_LIBRARIES = {"pandas", "scipy", "plotly", "pyarrow", "simpy", "numpy", "pydantic"}
TIMED = """
import sys, time
sys.argv = ["simspec", "--help"]
start = time.process_time()
from simspec.cli.main import run
try:
    run()
finally:
    used = time.process_time() - start
    print(used, *sorted(sys.modules), file=sys.stderr)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for source in GOLDEN.glob("*.yaml"):
        (tmp_path / source.name).write_text(source.read_text())
    return tmp_path


def test_help_takes_less_than_a_third_of_a_second() -> None:
    """``simspec --help`` imports nothing slow and uses less than 0.3 s of CPU."""
    attempts = [
        subprocess.run(
            [sys.executable, "-c", TIMED],
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stderr.split()
        for _ in range(2)
    ]
    assert not SLOW_LIBRARIES & set(attempts[0][1:])
    # The first one may have to compile; a busy machine inflates CPU time too.
    assert min(float(attempt[0]) for attempt in attempts) < 0.3


def test_it_works_from_any_folder(tmp_path: Path) -> None:
    """Profiles, models and examples are found wherever one stands, and nothing is written."""
    listed = simspec("hardware", "list", "--json", cwd=tmp_path)
    assert listed.returncode == 0
    names = {row["name"] for row in json.loads(listed.stdout)["hardware"]}
    assert {"h100_sxm", "a100_sxm_80gb", "rtx_4090", "m4_max"} <= names
    planned = simspec("sweep", "experiments/tau_vs_K.yaml", "--dry-run", "--json", cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["points"] > 100
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [("cost",), ("cost", "--json"), ("hardware", "show", "l40s")])
def test_a_reader_that_leaves_early_is_no_error(arguments: tuple[str, ...]) -> None:
    """``simspec … | head -1`` ends without a word."""
    read, write = os.pipe()
    process = subprocess.Popen(
        command(*arguments), env=environment(), stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    os.close(read)
    _, err = process.communicate(timeout=120)
    assert err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("cost",), ("cost", "--json")])
def test_a_full_disk_is_a_sentence(arguments: tuple[str, ...]) -> None:
    """Output that cannot be written is an error in words."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command(*arguments),
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("simspec: cannot write the output")
    assert done.stderr.count("\n") == 1


def test_a_dry_run_writes_nothing(folder: Path) -> None:
    """``--dry-run`` counts; it makes no folder."""
    before = sorted(folder.rglob("*"))
    done = simspec("sweep", "sweep.yaml", "--dry-run", cwd=folder)
    assert done.returncode == 0
    assert "8 points (2 of them autoregressive baselines), 8 to compute" in done.stdout
    assert sorted(folder.rglob("*")) == before


def test_a_sweep_and_then_its_dry_run(folder: Path) -> None:
    """After the sweep there is nothing left to compute, and every file is where it was said."""
    done = simspec("sweep", "sweep.yaml", "--workers", "2", cwd=folder)
    assert done.returncode == 0, done.stderr
    output = folder / "results" / "golden"
    assert {p.name for p in output.iterdir()} == {
        ".lock", "points.jsonl", "points.parquet", "curves.parquet", "manifest.json",
        "dashboard.html",
    }  # fmt: skip
    assert "results    results/golden" in done.stderr
    assert "dashboard  results/golden/dashboard.html" in done.stderr
    assert json.loads((output / "manifest.json").read_text())["command"] == (
        "simspec sweep sweep.yaml"
    )
    again = simspec("sweep", "sweep.yaml", "--dry-run", "--json", cwd=folder)
    assert json.loads(again.stdout)["to_compute"] == 0


def test_simulate_writes_what_it_prints(folder: Path) -> None:
    """``--output`` holds the same document as ``--json``, and can be written again."""
    for _ in range(2):
        done = simspec("simulate", "scenario.yaml", "--json", "--output", "out", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == json.loads((folder / "out/result.json").read_text())
    assert {p.name for p in (folder / "out").iterdir()} == {
        "report.html",
        "requests.parquet",
        "result.json",
        "timeseries.parquet",
        "trace.json",
        "vllm_bench.json",
    }


def test_the_same_seed_prints_the_same_bytes(folder: Path) -> None:
    """Two runs of one scenario differ in nothing; another seed differs."""
    first, second = (simspec("simulate", "scenario.yaml", "--json", cwd=folder) for _ in range(2))
    assert first.stdout == second.stdout
    path = folder / "scenario.yaml"
    path.write_text(path.read_text().replace("seed: 3", "seed: 4"))
    assert simspec("simulate", "scenario.yaml", "--json", cwd=folder).stdout != first.stdout


def test_the_laws_hold_while_it_runs(folder: Path) -> None:
    """``--check`` asserts every law after every step and changes no number."""
    plain = simspec("simulate", "scenario.yaml", "--json", cwd=folder)
    checked = simspec("simulate", "scenario.yaml", "--json", "--check", cwd=folder)
    assert (checked.returncode, checked.stdout) == (0, plain.stdout)


def test_without_a_baseline_there_is_no_speedup(folder: Path) -> None:
    """``--no-baseline`` runs the method alone; the keys stay, without numbers."""
    done = simspec("simulate", "scenario.yaml", "--json", "--no-baseline", cwd=folder)
    found = json.loads(done.stdout)
    assert found["speedup"] is None
    assert found["step_time_ms"] is None
    assert "baseline" not in found
    assert found["tpot_ms"] > 0
