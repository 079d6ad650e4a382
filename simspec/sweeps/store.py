"""Results of a sweep on disk, written so that nothing computed is lost or computed twice.

``points.jsonl`` is the journal: a line that says so, then one line per finished point, appended
and flushed by the one process that owns the folder (a lock file keeps a second one out). A line
torn by ``kill -9`` is dropped on opening and its point is computed again. The tables are written
from the journal in grid order, through a temporary file, so they do not depend on who finished
first or how often the sweep was interrupted.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from simspec.core.errors import ConfigError
from simspec.core.json_text import parse_json
from simspec.core.provenance import json_bytes, why_no_folder, write_atomic

JOURNAL = "points.jsonl"
POINTS = "points.parquet"
CURVES = "curves.parquet"
MANIFEST = "manifest.json"
_LOCK = ".lock"
_OURS = {JOURNAL, POINTS, CURVES, MANIFEST, "dashboard.html", _LOCK}
_HEADER = b'{"journal": "simspec sweep points", "version": 1}\n'


class ResultStore:
    """The folder of one sweep, held by one process at a time.

    Parameters
    ----------
    directory : Path
        Created if missing. A folder that holds other files is refused.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock: IO[bytes] | None = None
        self._journal: IO[bytes] | None = None

    def __enter__(self) -> ResultStore:
        try:
            self._open()
        except OSError as error:
            self._close()
            raise ConfigError(
                f"{self.directory}: cannot write results here ({error.strerror}); "
                "choose another folder with --output"
            ) from error
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        for stream in (self._journal, self._lock):
            if stream is not None:
                # A full disk was reported by the write itself; closing tries once more.
                with suppress(OSError):
                    stream.close()
        self._journal = self._lock = None

    def _open(self) -> None:
        check_folder(self.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = (self.directory / _LOCK).open("ab")
        _lock(self._lock, self.directory)
        for leftover in self.directory.glob(".*.tmp"):
            leftover.unlink(missing_ok=True)
        path = self.directory / JOURNAL
        self._journal = path.open("ab")
        content = path.read_bytes()
        keep = content.rfind(b"\n") + 1
        if keep != len(content):
            self._journal.truncate(keep)
        if not keep:
            self._append(_HEADER)

    def _append(self, line: bytes) -> None:
        assert self._journal is not None, "the store is not open"
        self._journal.write(line)
        self._journal.flush()
        os.fsync(self._journal.fileno())

    def finished(self) -> dict[str, dict[str, Any]]:
        """Return every stored result by key (``simspec.sweeps.identity``)."""
        return peek(self.directory)

    def add(self, key: str, result: Mapping[str, Any]) -> None:
        """Append a finished point; it survives a kill right after this call."""
        line = json.dumps({"key": key, "result": result}, allow_nan=False)
        try:
            self._append(line.encode() + b"\n")
        except OSError as error:
            raise ConfigError(
                f"{self.directory}: cannot write results ({error.strerror}); what was finished "
                "before is kept, free some space and run the same command again"
            ) from error

    def write_table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
        """Write rows as Parquet, atomically; columns in order of first appearance."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = list(dict.fromkeys(key for row in rows for key in row))
        table = pa.table({c: pa.array(_column([row.get(c) for row in rows])) for c in columns})
        content = io.BytesIO()
        pq.write_table(table, content)
        return self._write(name, content.getvalue())

    def write_manifest(self, manifest: Mapping[str, object]) -> Path:
        """Write the manifest as canonical JSON, atomically."""
        return self._write(MANIFEST, json_bytes(manifest))

    def _write(self, name: str, content: bytes) -> Path:
        target = self.directory / name
        try:
            write_atomic(target, content)
        except OSError as error:
            raise ConfigError(
                f"{target}: cannot write ({error.strerror}); finished points are kept"
            ) from error
        return target


def check_folder(directory: Path) -> None:
    """Refuse a folder that holds something else than results of a sweep; change nothing.

    Raises
    ------
    ConfigError
        Other files are there, or a journal that another program wrote.
    """
    journal = directory / JOURNAL
    try:
        if journal.exists():
            with journal.open("rb") as stream:
                first = stream.readline(len(_HEADER))
            if not _HEADER.startswith(first):
                raise ConfigError(
                    f"{journal}: was not written by 'simspec sweep' of this version; choose "
                    "another folder with --output"
                )
        elif reason := why_no_folder(directory):
            raise ConfigError(
                f"{directory}: cannot be used as a result folder ({reason}); choose another one "
                "with --output"
            )
        elif directory.exists():
            foreign = sorted(p.name for p in directory.iterdir() if p.name not in _OURS)
            if foreign:
                more = ", …" if len(foreign) > 1 else ""
                raise ConfigError(
                    f"{directory}: holds other files ({foreign[0]}{more}), not sweep results; "
                    "give an empty or new folder with --output"
                )
    except OSError as error:
        raise ConfigError(
            f"{directory}: cannot be used as a result folder ({error.strerror}); choose another "
            "one with --output"
        ) from error


def peek(directory: Path) -> dict[str, dict[str, Any]]:
    """Return the stored results of a folder by key, without opening it for writing."""
    found: dict[str, dict[str, Any]] = {}
    path = directory / JOURNAL
    if not path.exists():
        return found
    with path.open("rb") as stream:
        for line in stream:
            try:
                entry = parse_json(line)
            except ValueError:
                continue
            result = entry.get("result") if isinstance(entry, dict) else None
            if isinstance(result, dict) and "status" in result:
                found[str(entry.get("key"))] = result
    return found


def _column(values: list[Any]) -> list[Any]:
    """Return values of one Parquet type: mixed columns become text, whole numbers floats."""
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float} and len(kinds) > 1:
        return [None if v is None else float(v) for v in values]
    if len(kinds) > 1:
        return [None if v is None else v if isinstance(v, str) else json.dumps(v) for v in values]
    return values


def _lock(stream: IO[bytes], directory: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows has no fcntl; there the folder is not locked
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ConfigError(
            f"{directory}: another sweep is writing here; wait for it or choose another "
            "folder with --output"
        ) from error
