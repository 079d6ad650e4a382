"""Seconds of one kernel from its FLOP and bytes: the roofline with a fixed overhead.

``time = smooth_max(flop / (peak e_f), bytes / (bandwidth e_b)) + overhead``.

The roofline is Williams, Waterman and Patterson, "Roofline: an insightful visual performance
model", CACM 52(4), 2009; the efficiencies, the overhead and the sharpness of the corner come
from the hardware profile, fitted to measured kernels. Left out: cache residency of small
weights, wave quantisation of GEMM tiles, clock throttling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from simspec.core.errors import ProfileError, nearest
from simspec.cost.work import Quantity
from simspec.hardware.profile import Hardware, KernelFit

Bound: TypeAlias = Literal["compute", "memory", "overhead", "network"]


@dataclass(frozen=True, slots=True)
class KernelRate:
    """A kernel fit on a device: what turns FLOP and bytes into seconds."""

    flop_per_s: float
    """Peak of the compute data type times the kernel's efficiency."""
    bytes_per_s: float
    """Memory bandwidth times the kernel's efficiency."""
    overhead_s: float
    """Once per launch."""
    sharpness: float
    """Exponent of the smooth maximum; ``inf`` is the plain one."""
    vector_rows: int = 0
    """Most rows that a matrix-vector kernel serves; 0: there is none."""
    vector_flop_per_s: float = math.inf
    vector_sharpness: float = 1.0
    tile_rows: int | tuple[int, ...] = 1
    """Rows the matrix kernel computes at once; several: the smallest that holds all."""
    padding_cost: float = 1.0
    """What a row that only fills a tile costs, in rows."""
    waves: Quantity | None = None
    """Tiles of columns per multiprocessor; None: waves of tiles are not counted."""
    idle_cost: float = 0.0
    """What a multiprocessor without a tile in the last wave costs, in busy ones."""
    wave_s: float = 0.0
    """Per wave."""
    row_s: float = 0.0
    """Per row, besides the roofline: activations brought into the format of the product, keys and
    values that are new."""
    sequence_s: float = 0.0
    """Per sequence, besides the roofline: set-up of attention."""


def kernel_rate(hardware: Hardware, fit: KernelFit, compute_dtype: str) -> KernelRate:
    """Bind ``fit`` to the peaks of ``hardware``.

    Raises
    ------
    ProfileError
        The device has no rate for ``compute_dtype``; the message lists those it has.
    """
    peaks = hardware.peak_flop_per_s
    if compute_dtype not in peaks:
        raise ProfileError(
            f"hardware {hardware.name!r}: no peak rate for compute data type "
            f"{compute_dtype!r}; {nearest(compute_dtype, peaks)}"
        )
    return KernelRate(
        flop_per_s=peaks[compute_dtype] * fit.flop_efficiency,
        bytes_per_s=hardware.memory_bandwidth_bytes_per_s * fit.bandwidth_efficiency,
        overhead_s=fit.overhead_s,
        sharpness=fit.sharpness,
        vector_rows=fit.vector_rows,
        vector_flop_per_s=peaks[compute_dtype] * fit.vector_flop_efficiency,
        vector_sharpness=fit.vector_sharpness,
        tile_rows=fit.tile_rows,
        padding_cost=fit.padding_cost,
        idle_cost=fit.idle_cost,
        wave_s=fit.wave_s,
    )


def fit_of(hardware: Hardware, kind: str, fits: Mapping[str, KernelFit], dtype: str) -> KernelFit:
    """Return the fit for ``dtype`` among ``fits`` of one ``kind`` of kernel.

    Raises
    ------
    ProfileError
        The profile has no such fit; the message lists those it has.
    """
    if dtype not in fits:
        raise ProfileError(
            f"hardware {hardware.name!r}: no {kind} efficiencies for data type {dtype!r}; "
            f"{nearest(dtype, fits)}"
        )
    return fits[dtype]


def larger(x: Quantity, y: Quantity) -> Quantity:
    """Return ``max(x, y)`` for numbers or arrays."""
    if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
        return np.maximum(x, y)
    return x if x > y else y


def smaller(x: Quantity, y: Quantity) -> Quantity:
    """Return ``min(x, y)`` for numbers or arrays."""
    if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
        return np.minimum(x, y)
    return x if x < y else y


def smooth_max(x: Quantity, y: Quantity, sharpness: float) -> Quantity:
    """Return ``(x**s + y**s)**(1/s)`` of two non-negative numbers or arrays.

    Written as ``max (1 + (min/max)**s)**(1/s)`` because ``(1e-6)**s`` underflows for large
    ``s``; never below ``max(x, y)`` and at most ``2**(1/s)`` times it, at ``x = y``.
    """
    if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
        top: npt.NDArray[np.float64] = np.maximum(x, y)
        if sharpness == math.inf:
            return top
        shape = np.zeros_like(top, dtype=np.float64)
        ratio = np.divide(np.minimum(x, y), top, out=shape, where=top > 0)
        bend = (1.0 + ratio**sharpness) ** (1.0 / sharpness)
        return np.asarray(top * bend)
    high, low = (x, y) if x > y else (y, x)
    if sharpness == math.inf or high == 0:
        return high
    corner: float = (1.0 + (low / high) ** sharpness) ** (1.0 / sharpness)
    return high * corner


