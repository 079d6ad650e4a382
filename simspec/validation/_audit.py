"""What every table is asked before it is believed, by the columns it has.

Readers refute what their model of a row tells them. Some contradictions stand in the columns
alone, whatever the table: these are found here, for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from simspec.core.units import from_ms
from simspec.validation._base import MeasurementTable
from simspec.validation._physics import (
    beyond_draft,
    latency_contradiction,
    users_times_speed,
)

Row = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Check:
    """A contradiction that a few columns can show."""

    columns: tuple[str, ...]
    refute: Callable[[Row], str | None]


def _users(row: Row) -> str | None:
    return users_times_speed(
        users=row["concurrency"],
        tokens_per_s_per_user=1.0 / from_ms(row["tpot_ms"]),
        tokens_per_s=row["output_tokens_per_s"],
    )


def _latency(row: Row) -> str | None:
    return latency_contradiction(
        e2e_s=from_ms(row["e2e_ms"]),
        ttft_s=from_ms(row["ttft_ms"]),
        tpot_s=from_ms(row["tpot_ms"]),
        output_len=row["output_len"],
    )


def _draft(row: Row) -> str | None:
    return beyond_draft(row["speedup"], max_draft=row["draft_len"])


CHECKS = (
    Check(("concurrency", "tpot_ms", "output_tokens_per_s"), _users),
    Check(("e2e_ms", "ttft_ms", "tpot_ms", "output_len"), _latency),
    Check(("speedup", "draft_len"), _draft),
)
"""Users times speed is at least the total; TPOT follows from the whole latency; a round of K
drafts is at most K + 1 times faster."""


def refuted(table: MeasurementTable) -> dict[int, str]:
    """Return the reason of every row that its own columns contradict, by line."""
    found: dict[int, str] = {}
    for check in CHECKS:
        if not set(check.columns) <= set(table.frame.columns):
            continue
        for index, row in enumerate(_rows(table, check.columns)):
            if row is not None and (reason := check.refute(row)) is not None:
                found.setdefault(table.line(index), reason)
    return found


def _rows(table: MeasurementTable, columns: tuple[str, ...]) -> Iterator[Row | None]:
    """Yield the numbers of each row; None where one is missing or no measurement."""
    for cells in table.frame[list(columns)].itertuples(index=False):
        try:
            values = [float(cell) for cell in cells]
        except (TypeError, ValueError):
            yield None
            continue
        usable = all(math.isfinite(value) and value > 0.0 for value in values)
        yield dict(zip(columns, values, strict=True)) if usable else None
