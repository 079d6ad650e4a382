"""A sweep from its plan to its tables: compute what is missing, join, write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from simspec.core.provenance import write_json
from simspec.core.registry import Registry
from simspec.sweeps.curves import closed_form_curves
from simspec.sweeps.describe import sweep_manifest
from simspec.sweeps.join import join
from simspec.sweeps.plan import SweepPlan
from simspec.sweeps.store import CURVES, MANIFEST, POINTS, ResultStore

EXECUTORS = Registry("simspec.sweeps.executors", "sweep executor")
Progress = Callable[[int, int], None]
"""Called with (points finished, points in all)."""


def default_output(plan: SweepPlan) -> Path:
    """Return ``results/NAME``."""
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in plan.config.name)
    return Path("results") / (name.strip(".") or "sweep")


def run_sweep(
    plan: SweepPlan,
    output: Path,
    *,
    executor: str = "processes",
    workers: int | None = None,
    progress: Progress | None = None,
    command: str = "",
) -> Path:
    """Compute every missing point and write tables and manifest into ``output``.

    Interrupting loses only points in flight; running again continues.

    Parameters
    ----------
    executor : str
        File name in ``simspec/sweeps/executors``.
    workers : int, optional
        Processes; one per core by default.
    progress : callable, optional
        Told (finished, total) at the start and after each point.
    command : str
        The command line, kept in the manifest.
    """
    options = {"workers": workers} if workers is not None and executor != "serial" else {}
    pool = EXECUTORS.parse({"name": executor, **options})
    with ResultStore(output) as store:
        finished = store.finished()
        jobs = plan.jobs(finished)
        total = len(plan.points)
        report = progress or _silent
        report(total - len(jobs), total)
        if jobs:
            _compute(pool.run(jobs), store, finished, report, total - len(jobs), total)
        store.write_table(POINTS, join(plan, finished))
        store.write_table(CURVES, closed_form_curves(plan))
        write_json(output / MANIFEST, sweep_manifest(plan, command))
    return output


def _compute(
    results: Iterator[tuple[str, dict[str, Any]]],
    store: ResultStore,
    finished: dict[str, dict[str, Any]],
    report: Progress,
    done: int,
    total: int,
) -> None:
    for key, result in results:
        store.add(key, result)
        finished[key] = result
        done += 1
        report(done, total)


def _silent(done: int, total: int) -> None:
    """Report nothing."""
