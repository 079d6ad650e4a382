"""A sweep's result directory, read and checked once.

``manifest.json`` says what was varied, ``points.parquet`` holds one row per point of the grid and
``curves.parquet``, if there is one, the closed form against batch size. Nothing here knows of
particular axes except that an autoregressive row is the baseline of the points around it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simspec.core.errors import ConfigError
from simspec.reports.labels import Value, axis_label, axis_symbol, axis_title, shorten, value_text

BASELINE = "autoregressive"
METHOD = "method.name"
QUANTILES = 101
"""Length of a quantile column: 0 %, 1 %, ..., 100 %."""
NAME_WIDTH = 60
"""Longest name within a sentence, characters."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of the grid and its values, in the order of the manifest."""

    field: str
    given_label: str | None
    values: tuple[Value, ...]
    _positions: dict[object, int] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        positions = {_canonical(value): i for i, value in enumerate(self.values)}
        object.__setattr__(self, "_positions", positions)

    @property
    def label(self) -> str:
        """Name without unit."""
        return axis_label(self.field, self.given_label)

    @property
    def title(self) -> str:
        """Name with unit."""
        return axis_title(self.field, self.given_label)

    @property
    def symbol(self) -> str:
        """Short name."""
        return axis_symbol(self.field, self.given_label)

    @property
    def is_numeric(self) -> bool:
        """Whether every value is a number."""
        return all(isinstance(v, int | float) and not isinstance(v, bool) for v in self.values)

    @property
    def texts(self) -> tuple[str, ...]:
        """The values as text."""
        return tuple(value_text(value) for value in self.values)

    def index(self, value: Value) -> int | None:
        """Return the position of a value, None if it is not on the axis."""
        return self._positions.get(_canonical(value))

    def says(self, value: Value) -> str:
        """Return ``"K = 3"``, or ``"load: busy"`` for names."""
        sign = " = " if isinstance(value, int | float) and not isinstance(value, bool) else ": "
        return f"{self.symbol}{sign}{shorten(value_text(value), NAME_WIDTH)}"


@dataclass(frozen=True, slots=True)
class Point:
    """One row of ``points.parquet``."""

    row: Mapping[str, object]

    @property
    def status(self) -> str:
        """``ok``, ``unstable``, ``does_not_fit`` or ``refused``."""
        return str(self.row.get("status") or "ok")

    @property
    def is_ok(self) -> bool:
        """Whether the point has results."""
        return self.status == "ok"

    @property
    def reason(self) -> str:
        """Why the point has no results."""
        return str(self.row.get("reason") or "")

    @property
    def method(self) -> str:
        """Decoding method, empty when the sweep does not say."""
        return str(self.row.get(METHOD) or "")

    @property
    def is_baseline(self) -> bool:
        """Whether the point decodes autoregressively."""
        return self.method == BASELINE

    def axis_value(self, axis: Axis) -> Value:
        """Return the point's value on an axis; a zipped axis joins its columns."""
        return axis_cell(self.row, axis.field)

    def number(self, key: str) -> float | None:
        """Return a finite number, or None; points without results have none.

        Nor has a baseline a speedup: its ratio to itself says nothing.
        """
        if not self.is_ok or (self.is_baseline and key.endswith("speedup")):
            return None
        return finite(self.row.get(key))

    def interval(self, key: str) -> tuple[float, float] | None:
        """Return the 95 % interval, or None."""
        low, high = self.number(f"{key}_ci95_low"), self.number(f"{key}_ci95_high")
        return None if low is None or high is None else (low, high)

    def quantiles(self, key: str) -> list[float] | None:
        """Return the quantiles of ``ttft``, ``tpot`` or ``e2e`` in milliseconds, or None."""
        raw = self.row.get(f"{key}_quantiles_ms")
        if not self.is_ok or not isinstance(raw, list) or len(raw) < 2:
            return None
        found = [finite(item) for item in raw]
        return None if None in found else [item for item in found if item is not None]


