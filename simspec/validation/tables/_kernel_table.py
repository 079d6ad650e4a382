"""A table of kernels with what becomes of each of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from simspec.calibration.robust import halves
from simspec.core.units import from_ms
from simspec.cost.roofline import KernelRate
from simspec.hardware.profile import AllReduceFit, Hardware, KernelFit
from simspec.hardware.schema import HardwareConfig
from simspec.validation._base import Cause
from simspec.validation._physics import below_bandwidth_floor, below_compute_floor

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

PARTS = ("compute_s", "memory_s", "overhead_s")
"""Where a predicted time comes from: the two roofs, each alone, and what no size changes."""


class KernelTable:
    """Rows of one table as arrays of equal length, on one device.

    A row is compared unless a reason to leave it out was given; the first one stays.

    Parameters
    ----------
    frame : DataFrame
        As the reader got it.
    hardware, config : Hardware, HardwareConfig
        The device's profile, in SI units and with the evidence behind each fit.
    engine : str
        Whose kernels they are.
    """

    def __init__(
        self, frame: pd.DataFrame, hardware: Hardware, config: HardwareConfig, engine: str
    ) -> None:
        size = len(frame)
        self.frame, self.hardware, self.config, self.engine = frame, hardware, config, engine
        self.measured_s = from_ms(self.number("latency_ms"))
        self.predicted_s = np.full(size, np.nan)
        self.parts = {name: np.zeros(size) for name in PARTS}
        self.labels = ["unknown"] * size
        """Kind and data type of each row."""
        self.is_outside = np.zeros(size, dtype=np.bool_)
        """Outside what the device's coefficients were fitted on."""
        self.is_fitted = np.zeros(size, dtype=np.bool_)
        self.sigma = np.full(size, np.nan)
        """1 sigma of the logarithm of each prediction; NaN where nothing was judged."""
        self.reasons: dict[int, tuple[Cause, str]] = {}

    @property
    def cache_bytes(self) -> float:
        """The last-level cache; 0 where the profile does not say."""
        return (self.config.memory.l2_mb or 0.0) * 1e6

    def number(self, name: str) -> Array:
        """Return a column of numbers."""
        return self.frame[name].to_numpy(dtype=np.float64)

    def text(self, name: str) -> npt.NDArray[np.object_]:
        """Return a column as text; an empty cell is empty text."""
        return self.frame[name].astype(object).fillna("").astype(str).to_numpy(dtype=object)

    def everywhere(self) -> Mask:
        """Return a mask of all rows."""
        return np.ones(len(self.frame), dtype=np.bool_)

    def leave_out(self, chosen: Mask, cause: Cause, reason: str) -> None:
        """Leave out every chosen row that has no reason yet."""
        entry = (cause, reason)
        for index in np.flatnonzero(chosen).tolist():
            self.reasons.setdefault(index, entry)

    def label(self, chosen: Mask, label: str) -> None:
        """Say what the chosen rows are."""
        for index in np.flatnonzero(chosen).tolist():
            self.labels[index] = label

    def predict(
        self, chosen: Mask, seconds: Array, work: tuple[Array, Array], rate: KernelRate
    ) -> None:
        """Set the predicted times of the chosen rows; ``work`` is FLOP and bytes."""
        flop, num_bytes = work
        self.predicted_s[chosen] = seconds
        self.parts["compute_s"][chosen] = flop / rate.flop_per_s
        self.parts["memory_s"][chosen] = num_bytes / rate.bytes_per_s
        self.parts["overhead_s"][chosen] = rate.overhead_s

    def audit(self, chosen: Mask, work: tuple[Array, Array], compute_dtype: str) -> None:
        """Refute the chosen rows that are faster than the data sheet allows."""
        flop, num_bytes = work
        device = self.hardware.name
        peak = self.hardware.peak_flop_per_s[compute_dtype]
        bandwidth = self.hardware.memory_bandwidth_bytes_per_s
        floor_s = np.maximum(flop / peak, num_bytes / bandwidth)
        rows = np.flatnonzero(chosen)
        for place in np.flatnonzero(self.measured_s[chosen] < floor_s).tolist():
            seconds = float(self.measured_s[rows[place]])
            if seconds <= 0.0:
                continue
            reason = below_compute_floor(
                seconds, flop=float(flop[place]), peak_flop_per_s=peak, device=device
            ) or below_bandwidth_floor(
                seconds,
                num_bytes=float(num_bytes[place]),
                bandwidth_bytes_per_s=bandwidth,
                device=device,
            )
            if reason is not None:
                self.reasons.setdefault(int(rows[place]), ("refuted", reason))

    def mark_fitted(
        self,
        chosen: Mask,
        columns: tuple[str, ...],
        kind: str,
        fits: Iterable[KernelFit | AllReduceFit],
    ) -> None:
        """Mark those of the chosen rows that the profile's coefficients come from.

        They are one half of the shapes (``columns`` name a shape, as in
        :mod:`simspec.calibration.kernel_tables`) of the engine that the profile, or the kernels it
        has of that engine, names in ``fitted_on``. All rows of that engine get the error that the
        other half has shown. ``kind`` is a key of the profile's ``kernels``.
        """
        if not self._comes_from_these(kind) or not chosen.any():
            return
        self.sigma[chosen] = max((fit.error.of_times for fit in fits), default=0.0) or np.nan
        values = np.stack([self.number(name)[chosen] for name in columns], axis=1)
        shapes, index = np.unique(values, axis=0, return_inverse=True)
        names = ["x".join(str(int(value)) for value in shape) for shape in shapes]
        self.is_fitted[np.flatnonzero(chosen)] = halves(names)[index.reshape(-1)]

    def _comes_from_these(self, kind: str) -> bool:
        """Return whether the coefficients of a kind were fitted to tables of this engine."""
        own = self.config.kernels.engines.get(self.engine)
        if own is not None and getattr(own, kind) is not None:
            return "aiconfigurator" in (own.fitted_on or "")
        said = (self.config.kernels.fitted_on or "").lower()
        return "aiconfigurator" in said and bool(self.engine) and self.engine.lower() in said


class Row(Mapping[str, Any]):
    """One row of columns that are kept once, so that a million rows stay small."""

    __slots__ = ("columns", "index")

    def __init__(self, columns: Mapping[str, list[Any]], index: int) -> None:
        self.columns, self.index = columns, index

    def __getitem__(self, name: str) -> Any:
        return self.columns[name][self.index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)
