"""Judge predictions against tables of measurements.

::

    result = validate([Path("serving_closed_loop.csv")])
    for key, errors in result.summary("family").items(): ...

Every table is read by the reader that knows its columns (``simspec.validation.tables``), row by
row: compared, or left out with the reason. Without a file the built-in set is judged: published
figures with their sources, in ``simspec/validation/data``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from simspec.core.errors import ConfigError, TraceError, nearest
from simspec.core.provenance import manifest, sha256_of
from simspec.core.resources import shown_name
from simspec.validation._audit import refuted
from simspec.validation._base import Comparison, LeftOut, MeasurementTable, TableReader
from simspec.validation._physics import not_positive
from simspec.validation._read import read_rows, recognise, table_files
from simspec.validation._summary import Collector, Errors, Key, causes

Progress = Callable[[str, int, int], None]
"""Called with the file, the rows done and the rows in all."""

DATA = Path(__file__).parent / "data"
"""The built-in set."""

COLUMNS_OF_A_GROUP = ("kind", "quantity", "role")
"""What every group of rows has in common, whatever else it is grouped by."""

_REPORT_EVERY = 500


@dataclass(frozen=True, slots=True)
class JudgedTable:
    """One file, judged."""

    path: Path
    file: str
    """What results call it."""
    kind: str
    """Name of its reader."""
    num_rows: int
    comparisons: Sequence[Comparison]
    left_out: Sequence[LeftOut]
    sha256: str


@dataclass(frozen=True)
class ValidationResult:
    """Everything that came out of a validation."""

    tables: Sequence[JudgedTable]
    skipped: Sequence[tuple[str, str]]
    """Files of a folder that are no table of measurements, and why."""
    is_built_in: bool

    @cached_property
    def num_compared(self) -> int:
        """Comparisons of all tables."""
        return sum(len(table.comparisons) for table in self.tables)

    @cached_property
    def num_left_out(self) -> int:
        """Rows left out of all tables."""
        return sum(len(table.left_out) for table in self.tables)

    def rows(self) -> Iterator[tuple[JudgedTable, Comparison]]:
        """Yield every comparison with its table."""
        for table in self.tables:
            for row in table.comparisons:
                yield table, row

    def left_out(self) -> Iterator[tuple[JudgedTable, LeftOut]]:
        """Yield every row that is left out, with its table."""
        for table in self.tables:
            for row in table.left_out:
                yield table, row

    def summary(self, *by: str) -> dict[Key, Errors]:
        """Return the errors by ``kind``, ``quantity``, ``role`` and whatever else is asked for.

        Parameters
        ----------
        *by : str
            ``group``, ``family``, ``file``, or a column of the subjects; none: overall.

        Raises
        ------
        ConfigError
            No table has such a column.
        """
        self._check(by)
        collector = Collector()
        for table, row in self.rows():
            extra = tuple(_cell(table, row, name) for name in by)
            collector.add((table.kind, row.quantity, row.role, *extra), row)
        return collector.errors()

    def causes(self) -> dict[str, int]:
        """Return how many rows are left out for each cause."""
        return dict(causes(row for _, row in self.left_out()))

    def worst(self, count: int) -> list[tuple[JudgedTable, Comparison]]:
        """Return the rows with the largest errors, measured by ``|log(predicted / measured)|``."""
        import heapq

        return heapq.nlargest(
            count, self.rows(), key=lambda pair: abs(math.log(pair[1].predicted / pair[1].measured))
        )

    def manifest(self, **facts: object) -> dict[str, object]:
        """Return what the result was made from."""
        # Hashed when they were read: a file may have gone or changed since.
        read = {table.file: {"sha256": table.sha256} for table in self.tables}
        return manifest({}, None, **facts) | {"inputs": dict(sorted(read.items()))}

    def _check(self, by: Sequence[str]) -> None:
        known = {"group", "family", "file"}
        for table in self.tables:
            known.update(*(row.subject for row in table.comparisons[:1]))
        for name in by:
            if name not in known:
                raise ConfigError(f"--group-by: no column {name!r}; {nearest(name, known)}")


def validate(
    paths: Sequence[Path | str] | Path | str | None = None, *, progress: Progress | None = None
) -> ValidationResult:
    """Judge predictions against measurements.

    Parameters
    ----------
    paths : path or sequence of paths, optional
        Files, and folders that are searched for tables; the built-in set when not given.
    progress : callable, optional
        Called now and then with the file, the rows done and the rows in all.

    Raises
    ------
    ConfigError, TraceError
        A file cannot be read, or no reader knows its columns.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths or ())
    is_built_in = not given
    files = table_files([Path(path) for path in given] or [DATA])
    tables, skipped = [], []
    for path, is_named in files:
        try:
            kind, reader = recognise(path)
        except (ConfigError, TraceError) as error:
            # A folder may hold other things beside measurements.
            if is_named or is_built_in:
                raise
            skipped.append((shown_name(path), str(error).removeprefix(f"{path}: ")))
            continue
        tables.append(_judged(path, kind, reader, read_rows(path, reader), progress))
    if not tables:
        raise ConfigError(
            f"{given[0]}: holds no table of measurements; {skipped[0][0]}: {skipped[0][1]}"
        )
    return ValidationResult(tuple(tables), tuple(skipped), is_built_in)


def _judged(
    path: Path,
    kind: str,
    reader: TableReader,
    table: MeasurementTable,
    progress: Progress | None,
) -> JudgedTable:
    comparisons: list[Comparison] = []
    left_out: list[LeftOut] = []
    total = len(table.frame)
    first = table.line(0)
    name = shown_name(path)
    contradicted = refuted(table)
    # What divides by an absurd cell has no finite prediction, and is left out for it.
    with np.errstate(all="ignore"):
        for count, row in enumerate(reader.compare(table)):
            if isinstance(row, LeftOut):
                left_out.append(row)
            elif (found := _no_comparison(row)) is not None:
                left_out.append(found)
            elif row.line in contradicted:
                reason = contradicted[row.line]
                left_out.append(LeftOut(row.line, "refuted", reason, row.subject, row.group))
            else:
                comparisons.append(row)
            if progress is not None and count % _REPORT_EVERY == 0:
                progress(name, min(row.line - first, total), total)
    if progress is not None:
        progress(name, total, total)
    return JudgedTable(path, name, kind, total, comparisons, left_out, sha256_of(path))


def _no_comparison(row: Comparison) -> LeftOut | None:
    """Leave out a figure that nothing can be divided by, and a prediction that is none."""
    if (reason := not_positive(row.quantity, row.measured)) is not None:
        return LeftOut(row.line, "refuted", reason, row.subject, row.group)
    if not (row.predicted > 0.0 and math.isfinite(row.predicted / row.measured)):
        reason = f"no finite prediction of {row.quantity} ({row.predicted:g})"
        return LeftOut(row.line, "unsupported", reason, row.subject, row.group)
    return None


def _cell(table: JudgedTable, row: Comparison, name: str) -> str:
    if name == "group":
        return row.group
    if name == "family":
        return row.family or row.group
    if name == "file":
        return table.file
    value: Any = row.subject.get(name)
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
