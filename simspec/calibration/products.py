"""Fit the matrix products of a device: the roofline and what it costs to feed it.

::

    smooth_max(flop r(m)/m / (peak e_f), bytes / (bandwidth e_b); s) + overhead
        + depth k  [+ quantise m k + wave w]

* ``depth``: a tile of the result adds up its ``k`` products in steps, one after the other,
  whatever the number of tiles; it shows in products with few columns and many inputs;
* ``quantise``: formats of 8 bits and less bring their 16-bit activations into the format first,
  a kernel of its own in these tables, whose time goes with the ``m k`` values and hardly with the
  bandwidth (1.9 to 2.4 ps a value in fp8 on an H100, an H200 and a B200);
* ``r(m) = m + c (M - m)``: the same formats have few kernels, built for tiles of 16, 64, 128 or
  256 rows (vLLM csrc/quantization/w8a8/cutlass, its dispatch by rows), so that ``m`` rows fill
  ``M``. On Hopper a row of padding costs about two real ones: 257 rows take twice the time of
  256, and the more of the last tile is real the less it takes;
* ``wave``: such a tile of rows is cut into pieces of 64 columns' work (64 x 64, 64 x 128 in
  pairs, 128 x 128 in pairs: all of them one for every 256 rows and 64 columns), which the
  multiprocessors take in waves. Filling and draining a piece's pipelines costs ``wave`` for each,
  and ``w`` waves are charged as ``w + c (ceil(w) - w)``, with ``c`` what an idle multiprocessor
  costs. Products with fewer pieces than multiprocessors are slower than their FLOP say.

Sixteen-bit products have none of the last three: the vendor's library picks among many tiles and
splits products of few, and neither cost changes a median error by more than 0.2 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from simspec.calibration.fitted import Fitted, fit_named
from simspec.calibration.kernel_tables import ProductRows
from simspec.calibration.robust import Array, Coefficient, Mask
from simspec.core.units import from_ns, from_us
from simspec.cost.roofline import KernelRate, product_seconds

TILE_ROWS = (16, 64, 128, 256)
TILE_COLUMNS = 64

_EFFICIENCY = (0.01, 1.0)
_ALWAYS = (
    Coefficient("flop_efficiency", *_EFFICIENCY, start=0.7),
    Coefficient("bandwidth_efficiency", *_EFFICIENCY, start=0.8),
    # No kernel of a captured graph is over sooner than about a microsecond after its predecessor.
    Coefficient("overhead_us", 1.0, 1000.0, start=5.0),
    Coefficient("sharpness", 1.0, 50.0, start=3.0),
    Coefficient("depth_ns", 0.0, 10.0, start=0.1),
)
_QUANTISED = (
    Coefficient("quantise_ns", 0.0, 0.1, start=0.002),
    Coefficient("padding_cost", 0.0, 5.0, start=1.0),
)
_IN_WAVES = (
    Coefficient("idle_cost", 0.0, 1.0, start=0.3),
    Coefficient("wave_us", 0.0, 20.0, start=0.5),
)


def fit_product(
    rows: ProductRows,
    peak_flop_per_s: float,
    bandwidth_bytes_per_s: float,
    *,
    is_quantised: bool,
    multiprocessors: int | None = None,
    what: str,
) -> Fitted:
    """Fit matrix products to one half of the weights and judge on the other.

    Parameters
    ----------
    rows : ProductRows
        Measurements; resident rows are left out of both halves.
    peak_flop_per_s, bandwidth_bytes_per_s : float
        What an efficiency of 1 means.
    is_quantised : bool
        Whether activations are quantised before the product.
    multiprocessors : int, optional
        That share the tiles of quantised products; without it waves are not counted.
    what : str
        For messages.

    Raises
    ------
    CalibrationError
        Too few rows, or no convergence.
    """
    kept = rows.kept()
    peaks = peak_flop_per_s, bandwidth_bytes_per_s
    in_waves = is_quantised and multiprocessors is not None
    waves = kept.out_features
    if in_waves:
        waves = np.ceil(kept.out_features / TILE_COLUMNS) / float(multiprocessors or 1)
    fitted = fit_named(
        lambda named, chosen: _seconds(named, kept, chosen, waves[chosen], peaks),
        [*_ALWAYS, *(_QUANTISED if is_quantised else ()), *(_IN_WAVES if in_waves else ())],
        kept.measured_s,
        groups=kept.groups,
        what=what,
    )
    return replace(
        fitted,
        num_resident=int(rows.is_resident.sum()),
        tile_rows=TILE_ROWS if is_quantised else (),
        tile_columns=TILE_COLUMNS if in_waves else 0,
    )


def _seconds(
    named: Mapping[str, float],
    rows: ProductRows,
    chosen: Mask,
    waves: Array,
    peaks: tuple[float, float],
) -> Array:
    """Return the seconds of the chosen rows, priced as the cost model prices a product."""
    peak_flop_per_s, bandwidth_bytes_per_s = peaks
    num_rows, in_features = rows.num_rows[chosen], rows.in_features[chosen]
    rate = KernelRate(
        flop_per_s=peak_flop_per_s * named["flop_efficiency"],
        bytes_per_s=bandwidth_bytes_per_s * named["bandwidth_efficiency"],
        overhead_s=from_us(named["overhead_us"]),
        sharpness=named["sharpness"],
        tile_rows=TILE_ROWS if "padding_cost" in named else 1,
        padding_cost=named.get("padding_cost", 1.0),
        waves=waves if "idle_cost" in named else None,
        idle_cost=named.get("idle_cost", 0.0),
        wave_s=from_us(named.get("wave_us", 0.0)),
    )
    seconds = product_seconds(num_rows, rows.flop[chosen], rows.num_bytes[chosen], rate)
    quantise_s = from_ns(named.get("quantise_ns", 0.0)) * num_rows
    beside_s = (from_ns(named["depth_ns"]) + quantise_s) * in_features
    return np.asarray(seconds + beside_s, dtype=np.float64)
