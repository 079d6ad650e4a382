"""A closed loop: a fixed number of clients, each sending its next request when one returns.

Arrival times do not exist before the run; the simulator keeps ``concurrency`` requests in
flight and takes the next one in order whenever one leaves. Load adapts to the server, so a
closed loop can never be unstable and says nothing about queueing under open traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from simspec.workloads._base import Arrivals, ArrivalsConfig


class Config(ArrivalsConfig):
    """Constant number of requests in flight, no think time."""

    examples: ClassVar[tuple[Mapping[str, object], ...]] = ({"concurrency": 16},)

    concurrency: int = Field(ge=1, le=1_000_000)
    """Requests in flight."""

    def draw(
        self, rng: np.random.Generator, num_requests: int, *, base: Path | None = None
    ) -> Arrivals:
        """Return zeros as times, and the concurrency."""
        return Arrivals(
            times_s=np.zeros(num_requests), rate_per_s=None, concurrency=self.concurrency
        )

    def gap_moments(self) -> None:
        """Return None: the server decides the gaps."""
        return

    def describe(self) -> str:
        """Return one clause."""
        return f"closed loop with {self.concurrency} requests in flight"
