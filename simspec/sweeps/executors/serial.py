"""Points one after another in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from simspec.core.registry import PluginConfig
from simspec.sweeps.work import Job, compute


class Config(PluginConfig):
    """No options."""

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield ``(key, result)`` in order."""
        for job in jobs:
            yield job.key, compute(job)
