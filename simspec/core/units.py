"""The only unit conversions of simspec.

Inside, every quantity is in seconds, bytes, FLOP, tokens, joules or dollars. Milliseconds,
GB/s and TFLOP/s exist in YAML keys, result columns and reports, with the unit as the last
part of the name (``bandwidth_gb_s``), and are converted here. GB is 10**9 bytes, GiB 2**30.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

Dimension = Literal["time", "data", "bandwidth", "compute rate", "power", "energy", "money"]
Number = TypeVar("Number", float, npt.NDArray[np.float64])


@dataclass(frozen=True, slots=True)
class Unit:
    """One way to write a quantity: ``value * to_si`` is in the unit used inside."""

    dimension: Dimension
    to_si: float
    symbol: str


_TIME = {"ns": (1e-9, "ns"), "us": (1e-6, "µs"), "ms": (1e-3, "ms"), "s": (1.0, "s")}
_DATA = {
    "bytes": (1.0, "B"),
    "kb": (1e3, "kB"),
    "mb": (1e6, "MB"),
    "gb": (1e9, "GB"),
    "tb": (1e12, "TB"),
    "kib": (2.0**10, "KiB"),
    "mib": (2.0**20, "MiB"),
    "gib": (2.0**30, "GiB"),
    "tib": (2.0**40, "TiB"),
}
_RATE = {"gflops": (1e9, "GFLOP/s"), "tflops": (1e12, "TFLOP/s"), "pflops": (1e15, "PFLOP/s")}

SUFFIXES: dict[str, Unit] = {
    **{key: Unit("time", *unit) for key, unit in _TIME.items()},
    **{key: Unit("data", *unit) for key, unit in _DATA.items()},
    **{f"{key}_s": Unit("bandwidth", scale, f"{sym}/s") for key, (scale, sym) in _DATA.items()},
    **{key: Unit("compute rate", *unit) for key, unit in _RATE.items()},
    "w": Unit("power", 1.0, "W"),
    "kw": Unit("power", 1e3, "kW"),
    "j": Unit("energy", 1.0, "J"),
    "usd": Unit("money", 1.0, "USD"),
}
"""Units by the last part of a key or column name."""


def ms(seconds: Number) -> Number:
    """Return milliseconds from seconds."""
    return seconds * 1e3


def us(seconds: Number) -> Number:
    """Return microseconds from seconds."""
    return seconds * 1e6


def gb(num_bytes: Number) -> Number:
    """Return GB (10**9 bytes) from bytes."""
    return num_bytes / 1e9


def gib(num_bytes: Number) -> Number:
    """Return GiB (2**30 bytes) from bytes."""
    return num_bytes / 2.0**30


def gb_s(bytes_per_s: Number) -> Number:
    """Return GB/s from bytes per second."""
    return bytes_per_s / 1e9


def tflops(flop_per_s: Number) -> Number:
    """Return TFLOP/s from FLOP per second."""
    return flop_per_s / 1e12


def from_ms(milliseconds: Number) -> Number:
    """Return seconds from milliseconds."""
    return milliseconds * 1e-3


def ns(seconds: Number) -> Number:
    """Return nanoseconds from seconds."""
    return seconds * 1e9


def from_ns(nanoseconds: Number) -> Number:
    """Return seconds from nanoseconds."""
    return nanoseconds / 1e9


def from_us(microseconds: Number) -> Number:
    """Return seconds from microseconds."""
    return microseconds * 1e-6


def from_gb(gigabytes: Number) -> Number:
    """Return bytes from GB (10**9 bytes)."""
    return gigabytes * 1e9


def from_gib(gibibytes: Number) -> Number:
    """Return bytes from GiB (2**30 bytes)."""
    return gibibytes * 2.0**30


def from_gb_s(gigabytes_per_s: Number) -> Number:
    """Return bytes per second from GB/s."""
    return gigabytes_per_s * 1e9


def from_tflops(teraflops: Number) -> Number:
    """Return FLOP per second from TFLOP/s."""
    return teraflops * 1e12


def split_name(name: str) -> tuple[str, Unit | None]:
    """Split a key into what it means and its unit.

    ``"bandwidth_gb_s"`` gives ``"bandwidth"`` and GB/s; a name without a unit gives itself
    and None. The longest suffix wins, so ``_gb_s`` is never read as seconds.
    """
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        # "tokens_per_s" is a rate, not a time.
        if name.endswith(f"_{suffix}") and not name.endswith(f"_per_{suffix}"):
            return name[: -len(suffix) - 1], SUFFIXES[suffix]
    return name, None


def _spellings() -> dict[str, Unit]:
    """Return the units by every way people write them.

    Case matters where it changes the meaning: ``Gb/s`` are bits and not among them.
    """
    known: dict[str, Unit] = {}
    for suffix, unit in SUFFIXES.items():
        symbol = unit.symbol
        for text in (symbol, symbol.replace("FLOP/s", "FLOPS"), suffix.replace("_s", "/s")):
            known |= {text: unit, text.lower(): unit, text.upper(): unit}
    return known


_SPELLINGS = _spellings()
_WRITTEN = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\W\d][\w/]*)\s*")


def parse_quantity(text: str) -> tuple[float, Unit | None] | None:
    """Read ``"3.35 TB/s"`` as a number and its unit.

    Returns
    -------
    tuple or None
        The number as written and its unit (None when the unit is unknown here); None when
        the text is not a number followed by a unit.
    """
    match = _WRITTEN.fullmatch(text)
    if match is None:
        return None
    # Two characters look like the micro sign.
    return float(match[1]), _SPELLINGS.get(match[2].replace("\u03bc", "\u00b5"))


def format_bytes(num_bytes: float) -> str:
    """Return bytes for people: ``"16.1 GB"``, ``"0 B"``."""
    if num_bytes == 0:
        return "0 B"
    return _scaled(num_bytes, [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")])


def format_seconds(seconds: float) -> str:
    """Return a duration for people: ``"7.12 ms"``."""
    return _scaled(seconds, [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")])


def _scaled(value: float, scales: list[tuple[float, str]]) -> str:
    if not math.isfinite(value):
        return f"{value} {scales[-1][1]}"
    scale, symbol = next(
        ((scale, symbol) for scale, symbol in scales if abs(value) >= 0.9995 * scale), scales[-1]
    )
    if value == 0:
        scale, symbol = scales[-1] if scales[-1][0] == 1.0 else scales[0]
    shown = value / scale
    # Three significant digits, never an exponent.
    digits = 0 if abs(shown) >= 99.95 else 1 if abs(shown) >= 9.995 else 2
    return f"{shown:.{digits}f} {symbol}"