def kernel_seconds(flop: Quantity, num_bytes: Quantity, rate: KernelRate) -> Quantity:
    """Return the seconds of one launch that does ``flop`` and moves ``num_bytes``."""
    roof = smooth_max(flop / rate.flop_per_s, num_bytes / rate.bytes_per_s, rate.sharpness)
    return roof + rate.overhead_s


def attention_seconds(
    num_sequences: Quantity,
    num_tokens: Quantity,
    flop: Quantity,
    num_bytes: Quantity,
    rate: KernelRate,
) -> Quantity:
    """Return the seconds of one attention kernel over a row group.

    :func:`kernel_seconds` with what each sequence and each new token costs besides.
    """
    beside_s = num_sequences * rate.sequence_s + num_tokens * rate.row_s
    return kernel_seconds(flop, num_bytes, rate) + beside_s


def rows_with_padding(rows: npt.NDArray[np.float64], rate: KernelRate) -> npt.NDArray[np.float64]:
    """Return the rows a matrix kernel is charged for: its own and those that fill its tile.

    ``m + c (M - m)``, with ``M`` the smallest tile that holds ``m`` rows, or as many of the
    largest as it takes, and ``c`` the cost of a row of padding.
    """
    tiles = _tiles(rate)
    whole = np.ceil(rows / tiles[-1]) * tiles[-1]
    for tile in reversed(tiles[:-1]):
        whole = np.where(rows <= tile, tile, whole)
    return np.asarray(rows + rate.padding_cost * (whole - rows))


def _tiles(rate: KernelRate) -> tuple[int, ...]:
    return rate.tile_rows if isinstance(rate.tile_rows, tuple) else (rate.tile_rows,)


def waves_of(rows: npt.NDArray[np.float64], rate: KernelRate) -> tuple[Quantity, Quantity]:
    """Return the waves of tiles a product takes, and their ratio to full multiprocessors.

    ``w`` tiles for each multiprocessor are charged as ``w + c (ceil(w) - w)``: in the last wave
    some idle, and ``c`` is what each of them costs.
    """
    if rate.waves is None:
        return 0.0, 1.0
    full = np.maximum(np.ceil(rows / _tiles(rate)[-1]), 1.0) * rate.waves
    charged = full + rate.idle_cost * (np.ceil(full) - full)
    return charged, charged / full


def product_seconds(
    rows: Quantity, flop: Quantity, num_bytes: Quantity, rate: KernelRate
) -> Quantity:
    """Return the seconds of one matrix product over ``rows`` rows.

    :func:`kernel_seconds`, except where the engine has a matrix-vector kernel for few rows.
    Up to ``vector_rows`` rows that one runs: it unpacks and multiplies every weight again for
    each row, at a rate and with an overlap of its own.
    Above, the matrix kernel computes whole tiles (:func:`rows_with_padding`), in waves over the
    multiprocessors (:func:`waves_of`). ``rows row_s`` is added.

    Parameters
    ----------
    rows : number or array
        Rows of the product, of a grouped one the mean over its groups.
    flop, num_bytes : number or array
        Of all rows.
    rate : KernelRate
        Of the product.
    """
    if not rate.vector_rows and rate.tile_rows == 1 and rate.waves is None:
        return kernel_seconds(flop, num_bytes, rate) + rows * rate.row_s
    memory_s = num_bytes / rate.bytes_per_s
    vector_s = smooth_max(flop / rate.vector_flop_per_s, memory_s, rate.vector_sharpness)
    tiles = rows_with_padding(np.asarray(rows, dtype=np.float64), rate)
    whole = np.divide(tiles, rows, out=np.ones(np.shape(tiles)), where=np.asarray(rows) > 0)
    waves, idle = waves_of(np.asarray(rows, dtype=np.float64), rate)
    matrix_s = smooth_max(flop * whole * idle / rate.flop_per_s, memory_s, rate.sharpness)
    matrix_s = matrix_s + waves * rate.wave_s
    roof = np.where(np.asarray(rows) <= rate.vector_rows, vector_s, matrix_s)
    seconds = roof + rate.overhead_s + rows * rate.row_s
    return float(seconds) if seconds.ndim == 0 else seconds


def ruling_bound(flop: float, num_bytes: float, rate: KernelRate) -> Bound:
    """Return which term of :func:`kernel_seconds` is the largest."""
    compute_s, memory_s = flop / rate.flop_per_s, num_bytes / rate.bytes_per_s
    if rate.overhead_s > max(compute_s, memory_s):
        return "overhead"
    return "compute" if compute_s >= memory_s else "memory"
