"""Vidur's processed traces (CSV): with arrivals in seconds, or lengths alone.

Columns ``num_prefill_tokens`` and ``num_decode_tokens``, and ``arrived_at`` (seconds from the
first request) in some files. A file without it has no arrivals to replay: draw its lengths with
``lengths: {name: log, ...}`` beside an arrival process. Published at github.com/microsoft/vidur
under MIT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from simspec.workloads._base import ImporterConfig, LoggedRequest, Reject
from simspec.workloads.importers._rows import BadRow, Header, Rising, csv_rows, seconds, tokens

_HEADER = Header(
    ("num_prefill_tokens", "num_decode_tokens"),
    "arrived_at,num_prefill_tokens,num_decode_tokens",
    "a vidur trace",
)


class Config(ImporterConfig):
    """Reads a vidur trace; there is nothing to set."""

    about: ClassVar[str] = "CSV in s, or lengths alone; microsoft/vidur"
    sample: ClassVar[bytes] = (
        b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n"
    )
    sample_rows: ClassVar[tuple[LoggedRequest, ...]] = (
        LoggedRequest(0.0, 374, 44),
        LoggedRequest(4.314579, 396, 109),
    )

    @classmethod
    def recognises(cls, lines: Sequence[str]) -> bool:
        """Whether the header names vidur's columns."""
        return _HEADER.fits(lines[0])

    def rows(self, path: Path, reject: Reject | None = None) -> Iterator[LoggedRequest]:
        """Yield the requests, seconds from the first row, or without a time."""
        times = Rising("arrived_at")

        def request(row: Mapping[str, Any]) -> LoggedRequest:
            prompt_len = tokens(row, "num_prefill_tokens")
            output_len = tokens(row, "num_decode_tokens")
            if "num_total_tokens" in row:
                total = tokens(row, "num_total_tokens")
                if total != prompt_len + output_len:
                    raise BadRow(
                        f"num_total_tokens: {total:,} is not {prompt_len:,} + {output_len:,}"
                    )
            at = times.seconds(seconds(row, "arrived_at")) if "arrived_at" in row else None
            return LoggedRequest(at, prompt_len, output_len)

        return csv_rows(path, reject, _HEADER, request)
