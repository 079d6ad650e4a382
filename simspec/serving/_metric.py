"""The registry of the metrics of a run: one function per metric, found by its key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simspec.serving.measured import Measured


@dataclass(frozen=True, slots=True)
class Metric:
    """A number about a run."""

    name: str
    unit: str
    meaning: str
    compute: Callable[[Measured], float]


METRICS: dict[str, Metric] = {}


def metric(unit: str) -> Callable[[Callable[[Measured], float]], Callable[[Measured], float]]:
    """Register a function as the metric of its name, in ``unit``; its docstring is the meaning."""

    def register(compute: Callable[[Measured], float]) -> Callable[[Measured], float]:
        name = compute.__name__
        METRICS[name] = Metric(name, unit, (compute.__doc__ or "").strip(), compute)
        return compute

    return register


def definitions() -> dict[str, dict[str, str]]:
    """Return the unit and the meaning of every metric by its key, for results."""
    return {name: {"unit": m.unit, "meaning": m.meaning} for name, m in METRICS.items()}
