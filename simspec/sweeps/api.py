"""What a program calls to run a sweep."""

from __future__ import annotations

from pathlib import Path

from simspec.scenarios.files import experiment_path
from simspec.sweeps.plan import plan_sweep
from simspec.sweeps.run import default_output, run_sweep


def sweep(
    file: str | Path,
    output: str | Path | None = None,
    *,
    executor: str = "processes",
    workers: int | None = None,
) -> Path:
    """Compute a sweep's missing points and return its result folder, as ``simspec sweep`` does.

    Worker processes import the calling script: a script that calls this keeps the call under
    ``if __name__ == "__main__":``, or asks for ``executor="serial"``.

    Parameters
    ----------
    file : path
        The sweep's YAML.
    output : path, optional
        Result folder; ``results/NAME`` when not given.
    executor : str
        ``processes`` or ``serial``.
    workers : int, optional
        Processes; one per core by default.

    Raises
    ------
    ConfigError, TraceError, DoesNotFit
        Something is wrong with the file, found before anything is written.
    """
    plan = plan_sweep(experiment_path(Path(file)))
    folder = default_output(plan) if output is None else Path(output)
    command = f"simspec.sweep({str(file)!r})"
    return run_sweep(plan, folder, executor=executor, workers=workers, command=command)
