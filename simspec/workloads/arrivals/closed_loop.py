"""A closed loop: a fixed number of clients, each sending its next request when one returns.

Arrival times do not exist before the run; the simulator keeps ``concurrency`` clients, and each
takes the next request in order whenever its own has been answered, after a think time (also
before its first). Load adapts to the server, so a closed loop can never be unstable and says
nothing about queueing under open traffic. Think times are gamma distributed: with N clients, mean
think time Z and mean response time R the throughput is N / (R + Z) (Little's law).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simspec.workloads._base import Arrivals, ArrivalsConfig, Moments
from simspec.workloads.linked import Sessions


class Config(ArrivalsConfig):
    """Constant number of clients."""

    examples: ClassVar[tuple[Mapping[str, object], ...]] = (
        {"concurrency": 16},
        {"concurrency": 4, "think_time_s": 2.5, "think_cv": 0.5},
        {"concurrency": 4, "think_time_s": 2.5, "think_cv": 0.0},
    )

    concurrency: int = Field(ge=1, le=1_000_000)
    """Clients; without think time, requests in flight."""

    think_time_s: float = Field(default=0.0, ge=0, le=1e6)
    """Mean time from an answer to the client's next request, seconds."""

    think_cv: float | None = Field(default=None, ge=0, le=100)
    """Standard deviation of the think time over its mean; 0: always the same, None: exponential."""

    @model_validator(mode="after")
    def _cv_of_something(self) -> Self:
        if self.think_cv is not None and self.think_time_s == 0:
            raise PydanticCustomError(
                "closed_loop_think", "think_cv has no effect without think_time_s; give both"
            )
        return self

    def think_moments(self) -> Moments:
        """Return mean and standard deviation of the think time, seconds."""
        cv = 1.0 if self.think_cv is None else self.think_cv
        return Moments(self.think_time_s, cv * self.think_time_s)

    def draw(
        self, rng: np.random.Generator, num_requests: int, *, base: Path | None = None
    ) -> Arrivals:
        """Return zeros as times, the concurrency, and the think times."""
        sessions = None
        if self.think_time_s > 0:
            mean_s, std_s = self.think_moments()
            if std_s > 0:
                shape = (mean_s / std_s) ** 2
                think_s = rng.standard_gamma(shape, num_requests) / shape * mean_s
            else:
                think_s = np.full(num_requests, mean_s)
            sessions = Sessions(np.full(num_requests, -1, dtype=np.int64), think_s)
        return Arrivals(
            times_s=np.zeros(num_requests),
            rate_per_s=None,
            concurrency=self.concurrency,
            sessions=sessions,
        )

    def gap_moments(self) -> None:
        """Return None: the server decides the gaps."""
        return

    def describe(self) -> str:
        """Return one clause."""
        if self.think_time_s == 0:
            return f"closed loop with {self.concurrency} requests in flight"
        mean_s, std_s = self.think_moments()
        return (
            f"closed loop of {self.concurrency} clients that think {mean_s:g} s "
            f"(CV {std_s / mean_s:g})"
        )
