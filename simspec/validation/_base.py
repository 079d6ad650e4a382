"""The contract of a reader of measurements.

One file per kind of table in ``simspec/validation/tables``, found by its name and recognised by
the columns it needs. A reader turns each row into a scenario, asks the closed form or the
simulation, and yields what was measured beside what was predicted; or it yields the row as left
out, with the reason. It fits nothing: a row that a fit has used says so in its ``role``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias, cast, get_args

from simspec.core.errors import nearest
from simspec.core.registry import Registry

if TYPE_CHECKING:
    import pandas as pd

TABLES = Registry("simspec.validation.tables", "kind of measurement table")

Quantity: TypeAlias = Literal[
    "tpot_ms",
    "ttft_ms",
    "speedup",
    "step_cost_ratio",
    "tokens_per_s",
    "kv_cache_tokens",
    "kv_bytes_per_token",
    "latency_ms",
]
"""What is compared, with its unit."""
QUANTITIES: tuple[str, ...] = get_args(Quantity)

Role: TypeAlias = Literal["held_out", "fitted"]
"""``fitted``: some coefficient behind the prediction was fitted on this very row's group."""

Cause: TypeAlias = Literal["refuted", "suspect", "unsupported"]
"""Why a row is left out: arithmetic refutes it, its publisher or its neighbours doubt it, or
simspec has no profile, architecture, method or rule for it."""


_MOST_CHOICES = 12
"""A reason stands beside each of many rows; longer lists are left to ``simspec ... list``."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measured figure beside its prediction, both in the unit the quantity names."""

    quantity: Quantity
    measured: float
    predicted: float
    group: str
    """Rows whose errors are summarised together, for example
    ``h100_sxm / trtllm / qwen3-32b / fp8``."""
    line: int
    """Line of the file, counted from 1 with the header; of a Parquet table the row, from 1."""
    subject: Mapping[str, str | float | int | None]
    """What was measured, by column name."""
    role: Role = "held_out"
    interval: tuple[float, float] | None = None
    """95 % prediction interval."""
    breakdown: Mapping[str, float] = field(default_factory=dict)
    """Where the predicted figure comes from: seconds by part, or bytes by part."""
    family: str = ""
    """A coarser group that a threshold is set on, for example ``dense`` or ``moe``."""

    @property
    def error(self) -> float:
        """``predicted / measured - 1``."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that is not judged, and why."""

    line: int
    cause: Cause
    reason: str
    """One sentence; for ``refuted`` it holds the arithmetic."""
    subject: Mapping[str, str | float | int | None]
    group: str = ""


@dataclass(frozen=True, slots=True)
class MeasurementTable:
    """A file of measurements, read but not interpreted."""

    path: Path
    frame: pd.DataFrame
    lines: Sequence[int] | None = None
    """Line of each row; None: the rows follow the header without a gap."""

    def line(self, index: int) -> int:
        """Return the line of row ``index`` (from 0); of a Parquet table the row from 1."""
        if self.lines is not None:
            return self.lines[index]
        return index + (1 if self.path.suffix == ".parquet" else 2)


class TableReader(Protocol):
    """What a module of ``simspec.validation.tables`` offers."""

    COLUMNS: ClassVar[frozenset[str]]
    """Columns that recognise the table; of several readers the one that needs most wins."""
    DESCRIPTION: ClassVar[str]
    """What such a table holds, for help and messages; a few words."""
    NUMBERS: ClassVar[frozenset[str]]
    """Columns that hold a number or nothing. They are checked before :meth:`compare` is called,
    which then finds floats, NaN where a cell is empty; any other column of ``COLUMNS`` is text,
    NaN where a cell is empty."""

    @staticmethod
    def compare(table: MeasurementTable) -> Iterator[Comparison | LeftOut]:
        """Yield every row of the table, in order: compared or left out.

        A row with several measured figures yields several comparisons.
        """
        ...


def reader_for(columns: frozenset[str]) -> tuple[str, TableReader] | None:
    """Return the name and the reader of a table with these columns; None if none knows it."""
    found: list[tuple[int, str, TableReader]] = []
    for name in TABLES.names():
        reader = cast(TableReader, TABLES.module(name))
        if columns >= reader.COLUMNS:
            found.append((len(reader.COLUMNS), name, reader))
    if not found:
        return None
    _, name, best = max(found, key=lambda entry: entry[:2])
    return name, best


def unknown(what: str, name: str, choices: tuple[str, ...]) -> str:
    """Return the reason of a row whose ``what`` simspec does not have."""
    if len(choices) <= _MOST_CHOICES:
        return f"no {what} {name!r}; {nearest(name, choices)}"
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    return f"no {what} {name!r}" + (f"; the nearest is {close[0]!r}" if close else "")
