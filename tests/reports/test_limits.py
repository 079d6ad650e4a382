"""How many configurations still pay at each load, and which curve falls to 1 first."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from simspec.reports.data import read_sweep
from simspec.reports.limits import stops_by_configuration
from simspec.reports.view import sweep_view
from tests.helpers.fake_results import write_fake_results


def test_the_counts_are_those_of_the_table(tmp_path: Path) -> None:
    """Counted again from the Parquet rows: interval above 1, load by load."""
    write_fake_results(tmp_path)
    told = stops_by_configuration(sweep_view(read_sweep(tmp_path)))
    assert told is not None
    table = pq.read_table(tmp_path / "points.parquet").to_pylist()
    rows = [row for row in table if row["method.name"] != "autoregressive"]
    for load in dict.fromkeys(row["load"] for row in rows):
        here = [row for row in rows if row["load"] == load and row["speedup"] is not None]
        paying = sum(row["speedup_ci95_low"] > 1 for row in here)
        assert f"{paying} of {len(here)} at {load}" in told[1]


def test_the_first_curve_to_fall_to_one_is_named(tmp_path: Path) -> None:
    """The smallest break-even batch over all curves, found again by brute force."""
    write_fake_results(tmp_path)
    told = stops_by_configuration(sweep_view(read_sweep(tmp_path)))
    assert told is not None
    curves: dict[tuple[object, ...], list[tuple[float, float]]] = {}
    for row in pq.read_table(tmp_path / "curves.parquet").to_pylist():
        key = tuple(v for k, v in row.items() if k.startswith("method."))
        curves.setdefault(key, []).append((row["batch"], row["speedup"]))
    below = []
    for curve in curves.values():
        curve.sort()
        batches = [b for (b, s), (_, t) in zip(curve[1:], curve, strict=False) if t > 1 >= s]
        below += batches[:1]
    assert below
    assert f"{len(below)} of {len(curves)} curves fall to 1" in told[1]