@dataclass(frozen=True, slots=True)
class SweepData:
    """A whole result directory."""

    directory: Path
    manifest: Mapping[str, object]
    axes: tuple[Axis, ...]
    points: tuple[Point, ...]
    baselines: tuple[Point, ...]
    """The autoregressive ones among the points."""
    curves: tuple[Mapping[str, object], ...]
    _found: dict[object, Point | None] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )
    """Baselines already looked up, by conditions."""

    @property
    def name(self) -> str:
        """The scenario's name, or the directory's."""
        return text_of(self.manifest, "name", "scenario") or self.directory.name

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names of the points."""
        return tuple(self.points[0].row) if self.points else ()

    @property
    def is_calibrated(self) -> bool:
        """False when the manifest or its hardware profile says the constants are not fitted."""
        hardware = self.manifest.get("hardware")
        said = [self.manifest.get("calibrated")]
        if isinstance(hardware, Mapping):
            said.append(hardware.get("calibrated"))
        return False not in said and self.manifest.get("uncalibrated") is not True

    @property
    def uncalibrated(self) -> str:
        """The profiles that are not calibrated, empty when the manifest names none."""
        names = self.manifest.get("uncalibrated_hardware")
        return ", ".join(map(str, names)) if isinstance(names, list) else ""

    def has(self, key: str) -> bool:
        """Whether any point has a finite value of ``key``."""
        return any(point.number(key) is not None for point in self.points)

    def axis(self, field: str) -> Axis | None:
        """Return the axis of a field, or None."""
        return next((axis for axis in self.axes if axis.field == field), None)

    def baseline(self, point: Point) -> Point | None:
        """Return the autoregressive point under the same conditions, or None.

        A baseline has no value on the axes of the method; where it has one, it must agree.
        It has no baseline itself: beside itself it says nothing.
        """
        if point.is_baseline:
            return None
        stated = point.row.get("baseline_id")
        conditions = tuple(_canonical(point.axis_value(axis)) for axis in self.condition_axes)
        key = conditions if stated is None else stated
        if key not in self._found:
            self._found[key] = next(
                (b for b in self.baselines if self._is_baseline(b, stated, conditions)), None
            )
        return self._found[key]

    @property
    def condition_axes(self) -> tuple[Axis, ...]:
        """Axes that are not the method's: what a point and its baseline share."""
        return tuple(axis for axis in self.axes if not axis.field.startswith("method."))

    def _is_baseline(self, candidate: Point, stated: object, conditions: Sequence[object]) -> bool:
        if stated is not None:
            return candidate.row.get("point_id") == stated
        values = (candidate.axis_value(axis) for axis in self.condition_axes)
        pairs = zip(values, conditions, strict=True)
        return all(value is None or _canonical(value) == wanted for value, wanted in pairs)


