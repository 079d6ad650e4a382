"""The folder of one simulation: written beside its place, moved there when all is done.

A new folder appears by one rename. In a folder that is there already (an earlier result, or an
empty one) ``result.json`` goes first and comes last, so a folder with that file is whole.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from simspec.core.errors import ConfigError
from simspec.core.parquet import TableWriter
from simspec.core.provenance import why_no_folder, write_json
from simspec.scenarios.run import Observed
from simspec.serving.event_trace import Cut, Told, run_events
from simspec.serving.measured import Measured
from simspec.serving.records import RunRecords
from simspec.serving.request_table import request_table
from simspec.serving.time_series import time_series
from simspec.serving.vllm_bench import bench_result

RESULT = "result.json"
REQUESTS = "requests.parquet"
TIME_SERIES = "timeseries.parquet"
VLLM_BENCH = "vllm_bench.json"
TRACE = "trace.json"
REPORT = "report.html"
OURS = frozenset({RESULT, REQUESTS, TIME_SERIES, VLLM_BENCH, TRACE, REPORT})
"""What a result folder may hold already: an earlier run of the same command."""
_TEMPORARY = ".simspec-"


@dataclass(frozen=True, slots=True)
class FolderOptions:
    """How much of the runs is written."""

    trace_from_s: float = 0.0
    trace_to_s: float = inf
    trace_events: int = 100_000
    """Most events in ``trace.json``."""
    series_rows: int = 10_000
    """Most rows per replication in ``timeseries.parquet``."""


class ResultFolder:
    """Takes the runs of a scenario one by one and writes its files.

    Parameters
    ----------
    output : Path
        Where the files shall stand.
    options : FolderOptions
        How much of the runs is written.

    Raises
    ------
    ConfigError
        ``output`` cannot be used, or holds other things.
    """

    def __init__(self, output: Path, options: FolderOptions | None = None) -> None:
        self._output = output
        self._options = options or FolderOptions()
        self._stack = ExitStack()
        if self._options.trace_to_s <= self._options.trace_from_s:
            raise ConfigError(
                f"--trace-to {self._options.trace_to_s:g} is not after --trace-from "
                f"{self._options.trace_from_s:g}: nothing would be shown"
            )
        refuse_foreign(output)

    def __enter__(self) -> ResultFolder:
        with self._saying_why():
            self._folder = _beside(self._output)
            self._folder.mkdir()
        try:
            with self._saying_why():
                self._requests = self._stack.enter_context(TableWriter(self._folder / REQUESTS))
                self._series = self._stack.enter_context(TableWriter(self._folder / TIME_SERIES))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            with self._saying_why():
                self._stack.close()
        except ConfigError:
            # The last rows did not fit either; what went wrong first is what is told.
            if error is None:
                raise
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, run: Observed, model: str) -> None:
        """Write one replication: its rows, and of the first one its events and benchmark."""
        with self._saying_why():
            measured = Measured(run.records, run.window, run.slo, run.roofs)
            self._requests.append(_of(run.replication, request_table(run.records, measured)))
            series = time_series(run.records, run.roofs, self._options.series_rows)
            self._series.append(_of(run.replication, series))
            if run.replication == 0:
                self._write_trace(run.records)
                benchmark = bench_result(run.records, run.slo, model=model)
                write_json(self._folder / VLLM_BENCH, benchmark)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write ``result.json`` and let everything appear where it belongs."""
        with self._saying_why():
            self._stack.close()
            write_json(self._folder / RESULT, result)
            if not self._output.exists():
                self._output.parent.mkdir(parents=True, exist_ok=True)
                self._folder.rename(self._output)
                return
            with _alone_in(self._output):
                for name in (RESULT, REPORT):
                    (self._output / name).unlink(missing_ok=True)
                for path in sorted(self._folder.iterdir(), key=lambda path: path.name == RESULT):
                    os.replace(path, self._output / path.name)

    def _write_trace(self, records: RunRecords) -> None:
        options = self._options
        cut = Cut(options.trace_from_s, options.trace_to_s, options.trace_events)
        told = Told(cut.from_s, cut.to_s)
        with (self._folder / TRACE).open("w", encoding="utf-8") as file:
            file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
            for count, event in enumerate(run_events(records, cut, told)):
                file.write(",\n" if count else "")
                file.write(json.dumps(event, allow_nan=False))
            about = {
                "from_s": told.from_s,
                "to_s": told.to_s,
                "steps_left_out": told.steps_left_out,
                "requests_left_out": told.requests_left_out,
            }
            file.write(f'\n], "otherData": {json.dumps(about, allow_nan=False)}}}\n')

    @contextmanager
    def _saying_why(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"{self._output}: cannot write the result ({error.strerror}); choose another folder"
            ) from error


def refuse_foreign(output: Path) -> None:
    """Refuse a folder that cannot be written or holds what is not an earlier result.

    Raises
    ------
    ConfigError
        With the reason.
    """
    if reason := why_no_folder(output):
        raise ConfigError(
            f"{output}: cannot be used as a result folder ({reason}); choose another one with "
            "--output"
        )
    if not output.exists():
        return
    try:
        foreign = any(
            path.is_dir() if path.name in OURS else not path.name.startswith(_TEMPORARY)
            for path in output.iterdir()
        )
    except OSError as error:
        raise ConfigError(
            f"{output}: cannot be used as a result folder ({error.strerror}); choose another one "
            "with --output"
        ) from error
    if foreign:
        raise ConfigError(
            f"{output}: exists and holds other things; give an empty or new folder with --output"
        )


def _beside(output: Path) -> Path:
    """Return a new name on the file system of ``output``, which itself may not exist."""
    place = output.absolute()
    if not place.exists():
        place = next(parent for parent in place.parents if parent.exists())
    return place / f"{_TEMPORARY}{secrets.token_hex(4)}.tmp"


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold others off who finish at the same time, lest the files of two runs be mixed."""
    try:
        import fcntl
    except ImportError:  # Windows has no fcntl; there the folder is not locked
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _of(replication: int, columns: dict[str, Any]) -> dict[str, Any]:
    size = len(next(iter(columns.values())))
    return {"replication": np.full(size, replication), **columns}
