"""Azure LLM inference traces (CSV), 2023 and 2024.

Columns ``TIMESTAMP,ContextTokens,GeneratedTokens``; one request per line, sorted by time.
2023: naive wall time with 7 fractional digits, CRLF line ends, no newline after the last
line. 2024: UTC offset, 6 fractional digits or none. Published at
github.com/Azure/AzurePublicDataset under CC-BY 4.0 (2023: Patel et al., "Splitwise",
ISCA 2024). inference-perf (github.com/kubernetes-sigs/inference-perf) replays the same format.

Times are kept as whole nanoseconds until the first row is subtracted, so no digit is lost
(``datetime`` would drop the seventh).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import ClassVar

from simspec.core.errors import TraceError
from simspec.core.lines import read_lines
from simspec.workloads._base import ImporterConfig, LoggedRequest, Reject
from simspec.workloads.importers._rows import BadRow, Rising, refusing, shown

_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
_TIMESTAMP = (
    r"(\d{4}-\d\d-\d\d)[ T]((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(?:\.(\d{1,9}))?"
    r"(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)?"
)
_ROW = re.compile(rf"{_TIMESTAMP},(\d{{1,9}}),(\d{{1,9}})", re.ASCII)
_TIMESTAMP_ONLY = re.compile(_TIMESTAMP, re.ASCII)
_TOKENS = re.compile(r"\d{1,9}", re.ASCII)


class Config(ImporterConfig):
    """Reads an Azure trace; there is nothing to set."""

    about: ClassVar[str] = (
        "CSV, wall time, 2023 and 2024; Azure/AzurePublicDataset, kubernetes-sigs/inference-perf"
    )
    sample: ClassVar[bytes] = (
        b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        b"2023-11-16 18:15:46.6805900,374,44\r\n"
        b"2023-11-16 18:15:50.9951690,396,109\r\n"
        b"2023-11-16 18:15:50.9951690,879,55"
    )
    sample_rows: ClassVar[tuple[LoggedRequest, ...]] = (
        LoggedRequest(0.0, 374, 44),
        LoggedRequest(4.314579, 396, 109),
        LoggedRequest(4.314579, 879, 55),
    )

    @classmethod
    def recognises(cls, lines: Sequence[str]) -> bool:
        """Whether the header is Azure's."""
        return lines[0] == _HEADER

    def rows(self, path: Path, reject: Reject | None = None) -> Iterator[LoggedRequest]:
        """Yield the requests, seconds from the first row."""
        reject = reject or refusing(path)
        lines = read_lines(path)
        _check_header(path, next(lines, None))
        has_offset: bool | None = None
        clock_ns, times = _clock(), Rising("TIMESTAMP", 10**9)
        for number, text in lines:
            match = _ROW.fullmatch(text)
            if match is None:
                if text.strip():
                    reject(number, f"broken line: {_what_is_wrong(text)}")
                continue
            day, clock, fraction, offset, prompt, output = match.groups()
            try:
                if has_offset is not None and (offset is not None) != has_offset:
                    raise BadRow(
                        f"TIMESTAMP: UTC offset {'missing' if has_offset else 'given'}, unlike "
                        "the rows before; give it on every row or on none"
                    )
                arrival_s = times.seconds(clock_ns(day, clock, fraction, offset))
            except BadRow as error:
                reject(number, str(error))
                continue
            except ValueError:
                reject(number, f"TIMESTAMP: {day!r} is no date")
                continue
            has_offset = offset is not None
            yield LoggedRequest(arrival_s, int(prompt), int(output))
        if has_offset is None:
            raise TraceError(f"{path}: no requests below the header; expected one per line")


def _clock() -> Callable[[str, str, str | None, str | None], int]:
    """Return a function from the parts of a timestamp to whole nanoseconds."""

    @cache
    def day_s(day: str) -> int:
        return date.fromisoformat(day).toordinal() * 86_400

    def clock_ns(day: str, clock: str, fraction: str | None, offset: str | None) -> int:
        total_s = day_s(day) + int(clock[:2]) * 3600 + int(clock[3:5]) * 60 + int(clock[6:])
        if offset is not None and offset != "Z":
            ahead_s = int(offset[1:3]) * 3600 + int(offset[4:6]) * 60
            total_s -= ahead_s if offset[0] == "+" else -ahead_s
        return total_s * 1_000_000_000 + (0 if fraction is None else int(fraction.ljust(9, "0")))

    return clock_ns


def _check_header(path: Path, first_line: tuple[int, str] | None) -> None:
    if first_line is None:
        raise TraceError(f"{path}: the file is empty; an Azure trace begins with {_HEADER!r}")
    if first_line[1] != _HEADER:
        raise TraceError(
            f"{path}:1: the first line is {shown(first_line[1])}; "
            f"an Azure trace begins with {_HEADER!r}"
        )


def _what_is_wrong(text: str) -> str:
    fields = text.split(",")
    if len(fields) != 3:
        return f"{len(fields)} fields in {shown(text)}; expected {_HEADER}"
    if not _TIMESTAMP_ONLY.fullmatch(fields[0]):
        return f"TIMESTAMP: {shown(fields[0])}; expected YYYY-MM-DD HH:MM:SS[.fraction][+HH:MM]"
    names = _HEADER.split(",")
    wrong = next(i for i in (1, 2) if not _TOKENS.fullmatch(fields[i]))
    return (
        f"{names[wrong]}: {shown(fields[wrong])}; expected a whole number of tokens "
        "below 1,000,000,000"
    )
