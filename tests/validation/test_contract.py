"""What every reader promises, tried on every reader: rows in, rows out, whatever the cells hold."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from simspec.validation._base import QUANTITIES, TABLES, Comparison, LeftOut, TableReader
from simspec.validation._read import read_rows, recognise
from simspec.validation.api import DATA, validate
from tests.helpers.shared import REPO_ROOT

NUMBERS = ("", "0", "-1", "1", "2.5", "1e300", "-1e300", "1e-300", "999999999999", "3")
TEXTS = (
    "",
    "x",
    "H100",
    "vLLM",
    "meta-llama/Llama-3.1-8B",
    "fp8",
    "NaN",
    "0",
    "<b>",
    "π" * 50,
    "1,2",
)


def reader(name: str) -> TableReader:
    return cast(TableReader, TABLES.module(name))


def hostile_rows(columns: list[str], numbers: frozenset[str]) -> Iterator[list[str]]:
    """Yield rows in which every column holds every hostile value once, out of step."""
    for shift in range(40):
        yield [
            (NUMBERS if column in numbers else TEXTS)[
                (shift * (place + 1) + place) % (10 if column in numbers else 11)
            ]
            for place, column in enumerate(columns)
        ]


def known_rows(name: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table of this kind in the built-in set, if any."""
    for path in sorted(DATA.glob("*.csv")):
        if recognise(path)[0] == name:
            with path.open(newline="", encoding="utf-8") as file:
                header, *rows = csv.reader(file)
            return header, rows
    return [], []


def written(path: Path, header: list[str], rows: list[list[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def check(path: Path, num_rows: int) -> None:
    """Judge a table and assert the contract on what comes out."""
    kind, module = recognise(path)
    lines = []
    with np.errstate(all="ignore"):
        found = list(module.compare(read_rows(path, module)))
    for row in found:
        assert isinstance(row, Comparison | LeftOut)
        lines.append(row.line)
        assert all(isinstance(key, str) for key in row.subject)
        if isinstance(row, LeftOut):
            assert row.cause in ("refuted", "suspect", "unsupported")
            assert row.reason.strip()
            assert "\n" not in row.reason
        else:
            assert row.quantity in QUANTITIES
            assert row.role in ("held_out", "fitted")
            assert row.group
            if not math.isfinite(row.predicted):
                continue  # validate leaves it out
            assert all(math.isfinite(value) for value in row.breakdown.values()), kind
            if row.interval is not None:
                low, high = row.interval
                assert low <= row.predicted <= high
    assert lines == sorted(lines)
    assert set(lines) == set(range(2, num_rows + 2)), "every row is compared or left out"
    validate(path)


@pytest.mark.parametrize("name", TABLES.names())
def test_it_says_what_it_reads(name: str) -> None:
    """A reader names its columns, which of them are numbers, and what the table holds."""
    module: Any = reader(name)
    assert module.COLUMNS
    assert module.NUMBERS
    assert 0 < len(module.DESCRIPTION) < 80
    assert not module.DESCRIPTION.endswith(".")
    assert module.__doc__


@pytest.mark.parametrize("name", TABLES.names())
def test_hostile_cells_are_rows_left_out(name: str, tmp_path: Path) -> None:
    """Zero, huge, negative and empty numbers, words of any kind: never an exception."""
    module = reader(name)
    columns = sorted(module.COLUMNS | module.NUMBERS)
    rows = list(hostile_rows(columns, module.NUMBERS))
    check(written(tmp_path / "t.csv", columns, rows), len(rows))


@pytest.mark.parametrize("name", TABLES.names())
def test_a_known_row_with_one_hostile_cell(name: str, tmp_path: Path) -> None:
    """Every cell of a good row, replaced in turn by each hostile value."""
    header, known = known_rows(name)
    if not known:
        pytest.skip(f"no table of kind {name} in the built-in set")
    numbers = reader(name).NUMBERS
    rows = []
    for place, column in enumerate(header):
        for number, value in enumerate(NUMBERS if column in numbers else TEXTS):
            good = known[(7 * place + number) % len(known)]
            rows.append([value if i == place else cell for i, cell in enumerate(good)])
    check(written(tmp_path / "t.csv", header, rows), len(rows))


@pytest.mark.parametrize("name", TABLES.names())
def test_its_columns_are_no_other_kind(name: str) -> None:
    """A table with exactly the columns of a reader is read by it and by no other."""
    from simspec.validation._base import reader_for

    found = reader_for(frozenset(reader(name).COLUMNS))
    assert found is not None
    assert found[0] == name


def test_nothing_measured_stands_in_the_repository() -> None:
    """Of the shared measurements nothing is committed but the built-in set and what follows."""
    tables = {path.name for path in (REPO_ROOT / "simspec").rglob("*.csv")}
    assert tables == {path.name for path in DATA.glob("*.csv")}
    assert not list((REPO_ROOT / "simspec").rglob("*.parquet"))
