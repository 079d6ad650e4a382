"""A sweep from its plan to its tables: compute what is missing, join, write."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from simspec.core.errors import ConfigError
from simspec.sweeps.curves import closed_form_curves
from simspec.sweeps.describe import sweep_manifest
from simspec.sweeps.executors._base import EXECUTORS, ExecutorConfig
from simspec.sweeps.join import join
from simspec.sweeps.plan import SweepPlan
from simspec.sweeps.store import CURVES, POINTS, ResultStore

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
    pool = executor_of(executor, workers)
    with ResultStore(output) as store:
        finished = store.finished()
        jobs = plan.jobs(finished)
        total = plan.num_distinct
        report = progress or _silent
        report(total - len(jobs), total)
        if jobs:
            with closing(pool.run(jobs)) as results:
                for done, (key, result) in enumerate(results, start=total - len(jobs) + 1):
                    store.add(key, result)
                    report(done, total)
            # Read back, so that a resumed sweep and an uninterrupted one join the same bytes.
            finished = store.finished()
        store.write_table(POINTS, join(plan, finished))
        store.write_table(CURVES, closed_form_curves(plan))
        store.write_manifest(sweep_manifest(plan, command))
    return output


def executor_of(name: str, workers: int | None = None) -> ExecutorConfig:
    """Return the executor ``name``.

    Raises
    ------
    ConfigError
        It is unknown, or has no workers to set.
    """
    kind = EXECUTORS.config_class(name)
    if workers is not None and "workers" not in kind.model_fields:
        raise ConfigError(
            f"--workers {workers} has no effect with executor {name}; remove one of them"
        )
    executor = kind() if workers is None else kind.model_validate({"workers": workers})
    assert isinstance(executor, ExecutorConfig), name
    return executor


def _silent(done: int, total: int) -> None:
    """Report nothing."""
