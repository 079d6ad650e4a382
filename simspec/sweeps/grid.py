"""Axes to points: the Cartesian product of a sweep, checked before anything runs."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simspec.core.errors import ConfigError, nearest
from simspec.core.yamlio import Document, parse
from simspec.scenarios.build import Place, blame
from simspec.scenarios.schema import ScenarioConfig
from simspec.sweeps.schema import MAX_POINTS, SweepConfig

_BASE = ("scenario",)
_OF_METHOD = {"method", "acceptance"}
"""Fields a baseline replaces."""


@dataclass(frozen=True, slots=True)
class AxisSpec:
    """One direction of the grid.

    ``choices[i]`` is what the axis contributes at its i-th value: the columns it shows in the
    result and the scenario fields it sets.
    """

    field: str
    source: tuple[str | int, ...]
    """Where in the sweep file the axis stands, for messages."""
    choices: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One scenario of the grid."""

    point_id: str
    columns: Mapping[str, Any]
    config: ScenarioConfig
    place: Place = field(repr=False)
    is_baseline: bool
    baseline_id: str | None
    """The autoregressive point on the same load, None for a baseline itself."""


def axes(config: SweepConfig) -> list[AxisSpec]:
    """Return the axes of a sweep, grid first, then zipped groups."""
    found = []
    for name, values in config.grid.items():
        if isinstance(values, dict):
            choices = tuple(({name: label}, fields) for label, fields in values.items())
        else:
            choices = tuple(({name: _shown(value)}, {name: value}) for value in values)
        found.append(AxisSpec(name, ("grid", name), choices))
    for index, group in enumerate(config.zip):
        rows = [dict(zip(group, row, strict=True)) for row in zip(*group.values(), strict=True)]
        choices = tuple(({k: _shown(v) for k, v in row.items()}, row) for row in rows)
        found.append(AxisSpec("+".join(group), ("zip", index), choices))
    return found


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return str(value["name"]) if set(value) == {"name"} else json.dumps(value, sort_keys=True)
    return json.dumps(value) if isinstance(value, list) else value


def count_points(config: SweepConfig) -> int:
    """Return the size of the product before exclusion."""
    return math.prod(len(axis.choices) for axis in axes(config))


def expand(config: SweepConfig, document: Document) -> list[Point]:
    """Return every point of the grid, baselines first, each validated.

    Raises
    ------
    ConfigError
        The grid is larger than ``MAX_POINTS``, empty after exclusion, names an unknown field,
        or one of its points is not a valid scenario (file, line and field of the axis).
    """
    total = count_points(config)
    if total > MAX_POINTS:
        raise ConfigError(
            f"{document.locate(('grid',))}: grid: {total:,} points are more than the limit of "
            f"{MAX_POINTS:,}; shorten an axis or split the sweep"
        )
    specs = axes(config)
    _check_exclusions(config, specs, document)
    points: dict[str, Point] = {}
    baselines: dict[str, Point] = {}
    for columns, overrides in _combinations(specs):
        if any(_excluded(rule, columns) for rule in config.exclude):
            continue
        scenario = _scenario(overrides, document)
        baseline = _baseline(config, columns, overrides, document)
        if baseline is not None:
            baselines.setdefault(baseline.point_id, baseline)
        point_id = identify(scenario[0])
        if baseline is not None and point_id == baseline.point_id:
            continue
        points.setdefault(
            point_id,
            Point(
                point_id=point_id,
                columns=columns,
                config=scenario[0],
                place=scenario[1],
                is_baseline=False,
                baseline_id=baseline.point_id if baseline else None,
            ),
        )
    if not points and not baselines:
        raise ConfigError(
            f"{document.locate(('exclude',))}: exclude: every point of the grid is excluded; "
            "remove a rule"
        )
    return [*baselines.values(), *points.values()]


def identify(config: ScenarioConfig) -> str:
    """Return a short name of a scenario within its sweep: a hash of everything it says."""
    content = config.model_dump_json(exclude={"name", "description"})
    return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()


def _combinations(
    specs: Sequence[AxisSpec],
) -> Iterator[tuple[dict[str, Any], list[tuple[str, Any, AxisSpec]]]]:
    for combination in itertools.product(*(spec.choices for spec in specs)):
        columns: dict[str, Any] = {}
        overrides: list[tuple[str, Any, AxisSpec]] = []
        for spec, (shown, fields) in zip(specs, combination, strict=True):
            columns.update(shown)
            overrides.extend((name, value, spec) for name, value in fields.items())
        yield columns, overrides


def _scenario(
    overrides: Sequence[tuple[str, Any, AxisSpec]], document: Document
) -> tuple[ScenarioConfig, Place]:
    # Whole objects first, so that `method: …` does not wipe out `method.exit_layer: …`.
    for name, value, spec in sorted(overrides, key=lambda item: item[0].count(".")):
        path = (*_BASE, *name.split("."))
        document = document.with_value(path, value, source=spec.source)
    return parse(document, ScenarioConfig, base=_BASE), Place(document, _BASE)


def _baseline(
    config: SweepConfig,
    columns: Mapping[str, Any],
    overrides: Sequence[tuple[str, Any, AxisSpec]],
    document: Document,
) -> Point | None:
    if not config.sweep.baseline:
        return None
    kept = [item for item in overrides if item[0].split(".")[0] not in _OF_METHOD]
    plain = document.with_value((*_BASE, "method"), {"name": "autoregressive"})
    plain = plain.with_value((*_BASE, "acceptance"), None)
    scenario, place = _scenario(kept, plain)
    names = {
        name for item in kept if not _touches_method(item[2]) for name in item[2].choices[0][0]
    }
    shown = {name: value for name, value in columns.items() if name in names}
    shown["method.name"] = "autoregressive"
    return Point(identify(scenario), shown, scenario, place, True, None)


def _touches_method(spec: AxisSpec) -> bool:
    fields = {name.split(".")[0] for _, fields in spec.choices for name in fields}
    return bool(fields & _OF_METHOD)


def _excluded(rule: Mapping[str, Any], columns: Mapping[str, Any]) -> bool:
    return all(
        columns.get(name) in (wanted if isinstance(wanted, list) else [wanted])
        for name, wanted in rule.items()
    )


def _check_exclusions(config: SweepConfig, specs: Sequence[AxisSpec], document: Document) -> None:
    known = {name for spec in specs for name in spec.choices[0][0]}
    for index, rule in enumerate(config.exclude):
        for name in rule:
            if name not in known:
                with blame(Place(document), "exclude", index):
                    raise ConfigError(f"{name!r} is not an axis; {nearest(name, known)}")
