"""Tables of measurements that nobody here wrote: CSV, plain or gzip, and Parquet.

Whatever is wrong with such a file is one sentence with file and line. A CSV has a header, one
record per line and ``,`` between cells; empty lines are skipped and empty cells are missing.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simspec.core.errors import ConfigError, nearest
from simspec.core.lines import read_lines
from simspec.core.resources import exists, is_special
from simspec.validation._base import TABLES, MeasurementTable, TableReader, reader_for

if TYPE_CHECKING:
    import pandas as pd

MAX_CSV_BYTES = 2**30
MAX_ROWS = 20_000_000
_SUFFIXES = (".csv", ".csv.gz", ".parquet")
_CHUNK_ROWS = 50_000


def table_files(paths: Sequence[Path]) -> list[tuple[Path, bool]]:
    """Return the files to read, and whether each was named (or only found in a folder).

    Raises
    ------
    ConfigError
        A path does not exist, or a folder holds no table.
    """
    found: dict[Path, bool] = {}
    for path in paths:
        if not exists(path):
            raise ConfigError(f"{path}: no such file or folder; {_beside(path)}")
        if is_special(path):
            raise ConfigError(f"{path}: this is not a regular file; give a file or a folder")
        if not path.is_dir():
            found[path] = True
            continue
        inside = sorted(p for p in path.rglob("*") if p.is_file() and p.name.endswith(_SUFFIXES))
        if not inside:
            raise ConfigError(
                f"{path}: holds no table; a table is a file that ends in {', '.join(_SUFFIXES)}"
            )
        for file in inside:
            found.setdefault(file, False)
    return list(found.items())


def kinds() -> str:
    """Return every kind of table with what it holds and the columns it needs, as one clause."""
    said = []
    for name in TABLES.names():
        reader: TableReader = TABLES.module(name)  # type: ignore[assignment]
        said.append(f"{name} ({', '.join(sorted(reader.COLUMNS))})")
    return "; ".join(said)


def recognise(path: Path) -> tuple[str, TableReader]:
    """Return the kind of a table and its reader, from its columns.

    Raises
    ------
    ConfigError, TraceError
        The file cannot be read, or no reader knows its columns.
    """
    columns = frozenset(_parquet_columns(path) if _is_parquet(path) else _header(path))
    found = reader_for(columns)
    if found is None:
        raise ConfigError(f"{path}: {unrecognised(columns)}")
    return found


def read_rows(path: Path, reader: TableReader) -> MeasurementTable:
    """Return the rows of a table, with the types that its reader names.

    Raises
    ------
    ConfigError, TraceError
        The file cannot be read to its end, or a cell is not what its column holds.
    """
    numbers = frozenset(getattr(reader, "NUMBERS", frozenset()))
    text = reader.COLUMNS - numbers if numbers else frozenset()
    frame, lines = (_parquet(path), None) if _is_parquet(path) else _csv(path)
    for column in frame.columns:
        if column in numbers:
            frame[column] = _numbers(frame[column], column, path, lines)
        elif column not in text:
            frame[column] = _inferred(frame[column])
        else:
            frame[column] = frame[column].astype(object)
    return MeasurementTable(path=path, frame=frame, lines=lines)


def _is_parquet(path: Path) -> bool:
    return path.name.endswith(".parquet")


def unrecognised(columns: frozenset[str]) -> str:
    """Return why no reader takes a table with these columns: what is missing, or the kinds."""
    best, missing = "", frozenset[str]()
    for name in TABLES.names():
        reader: TableReader = TABLES.module(name)  # type: ignore[assignment]
        lacks = frozenset(reader.COLUMNS) - columns
        has = len(reader.COLUMNS) - len(lacks)
        if has >= len(lacks) and (not best or len(lacks) < len(missing)):
            best, missing = name, lacks
    if best:
        absent, plural = ", ".join(sorted(missing)), len(missing) > 1
        return (
            f"looks like a table of kind {best} without the column{'s' if plural else ''} "
            f"{absent}; add {'them' if plural else 'it'}"
        )
    return f"no kind of measurement table has these columns; kinds and their columns: {kinds()}"


def _beside(path: Path) -> str:
    folder = path.parent
    names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
    return nearest(path.name, names) if 0 < len(names) <= 20 else "check the spelling"


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line a record begins on and its cells; the first is the header."""
    numbers: list[int] = []

    def text() -> Iterator[str]:
        for number, line in read_lines(path, max_bytes=MAX_CSV_BYTES):
            numbers.append(number)
            yield line + "\n"

    reader = csv.reader(text(), strict=True)
    while True:
        begins = len(numbers) + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ConfigError(
                f"{path}:{begins}: not a CSV record ({error}); check the quotes"
            ) from error
        if cells and (len(cells) > 1 or cells[0].strip()):
            yield begins, cells


