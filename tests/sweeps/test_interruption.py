"""Ctrl-C, kill -9 and dying workers: points are kept and no process is left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simspec.sweeps.run import run_sweep
from simspec.sweeps.store import JOURNAL, peek
from tests.helpers.command import command, environment, simspec
from tests.sweeps.factory import GRID, SCENARIO, plan, result_bytes, write_sweep

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="looks for processes in /proc"
)
MARK = "SIMSPEC_TEST_MARK"
SLOWER = {
    # About 50 ms a point, so that a signal finds some of them in flight.
    "scenario": {**SCENARIO, "simulation": {"seed": 1, "replications": 60}},
    "grid": {**GRID, "method.num_speculative_tokens": [1, 2, 3, 4, 5]},
}
NUM_POINTS = 22


def marked(mark: str) -> list[int]:
    """Return the processes that carry ``mark`` in their environment, dead ones left out."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Return whether the condition came true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def running(folder: Path, output: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Start the sweep of ``folder`` as a process group of its own, like a shell does."""
    process = subprocess.Popen(
        command("sweep", "sweep.yaml", "--output", output, *options),
        cwd=folder,
        env=environment(**{MARK: output.name}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A test run started in the background ignores Ctrl-C and hands that down.
        preexec_fn=_heed_interrupts,  # noqa: PLW1509
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def has_points(output: Path, number: int) -> Callable[[], bool]:
    return lambda: len(peek(output)) >= number


def num_lines(output: Path) -> int:
    return (output / JOURNAL).read_bytes().count(b"\n") - 1


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the bytes of the sweep when nothing happens to it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    found = plan(folder, **SLOWER)
    assert found.num_distinct == NUM_POINTS
    return result_bytes(run_sweep(found, folder / "out", executor="serial"), folder)


def resumed(folder: Path, output: Path) -> dict[str, bytes]:
    """Finish the sweep and return its bytes: tables and manifest."""
    return result_bytes(run_sweep(plan(folder, **SLOWER), output, executor="serial"), folder)


@pytest.mark.parametrize("options", [["--workers", "2"], ["--executor", "serial"]])
def test_ctrl_c_keeps_points_and_exits_130(
    tmp_path: Path, undisturbed: dict[str, bytes], options: list[str]
) -> None:
    """SIGINT to the whole group, as a terminal sends it: a sentence, 130, and no traceback."""
    write_sweep(tmp_path, **SLOWER)
    output = tmp_path / "ctrl-c"
    with running(tmp_path, output, *options) as process:
        assert wait_until(has_points(output, 2))
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    last = err.strip().splitlines()[-1]
    assert last == (
        f"simspec: interrupted; finished points are kept in {output}, run again to continue"
    )
    assert "Traceback" not in err
    assert wait_until(lambda: not marked(output.name), 10)
    assert 2 <= len(peek(output)) < NUM_POINTS
    assert resumed(tmp_path, output) == undisturbed
    assert num_lines(output) == NUM_POINTS


def test_ctrl_c_while_workers_start_is_quiet(tmp_path: Path) -> None:
    """A worker that has not even imported simspec yet does not print a traceback either."""
    write_sweep(tmp_path, **SLOWER)
    output = tmp_path / "early"
    with running(tmp_path, output, "--workers", "2") as process:
        # Itself, and at least one of a worker and the tracker of multiprocessing.
        assert wait_until(lambda: len(marked(output.name)) >= 2)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err
    assert wait_until(lambda: not marked(output.name), 10)


def test_ctrl_c_before_anything_runs_is_a_sentence(tmp_path: Path) -> None:
    """Interrupting the planning exits 130 with a sentence too."""
    exclude = [{"simulation.seed": 1}]
    grid = {"simulation.seed": {"from": 1, "to": 20000, "step": 1}}
    write_sweep(tmp_path, grid=grid, exclude=exclude)
    output = tmp_path / "planning"
    with running(tmp_path, output) as process:
        # Importing takes half of this, planning 20,000 points many times as much.
        assert wait_until(lambda: cpu_seconds(process.pid) > 1.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip() == "simspec: interrupted"
    assert not output.exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_kill_9_loses_only_points_in_flight(
    tmp_path: Path, undisturbed: dict[str, bytes], seed: int
) -> None:
    """Killed twice at random moments and continued: the same bytes, and no orphans."""
    write_sweep(tmp_path, **SLOWER)
    output = tmp_path / f"killed-{seed}"
    moments = random.Random(seed)
    kept: set[str] = set()
    for number in (1, 4):
        with running(tmp_path, output, "--workers", "2") as process:
            assert wait_until(has_points(output, number))
            time.sleep(moments.uniform(0.0, 0.4))
            process.kill()
            process.wait(timeout=60)
            # The lock goes with the process, so its children must not hold it.
            assert wait_until(lambda: not marked(output.name), 20), "orphans are left"
        assert kept <= set(peek(output)), "a finished point was lost"
        kept = set(peek(output))
    assert resumed(tmp_path, output) == undisturbed
    keys = [line for line in (output / JOURNAL).read_text().splitlines() if '"key"' in line]
    assert len(keys) == NUM_POINTS, "a finished point was computed again"


def test_a_killed_worker_is_a_sentence(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    """When the system kills a worker the sweep says so, keeps its points and stops."""
    write_sweep(tmp_path, **SLOWER)
    output = tmp_path / "worker"
    with running(tmp_path, output, "--workers", "2") as process:
        assert wait_until(has_points(output, 1))
        # Each executor has a tracker process too; killing it would not be noticed.
        workers = [
            pid
            for pid in marked(output.name)
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(workers[0], signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert out == ""
    assert "simspec: a worker process died" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert wait_until(lambda: not marked(output.name), 10)
    assert len(peek(output)) >= 1
    assert resumed(tmp_path, output) == undisturbed


def test_a_second_sweep_into_the_same_folder_is_refused(tmp_path: Path) -> None:
    """While one runs, the other gets a sentence and the first one is not disturbed."""
    write_sweep(tmp_path, **SLOWER)
    output = tmp_path / "shared"
    with running(tmp_path, output, "--executor", "serial") as process:
        assert wait_until(has_points(output, 1))
        second = simspec("sweep", "sweep.yaml", "--output", output, cwd=tmp_path)
        assert process.poll() is None, "the first sweep ended before the second one began"
        process.communicate(timeout=120)
    assert second.returncode == 2
    assert second.stdout == ""
    assert second.stderr.startswith(f"simspec: {output}: another sweep is writing here")
    assert process.returncode == 0
    assert (output / "points.parquet").exists()
