"""What every importer does alike: order of times, fields of JSON and CSV rows, what is wrong."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simspec.core.errors import TraceError
from simspec.core.lines import read_lines
from simspec.workloads._base import LoggedRequest, Reject

_TOKENS = re.compile(r"\d{1,9}", re.ASCII)
_MAX_TOKENS = 999_999_999
_SECONDS = re.compile(r"\d{1,12}(?:\.\d{0,18})?(?:[eE][+-]?\d\d?)?", re.ASCII)
_MAX_SECONDS = 1e12
_MAX_BLOCK_ID = 2**63 - 1


class BadRow(ValueError):
    """One line is no request; the text says which field and why."""


def refusing(path: Path) -> Reject:
    """Return a ``reject`` that ends the reading at the first wrong line."""

    def refuse(number: int, what: str) -> None:
        raise TraceError(f"{path}:{number}: {what}")

    return refuse


def shown(value: object) -> str:
    """Return a value as it stands in the file, shortened."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    cut = text if len(text) <= 60 else text[:60] + "…"
    return repr(cut) if isinstance(value, str) else cut


class Rising:
    """Times of a column that may not go back, as seconds from the first.

    Parameters
    ----------
    field : str
        Name of the column.
    per_s : int
        Units of the column in a second.
    """

    def __init__(self, field: str, per_s: int = 1) -> None:
        self._field, self._per_s = field, per_s
        self._first: float | int | None = None
        self._last: float | int = 0

    def seconds(self, time: float | int) -> float:
        """Return seconds since the first row.

        Raises
        ------
        BadRow
            The time is before that of the row above.
        """
        if self._first is None:
            self._first = time
        elif time < self._last:
            raise BadRow(
                f"{self._field}: {(self._last - time) / self._per_s:g} s before the row above; "
                f"sort the file by {self._field}"
            )
        self._last = time
        # Whole units are subtracted before they are divided, so that no digit is lost.
        return (time - self._first) / self._per_s


def tokens(row: Mapping[str, Any], field: str) -> int:
    """Return a number of tokens, from JSON or from the text of a CSV field."""
    value = row.get(field)
    if type(value) is int and 0 <= value <= _MAX_TOKENS:
        return value
    if isinstance(value, str) and _TOKENS.fullmatch(value):
        return int(value)
    raise BadRow(
        f"{field}: {_or_missing(row, field)}; expected a whole number of tokens below 1,000,000,000"
    )


def seconds(row: Mapping[str, Any], field: str) -> float:
    """Return a time in seconds, from JSON or from the text of a CSV field."""
    value = row.get(field)
    if isinstance(value, str) and _SECONDS.fullmatch(value):
        value = float(value)
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= _MAX_SECONDS
    ):
        return float(value)
    raise BadRow(f"{field}: {_or_missing(row, field)}; expected seconds, 0 to 1e12")


def whole(row: Mapping[str, Any], field: str, unit: str) -> int:
    """Return a whole number of ``unit`` from JSON."""
    value = row.get(field)
    if type(value) is int and 0 <= value <= _MAX_BLOCK_ID:
        return value
    raise BadRow(f"{field}: {_or_missing(row, field)}; expected a whole number of {unit}")


def block_ids(
    row: Mapping[str, Any], field: str, prompt_len: int, block_tokens: int
) -> tuple[int, ...]:
    """Return the ids of the prompt's prefix blocks, the last possibly partial."""
    ids = row.get(field)
    if not isinstance(ids, list) or not all(
        type(one) is int and -_MAX_BLOCK_ID <= one <= _MAX_BLOCK_ID for one in ids
    ):
        raise BadRow(f"{field}: {_or_missing(row, field)}; expected a list of whole numbers")
    if len(ids) != (expected := -(-prompt_len // block_tokens)):
        raise BadRow(
            f"{field}: {len(ids):,} ids for {prompt_len:,} prompt tokens; expected "
            f"{expected:,} blocks of {block_tokens:,} tokens"
        )
    return tuple(ids)


def _or_missing(row: Mapping[str, Any], field: str) -> str:
    return shown(row[field]) if field in row else "missing"


Parsed = Callable[[Mapping[str, Any]], Iterator[LoggedRequest] | LoggedRequest]


def json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a line holds, or None."""
    try:
        value = json.loads(text)
    # A number of thousands of digits is a ValueError, deep nesting a RecursionError.
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _requests(made: Iterator[LoggedRequest] | LoggedRequest) -> Sequence[LoggedRequest]:
    # A session comes whole or not at all: nothing of it is yielded before all of it is read.
    return (made,) if isinstance(made, LoggedRequest) else tuple(made)


def jsonl_rows(path: Path, reject: Reject | None, parse: Parsed) -> Iterator[LoggedRequest]:
    """Yield what ``parse`` makes of each line's object; it raises :class:`BadRow`."""
    reject = reject or refusing(path)
    is_empty = True
    for number, text in read_lines(path):
        if not text.strip():
            continue
        is_empty = False
        if (row := json_object(text)) is None:
            reject(number, f"broken line: {shown(text)} is no JSON object")
            continue
        try:
            requests = _requests(parse(row))
        except BadRow as error:
            reject(number, f"broken line: {error}")
            continue
        yield from requests
    if is_empty:
        raise TraceError(f"{path}: no requests; expected one JSON object per line")


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a CSV format.

    Attributes
    ----------
    needed : tuple of str
        Columns that must be there, in any order.
    example : str
        A whole first line, for messages.
    what : str
        The format's name in messages.
    """

    needed: tuple[str, ...]
    example: str
    what: str

    def fits(self, line: str) -> bool:
        """Whether ``line`` names every needed column, each once."""
        names = fields_of(line)
        return len(set(names)) == len(names) and set(self.needed) <= set(names)


def fields_of(line: str) -> Sequence[str]:
    """Return the fields of a CSV line, quoted or not."""
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        # An odd quote is the reader's to complain about, as a wrong number of fields.
        return []


def csv_rows(
    path: Path, reject: Reject | None, header: Header, parse: Parsed
) -> Iterator[LoggedRequest]:
    """Yield what ``parse`` makes of each row, a mapping of column to text."""
    reject = reject or refusing(path)
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        raise TraceError(f"{path}: the file is empty; {header.what} begins with {header.example!r}")
    if not header.fits(first[1]):
        raise TraceError(
            f"{path}:1: the first line is {shown(first[1])}; {header.what} begins with "
            f"{header.example!r}"
        )
    names = fields_of(first[1])
    is_empty = True
    for number, text in lines:
        if not text.strip():
            continue
        is_empty = False
        fields = fields_of(text)
        if len(fields) != len(names):
            reject(
                number,
                f"broken line: {len(fields)} fields in {shown(text)}; expected {len(names)}",
            )
            continue
        try:
            requests = _requests(parse(dict(zip(names, fields, strict=True))))
        except BadRow as error:
            reject(number, f"broken line: {error}")
            continue
        yield from requests
    if is_empty:
        raise TraceError(f"{path}: no requests below the header; expected one per line")
