"""A sweep file, expanded and checked: nothing is written before every point is valid."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simspec.core.errors import ConfigError, DoesNotFit
from simspec.core.provenance import sha256_of
from simspec.core.resources import shown_name
from simspec.core.yamlio import Document, load_yaml, parse
from simspec.scenarios.build import Deployment, build, require_room
from simspec.scenarios.run import context_limit, draw_workload
from simspec.sweeps.axes import LOAD_FIELDS, Axis, axes_of
from simspec.sweeps.grid import Point, expand
from simspec.sweeps.identity import point_key
from simspec.sweeps.schema import SweepConfig
from simspec.sweeps.work import Job


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A checked sweep, ready to run.

    ``keys`` gives each point's place in the store, ``deployments`` its wired deployment, shared
    by the points that differ in load only, ``workloads`` the sentence on its load; all by
    ``point_id``. ``digests`` are the SHA-256 of everything that was read, by its name.
    """

    config: SweepConfig
    document: Document
    axes: Sequence[Axis]
    points: Sequence[Point]
    keys: Mapping[str, str]
    deployments: Mapping[str, Deployment]
    workloads: Mapping[str, str]
    digests: Mapping[str, str]

    def jobs(self, finished: Mapping[str, Any]) -> list[Job]:
        """Return what is still to compute, each scenario once."""
        todo: dict[str, Point] = {}
        for point in self.points:
            key = self.keys[point.point_id]
            if key not in finished:
                todo.setdefault(key, point)
        return [
            Job(key, point.config, self.deployments[point.point_id], point.place)
            for key, point in todo.items()
        ]

    @property
    def num_distinct(self) -> int:
        """Points to compute in all; labels that hold the same scenario share one."""
        return len(set(self.keys.values()))


def plan_sweep(path: Path) -> SweepPlan:
    """Read, expand and check a sweep file.

    Raises
    ------
    ConfigError, TraceError
        Anything is wrong in the file, an axis or any single point of the grid.
    DoesNotFit
        No point of the grid fits the device.
    """
    document = load_yaml(path)
    digests = {shown_name(path): sha256_of(path)}
    if "scenario" not in document.data and "model" in document.data:
        raise ConfigError(f"{path}: is one scenario, not a sweep; run 'simspec simulate {path}'")
    config = parse(document, SweepConfig)
    points = expand(config, document)
    deployments = _build_all(points)
    sentences, files = _draw_all(points)
    for paths in files.values():
        for file in paths:
            if shown_name(file) not in digests:
                digests[shown_name(file)] = sha256_of(file)
    keys = {
        point.point_id: point_key(
            point.config,
            deployments[point.point_id],
            [digests[shown_name(file)] for file in files[point.point_id]],
        )
        for point in points
    }
    for deployment in deployments.values():
        digests.update(_profile_digests(deployment))
    axes = axes_of(config)
    return SweepPlan(config, document, axes, points, keys, deployments, sentences, digests)


def _build_all(points: Sequence[Point]) -> dict[str, Deployment]:
    """Build each distinct deployment once, so that a mistake is found before hours of work."""
    built: dict[str, Deployment] = {}
    result: dict[str, Deployment] = {}
    refusal: DoesNotFit | None = None
    num_fitting = 0
    for point in points:
        distinct = point.config.model_dump_json(exclude={*LOAD_FIELDS, "name", "description"})
        if distinct not in built:
            place = point.place
            built[distinct] = build(point.config, place)
            try:
                require_room(built[distinct], 1, place)
                num_fitting += 1
            except DoesNotFit as error:
                refusal = refusal or error
        result[point.point_id] = built[distinct]
    if refusal is not None and not num_fitting:
        raise refusal
    return result


def _draw_all(points: Sequence[Point]) -> tuple[dict[str, str], dict[str, Sequence[Path]]]:
    """Draw each distinct workload once: a broken trace stops the sweep, not a worker."""
    drawn: dict[str, tuple[str, Sequence[Path]]] = {}
    sentences: dict[str, str] = {}
    files: dict[str, Sequence[Path]] = {}
    for point in points:
        limit = context_limit(point.config, point.place)
        distinct = f"{point.config.workload.model_dump_json()} {limit}"
        if distinct not in drawn:
            run = draw_workload(point.config, 0, point.place)
            drawn[distinct] = (run.source, run.files)
        sentences[point.point_id], files[point.point_id] = drawn[distinct]
    return sentences, files


def _profile_digests(deployment: Deployment) -> dict[str, str]:
    """Return digests of the loaded profiles: of what they say, not of how it is written."""
    parts = {
        f"hardware {deployment.hardware.name}": deployment.hardware,
        f"engine {deployment.engine.name}": deployment.engine,
        f"model {deployment.architecture.name}": deployment.architecture,
    }
    return {name: hashlib.sha256(repr(part).encode()).hexdigest() for name, part in parts.items()}
