"""BurstGPT traces (CSV), version 1 and version 3.

Columns ``Timestamp`` (seconds), ``Model``, ``Request tokens``, ``Response tokens``,
``Total tokens``, ``Log Type``; version 3 has ``Session ID`` and ``Elapsed time`` after the
timestamp, which is then a float far from zero. A failed call has 0 response tokens. Published at
github.com/HPMLL/BurstGPT under CC-BY 4.0 (Wang et al., "BurstGPT").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from simspec.workloads._base import ImporterConfig, LoggedRequest, Reject
from simspec.workloads.importers._rows import BadRow, Header, Rising, csv_rows, seconds, tokens

_HEADER = Header(
    ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"),
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
    "a BurstGPT trace",
)


class Config(ImporterConfig):
    """Reads a BurstGPT trace."""

    about: ClassVar[str] = "CSV in s, versions 1 and 3, failed calls with 0 tokens; HPMLL/BurstGPT"
    sample: ClassVar[bytes] = (
        b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        b"5,ChatGPT,472,18,490,Conversation log\n"
        b"45,ChatGPT,1087,0,1087,API log\n"
        b"118,GPT-4,417,276,693,Conversation log\n"
    )
    sample_rows: ClassVar[tuple[LoggedRequest, ...]] = (
        LoggedRequest(0.0, 472, 18),
        LoggedRequest(40.0, 1087, 0),
        LoggedRequest(113.0, 417, 276),
    )

    model: str | None = None
    """Only calls of this ``Model``, for example ``GPT-4``; None: all."""

    @classmethod
    def recognises(cls, lines: Sequence[str]) -> bool:
        """Whether the header names BurstGPT's columns."""
        return _HEADER.fits(lines[0])

    def rows(self, path: Path, reject: Reject | None = None) -> Iterator[LoggedRequest]:
        """Yield the calls, seconds from the first row."""
        times = Rising("Timestamp")

        def request(row: Mapping[str, Any]) -> Iterator[LoggedRequest]:
            prompt_len = tokens(row, "Request tokens")
            output_len = tokens(row, "Response tokens")
            total = tokens(row, "Total tokens")
            if total != prompt_len + output_len:
                raise BadRow(f"Total tokens: {total:,} is not {prompt_len:,} + {output_len:,}")
            arrival_s = times.seconds(seconds(row, "Timestamp"))
            if self.model in (None, row["Model"]):
                yield LoggedRequest(arrival_s, prompt_len, output_len)

        return csv_rows(path, reject, _HEADER, request)
