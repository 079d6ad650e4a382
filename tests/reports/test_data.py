"""Reading a result directory: axes, baselines, and what is wrong with a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from simspec.core.errors import ConfigError
from simspec.reports.data import Point, read_sweep, told_apart
from tests.helpers.fake_results import (
    LOADS,
    failed_row,
    fake_manifest,
    fake_row,
    write_fake_results,
)


def test_the_manifest_orders_the_axes_and_their_values(tmp_path: Path) -> None:
    """Axes come in manifest order, values too, and the baseline's empty cells are no value."""
    data = read_sweep(write_fake_results(tmp_path))
    assert [axis.field for axis in data.axes] == [
        "method.exit_layer",
        "method.num_speculative_tokens",
        "method.confidence_threshold",
        "load",
    ]
    assert data.axes[1].values == (1, 2, 3, 4, 6)
    assert data.axes[3].values == tuple(LOADS)
    assert data.axes[2].title == "Confidence threshold τ (probability)"


def test_every_point_finds_the_baseline_under_its_own_load(tmp_path: Path) -> None:
    """The autoregressive row agrees with the point on every axis that is not the method's."""
    data = read_sweep(write_fake_results(tmp_path))
    for point in data.points:
        if point.is_baseline:
            continue
        baseline = data.baseline(point)
        assert baseline is not None
        assert baseline.row["load"] == point.row["load"]


def test_a_stated_baseline_id_wins(tmp_path: Path) -> None:
    """Where a row names its baseline, no guess is made."""
    rows = [
        {**fake_row({"method.name": "autoregressive"}, 1), "point_id": "a"},
        {**fake_row({"method.name": "autoregressive"}, 2), "point_id": "b"},
        {**fake_row({"method.name": "kangaroo"}, 1), "point_id": "c", "baseline_id": "b"},
    ]
    data = read_sweep(write_fake_results(tmp_path, points=rows, manifest=fake_manifest(axes=[])))
    found = data.baseline(data.points[2])
    assert found is not None
    assert found.row["point_id"] == "b"


def test_zipped_axes_become_one(tmp_path: Path) -> None:
    """Two axes that change together span a line, not a plane of combinations nobody ran."""
    pairs = [("h100", "bf16"), ("l40s", "fp8"), ("a100", "int8")]
    rows = [
        fake_row({"method.name": "kangaroo", "hardware": h, "dtype": d, "tp": tp}, 4)
        for h, d in pairs
        for tp in (1, 2)
    ]
    axes = [
        {"field": "hardware", "label": None, "values": [h for h, _ in pairs]},
        {"field": "dtype", "label": None, "values": [d for _, d in pairs]},
        {"field": "tp", "label": None, "values": [1, 2]},
    ]
    data = read_sweep(write_fake_results(tmp_path, points=rows, manifest=fake_manifest(axes=axes)))
    assert [axis.field for axis in data.axes] == ["hardware+dtype", "tp"]
    assert data.axes[0].values == ("h100 · bf16", "l40s · fp8", "a100 · int8")
    assert data.axes[0].label == "Hardware · Weight data type"


def test_whole_floats_of_a_column_with_gaps_match_integers_of_the_manifest(tmp_path: Path) -> None:
    """Parquet turns an integer column with nulls into floats; 3.0 is still K = 3."""
    rows = [
        fake_row({"method.name": "autoregressive"}, 4),
        fake_row({"method.name": "kangaroo", "method.num_speculative_tokens": 3.0}, 4),
        fake_row({"method.name": "kangaroo", "method.num_speculative_tokens": 4.0}, 4),
    ]
    axes = [{"field": "method.num_speculative_tokens", "label": "K", "values": [3, 4]}]
    data = read_sweep(write_fake_results(tmp_path, points=rows, manifest=fake_manifest(axes=axes)))
    assert data.axes[0].values == (3, 4)
    assert data.axes[0].says(data.points[1].axis_value(data.axes[0])) == "K = 3"


def test_similar_sentences_are_told_once_and_then_apart() -> None:
    """The first stands whole, the others only where they differ, with a little before it."""
    one, two = (
        f"rates of the paper at exit layer {e} move by {d} per layer; source: a figure"
        for e, d in ((2, "+0"), (3, "+0.2"))
    )
    assert told_apart([one, two]) == [
        one,
        "Likewise, but … at exit layer 3 move by +0.2 …",
    ]
    assert told_apart(["a b c d", "w x y z"]) == ["a b c d", "w x y z"]
    assert told_apart([one]) == [one]
    assert told_apart([]) == []


def test_a_point_without_results_has_no_numbers() -> None:
    """Columns of an unstable point are not shown even if something stands in them."""
    row = {**failed_row({"load": "x"}, "unstable", "too much"), "tpot_ms": 7.0}
    assert Point(row).number("tpot_ms") is None
    assert Point({"status": "ok", "tpot_ms": float("nan")}).number("tpot_ms") is None
    assert Point({"status": "ok", "tpot_ms": True}).number("tpot_ms") is None


def test_a_baseline_has_no_speedup_over_itself() -> None:
    """The ratio 1 of a baseline is neither a result nor an interval that includes 1."""
    row = fake_row({"method.name": "autoregressive"}, 4)
    assert Point(row).number("speedup") is None
    assert Point(row).number("tpot_ms") is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("no_manifest", "no manifest.json here"),
        ("broken_manifest", "not valid JSON"),
        ("list_manifest", "expected a JSON object"),
        ("no_points", "cannot be read"),
        ("broken_points", "cannot be read"),
        ("empty_points", "no points"),
        ("broken_curves", "cannot be read"),
    ],
)
def test_a_bad_directory_is_one_sentence(tmp_path: Path, change: str, message: str) -> None:
    """Whatever is missing or broken is named with its path; nothing else escapes."""
    write_fake_results(tmp_path)
    if change == "no_manifest":
        (tmp_path / "manifest.json").unlink()
    elif change == "broken_manifest":
        (tmp_path / "manifest.json").write_text("{")
    elif change == "list_manifest":
        (tmp_path / "manifest.json").write_text("[]")
    elif change == "no_points":
        (tmp_path / "points.parquet").unlink()
    elif change == "broken_points":
        (tmp_path / "points.parquet").write_bytes(b"PAR1 no")
    elif change == "broken_curves":
        (tmp_path / "curves.parquet").write_bytes(b"")
    else:
        write_fake_results(tmp_path, points=[])
    with pytest.raises(ConfigError, match=message) as caught:
        read_sweep(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
