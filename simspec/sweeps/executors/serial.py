"""Points one after another in this process."""

from __future__ import annotations

from collections.abc import Sequence

from simspec.sweeps.executors._base import ExecutorConfig, Results
from simspec.sweeps.work import Job, compute


class Config(ExecutorConfig):
    """No options."""

    def run(self, jobs: Sequence[Job]) -> Results:
        """Yield ``(key, result)`` in order."""
        for job in jobs:
            yield job.key, compute(job)
