"""Errors of many comparisons in a few numbers.

With ``e = predicted / measured - 1`` of each row: the median and the mean of ``|e|``, its 90th
percentile, the bias (mean of ``e``, and its median), the share of rows whose 95 % interval holds
the measured figure, and the median width of the intervals relative to the prediction. Rows that a
fit has used and rows that it has not are never in one number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np

from simspec.validation._base import Comparison, LeftOut

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of a set of rows; shares, not per cent."""

    rows: int
    median_abs_error: float
    mean_abs_error: float
    p90_abs_error: float
    bias: float
    """Mean of the signed errors: above 0 the predictions are too large."""
    median_error: float
    """Median of the signed errors."""
    interval_rows: int
    """Rows with a prediction interval."""
    interval_coverage: float | None
    """Share of them whose interval holds the measured figure."""
    median_interval_width: float | None
    """Relative to the prediction."""

    def as_dict(self) -> dict[str, object]:
        """Return the numbers by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Collector:
    """Collects rows by key, one number per row and key, and sums them up at the end."""

    def __init__(self) -> None:
        self._errors: dict[Key, list[float]] = {}
        self._held: dict[Key, list[bool]] = {}
        self._widths: dict[Key, list[float]] = {}

    def add(self, key: Key, row: Comparison) -> None:
        """Add one comparison under a key."""
        self._errors.setdefault(key, []).append(row.predicted / row.measured - 1.0)
        if row.interval is not None:
            low, high = row.interval
            self._held.setdefault(key, []).append(low <= row.measured <= high)
            self._widths.setdefault(key, []).append((high - low) / row.predicted)

    def errors(self) -> dict[Key, Errors]:
        """Return the errors of every key, keys sorted."""
        return {key: self._of(key) for key in sorted(self._errors)}

    def _of(self, key: Key) -> Errors:
        error = np.asarray(self._errors[key], dtype=np.float64)
        size = np.abs(error)
        held, widths = self._held.get(key, []), self._widths.get(key, [])
        return Errors(
            rows=int(error.size),
            median_abs_error=float(np.median(size)),
            mean_abs_error=float(size.mean()),
            p90_abs_error=float(np.quantile(size, 0.9)),
            bias=float(error.mean()),
            median_error=float(np.median(error)),
            interval_rows=len(held),
            interval_coverage=float(np.mean(held)) if held else None,
            median_interval_width=float(np.median(widths)) if widths else None,
        )


def causes(rows: Iterable[LeftOut]) -> Mapping[str, int]:
    """Return how many rows are left out for each cause."""
    counted: dict[str, int] = {}
    for row in rows:
        counted[row.cause] = counted.get(row.cause, 0) + 1
    return dict(sorted(counted.items()))