def finite(value: object) -> float | None:
    """Return a finite float, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def text_of(manifest: Mapping[str, object], *keys: str) -> str:
    """Return the first of the keys that holds a name: text, or a mapping with a ``name``."""
    for key in keys:
        value = manifest.get(key)
        if isinstance(value, Mapping):
            value = value.get("name")
        if isinstance(value, str | int | float) and value != "":
            return str(value)
    return ""


def sentences_of(manifest: Mapping[str, object], key: str) -> list[str]:
    """Return what the manifest says under a key as sentences: text, a list or a mapping."""
    value = manifest.get(key)
    if isinstance(value, Mapping):
        return [f"{name}: {text}" for name, text in value.items()]
    if isinstance(value, list):
        return [str(item) for item in value]
    return [str(value)] if value else []


def told_apart(sentences: Sequence[str]) -> list[str]:
    """Return the first sentence whole and, of each similar one, only where it differs.

    Sentences made from one template repeat most of their words; a reader needs them once.
    """
    if len(sentences) < 2:
        return list(sentences)
    words = [sentence.split() for sentence in sentences]
    shortest = min(len(w) for w in words)
    same = [len({w[i] for w in words}) == 1 for i in range(shortest)]
    start = same.index(False) if False in same else shortest
    same = [len({w[-1 - i] for w in words}) == 1 for i in range(shortest - start)]
    end = same.index(False) if False in same else shortest - start
    if start + end < max(6, shortest // 2):
        return list(sentences)
    lead = max(0, start - 3)
    middles = [" ".join(w[lead : len(w) - end]) for w in words[1:]]
    return [sentences[0], *(f"Likewise, but … {middle} …" for middle in middles)]


def read_sweep(result_dir: Path) -> SweepData:
    """Read a result directory.

    Raises
    ------
    ConfigError
        A file is missing or unreadable, or there is no point in it.
    """
    manifest = read_manifest(result_dir)
    rows = read_table(result_dir / "points.parquet")
    if not rows:
        raise ConfigError(f"{result_dir / 'points.parquet'}: no points; run the sweep again")
    curves_path = result_dir / "curves.parquet"
    curves = read_table(curves_path) if curves_path.exists() else []
    points = tuple(Point(row) for row in rows)
    baselines = tuple(point for point in points if point.is_baseline)
    return SweepData(
        directory=result_dir,
        manifest=manifest,
        axes=_axes(manifest, [p.row for p in points if not p.is_baseline] or rows),
        points=points,
        baselines=baselines,
        curves=tuple(curves),
    )


def read_manifest(result_dir: Path) -> dict[str, object]:
    """Read ``manifest.json``.

    Raises
    ------
    ConfigError
        It is missing or not a JSON object.
    """
    path = result_dir / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise ConfigError(
            f"{result_dir}: no manifest.json here; give the directory that "
            "'simspec sweep' wrote its results to"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path}: not valid JSON ({error}); run the sweep again") from None
    if not isinstance(manifest, dict):
        raise ConfigError(f"{path}: expected a JSON object; run the sweep again")
    return manifest


def read_table(path: Path) -> list[dict[str, object]]:
    """Read a Parquet file as rows.

    Raises
    ------
    ConfigError
        It is missing or not a Parquet file.
    """
    import pyarrow

    from simspec.core.parquet import read_arrow

    try:
        rows: list[dict[str, object]] = read_arrow(path).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        first = str(error).partition("\n")[0]
        raise ConfigError(f"{path}: cannot be read ({first}); run the sweep again") from None
    return rows


def _axes(manifest: Mapping[str, object], rows: Sequence[Mapping[str, object]]) -> tuple[Axis, ...]:
    axes = []
    for entry in _list(manifest.get("axes")):
        field = str(entry.get("field", "")) if isinstance(entry, Mapping) else ""
        if not field or any(part not in rows[0] for part in _parts(field, rows[0])):
            continue
        known = [_scalar(v) for v in _list(entry.get("values"))]
        seen = [axis_cell(row, field) for row in rows]
        label = entry.get("label")
        axes.append(Axis(field, str(label) if label else None, _ordered(known, seen)))
    return _zipped(axes, rows)


def _zipped(axes: Sequence[Axis], rows: Sequence[Mapping[str, object]]) -> tuple[Axis, ...]:
    """Join axes that change together, value for value, into one."""
    joined: list[Axis] = []
    for axis in axes:
        partner = next((i for i, a in enumerate(joined) if _move_together(a, axis, rows)), None)
        if partner is None:
            joined.append(axis)
            continue
        first = joined[partner]
        field = f"{first.field}+{axis.field}"
        values = _ordered([], [axis_cell(row, field) for row in rows])
        joined[partner] = Axis(field, None, values)
    return tuple(joined)


def _move_together(a: Axis, b: Axis, rows: Sequence[Mapping[str, object]]) -> bool:
    if len(a.values) != len(b.values) or len(a.values) < 2:
        return False
    pairs = {(axis_cell(row, a.field), axis_cell(row, b.field)) for row in rows}
    return len(pairs) == len(a.values)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _ordered(known: Sequence[Value], seen: Sequence[Value]) -> tuple[Value, ...]:
    found: dict[object, Value] = {}
    present = {_canonical(value) for value in seen}
    for value in [*(v for v in known if _canonical(v) in present), *seen]:
        if value is not None:
            found.setdefault(_canonical(value), _tidy(value))
    if None in seen:
        found[None] = None
    return tuple(found.values())


def has_axis(row: Mapping[str, object], field: str) -> bool:
    """Return whether a row has the column of an axis, or all columns of a zipped one."""
    return all(part in row for part in _parts(field, row))


def axis_cell(row: Mapping[str, object], field: str) -> Value:
    """Return a row's value on an axis; a zipped axis joins its columns."""
    parts = [row.get(part) for part in _parts(field, row)]
    if len(parts) > 1:
        return None if None in parts else " · ".join(value_text(_scalar(part)) for part in parts)
    return _scalar(parts[0])


def _parts(field: str, row: Mapping[str, object]) -> list[str]:
    if "+" not in field:
        return [field]
    parts = field.split("+")
    return [field] if field in row or any(part not in row for part in parts) else parts


def _scalar(value: object) -> Value:
    if isinstance(value, float) and math.isnan(value):
        return None
    if _is_scalar(value):
        return _tidy(value)  # type: ignore[arg-type]
    return json.dumps(value, sort_keys=True, default=str)


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _tidy(value: Value) -> Value:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _canonical(value: Value) -> object:
    if isinstance(value, bool) or value is None:
        return (type(value).__name__, value)
    if isinstance(value, int | float):
        return ("number", float(value))
    return ("text", str(value))
