"""Reading lines of logs that others wrote."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import TraceError
from simspec.core.lines import read_lines


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb", ["a", "b"]),
        (b"\xef\xbb\xbfa\n\nb", ["a", "", "b"]),
        ("ü\n".encode(), ["ü"]),
    ],
)
def test_lines_are_numbered_and_bare(
    tmp_path: Path, content: bytes, lines: list[str], packed: bool
) -> None:
    """Line ends and a byte-order mark are not text, with or without gzip, whatever the name."""
    path = tmp_path / "log.txt"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert list(read_lines(path)) == list(enumerate(lines, 1))


def test_reading_is_lazy(tmp_path: Path) -> None:
    """What is wrong further down does not hurt who reads only the top."""
    path = tmp_path / "log.txt"
    path.write_bytes(b"good\n\xff\n")
    lines = read_lines(path)
    assert next(lines) == (1, "good")
    with pytest.raises(TraceError, match=r"log\.txt:2: byte 0xff is not UTF-8"):
        next(lines)


def test_a_gzip_bomb_is_stopped_by_the_line_bound(tmp_path: Path) -> None:
    """A megabyte of zeros in a kilobyte of gzip is one line, which is too long."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"0" * 2**20))
    assert path.stat().st_size < 2000
    with pytest.raises(TraceError, match=r"bomb\.gz:1: the line is longer than 1,000 bytes"):
        list(read_lines(path, max_line_bytes=1000))


def test_a_gzip_bomb_of_short_lines_is_stopped_by_the_file_bound(tmp_path: Path) -> None:
    """The decompressed size counts, not that of the file."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"0\n" * 2**19))
    with pytest.raises(TraceError, match="more than 5,000 bytes after decompression"):
        list(read_lines(path, max_bytes=5000))


@pytest.mark.parametrize("cut", [3, 12, -9, -1])
def test_truncated_gzip_is_named(tmp_path: Path, cut: int) -> None:
    """A download that stopped half-way is damage, not the end of the data."""
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"some text\n" * 50)[:cut])
    with pytest.raises(TraceError, match="damaged gzip data"):
        list(read_lines(path))


def test_missing_file_offers_the_nearest(tmp_path: Path) -> None:
    """A misspelt name gets the right one."""
    (tmp_path / "trace.csv").touch()
    with pytest.raises(TraceError, match=r"no such file; did you mean 'trace.csv'"):
        list(read_lines(tmp_path / "trase.csv"))


def test_missing_folder_is_a_missing_file(tmp_path: Path) -> None:
    """No folder, no names to offer, still one sentence."""
    with pytest.raises(TraceError, match="no such file"):
        list(read_lines(tmp_path / "nowhere" / "trace.csv"))


def test_a_folder_is_named(tmp_path: Path) -> None:
    """Folders cannot be read as a log."""
    with pytest.raises(TraceError, match="this is a folder"):
        list(read_lines(tmp_path))


@given(content=st.binary(max_size=200), packed=st.booleans())
def test_any_bytes_give_lines_or_a_trace_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, packed: bool
) -> None:
    """Nothing but TraceError ever escapes."""
    path = tmp_path_factory.mktemp("lines") / "log"
    path.write_bytes(b"\x1f\x8b" + content if packed else content)
    message = ""
    try:
        for _ in read_lines(path):
            pass
    except TraceError as error:
        message = str(error)
    assert "\n" not in message
