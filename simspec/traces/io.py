"""Read and write round traces: JSON Lines, ``.jsonl`` or ``.jsonl.gz``.

Reading streams, checks every line and names the line that is wrong. Writing is atomic: the
file appears when the trace is complete, or not at all; equal traces give equal bytes.
"""

from __future__ import annotations

import gzip
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

from pydantic import BaseModel, ValidationError

from simspec.core.errors import TraceError, nearest
from simspec.core.lines import MAX_BYTES, read_lines
from simspec.traces._lines import (
    LINE_OF,
    RECORD_LINES,
    HeaderLine,
    VersionLine,
    header_line,
    record_line,
)
from simspec.traces.schema import SCHEMA_VERSION, Round, RoundTrace, TraceHeader, TraceRecord


def read_trace(path: Path, *, max_bytes: int = MAX_BYTES) -> RoundTrace:
    """Read a whole trace into memory.

    Raises
    ------
    TraceError
        Whatever is wrong with the file, named by file and line.
    """
    header, records = stream_trace(path, max_bytes=max_bytes)
    return RoundTrace(header, tuple(records))


def stream_trace(
    path: Path, *, max_bytes: int = MAX_BYTES
) -> tuple[TraceHeader, Iterator[TraceRecord]]:
    """Read the header now and the records as they are asked for.

    Parameters
    ----------
    path : Path
        Plain or gzip; the content decides, not the name.
    max_bytes : int, bytes
        Bound on the size after decompression.

    Raises
    ------
    TraceError
        Now or while iterating.
    """
    lines = read_lines(path, max_bytes=max_bytes)
    number, text = next(lines, (1, ""))
    if not text.strip():
        raise TraceError(f"{path}: the file is empty; a round trace begins with a header line")
    header = _header(f"{path}:{number}", text)
    return header, _records(path, header, lines)


def write_trace(path: Path, header: TraceHeader, records: Iterable[TraceRecord]) -> None:
    """Write a whole trace; ``path`` ends in ``.jsonl`` or ``.jsonl.gz``.

    Raises
    ------
    TraceError
        A record contradicts itself or the header, there is none, or the file cannot be
        written. ``path`` is then as it was.
    """
    with TraceWriter(path, header) as writer:
        for record in records:
            writer.write(record)


class TraceWriter:
    """Writes a trace record by record; use as a context manager.

    The file appears under its name when the block ends without an exception.

    Parameters
    ----------
    path : Path
        Ends in ``.jsonl`` or ``.jsonl.gz``.
    header : TraceHeader
        Checked at once.
    """

    def __init__(self, path: Path, header: TraceHeader) -> None:
        if not path.name.endswith((".jsonl", ".jsonl.gz")):
            raise TraceError(f"{path}: a round trace is named .jsonl or .jsonl.gz")
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        self._header = header
        self._num_records = 0
        try:
            self._first = _dumped(header_line(header))
        except ValidationError as error:
            raise TraceError(f"{path}: header: {_sentence(error, HeaderLine)}") from error

    def __enter__(self) -> Self:
        try:
            self._file = self._temporary.open("xb")
        except OSError as error:
            raise TraceError(f"{self._path}: cannot be written ({error.strerror})") from error
        self._out = cast(BinaryIO, self._file)
        if self._path.name.endswith(".gz"):
            # No name and no time in the gzip header: equal traces give equal bytes.
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=self._file, mtime=0)
            self._out = cast(BinaryIO, packed)
        self._out.write(self._first)
        return self

    def write(self, record: TraceRecord) -> None:
        """Append one record."""
        where = f"{self._path}: record {self._num_records + 1}"
        try:
            line = record_line(record)
        except ValidationError as error:
            model = LINE_OF[type(record).__name__.lower()]
            raise TraceError(f"{where}: {_sentence(error, model)}") from error
        _check_against_header(where, record, self._header)
        self._out.write(_dumped(line))
        self._num_records += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._out is not self._file:
                self._out.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            if kind is None:
                if not self._num_records:
                    raise TraceError(f"{self._path}: no record to write; a trace has at least one")
                self._temporary.replace(self._path)
        except OSError as failure:
            raise TraceError(f"{self._path}: cannot be written ({failure.strerror})") from failure
        finally:
            self._file.close()
            self._temporary.unlink(missing_ok=True)


def _dumped(line: BaseModel) -> bytes:
    return line.model_dump_json(exclude_none=True).encode("utf-8") + b"\n"


def _header(where: str, text: str) -> TraceHeader:
    try:
        line = HeaderLine.model_validate_json(text)
    except ValidationError as error:
        version = _version(text)
        if version is not None and version > SCHEMA_VERSION:
            # A newer header may hold keys this version does not know; say the cause instead.
            raise TraceError(
                f"{where}: header: schema_version: {version} is newer than {SCHEMA_VERSION}, "
                "the newest this simspec reads; update simspec"
            ) from error
        raise TraceError(f"{where}: header: {_sentence(error, HeaderLine)}") from error
    return line.header()


def _version(text: str) -> int | None:
    try:
        return VersionLine.model_validate_json(text).schema_version
    except ValidationError:
        return None


def _records(
    path: Path, header: TraceHeader, lines: Iterable[tuple[int, str]]
) -> Iterator[TraceRecord]:
    is_empty = True
    for number, text in lines:
        if not text.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = RECORD_LINES.validate_json(text).record()
        except ValidationError as error:
            raise TraceError(f"{where}: {_record_sentence(error)}") from error
        _check_against_header(where, record, header)
        is_empty = False
        yield record
    if is_empty:
        raise TraceError(f"{path}: no records below the header; expected one per line")


def _check_against_header(where: str, record: TraceRecord, header: TraceHeader) -> None:
    limit = header.num_speculative_tokens
    if isinstance(record, Round) and limit is not None and record.drafted > limit:
        raise TraceError(
            f"{where}: drafted: {record.drafted} exceeds the header's "
            f"num_speculative_tokens {limit}"
        )


def _record_sentence(error: ValidationError) -> str:
    """Word the first error; its path begins with the kind of line."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "union_tag_invalid":
        tag = str(first["ctx"]["tag"])
        return f"kind: unknown {_shown(tag)}; {nearest(tag[:60], LINE_OF)}"
    if first["type"] == "union_tag_not_found":
        return f"kind: missing; {nearest('', LINE_OF)}"
    kind = str(first["loc"][0]) if first["loc"] else ""
    return _sentence(error, LINE_OF.get(kind), skip=1)


def _sentence(error: ValidationError, model: type[BaseModel] | None, *, skip: int = 0) -> str:
    errors = error.errors(include_url=False)
    # A misspelt key also leaves its right spelling missing: name the misspelling.
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    parts = [part if isinstance(part, int) else _shown(part) for part in first["loc"][skip:]]
    field = ".".join(str(part) for part in parts)
    if first["type"] == "extra_forbidden" and model is not None:
        return f"{field}: unknown key; {nearest(field[:60], model.model_fields)}"
    if first["type"] == "json_invalid":
        return f"not JSON ({first['ctx']['error']}); expected one JSON object per line"
    return f"{field}: {first['msg']}" if field else first["msg"]


def _shown(text: str) -> str:
    """Return a key as it is, or quoted and shortened when it is not a plain word."""
    return text if text.isidentifier() and len(text) <= 60 else repr(text[:60])
