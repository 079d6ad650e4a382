"""Axes to points: the Cartesian product of a sweep, checked before anything runs."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from simspec.core.errors import ConfigError, nearest
from simspec.core.yamlio import Document, parse
from simspec.decoding.acceptance._shorthand import long_form
from simspec.scenarios.build import Place, blame
from simspec.scenarios.schema import ScenarioConfig
from simspec.sweeps.axes import (
    METHOD_FIELDS,
    Axis,
    Choice,
    axes_of,
    canonical,
    check_axes,
    shown,
)
from simspec.sweeps.schema import MAX_POINTS, SweepConfig

_BASE = ("scenario",)


class Override(NamedTuple):
    """A scenario field set by an axis."""

    name: str
    value: Any
    source: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One scenario of the grid."""

    point_id: str
    columns: Mapping[str, Any]
    config: ScenarioConfig
    is_baseline: bool
    baseline_id: str | None
    """The autoregressive point on the same load, None for a baseline itself."""
    document: Document = field(repr=False)
    overrides: tuple[Override, ...] = field(repr=False)

    @property
    def place(self) -> Place:
        """Where each field of the scenario was written; made when asked, for it is large."""
        return Place(_overridden(self.document, self.overrides), _BASE)


def expand(config: SweepConfig, document: Document) -> list[Point]:
    """Return every point of the grid, baselines first, each validated.

    Two points may hold the same scenario under different labels; they share a ``point_id``.

    Raises
    ------
    ConfigError
        The grid is larger than ``MAX_POINTS``, empty after exclusion, names an unknown field,
        or one of its points is not a valid scenario (file, line and field of the axis).
    """
    axes = axes_of(config)
    total = math.prod(len(axis.choices) for axis in axes)
    if total > MAX_POINTS:
        raise document.error(
            ("grid",),
            f"{total:,} points are more than the limit of {MAX_POINTS:,}; shorten an axis or "
            "split the sweep",
        )
    check_axes(axes, document)
    exclusions = _Exclusions(config.exclude, axes, document)
    baselines = _Baselines(config, document)
    points = []
    for choices in itertools.product(*(axis.choices for axis in axes)):
        columns = {name: cell for choice in choices for name, cell in choice.columns.items()}
        if exclusions.exclude(columns):
            continue
        overrides = tuple(_overrides(choices))
        scenario = _scenario(document, overrides)
        point_id = identify(scenario)
        baseline = baselines.of(axes, choices)
        if baseline is not None and point_id == baseline.point_id:
            continue
        points.append(
            Point(
                point_id=point_id,
                columns=columns,
                config=scenario,
                is_baseline=False,
                baseline_id=baseline.point_id if baseline else None,
                document=document,
                overrides=overrides,
            )
        )
    exclusions.check_use()
    if not points and not baselines.points:
        raise document.error(("exclude",), "every point of the grid is excluded; remove a rule")
    return [*baselines.points, *points]


def identify(config: ScenarioConfig) -> str:
    """Return a short name of a scenario within its sweep: a hash of everything it says."""
    content = config.model_dump_json(exclude={"name", "description"})
    return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()


def _overrides(choices: Sequence[Choice]) -> Iterator[Override]:
    for choice in choices:
        for name, value in choice.fields.items():
            yield Override(name, value, choice.places[name])


def _overridden(document: Document, overrides: Sequence[Override]) -> Document:
    # Whole objects first, so that `method: …` does not wipe out `method.exit_layer: …`.
    for name, value, source in sorted(overrides, key=lambda item: item.name.count(".")):
        if name.startswith("acceptance."):
            document = _with_long_acceptance(document)
        document = document.with_value((*_BASE, *name.split(".")), value, source=source)
    return document


def _with_long_acceptance(document: Document) -> Document:
    """Return the document with fields to set where the acceptance is a number or a profile."""
    scenario = document.at(_BASE)
    given = scenario.get("acceptance") if isinstance(scenario, Mapping) else None
    fields = long_form(given)
    return document if fields is given else document.with_value((*_BASE, "acceptance"), fields)


def _scenario(document: Document, overrides: Sequence[Override]) -> ScenarioConfig:
    return parse(_overridden(document, overrides), ScenarioConfig, base=_BASE)


class _Baselines:
    """The autoregressive points: one for each setting of everything but the method."""

    def __init__(self, config: SweepConfig, document: Document) -> None:
        self._wanted = config.sweep.baseline
        self._document = document
        if self._wanted:
            plain = document.with_value((*_BASE, "method"), {"name": "autoregressive"})
            self._document = plain.with_value((*_BASE, "acceptance"), None)
            self._document = self._document.with_value((*_BASE, "speculation"), {"name": "fixed"})
        self._by_overrides: dict[str, Point] = {}
        self._by_id: dict[str, Point] = {}

    @property
    def points(self) -> list[Point]:
        """All of them, in grid order."""
        return list(self._by_id.values())

    def of(self, axes: Sequence[Axis], choices: Sequence[Choice]) -> Point | None:
        """Return the baseline of a point; None when the sweep wants none."""
        if not self._wanted:
            return None
        overrides = tuple(
            item for item in _overrides(choices) if item.name.split(".")[0] not in METHOD_FIELDS
        )
        key = json.dumps([(item.name, item.value) for item in overrides])
        if key not in self._by_overrides:
            scenario = _scenario(self._document, overrides)
            columns = {
                name: cell
                for axis, choice in zip(axes, choices, strict=True)
                for name, cell in choice.columns.items()
                if axis.shows_in_baseline(name)
            }
            columns["method.name"] = scenario.method.name
            point_id = identify(scenario)
            point = Point(point_id, columns, scenario, True, None, self._document, overrides)
            # Two labels may hold the same load: the first one names its baseline.
            self._by_overrides[key] = self._by_id.setdefault(point_id, point)
        return self._by_overrides[key]


class _Exclusions:
    """The rules of ``exclude``, and whether each of them was of any use."""

    def __init__(
        self, rules: Sequence[Mapping[str, Any]], axes: Sequence[Axis], document: Document
    ) -> None:
        self._document = document
        self._rules = [
            {name: [canonical(shown(v)) for v in _listed(value)] for name, value in rule.items()}
            for rule in rules
        ]
        self._hits = [0] * len(rules)
        known = {column for axis in axes for column in axis.columns}
        for index, rule in enumerate(rules):
            if not rule:
                raise document.error(("exclude", index), "the rule is empty; name an axis")
            for name in rule:
                if name not in known:
                    with blame(Place(document), "exclude", index):
                        raise ConfigError(f"{name!r} is not an axis; {nearest(name, known)}")

    def exclude(self, columns: Mapping[str, Any]) -> bool:
        """Whether a rule matches the cells of a point."""
        is_excluded = False
        for index, rule in enumerate(self._rules):
            if all(canonical(columns[name]) in wanted for name, wanted in rule.items()):
                self._hits[index] += 1
                is_excluded = True
        return is_excluded

    def check_use(self) -> None:
        """Refuse a rule that excludes nothing: it names a value the grid does not have."""
        for index, hits in enumerate(self._hits):
            if not hits:
                raise self._document.error(
                    ("exclude", index), "excludes no point of the grid; check its values"
                )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
