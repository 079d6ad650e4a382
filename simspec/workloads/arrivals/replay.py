"""Replay of a request log: its arrivals, in its order, with its lengths.

Nothing is random, so two replications differ only in what the tapes accept. ``rate_scale``
squeezes the time axis: 2 sends the same requests at twice the rate, which keeps the shape of
the bursts but not their duration in seconds. Prefix blocks and sessions of the log come along;
think times of a session are a client's and stay as logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator
from pydantic_core import PydanticCustomError

from simspec.core.errors import ConfigError, TraceError
from simspec.workloads._base import (
    IMPORTERS,
    Arrivals,
    ArrivalsConfig,
    ImporterConfig,
    Lengths,
    find_file,
)
from simspec.workloads.describe import mean_rate_per_s
from simspec.workloads.detect import detect
from simspec.workloads.request_log import RequestLog, read_log

FloatArray = npt.NDArray[np.float64]


def _format_or_none(value: Any) -> Any:
    return None if value is None else IMPORTERS.parse(value)


class Config(ArrivalsConfig):
    """Arrivals and lengths of a file."""

    brings_lengths: ClassVar[bool] = True
    examples: ClassVar[tuple[Mapping[str, object], ...]] = (
        {"path": "log.csv"},
        {"path": "log.csv", "format": "azure", "rate_scale": 2.0, "limit": 2},
        {"path": "log.csv", "format": "azure", "time_window_s": [1.0, 100.0], "spread_ties": True},
    )

    path: str = Field(min_length=1)
    """The log; a relative path starts from the experiment file, then from the working folder."""

    format: Annotated[SerializeAsAny[ImporterConfig] | None, BeforeValidator(_format_or_none)] = (
        None
    )
    """File name in ``simspec/workloads/importers``; None: recognised by the first lines."""

    rate_scale: float = Field(default=1.0, ge=1e-3, le=1e3)
    """Offered load relative to the log."""

    limit: int | None = Field(default=None, ge=1)
    """Most rows to read from the start of the log; None: all."""

    time_window_s: tuple[float, float] | None = None
    """Only requests from the first time up to the second, seconds of the log; None: all."""

    spread_ties: bool = False
    """Whether requests at one time are spread evenly up to the next time of the log."""

    rejected_lines: Literal["refuse", "skip"] = "refuse"
    """What happens to a line that is no request: an error, or it is left out and counted."""

    @model_validator(mode="after")
    def _window_rises(self) -> Self:
        if self.time_window_s is not None:
            start_s, end_s = self.time_window_s
            if not 0 <= start_s < end_s:
                raise PydanticCustomError(
                    "replay_window", "time_window_s: give [from, to] with 0 <= from < to"
                )
        return self

    def draw(
        self, rng: np.random.Generator, num_requests: int, *, base: Path | None = None
    ) -> Arrivals:
        """Read the log.

        Raises
        ------
        TraceError
            It cannot be read, or says no times.
        ConfigError
            The file is missing, or the window holds no request.
        """
        path = find_file(self.path, base)
        status = path.stat()
        version = (status.st_mtime_ns, status.st_size)
        log = _log(self.format, path, self.limit, self.rejected_lines == "skip", version)
        if not log.has_times:
            raise TraceError(
                f"{path}: has lengths and no arrival times, so there is nothing to replay; use "
                "lengths: {name: log, path: ...} with an arrival process"
            )
        times_s = spread(log.times_s) if self.spread_ties else log.times_s
        lengths, prefixes, sessions = log.lengths, log.prefixes, log.sessions
        if self.time_window_s is not None:
            start_s, end_s = self.time_window_s
            keep = (times_s >= start_s) & (times_s < end_s)
            if not keep.any():
                raise ConfigError(
                    f"time_window_s: no request between {start_s:g} and {end_s:g} s; the log's "
                    f"last is at {log.times_s[-1]:g} s"
                )
            times_s = times_s[keep] - start_s
            lengths = Lengths(lengths.prompt_lens[keep], lengths.output_lens[keep])
            prefixes = None if prefixes is None else prefixes.take(keep)
            sessions = None if sessions is None else sessions.take(keep)
        rate_per_s = mean_rate_per_s(times_s)
        return Arrivals(
            times_s=times_s / self.rate_scale,
            rate_per_s=None if rate_per_s is None else rate_per_s * self.rate_scale,
            lengths=lengths,
            prefixes=prefixes,
            sessions=sessions,
            num_empty=log.num_empty,
            rejected=log.rejected,
            files=(path,),
        )

    def gap_moments(self) -> None:
        """Return None: a log has no law."""
        return

    def describe(self) -> str:
        """Return one clause."""
        what = "" if self.limit is None else f"the first {self.limit:,} rows of "
        if self.time_window_s is not None:
            what = "seconds {:g} to {:g} of ".format(*self.time_window_s) + what
        speed = "" if self.rate_scale == 1 else f" at {self.rate_scale:g} times its rate"
        ties = ", ties spread" if self.spread_ties else ""
        form = "" if self.format is None else f" ({self.format.name} format)"
        return f"replay of {what}{Path(self.path).name}{form}{speed}{ties}"


def spread(times_s: FloatArray) -> FloatArray:
    """Return times (n,) in seconds with ties drawn apart, in the same order.

    The k requests of one time are spread evenly up to the next time that occurs; those of the
    last time over the mean gap between times (not at all when there is but one).
    """
    distinct, first, counts = np.unique(times_s, return_index=True, return_counts=True)
    gaps_s = np.diff(distinct)
    last_s = float(gaps_s.mean()) if gaps_s.size else 0.0
    room_s = np.append(gaps_s, last_s)
    rank = np.arange(times_s.size) - np.repeat(first, counts)
    made: FloatArray = times_s + np.repeat(room_s / counts, counts) * rank
    return np.maximum.accumulate(made)


@lru_cache(maxsize=4)
def _log(
    importer: ImporterConfig | None,
    path: Path,
    limit: int | None,
    skip_rejected: bool,
    version: tuple[int, int],
) -> RequestLog:
    # A sweep replays one file at hundreds of points; ``version`` notices a changed file.
    importer = detect(path) if importer is None else importer
    return read_log(importer, path, limit=limit, skip_rejected=skip_rejected)
