"""Replay of a request log: its arrivals, in its order, with its lengths.

Nothing is random, so two replications differ only in what the tapes accept. ``rate_scale``
squeezes the time axis: 2 sends the same requests at twice the rate, which keeps the shape of
the bursts but not their duration in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import BeforeValidator, Field, SerializeAsAny

from simspec.workloads._base import (
    IMPORTERS,
    Arrivals,
    ArrivalsConfig,
    ImporterConfig,
    find_file,
)
from simspec.workloads.request_log import RequestLog, read_log


class Config(ArrivalsConfig):
    """Arrivals and lengths of a file."""

    brings_lengths: ClassVar[bool] = True
    examples: ClassVar[tuple[Mapping[str, object], ...]] = (
        {"path": "log.csv", "format": "azure"},
        {"path": "log.csv", "format": "azure", "rate_scale": 2.0, "limit": 2},
    )

    path: str = Field(min_length=1)
    """The log; a relative path starts from the experiment file, then from the working folder."""

    format: Annotated[SerializeAsAny[ImporterConfig], BeforeValidator(IMPORTERS.parse)]
    """File name in ``simspec/workloads/importers``."""

    rate_scale: float = Field(default=1.0, ge=1e-3, le=1e3)
    """Offered load relative to the log."""

    limit: int | None = Field(default=None, ge=1)
    """Most rows to read from the start of the log; None: all."""

    def draw(
        self, rng: np.random.Generator, num_requests: int, *, base: Path | None = None
    ) -> Arrivals:
        """Read the log."""
        path = find_file(self.path, base)
        status = path.stat()
        log = _log(self.format, path, self.limit, (status.st_mtime_ns, status.st_size))
        rate_per_s = log.rate_per_s
        return Arrivals(
            times_s=log.times_s / self.rate_scale,
            rate_per_s=None if rate_per_s is None else rate_per_s * self.rate_scale,
            lengths=log.lengths,
            num_empty=log.num_empty,
            files=(path,),
        )

    def gap_moments(self) -> None:
        """Return None: a log has no law."""
        return

    def describe(self) -> str:
        """Return one clause."""
        what = "" if self.limit is None else f"the first {self.limit:,} rows of "
        speed = "" if self.rate_scale == 1 else f" at {self.rate_scale:g} times its rate"
        return f"replay of {what}{Path(self.path).name} ({self.format.name} format){speed}"


@lru_cache(maxsize=4)
def _log(
    importer: ImporterConfig, path: Path, limit: int | None, version: tuple[int, int]
) -> RequestLog:
    # A sweep replays one file at hundreds of points; ``version`` notices a changed file.
    return read_log(importer, path, limit=limit)