def _header(path: Path) -> list[str]:
    records = _records(path)
    try:
        line, cells = next(records)
    except StopIteration:
        raise ConfigError(f"{path}: the file is empty; the first line names the columns") from None
    finally:
        records.close()  # type: ignore[attr-defined]
    header = [cell.strip() for cell in cells]
    for column in header:
        if header.count(column) > 1:
            raise ConfigError(f"{path}:{line}: the column {column!r} is there twice; keep one")
    return header


def _csv(path: Path) -> tuple[pd.DataFrame, Sequence[int]]:
    """Return all cells as text (NaN where empty) and the line of each row."""
    import pandas as pd

    header = _header(path)
    columns: list[list[object]] = [[] for _ in header]
    lines: list[int] = []
    # Equal cells share one object, so that a long table stays small.
    pool: dict[str, object] = {"": np.nan}

    def flush(chunk: list[list[str]]) -> None:
        for column, cells in zip(columns, zip(*chunk, strict=True), strict=False):
            stripped = [cell.strip() for cell in cells]
            column.extend(map(pool.setdefault, stripped, stripped))

    chunk: list[list[str]] = []
    records = _records(path)
    next(records)
    for line, cells in records:
        if len(cells) != len(header):
            raise ConfigError(
                f"{path}:{line}: {len(cells)} cells under {len(header)} columns; "
                "quote a cell that holds a comma"
            )
        lines.append(line)
        chunk.append(cells)
        if len(chunk) == _CHUNK_ROWS:
            flush(chunk)
            chunk = []
    flush(chunk)
    if not lines:
        raise ConfigError(f"{path}: has a header and no rows; add measurements")
    frame = {
        name: pd.Series(values, dtype=object) for name, values in zip(header, columns, strict=True)
    }
    return pd.DataFrame(frame), lines


def _parquet_columns(path: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
        names = [str(name) for name in pq.read_schema(path).names]
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"{path}: cannot be read as Parquet ({_first(error)})") from error
    if not metadata.num_rows:
        raise ConfigError(f"{path}: holds no rows; add measurements")
    if metadata.num_rows > MAX_ROWS:
        raise ConfigError(f"{path}: holds {metadata.num_rows:,} rows, more than {MAX_ROWS:,}")
    return names


def _parquet(path: Path) -> pd.DataFrame:
    import pyarrow as pa

    from simspec.core.parquet import read_frame

    try:
        return read_frame(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ConfigError(f"{path}: cannot be read as Parquet ({_first(error)})") from error


def _first(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _numbers(values: pd.Series, column: str, path: Path, lines: Sequence[int] | None) -> pd.Series:
    """Return a column of numbers as floats, NaN where a cell is empty."""
    import pandas as pd

    numbers = pd.to_numeric(values, errors="coerce").astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers.to_numpy()) & values.notna().to_numpy())
    if wrong.size:
        index = int(wrong[0])
        where = f"{path}: row {index + 1}" if lines is None else f"{path}:{lines[index]}"
        cell = str(values.iloc[index])
        shown = cell if len(cell) <= 40 else cell[:37] + "..."
        raise ConfigError(
            f"{where}: {column}: {shown!r} is not a finite number; "
            "write a number, or nothing where it is not known"
        )
    return numbers


def _inferred(values: pd.Series) -> pd.Series:
    """Return a column as numbers if every cell is one, else as it is."""
    import pandas as pd

    try:
        return pd.to_numeric(values)
    except (ValueError, TypeError):
        return values
