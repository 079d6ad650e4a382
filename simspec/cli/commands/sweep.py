"""``simspec sweep``: a grid of simulations and its dashboard."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from simspec.cli._output import JSON_OPTION, note, print_json, stderr_console

if TYPE_CHECKING:
    from simspec.sweeps.plan import SweepPlan
    from simspec.sweeps.run import Progress


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("sweep")(sweep)


def sweep(
    file: Path = typer.Argument(help="Sweep YAML, e.g. experiments/tau_vs_K.yaml."),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Result folder; default results/NAME."
    ),
    workers: int | None = typer.Option(
        None, "--workers", "-j", min=1, max=1024, help="Processes; default: one per core."
    ),
    executor: str = typer.Option("processes", "--executor", help="processes or serial."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Check and count, compute nothing."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Simulate every point of a grid, compare with autoregression, write a dashboard.

    Points already computed are not computed again: after Ctrl-C, run the same command.

    Example: simspec sweep experiments/tau_vs_K.yaml
    """
    from simspec.scenarios.files import experiment_path
    from simspec.sweeps.plan import plan_sweep
    from simspec.sweeps.run import default_output, executor_of, run_sweep

    executor_of(executor, workers)  # a mistake there is found before anything is read
    plan = plan_sweep(experiment_path(file))
    folder = output or default_output(plan)
    if dry_run:
        _dry_run(plan, folder, as_json)
        return
    try:
        with _progress() as report:
            run_sweep(
                plan,
                folder,
                executor=executor,
                workers=workers,
                progress=report,
                command=_command(file, output),
            )
    except KeyboardInterrupt:
        note(f"simspec: interrupted; finished points are kept in {folder}, run again to continue")
        sys.exit(130)
    from simspec.reports.dashboards.sweep import write_sweep_dashboard
    from simspec.reports.summary import sweep_document, sweep_text

    dashboard = write_sweep_dashboard(folder)
    if as_json:
        print_json({**sweep_document(folder), "dashboard": str(dashboard)})
        return
    typer.echo(sweep_text(folder))
    note(f"results    {folder}")
    note(f"dashboard  {dashboard}")


def _command(file: Path, output: Path | None) -> str:
    return f"simspec sweep {file}" + (f" --output {output}" if output else "")


def _dry_run(plan: SweepPlan, folder: Path, as_json: bool) -> None:
    from simspec.sweeps.store import check_folder, peek

    check_folder(folder)
    axes = {axis.name: len(axis.choices) for axis in plan.axes}
    baselines = sum(point.is_baseline for point in plan.points)
    missing = len(plan.jobs(peek(folder)))
    if as_json:
        print_json(
            {
                "points": len(plan.points),
                "baselines": baselines,
                "to_compute": missing,
                "output": str(folder),
                "axes": axes,
            }
        )
        return
    sizes = " × ".join(f"{name} ({count})" for name, count in axes.items())
    typer.echo(
        f"{len(plan.points)} points ({baselines} of them autoregressive baselines), "
        f"{missing} to compute\naxes: {sizes}\noutput: {folder}"
    )


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show a bar with the time left on a terminal, a line every tenth otherwise."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = stderr_console()
    if not console.is_terminal:
        yield _lines()
        return
    with Progress(
        TextColumn("points"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    ) as bar:
        task = bar.add_task("points", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines() -> Progress:
    last = -1

    def report(done: int, total: int) -> None:
        nonlocal last
        tenth = 10 * done // max(total, 1)
        if tenth != last:
            last = tenth
            note(f"points {done}/{total}")

    return report
