"""Running a sweep: the same bytes however it is run, and nothing computed twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from simspec.core.errors import ConfigError, DoesNotFit
from simspec.scenarios.report import simulate_file
from simspec.sweeps import work
from simspec.sweeps.describe import sweep_manifest
from simspec.sweeps.executors import serial
from simspec.sweeps.plan import plan_sweep
from simspec.sweeps.run import default_output, executor_of, run_sweep
from tests.sweeps.factory import GPU, GRID, SCENARIO, plan, result_bytes, write_sweep, write_yaml


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[work.Job]:
    """Return a list that every job computed in this process is added to."""
    jobs: list[work.Job] = []

    def counting(job: work.Job) -> dict[str, Any]:
        jobs.append(job)
        return work.compute(job)

    monkeypatch.setattr(serial, "compute", counting)
    return jobs


def rows(folder: Path) -> list[dict[str, Any]]:
    return pq.read_table(folder / "points.parquet").to_pylist()


def test_serial_and_processes_write_the_same_bytes(tmp_path: Path) -> None:
    """Who computed a point, and which came first, leaves no mark on the results."""
    found = [
        result_bytes(run_sweep(plan(tmp_path), tmp_path / name, executor=name, workers=workers))
        for name, workers in (("serial", None), ("processes", 2))
    ]
    assert found[0] == found[1]


def test_an_interrupted_sweep_ends_with_the_same_bytes(
    tmp_path: Path, computed: list[work.Job]
) -> None:
    """Stopped after every number of points and continued: the same bytes, each point once."""
    whole = run_sweep(plan(tmp_path), tmp_path / "whole", executor="serial")
    num_points = len(computed)
    assert num_points == 10
    for stop in (1, num_points // 2, num_points - 1):
        computed.clear()

        def stop_there(done: int, total: int, stop: int = stop) -> None:
            if done == stop:
                raise KeyboardInterrupt

        folder = tmp_path / f"stopped-{stop}"
        with pytest.raises(KeyboardInterrupt):
            run_sweep(plan(tmp_path), folder, executor="serial", progress=stop_there)
        assert not (folder / "points.parquet").exists()
        run_sweep(plan(tmp_path), folder, executor="serial")
        assert len(computed) == len({job.key for job in computed}) == num_points
        assert result_bytes(folder) == result_bytes(whole)


def test_a_finished_sweep_computes_nothing(tmp_path: Path, computed: list[work.Job]) -> None:
    """Running again only writes the tables again, the same ones."""
    folder = run_sweep(plan(tmp_path), tmp_path / "out", executor="serial")
    before = result_bytes(folder)
    computed.clear()
    run_sweep(plan(tmp_path), folder, executor="serial")
    assert computed == []
    assert result_bytes(folder) == before


def with_two_gpus(folder: Path) -> Path:
    write_yaml(folder / "mine.yaml", GPU)
    grid = {"hardware": ["h100_sxm", "mine.yaml"], "method.exit_layer": [2, 3]}
    return write_sweep(folder, grid=grid)


def test_editing_a_gpu_computes_its_points_only(tmp_path: Path, computed: list[work.Job]) -> None:
    """A point is the same as long as everything its numbers depend on is."""
    path = with_two_gpus(tmp_path)
    run_sweep(plan_sweep(path), tmp_path / "out", executor="serial")
    assert len(computed) == 6
    before = {row["point_id"]: row for row in rows(tmp_path / "out")}
    computed.clear()
    write_yaml(tmp_path / "mine.yaml", {**GPU, "memory": {**GPU["memory"], "bandwidth_gb_s": 1000}})  # type: ignore[dict-item]
    run_sweep(plan_sweep(path), tmp_path / "out", executor="serial")
    assert [job.config.hardware for job in computed] == ["mine.yaml"] * 3
    for row in rows(tmp_path / "out"):
        same = row["hardware"] == "h100_sxm"
        assert (row["tpot_ms"] == before[row["point_id"]]["tpot_ms"]) == same


def test_a_comment_in_the_file_computes_nothing(tmp_path: Path, computed: list[work.Job]) -> None:
    """Only meaning counts: comments, names and descriptions do not make new points."""
    path = write_sweep(tmp_path)
    run_sweep(plan_sweep(path), tmp_path / "out", executor="serial")
    computed.clear()
    path.write_text("# a thought\n" + path.read_text().replace('"small"', '"renamed"'))
    run_sweep(plan_sweep(path), tmp_path / "out", executor="serial")
    assert computed == []


def test_a_larger_grid_computes_what_is_new(tmp_path: Path, computed: list[work.Job]) -> None:
    """An axis that grew keeps the points it had."""
    run_sweep(plan(tmp_path), tmp_path / "out", executor="serial")
    computed.clear()
    run_sweep(
        plan(tmp_path, grid={**GRID, "method.exit_layer": [2, 3, 4]}),
        tmp_path / "out",
        executor="serial",
    )
    assert len(computed) == 4
    assert len(rows(tmp_path / "out")) == 14


def test_two_labels_of_one_scenario_are_computed_once(
    tmp_path: Path, computed: list[work.Job]
) -> None:
    """Rows that hold the same scenario share a computation and agree."""
    same = {"workload.num_requests": 4}
    found = plan(tmp_path, grid={"load": {"a": same, "b": same}})
    run_sweep(found, tmp_path / "out", executor="serial")
    assert len(computed) == found.num_distinct == 2
    a, b = (row for row in rows(tmp_path / "out") if row["baseline_id"])
    assert (a.pop("load"), b.pop("load")) == ("a", "b")
    assert a == b


def test_a_point_equals_its_simulation(tmp_path: Path) -> None:
    """A row of the sweep is what ``simspec simulate`` says of that scenario alone."""
    folder = run_sweep(plan(tmp_path), tmp_path / "out", executor="serial")
    row = next(r for r in rows(folder) if r["load"] == "high" and r["method.exit_layer"] == 3)
    scenario = {
        **SCENARIO,
        "method": {**SCENARIO["method"], "exit_layer": 3, "num_speculative_tokens": 1},
        "workload": {
            **SCENARIO["workload"],
            "arrivals": GRID["load"]["high"]["workload.arrivals"],
        },
    }
    alone = simulate_file(write_yaml(tmp_path / "scenario.yaml", scenario)).document
    shared = set(row) & set(alone)
    assert {"tpot_ms", "speedup", "speedup_ci95_low", "step_time_ms", "fits"} <= shared
    assert {name: row[name] for name in shared} == {name: alone[name] for name in shared}


def test_baselines_have_speedup_one(tmp_path: Path) -> None:
    """Autoregression beside itself: exactly 1, and its step is its round."""
    folder = run_sweep(plan(tmp_path), tmp_path / "out", executor="serial")
    plain = [row for row in rows(folder) if row["method.name"] == "autoregressive"]
    assert len(plain) == 2
    for row in plain:
        assert row["speedup"] == row["speedup_ci95_low"] == row["speedup_ci95_high"] == 1.0
        assert row["step_time_ms"] == row["round_time_ms"]
        assert row["baseline_id"] is None


def test_what_does_not_fit_is_a_row(tmp_path: Path) -> None:
    """A point that cannot be computed says why, beside those that can."""
    grid = {"model": ["llama-3.2-1b", "llama-3.1-70b"]}
    folder = run_sweep(plan(tmp_path, grid=grid), tmp_path / "out", executor="serial")
    by_model = {row["model"]: row for row in rows(folder) if row["baseline_id"]}
    small, large = by_model["llama-3.2-1b"], by_model["llama-3.1-70b"]
    assert (small["status"], small["fits"], small["reason"]) == ("ok", True, None)
    assert (large["status"], large["fits"]) == ("does_not_fit", False)
    assert "would fit: tp=2" in large["reason"]
    assert large["tpot_ms"] is None
    assert large["speedup"] is None
    assert large["weights_bytes"] > 1e11
    assert large["kv_capacity_tokens"] == 0


def test_a_sweep_in_which_nothing_fits_writes_nothing(tmp_path: Path) -> None:
    """If no point fits, that is an error of the file, found before the folder exists."""
    with pytest.raises(DoesNotFit, match=r"sweep.yaml:\d+: scenario.model: .*would fit"):
        plan(tmp_path, grid={"model": ["llama-3.1-70b"]})


def test_an_overloaded_point_is_unstable(tmp_path: Path) -> None:
    """Above capacity there is a sentence instead of a latency that grows with the run."""
    busy = {
        "workload.arrivals": {"name": "poisson", "rate_per_s": 5000},
        "workload.num_requests": 400,
    }
    folder = run_sweep(
        plan(
            tmp_path,
            scenario={**SCENARIO, "scheduler": {"max_num_seqs": 2}},
            grid={"load": {"busy": busy}},
        ),
        tmp_path / "out",
        executor="serial",
    )
    for row in rows(folder):
        assert row["status"] == "unstable"
        assert "offered load exceeds capacity" in row["reason"]
        for key in ("ttft_ms", "ttft_p95_ms", "e2e_ms", "queue_ms", "goodput_requests_per_s"):
            assert row[key] is None, key
        assert set(row["ttft_quantiles_ms"]) == {None}
        assert row["tokens_per_round"] >= 1
        assert row["throughput_tokens_per_s"] > 0


def test_a_clock_that_stops_too_early_is_a_refused_row(tmp_path: Path) -> None:
    """A point whose requests never arrive is refused in words; the others go on."""
    grid = {"simulation.max_simulated_s": [0.001, 100]}
    scenario = {
        **SCENARIO,
        "workload": {**SCENARIO["workload"], "arrivals": {"name": "poisson", "rate_per_s": 1}},
    }
    folder = run_sweep(
        plan(tmp_path, scenario=scenario, grid=grid), tmp_path / "out", executor="serial"
    )
    status = {row["simulation.max_simulated_s"]: row for row in rows(folder)}
    assert status[0.001]["status"] == "refused"
    assert "no request arrives before the clock stops" in status[0.001]["reason"]
    assert status[100.0]["status"] == "ok"


def test_progress_counts_up_to_all(tmp_path: Path) -> None:
    """Progress starts at what is stored and ends at all of it, one at a time."""
    seen: list[tuple[int, int]] = []
    report: Callable[[int, int], None] = lambda done, total: seen.append((done, total))  # noqa: E731
    run_sweep(plan(tmp_path), tmp_path / "out", executor="serial", progress=report)
    assert seen == [(done, 10) for done in range(11)]
    seen.clear()
    run_sweep(plan(tmp_path), tmp_path / "out", executor="serial", progress=report)
    assert seen == [(10, 10)]


@pytest.mark.parametrize(
    ("name", "workers", "says"),
    [
        ("proceses", None, "did you mean 'processes'"),
        ("serial", 2, "--workers 2 has no effect with executor serial"),
    ],
)
def test_wrong_executors(name: str, workers: int | None, says: str) -> None:
    """An unknown executor and an option it does not have are refused."""
    with pytest.raises(ConfigError, match=says):
        executor_of(name, workers)


@pytest.mark.parametrize(
    ("name", "folder"),
    [("tau_vs_K", "tau_vs_K"), ("a/b c", "a_b_c"), ("..", "sweep"), ("π", "π")],
)
def test_the_default_folder_is_safe(tmp_path: Path, name: str, folder: str) -> None:
    """Results go below ``results`` whatever a sweep is called."""
    assert default_output(plan(tmp_path, name=name)) == Path("results") / folder


MISTAKES: Sequence[tuple[dict[str, Any], str]] = (
    ({"grid": {"method.exit_layer": [2, 16]}}, "exit_layer: 16 leaves no layer"),
    ({"grid": {"scheduler.max_num_batched_tokens": [3]}}, "takes 4 tokens"),
    ({"grid": {"scheduler.policy": ["continuous", "statik"]}}, "did you mean 'static'"),
    ({"grid": {"tp": [1, 3]}}, "tp=3 does not divide"),
    ({"grid": {"hardware": ["h100_sxm", "h100"]}}, "did you mean 'h100_sxm'"),
    ({"grid": {"dtype": ["bf16", "bf17"]}}, "did you mean 'bf16'"),
    ({"grid": {"method.confidence_threshold": [0, 0.5]}}, "needs confidences"),
    ({"grid": {"memory.memory_fraction": [0.9], "memory.num_kv_blocks": [9]}}, "has no effect"),
    (
        {"grid": {"workload": [{"arrivals": {"name": "replay", "format": "azure", "path": "x"}}]}},
        "file 'x' not found",
    ),
)


@pytest.mark.parametrize(("changes", "says"), MISTAKES)
def test_one_wrong_point_stops_the_plan(tmp_path: Path, changes: Any, says: str) -> None:
    """A mistake in a single point is found before anything is computed, with its line."""
    with pytest.raises(ConfigError) as refused:
        plan(tmp_path, **changes)
    assert says in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path / 'sweep.yaml'}:")
    assert [p.name for p in tmp_path.iterdir()] == ["sweep.yaml"]


def test_the_manifest_says_what_went_in(tmp_path: Path) -> None:
    """Inputs with hashes, seed, axes, acceptance and load sentences; no time of day."""
    path = with_two_gpus(tmp_path)
    folder = run_sweep(plan_sweep(path), tmp_path / "out", executor="serial", command="the command")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest["inputs"]) == {
        str(path), "engine vllm", "hardware h100_sxm", "hardware mine", "model llama-3.2-1b",
    }  # fmt: skip
    assert manifest["seed"] == 1
    assert manifest["command"] == "the command"
    assert manifest["hardware"] == "h100_sxm, mine"
    assert manifest["calibrated"] is False
    assert manifest["axes"] == [
        {"field": "hardware", "label": None, "values": ["h100_sxm", "mine.yaml"]},
        {"field": "method.exit_layer", "label": None, "values": [2, 3]},
    ]
    assert all("constant acceptance 0.7" in sentence for sentence in manifest["acceptance"])
    assert manifest["workload"] == [
        "closed loop with 2 requests in flight; 32 prompt and 8 output tokens each"
    ]


def test_the_manifest_names_each_load(tmp_path: Path) -> None:
    """Loads are described under their labels, or under the values of their axes."""
    folder = run_sweep(plan(tmp_path), tmp_path / "out", executor="serial")
    workload = json.loads((folder / "manifest.json").read_text())["workload"]
    assert set(workload) == {"low", "high"}
    assert "4 requests in flight" in workload["high"]


def test_the_manifest_states_what_all_points_share(tmp_path: Path) -> None:
    """A pool differs by device and by the method's own memory; a varied target is none of all."""
    grid = {"hardware": ["h100_sxm", "l40s"], "slo.tpot_ms": [10, 20]}
    scenario = {**SCENARIO, "slo": {"ttft_ms": 500, "tpot_ms": 5}}
    found = plan(tmp_path, scenario=scenario, grid=grid)
    document = sweep_manifest(found, "")
    assert document["slo"] == {"ttft_ms": 500}
    (pool,) = (text for text in document["assumptions"] if text.startswith("KV cache"))
    blocks = sorted({deployment.num_blocks for deployment in found.deployments.values()})
    assert len(blocks) == 4
    assert f"KV cache: {blocks[0]:,} to {blocks[-1]:,} blocks of 16 tokens per GPU" in pool


def test_inputs_are_hashed_when_planned(tmp_path: Path) -> None:
    """A file edited while the sweep runs is not what the manifest vouches for."""
    path = write_sweep(tmp_path)
    found = plan_sweep(path)
    digest = found.digests[str(path)]
    path.write_text("# edited\n" + path.read_text())
    folder = run_sweep(found, tmp_path / "out", executor="serial")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["inputs"][str(path)]["sha256"] == digest
