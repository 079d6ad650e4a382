"""The contract of a sweep executor."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

from simspec.core.registry import PluginConfig, Registry
from simspec.sweeps.work import Job

EXECUTORS = Registry("simspec.sweeps.executors", "sweep executor")

Results: TypeAlias = Generator[tuple[str, dict[str, Any]], None, None]
"""Pairs of a job's key and its result."""


class ExecutorConfig(PluginConfig):
    """Base of every executor's ``Config``."""

    def run(self, jobs: Sequence[Job]) -> Results:
        """Yield ``(key, result)`` of each job as it finishes, in any order.

        Closing the generator early stops the work and leaves no process behind.
        """
        raise TypeError(f"{type(self).__module__}.Config must define run()")
