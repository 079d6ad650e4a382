"""The axes of a sweep: what each value shows in the result and sets in the scenario."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from simspec.core.errors import ConfigError
from simspec.core.yamlio import Document
from simspec.scenarios.report import PAIRED
from simspec.serving.metrics import LATENCIES, METRICS
from simspec.sweeps.schema import SweepConfig

LOAD_FIELDS = frozenset({"workload", "slo", "simulation"})
"""Parts of a scenario that leave the deployment as it is."""
METHOD_FIELDS = frozenset({"method", "acceptance", "speculation"})
"""Parts of a scenario that a baseline replaces."""
_LABELS_ONLY = frozenset({"name", "description"})
_ORIGINS = frozenset({"acceptance.source"})
"""Say where other fields come from: they may ride along with those, not be an axis."""
_RESULT_COLUMNS = frozenset(
    {
        "point_id", "baseline_id", "status", "reason", "step_time_ms", "weights_bytes",
        "kv_bytes_per_token", "kv_capacity_tokens", "fits",
        *PAIRED, *METRICS, *(f"{name}_quantiles_ms" for name in LATENCIES),
    }
)  # fmt: skip


class Choice(NamedTuple):
    """One value of an axis."""

    columns: Mapping[str, Any]
    """What it shows in the result."""
    fields: Mapping[str, Any]
    """The scenario fields it sets, dotted."""
    places: Mapping[str, tuple[str | int, ...]]
    """Where in the sweep file each field's value stands, for messages."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of the grid."""

    name: str
    source: tuple[str | int, ...]
    """Where in the sweep file the axis stands, for messages."""
    choices: tuple[Choice, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of its columns in the result."""
        return tuple(self.choices[0].columns)

    @property
    def roots(self) -> frozenset[str]:
        """The top-level scenario fields it touches."""
        return frozenset(name.split(".")[0] for choice in self.choices for name in choice.fields)

    def shows_in_baseline(self, column: str) -> bool:
        """Whether a column still says something once the method is replaced."""
        if column in self.choices[0].fields:
            return column.split(".", maxsplit=1)[0] not in METHOD_FIELDS
        return not self.roots & METHOD_FIELDS


def axes_of(config: SweepConfig) -> list[Axis]:
    """Return the axes of a sweep, grid first, then zipped groups."""
    found = []
    for name, values in config.grid.items():
        source = ("grid", name)
        if isinstance(values, dict):
            choices = tuple(
                Choice({name: label}, fields, {field: (*source, label, field) for field in fields})
                for label, fields in values.items()
            )
        else:
            choices = tuple(
                Choice({name: shown(value)}, {name: value}, {name: (*source, index)})
                for index, value in enumerate(values)
            )
        found.append(Axis(name, source, choices))
    for index, group in enumerate(config.zip):
        found.append(_zipped(index, group))
    return found


def _zipped(index: int, group: Mapping[str, Sequence[Any]]) -> Axis:
    source = ("zip", index)
    choices = []
    for row, values in enumerate(zip(*group.values(), strict=True)):
        fields = dict(zip(group, values, strict=True))
        columns = {name: shown(value) for name, value in fields.items()}
        choices.append(Choice(columns, fields, {name: (*source, name, row) for name in group}))
    return Axis("+".join(group), source, tuple(choices))


def shown(value: Any) -> Any:
    """Return a value as a cell: plug-ins without options by name, other structures as JSON."""
    if isinstance(value, Mapping):
        return str(value["name"]) if set(value) == {"name"} else json.dumps(value, sort_keys=True)
    return json.dumps(value) if isinstance(value, list) else value


def canonical(cell: Any) -> object:
    """Return a cell such that equal settings are equal: 2 is 2.0, and 1 is not true."""
    return (type(cell).__name__ if isinstance(cell, bool) else "", cell)


def check_axes(axes: Sequence[Axis], document: Document) -> None:
    """Refuse axes that contradict each other or change nothing.

    Raises
    ------
    ConfigError
        With the file and line of the axis.
    """
    set_by: dict[str, str] = {}
    column_of: dict[str, str] = {}
    for axis in axes:
        _check_values(axis, document)
        fields = {field for choice in axis.choices for field in choice.fields}
        if fields and fields <= _ORIGINS:
            name = min(fields)
            raise _error(document, axis, f"{name!r} says where numbers are from, and changes none")
        for name in dict.fromkeys(field for choice in axis.choices for field in choice.fields):
            if name in _LABELS_ONLY:
                raise _error(document, axis, f"{name!r} is only a label and changes no result")
            if name in set_by:
                raise _error(
                    document,
                    axis,
                    f"{name!r} is set by axis {set_by[name]!r} too; give each field one axis",
                )
            set_by[name] = axis.name
        for column in axis.columns:
            if column in _RESULT_COLUMNS:
                raise _error(
                    document, axis, f"{column!r} is a column of the result; use another label"
                )
            if column in column_of:
                raise _error(
                    document, axis, f"the name {column!r} is taken by axis {column_of[column]!r}"
                )
            column_of[column] = axis.name


def _check_values(axis: Axis, document: Document) -> None:
    seen: set[object] = set()
    for choice in axis.choices:
        cells = tuple(canonical(cell) for cell in choice.columns.values())
        if cells in seen:
            given = ", ".join(str(cell) for cell in choice.columns.values())
            raise _error(document, axis, f"{given} is given twice; keep one")
        seen.add(cells)
    if not any(choice.fields for choice in axis.choices):
        raise _error(document, axis, "no label sets a field; give at least one of them a field")


def _error(document: Document, axis: Axis, problem: str) -> ConfigError:
    return document.error(axis.source, problem)


def touches_only(axes: Iterable[Axis], column: str, roots: frozenset[str]) -> bool:
    """Whether the axis that shows ``column`` changes nothing but the fields ``roots``."""
    return any(column in axis.columns and axis.roots <= roots for axis in axes)
