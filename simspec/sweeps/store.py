"""Results of a sweep on disk, written so that nothing computed is lost or computed twice.

``points.jsonl`` is the journal: one line per finished point, appended and flushed by the one
process that owns the folder (a lock file keeps a second one out). A line torn by ``kill -9`` is
dropped on reading and its point is computed again. The tables are written from the journal in
grid order, through a temporary file, so they do not depend on who finished first or how often
the sweep was interrupted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from simspec.core.errors import ConfigError

JOURNAL = "points.jsonl"
POINTS = "points.parquet"
CURVES = "curves.parquet"
MANIFEST = "manifest.json"


class ResultStore:
    """The folder of one sweep, held by one process at a time.

    Parameters
    ----------
    directory : Path
        Created if missing. A folder that holds other files is refused.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock: IO[str] | None = None
        self._journal: IO[str] | None = None

    def __enter__(self) -> ResultStore:
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for stream in (self._journal, self._lock):
            if stream is not None:
                stream.close()
        self._journal = self._lock = None

    def _open(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            foreign = sorted(p.name for p in self.directory.iterdir() if p.name not in _OURS)
            if foreign and not (self.directory / JOURNAL).exists():
                raise ConfigError(
                    f"{self.directory}: holds other files ({foreign[0]}, …), not sweep results; "
                    "give an empty or new folder with --output"
                )
            self._lock = (self.directory / ".lock").open("a")
            _lock(self._lock, self.directory)
            self._drop_torn_line()
            self._journal = (self.directory / JOURNAL).open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{self.directory}: cannot write results here ({error.strerror}); "
                "choose another folder with --output"
            ) from error

    def _drop_torn_line(self) -> None:
        path = self.directory / JOURNAL
        if not path.exists():
            return
        content = path.read_bytes()
        keep = content.rfind(b"\n") + 1
        if keep != len(content):
            with path.open("r+b") as stream:
                stream.truncate(keep)

    def finished(self) -> dict[str, dict[str, Any]]:
        """Return every stored result by key (``simspec.sweeps.identity``)."""
        return peek(self.directory)

    def add(self, key: str, result: Mapping[str, Any]) -> None:
        """Append a finished point; it survives a kill right after this call."""
        assert self._journal is not None, "the store is not open"
        entry = {"key": key, "result": result}
        try:
            self._journal.write(json.dumps(entry, sort_keys=True, allow_nan=False) + "\n")
            self._journal.flush()
            os.fsync(self._journal.fileno())
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
        target = self.directory / name
        partial = target.with_suffix(".partial")
        try:
            pq.write_table(table, partial)
            partial.replace(target)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise ConfigError(
                f"{target}: cannot write ({error.strerror}); finished points are kept"
            ) from error
        return target


def peek(directory: Path) -> dict[str, dict[str, Any]]:
    """Return the stored results of a folder by key, without opening it for writing."""
    path = directory / JOURNAL
    found: dict[str, dict[str, Any]] = {}
    if not path.exists():
        return found
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and {"key", "result"} <= set(entry):
                found[str(entry["key"])] = entry["result"]
    return found


_OURS = {JOURNAL, POINTS, CURVES, MANIFEST, "dashboard.html", "run.json", ".lock"}


def _column(values: list[Any]) -> list[Any]:
    """Return values of one Parquet type: mixed columns become text, whole numbers floats."""
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float} and len(kinds) > 1:
        return [None if v is None else float(v) for v in values]
    if len(kinds) > 1:
        return [None if v is None else v if isinstance(v, str) else json.dumps(v) for v in values]
    return values


def _lock(stream: IO[str], directory: Path) -> None:
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
