"""A sweep file, expanded and checked: nothing is written before every point is valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simspec.core.errors import DoesNotFit
from simspec.core.yamlio import Document, load_yaml, parse
from simspec.scenarios.build import Deployment, build
from simspec.scenarios.run import draw_workload
from simspec.sweeps.grid import AxisSpec, Point, axes, expand
from simspec.sweeps.identity import point_key
from simspec.sweeps.schema import SweepConfig
from simspec.sweeps.work import Job


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A checked sweep, ready to run.

    ``keys`` gives each point's place in the store; ``deployments`` the wired deployment of each
    point that fits, shared by the points that differ in load only.
    """

    config: SweepConfig
    document: Document
    axes: Sequence[AxisSpec]
    points: Sequence[Point]
    keys: Mapping[str, str]
    deployments: Mapping[str, Deployment]
    files: Sequence[Path]
    """Trace files the workloads read."""

    def jobs(self, finished: Mapping[str, Any]) -> list[Job]:
        """Return what is still to compute."""
        return [
            Job(self.keys[point.point_id], point.config, point.place)
            for point in self.points
            if self.keys[point.point_id] not in finished
        ]


def plan_sweep(path: Path) -> SweepPlan:
    """Read, expand and check a sweep file.

    Raises
    ------
    ConfigError
        Anything is wrong in the file, an axis or any single point of the grid.
    DoesNotFit
        No point of the grid fits the device.
    """
    document = load_yaml(path)
    config = parse(document, SweepConfig)
    points = expand(config, document)
    deployments = _build_all(points)
    files = _workload_files(points)
    keys = {
        point.point_id: point_key(
            point.config, deployments.get(point.point_id), files[point.point_id]
        )
        for point in points
    }
    every_file = dict.fromkeys(path for paths in files.values() for path in paths)
    return SweepPlan(config, document, axes(config), points, keys, deployments, list(every_file))


def _build_all(points: Sequence[Point]) -> dict[str, Deployment]:
    """Build each distinct deployment once, so that a mistake is found before hours of work."""
    built: dict[str, Deployment | DoesNotFit] = {}
    result: dict[str, Deployment] = {}
    for point in points:
        distinct = point.config.model_dump_json(exclude={"workload", "slo", "simulation", "name"})
        if distinct not in built:
            try:
                built[distinct] = build(point.config, point.place)
                built[distinct].budget.require(1)  # type: ignore[union-attr]
            except DoesNotFit as error:
                built[distinct] = error
        found = built[distinct]
        if isinstance(found, Deployment):
            result[point.point_id] = found
    if not result:
        raise next(error for error in built.values() if isinstance(error, DoesNotFit))
    return result


def _workload_files(points: Sequence[Point]) -> dict[str, Sequence[Path]]:
    """Draw each distinct workload once: a broken trace stops the sweep, not a worker."""
    drawn: dict[str, Sequence[Path]] = {}
    result: dict[str, Sequence[Path]] = {}
    for point in points:
        distinct = point.config.workload.model_dump_json()
        if distinct not in drawn:
            drawn[distinct] = draw_workload(point.config, 0, point.place).files
        result[point.point_id] = drawn[distinct]
    return result
