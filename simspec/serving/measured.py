"""A run seen through its measured window: the samples that metrics are made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import nan

import numpy as np
import numpy.typing as npt

from simspec.core.units import from_ms
from simspec.hardware.profile import Power, Price
from simspec.serving.records import PHASES, Fate, FloatArray, IntArray, RunRecords
from simspec.serving.window import Window


@dataclass(frozen=True, slots=True)
class Slo:
    """Latency targets of one request, seconds; None: no target."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    @classmethod
    def from_milliseconds(
        cls, *, ttft_ms: float | None, tpot_ms: float | None, e2e_ms: float | None
    ) -> Slo:
        """Return the targets of a scenario."""
        targets = [None if t is None else from_ms(t) for t in (ttft_ms, tpot_ms, e2e_ms)]
        return cls(*targets)


@dataclass(frozen=True, slots=True)
class Roofs:
    """What one rank could do at best, and what the devices draw and cost."""

    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    num_devices: int = 1
    """Ranks of one replica."""
    devices_by_replica: tuple[int, ...] = ()
    """Where replicas differ; empty: each has ``num_devices``."""
    power: Power | None = None
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class Gaps:
    """A sample of gaps between consecutive tokens, as values and how often each occurred.

    All tokens of one accepted burst arrive together, so the gaps within a burst are zero.
    """

    values_s: FloatArray
    """Ascending."""
    counts: FloatArray
    num_zeros: float

    def total_s(self) -> float:
        """Return the sum of the sample."""
        return float(self.values_s @ self.counts)

    def size(self, *, zeros: bool = True) -> float:
        """Return the size of the sample, with or without the gaps within bursts."""
        return float(self.counts.sum()) + (self.num_zeros if zeros else 0.0)

    def percentile(self, level: float, *, zeros: bool = True) -> float:
        """Return ``numpy.percentile`` of the written-out sample, the zeros in it or not."""
        size = self.size(zeros=zeros)
        if size == 0:
            return nan
        num_zeros = self.num_zeros if zeros else 0.0
        ends = num_zeros + np.cumsum(self.counts)
        place = level / 100.0 * (size - 1.0)
        low = np.floor(place)
        below, above = (self._nth(ends, index, num_zeros) for index in (low, np.ceil(place)))
        return float(below + (place - low) * (above - below))

    def deviation_s(self) -> float:
        """Return the standard deviation of the gaps between bursts (of the population)."""
        size = self.size(zeros=False)
        if size == 0:
            return nan
        mean_s = self.total_s() / size
        return float(np.sqrt((self.values_s - mean_s) ** 2 @ self.counts / size))

    def _nth(self, ends: FloatArray, index: float, num_zeros: float) -> float:
        if index < num_zeros:
            return 0.0
        return float(self.values_s[np.searchsorted(ends, index, side="right")])


class Measured:
    """A run seen through its measured window; what the metric functions look at.

    Attributes
    ----------
    ttft_s, tpot_s, e2e_s, queue_s, admitted_after_s : array
        Of the measured requests that finished, in order of arrival; ``tpot_s`` only of those
        with more than one output token.
    good : array, bool
        For every request that arrived: whether it finished within every target.
    in_window : array (steps,), bool
        Steps that ended inside the window.
    """

    def __init__(self, records: RunRecords, window: Window, slo: Slo, roofs: Roofs | None) -> None:
        self.records = records
        self.window = window
        self.roofs = roofs
        requests, steps = records.requests, records.steps
        ttft_s = requests.first_token_s - requests.arrival_s
        e2e_s = requests.last_token_s - requests.arrival_s
        decode_s = requests.last_token_s - requests.first_token_s
        tpot_s = decode_s / np.maximum(requests.output_len - 1, 1)
        finished = requests.fate == Fate.FINISHED
        rows = window.requests[finished[window.requests]]
        self.rows = rows
        self.ttft_s = ttft_s[rows]
        self.e2e_s = e2e_s[rows]
        self.tpot_s = tpot_s[rows[requests.output_len[rows] > 1]]
        self.queue_s = requests.queue_s[rows]
        self.admitted_after_s = (requests.admission_s - requests.arrival_s)[rows]
        self.good = finished.copy()
        for values, target in ((ttft_s, slo.ttft_s), (tpot_s, slo.tpot_s), (e2e_s, slo.e2e_s)):
            if target is not None:
                # A request that never got that far has NaN, which meets no target.
                self.good &= values <= target
        self.left_in_window = finished & self._inside(requests.last_token_s)
        self.in_window = self._inside(steps.end_s)
        self.is_round = self.in_window & (steps.num_decoding > 0)

    def _inside(self, times_s: FloatArray) -> npt.NDArray[np.bool_]:
        return (times_s > self.window.start_s) & (times_s <= self.window.end_s)

    def step_sum(self, column: FloatArray | IntArray) -> float:
        """Return the sum of a step column over the window."""
        return float(column[self.in_window].sum())

    def per_second(self, amount: float) -> float:
        """Return an amount that fell into the window as a rate."""
        return ratio(amount, self.window.seconds)

    @cached_property
    def gaps(self) -> Gaps:
        """Gaps between consecutive tokens of all requests, pooled."""
        steps = self.records.steps
        others = self._inside(self.records.other_gaps_end_s)
        values = np.concatenate(
            [steps.duration_s[self.in_window], self.records.other_gaps_s[others]]
        )
        counts = np.concatenate(
            [steps.num_steady_gaps[self.in_window], np.ones(int(others.sum()))]
        ).astype(np.float64)
        order = np.argsort(values)
        bursts = steps.num_decoding + steps.num_prefilled
        num_zeros = self.step_sum(steps.emitted - bursts)
        return Gaps(values[order], counts[order], num_zeros)

    def phase_per_round_s(self, *phases: str) -> float:
        """Return the mean seconds of some phases in a step that decodes."""
        columns = [PHASES.index(phase) for phase in phases]
        return mean(self.records.steps.phase_s[self.is_round][:, columns].sum(axis=1))


def mean(values: FloatArray | IntArray) -> float:
    """Return the mean, NaN of nothing."""
    return float(np.mean(values)) if values.size else nan


def ratio(numerator: float, denominator: float) -> float:
    """Return the quotient, NaN when the denominator is zero."""
    return numerator / denominator if denominator else nan


def percentile(values: FloatArray, level: float) -> float:
    """Return the percentile at ``level`` (0..100), NaN of nothing."""
    return float(np.percentile(values, level)) if values.size else nan
