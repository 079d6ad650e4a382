"""The samples that intervals are made of, collected run by run, and when there are enough.

A replication gives one value per metric; with ``batch_means`` the measured part of each run is
divided into equal batches of consecutive requests, and each batch gives one value instead.

Stopping rule (A. M. Law, *Simulation Modeling and Analysis*, 5th ed., section 9.4.1): after the
least number of replications and after each further one, stop when the half-width of the 95 %
interval is at most g / (1 + g) of the mean's size, g the target; the error relative to the true
mean is then at most g with about that confidence. Stop as well when the runs are unstable, when
the metric is undefined, or at the most replications allowed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from simspec.core.batch_means import NUM_BATCHES, serial_correlation
from simspec.core.errors import ConfigError
from simspec.core.stats import Interval, mean_interval
from simspec.scenarios.schema import SimulationConfig
from simspec.serving.measured import Measured, Roofs, Slo
from simspec.serving.metrics import latency_quantiles_of, metrics_of
from simspec.serving.records import RunRecords
from simspec.serving.stability import Stability, assess
from simspec.serving.window import Window, in_batches, measured_window

MIN_REQUESTS_PER_BATCH = 5
_TESTED = ("ttft_ms", "tpot_ms", "e2e_ms", "throughput_tokens_per_s")
"""Metrics whose batches are tested for correlation."""


class Samples:
    """Values of every metric, one per replication or batch.

    Parameters
    ----------
    config : SimulationConfig
        What counts as a sample, and how many are wanted.
    slo, roofs
        As for :class:`simspec.serving.measured.Measured`.
    """

    def __init__(self, config: SimulationConfig, slo: Slo, roofs: Roofs) -> None:
        self._config = config
        self._slo = slo
        self._roofs = roofs
        self._metrics: list[dict[str, float]] = []
        self._quantiles: list[dict[str, Any]] = []
        self._verdicts: list[Stability] = []

    def add(self, records: RunRecords) -> Window:
        """Measure a run and return the part of it that was measured.

        Raises
        ------
        ConfigError
            The run is too short for its batches.
        """
        window = measured_window(records, warmup=self._config.warmup)
        whole = Measured(records, window, self._slo, self._roofs)
        self._verdicts.append(assess(records))
        self._quantiles.append(latency_quantiles_of(whole))
        if self._config.intervals == "batch_means":
            for part in in_batches(records, window, self._num_batches(window)):
                self._metrics.append(metrics_of(Measured(records, part, self._slo, self._roofs)))
        else:
            self._metrics.append(metrics_of(whole))
        return window

    def is_enough(self) -> bool:
        """Whether the runs so far suffice."""
        config = self._config
        if self.num_runs < config.replications:
            return False
        target = config.target_half_width
        if target is None or self.num_runs >= config.most_replications:
            return True
        return self.unstable_because is not None or self._reached(target) is not False

    @property
    def num_runs(self) -> int:
        """Replications so far."""
        return len(self._verdicts)

    @property
    def unstable_because(self) -> str | None:
        """The reason of the first unstable run when half of the runs or more are."""
        reasons = [verdict.reason for verdict in self._verdicts if not verdict.is_stable]
        return reasons[0] if reasons and 2 * len(reasons) >= self.num_runs else None

    def values(self) -> dict[str, list[float | None]]:
        """Return the samples of every metric; None where one does not define it."""
        return {name: [_known(m[name]) for m in self._metrics] for name in self._metrics[0]}

    def quantiles(self) -> dict[str, list[float | None]]:
        """Return the quantiles of the latencies, averaged over replications."""
        return {
            name: [_known(v) for v in np.mean(np.stack([q[name] for q in self._quantiles]), axis=0)]
            for name in self._quantiles[0]
        }

    def drift(self) -> dict[str, Any]:
        """Return what the drift test of the waiting queue found, means over replications."""
        verdicts = self._verdicts
        numbers = (
            "offered_requests_per_s", "completed_requests_per_s", "queue_growth_per_s",
        )  # fmt: skip
        return {
            "unstable_replications": sum(not verdict.is_stable for verdict in verdicts),
            "replications": len(verdicts),
            **{name: float(np.mean([getattr(v, name) for v in verdicts])) for name in numbers},
        }

    def precision(self) -> dict[str, Any]:
        """Return how the intervals came about and what the stopping rule reached."""
        config = self._config
        told: dict[str, Any] = {
            "intervals": config.intervals,
            "replications": self.num_runs,
            "samples": len(self._metrics),
        }
        if config.intervals == "batch_means":
            told["correlated_batches"] = self._correlated()
        if config.target_half_width is not None:
            interval = self._interval()
            told |= {
                "metric": config.stopping_metric,
                "target_half_width": config.target_half_width,
                "half_width": _relative(interval),
                "reached": self._reached(config.target_half_width) is True,
            }
        return told

    def _num_batches(self, window: Window) -> int:
        num_batches = self._config.num_batches or NUM_BATCHES
        least = num_batches * MIN_REQUESTS_PER_BATCH
        if window.requests.size < least:
            raise ConfigError(
                f"{num_batches} batches of at least {MIN_REQUESTS_PER_BATCH} requests need {least} "
                f"measured requests, the run has {window.requests.size}; raise "
                "workload.num_requests or lower simulation.num_batches"
            )
        return num_batches

    def _correlated(self) -> dict[str, float]:
        """Return the lag-1 correlation of batches by metric, where it is more than chance."""
        per_run = len(self._metrics) // self.num_runs
        found: dict[str, float] = {}
        for name in _TESTED:
            for start in range(0, len(self._metrics), per_run):
                values = [m[name] for m in self._metrics[start : start + per_run]]
                correlation, is_more = serial_correlation(values)
                if is_more:
                    found[name] = max(correlation, found.get(name, 0.0))
        return found

    def _interval(self) -> Interval | None:
        values = [m[self._config.stopping_metric] for m in self._metrics]
        return mean_interval(values) if all(map(math.isfinite, values)) else None

    def _reached(self, target: float) -> bool | None:
        """Whether the target is reached; None where the metric has no interval to judge."""
        relative = _relative(self._interval())
        if relative is None:
            return None if len(self._metrics) > 1 else False
        return relative <= target / (1.0 + target)


def _relative(interval: Interval | None) -> float | None:
    half = interval.half_width if interval is not None else None
    if interval is None or half is None:
        return None
    if half == 0.0:
        return 0.0
    return half / abs(interval.mean) if interval.mean else None


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
