"""What ``simspec workload describe`` looks at: a log, a folder of clients, or a scenario."""

from __future__ import annotations

from pathlib import Path

from simspec.core.errors import ConfigError
from simspec.core.yamlio import load_yaml, parse
from simspec.scenarios.build import Place
from simspec.scenarios.run import draw_workload
from simspec.scenarios.schema import ScenarioConfig
from simspec.workloads._base import ARRIVALS
from simspec.workloads.description import WorkloadDescription, describe_log, describe_run
from simspec.workloads.detect import detect, importer_of
from simspec.workloads.workload import WorkloadConfig


def describe_workload(path: Path, form: str | None = None) -> WorkloadDescription:
    """Return the description of what ``path`` holds.

    Parameters
    ----------
    path : Path
        A request log; a folder of ServeGen clients, drawn with seed 0; or a scenario (``.yaml``),
        whose first replication is drawn.
    form : str, optional
        Format of a log; by default it is recognised.

    Raises
    ------
    ConfigError
        The scenario is wrong, or a format is given for what is no log.
    TraceError
        The log is wrong.
    """
    is_scenario = path.suffix.lower() in {".yaml", ".yml"}
    if form is not None and (is_scenario or path.is_dir()):
        raise ConfigError(f"--format: {path} is no log, so it has no format; remove the option")
    if path.is_dir():
        arrivals = ARRIVALS.parse({"name": "servegen", "path": str(path.resolve())})
        return describe_run(path.name, WorkloadConfig(arrivals=arrivals).build(0))
    if not is_scenario:
        return describe_log(detect(path) if form is None else importer_of(form), path)
    document = load_yaml(path)
    if "scenario" in document.data and "model" not in document.data:
        raise ConfigError(f"{path}: is a sweep, not one scenario; describe one of its scenarios")
    config = parse(document, ScenarioConfig)
    return describe_run(path.name, draw_workload(config, 0, Place(document)))
