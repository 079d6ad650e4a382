"""Traces of the Splitwise simulator (CSV): arrivals in seconds, one request per row.

Columns ``request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,
token_size``. Only rows of one request (``batch_size`` 1) are read. Published at
github.com/Mutinifni/splitwise-sim under MIT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from simspec.workloads._base import ImporterConfig, LoggedRequest, Reject
from simspec.workloads.importers._rows import (
    BadRow,
    Header,
    Rising,
    csv_rows,
    seconds,
    shown,
    tokens,
)

_EXAMPLE = (
    "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size"
)
_HEADER = Header(
    ("request_id", "arrival_timestamp", "batch_size", "prompt_size", "token_size"),
    _EXAMPLE,
    "a splitwise-sim trace",
)


class Config(ImporterConfig):
    """Reads a splitwise-sim trace; there is nothing to set."""

    about: ClassVar[str] = "CSV in s, one request per row; Mutinifni/splitwise-sim"
    sample: ClassVar[bytes] = _EXAMPLE.encode() + b"\n0,2,0,1,1,4096,32\n1,2,0,3.5,1,2048,8\n"
    sample_rows: ClassVar[tuple[LoggedRequest, ...]] = (
        LoggedRequest(0.0, 4096, 32),
        LoggedRequest(2.5, 2048, 8),
    )

    @classmethod
    def recognises(cls, lines: Sequence[str]) -> bool:
        """Whether the header names the simulator's columns."""
        return _HEADER.fits(lines[0])

    def rows(self, path: Path, reject: Reject | None = None) -> Iterator[LoggedRequest]:
        """Yield the requests, seconds from the first row."""
        times = Rising("arrival_timestamp")

        def request(row: Mapping[str, Any]) -> LoggedRequest:
            if row["batch_size"] != "1":
                raise BadRow(f"batch_size: {shown(row['batch_size'])}; expected 1")
            prompt_len, output_len = tokens(row, "prompt_size"), tokens(row, "token_size")
            at = times.seconds(seconds(row, "arrival_timestamp"))
            return LoggedRequest(at, prompt_len, output_len)

        return csv_rows(path, reject, _HEADER, request)
