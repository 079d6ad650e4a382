"""Tables that nobody here wrote: read whole, or refused in one sentence with file and line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pytest

from simspec.core.errors import SimspecError
from simspec.validation.api import validate
from tests.validation.conftest import GEMM, MS, ROW, Write

BAD = ROW.replace(repr(MS), "fast")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "table.csv: the file is empty; the first line names the columns"),
        (["", " "], "table.csv: the file is empty; the first line names the columns"),
        ([GEMM], "table.csv: has a header and no rows; add measurements"),
        ([GEMM, ROW, BAD], "table.csv:3: latency_ms: 'fast' is not a finite number; "
         "write a number, or nothing where it is not known"),
        ([GEMM, ROW, BAD.replace("fast", "NaN")], "table.csv:3: latency_ms: 'NaN'"),
        ([GEMM, BAD.replace("fast", "inf")], "table.csv:2: latency_ms: 'inf'"),
        ([GEMM, BAD.replace("fast", "1" * 400)], "table.csv:2: latency_ms: '1111"),
        # Empty lines and line breaks in quotes do not shift the line that is named.
        ([GEMM, "", ROW, "", BAD], "table.csv:5: latency_ms"),
        ([GEMM, '"tor\nch"' + ROW[5:], BAD], "table.csv:4: latency_ms"),
        ([GEMM, ROW, "torch,1,vllm"], "table.csv:3: 3 cells under 9 columns; "
         "quote a cell that holds a comma"),
        ([GEMM, ROW + ",extra"], "table.csv:2: 10 cells under 9 columns"),
        ([GEMM, '"torch' + ROW[5:]], "table.csv:2: not a CSV record"),
        ([f"{GEMM},m", ROW + ",1"], "table.csv:1: the column 'm' is there twice; keep one"),
        ([GEMM.replace("latency_ms", "latency"), ROW], "table.csv: looks like a table of kind "
         "kernel_latencies without the column latency_ms; add it"),
        (["a,b", "1,2"], "table.csv: no kind of measurement table has these columns; kinds and "
         "their columns: "),
    ],
)  # fmt: skip
def test_a_wrong_csv_is_one_sentence(write: Write, lines: list[str], says: str) -> None:
    """The message names the file, the line of the file and what to do."""
    path = write(*lines)
    with pytest.raises(SimspecError) as caught:
        validate(path)
    message = str(caught.value)
    assert message.startswith(str(path.parent / says)), message
    assert "\n" not in message


def test_the_kinds_are_listed_with_their_columns(write: Write) -> None:
    """A file that nobody knows says what could have been given."""
    with pytest.raises(SimspecError) as caught:
        validate(write("a,b", "1,2"))
    listed = "kernel_latencies (engine, engine_version, kernel_source, latency_ms)"
    assert listed in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00a", b"\x1f\x8b\x08broken", b"\x00" * 100])
@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.parquet"])
def test_bytes_that_are_no_table(tmp_path: Path, content: bytes, name: str) -> None:
    """Random bytes, damaged gzip and a Parquet file that is none are one sentence each."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SimspecError, match=name):
        validate(path)


def test_marks_and_line_ends_of_other_systems(write: Write) -> None:
    """A byte-order mark and CRLF change nothing."""
    plain = validate(write(GEMM, ROW))
    other = validate(write("\ufeff" + GEMM, ROW, end="\r\n", name="other.csv"))
    assert plain.summary() == other.summary()
    assert next(other.rows())[1].line == 2


def test_gzip_and_parquet_hold_the_same(tmp_path: Path, write: Write) -> None:
    """A table compares alike in every format; of Parquet the row is counted from 1."""
    path = write(GEMM, ROW, ROW)
    (tmp_path / "z.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    pd.read_csv(path).to_parquet(tmp_path / "p.parquet")
    results = [validate(tmp_path / name) for name in ("table.csv", "z.csv.gz", "p.parquet")]
    assert [[row.line for _, row in result.rows()] for result in results] == [
        [2, 3],
        [2, 3],
        [1, 2],
    ]
    assert len({str(result.summary()) for result in results}) == 1


def test_a_wrong_cell_of_a_parquet_table_is_named_by_its_row(tmp_path: Path, write: Write) -> None:
    """Text in a column of numbers: row 2."""
    frame = pd.read_csv(write(GEMM, ROW, BAD))
    frame.to_parquet(tmp_path / "p.parquet")
    with pytest.raises(SimspecError, match=r"p\.parquet: row 2: latency_ms: 'fast'"):
        validate(tmp_path / "p.parquet")


def test_empty_cells_are_left_out_and_counted(write: Write) -> None:
    """Zero, negative and missing times and sizes are rows left out, never a division."""
    rows = [
        ROW.replace(repr(MS), "0"),
        ROW.replace(repr(MS), "-1"),
        ROW.replace(repr(MS), ""),
        ROW.replace(",16,", ",,"),
        ROW.replace(",16,", ",0,"),
        ROW.replace("bfloat16", ""),
        ROW.replace("h100_sxm", ""),
    ]
    result = validate(write(GEMM, ROW, *rows))
    assert [row.line for _, row in result.left_out()] == [3, 4, 5, 6, 7, 8, 9]
    assert result.causes() == {"refuted": 3, "unsupported": 4}


def test_a_folder_is_searched(tmp_path: Path, write: Write) -> None:
    """Tables below a folder are judged, other files are named; an empty folder is refused."""
    with pytest.raises(SimspecError, match="holds no table"):
        validate(tmp_path)
    (tmp_path / "deep").mkdir()
    write(GEMM, ROW, name="deep/a.csv")
    write("x,y", "1,2", name="b.csv")
    result = validate(tmp_path)
    assert [Path(table.file).name for table in result.tables] == ["a.csv"]
    assert [Path(file).name for file, _ in result.skipped] == ["b.csv"]


def test_a_wrong_cell_is_not_skipped_with_its_folder(tmp_path: Path, write: Write) -> None:
    """A table that a reader knows must be right, wherever it lies."""
    write(GEMM, ROW, name="a.csv")
    write(GEMM, BAD, name="b.csv")
    with pytest.raises(SimspecError, match=r"b\.csv:2: latency_ms"):
        validate(tmp_path)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    """The nearest name is offered."""
    (tmp_path / "serving.csv").write_text("x")
    with pytest.raises(SimspecError, match="did you mean 'serving.csv'"):
        validate(tmp_path / "servin.csv")


@pytest.mark.slow
def test_a_million_rows(write: Write) -> None:
    """A table of 10^6 rows is read and summed up; its last line is named when it is wrong."""
    path = write(GEMM, *[ROW] * 999_999, BAD)
    with pytest.raises(SimspecError, match=r":1000001: latency_ms: 'fast'"):
        validate(path)
    path = write(GEMM, *[ROW] * 1_000_000)
    (errors,) = validate(path).summary().values()
    assert errors.rows == 1_000_000
    assert errors.median_abs_error == pytest.approx(0.0, abs=1e-6)
