"""The forms an axis can be written in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simspec.core.errors import ConfigError
from simspec.core.yamlio import load_yaml, parse
from simspec.sweeps.schema import SweepConfig
from tests.sweeps.factory import sweep_data, write_yaml


def values(folder: Path, written: Any) -> Any:
    path = write_yaml(folder / "axis.yaml", sweep_data(grid={"tp": written}))
    return parse(load_yaml(path), SweepConfig).grid["tp"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ([1, 2.5, "x", None, {"name": "a"}], [1, 2.5, "x", None, {"name": "a"}]),
        ({"from": 1, "to": 4, "step": 1}, [1, 2, 3, 4]),
        ({"from": 0, "to": 0.6, "step": 0.2}, [0, 0.2, 0.4, 0.6]),
        ({"from": 1, "to": 6, "step": 2}, [1, 3, 5]),
        ({"from": 3, "to": 3, "step": 1}, [3]),
        ({"from": -1, "to": 1, "num": 3}, [-1, 0, 1]),
        ({"from": 1, "to": 128, "num": 8, "scale": "log"}, [1, 2, 4, 8, 16, 32, 64, 128]),
        ({"from": 1e-15, "to": 1e-13, "num": 3, "scale": "log"}, [1e-15, 1e-14, 1e-13]),
        ({"a": {"tp": 1}, "b": {"tp": 2, "dtype": "fp8"}},) * 2,
        ({"from": {"tp": 1}, "to": {"tp": 2}},) * 2,
    ],
)
def test_forms_of_an_axis(tmp_path: Path, written: Any, meant: Any) -> None:
    """Lists, ranges in steps or counts, log ranges, and labels that set fields together."""
    assert values(tmp_path, written) == meant


def test_whole_numbers_of_a_range_are_integers(tmp_path: Path) -> None:
    """A range of an integer field can be written as a range."""
    found = values(tmp_path, {"from": 1, "to": 1024, "num": 11, "scale": "log"})
    assert found == [2**i for i in range(11)]
    assert {type(value) for value in found} == {int}


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ([], "grid.tp: an axis is a non-empty list, a range {from, to, step}"),
        (3, "an axis is a non-empty list"),
        ({}, "a labelled axis maps each label"),
        ({"a": {"tp": 1}, "b": 2}, "'b' does not"),
        ({"from": 1, "to": 4}, "exactly one of 'step' and 'num'"),
        ({"from": 1, "to": 4, "step": 1, "num": 4}, "exactly one of 'step' and 'num'"),
        ({"from": 4, "to": 1, "step": 1}, "'to' must not be smaller"),
        ({"from": 1, "to": 4, "step": 0}, "step: 0 is out of range"),
        ({"from": 1, "to": 4, "num": 1}, "num: 1 is out of range"),
        ({"from": 0, "to": 4, "num": 3, "scale": "log"}, "'from' greater than 0"),
        ({"from": 1, "to": 4, "step": 1, "scale": "log"}, "'from' greater than 0"),
        ({"from": 0, "to": 1, "step": 1e-9}, "more than 100,000 values"),
        ({"from": 1, "to": 4, "setp": 1}, "did you mean 'step'"),
        ({"from": "a", "to": 4, "step": 1}, "expected a number"),
    ],
)
def test_wrong_axes(tmp_path: Path, written: Any, says: str) -> None:
    """Each mistake in an axis is one sentence that names the axis."""
    with pytest.raises(ConfigError) as refused:
        values(tmp_path, written)
    assert says in str(refused.value)
    assert "grid.tp" in str(refused.value)


@pytest.mark.parametrize(
    ("zipped", "says"),
    [
        ([{"tp": [1, 2], "dtype": ["bf16"]}], "zip.0: zipped axes need equally many values"),
        ([{}], "zip.0"),
        ([{"tp": []}], "zip.0.tp"),
        ([{"tp": 3}], "zip.0.tp"),
    ],
)
def test_wrong_zips(tmp_path: Path, zipped: Any, says: str) -> None:
    """Zipped axes have values, and equally many."""
    path = write_yaml(tmp_path / "axis.yaml", sweep_data(zip=zipped))
    with pytest.raises(ConfigError, match=says):
        parse(load_yaml(path), SweepConfig)


def test_a_sweep_may_have_zipped_axes_only(tmp_path: Path) -> None:
    """A grid is not needed where a zip varies something; nothing at all is refused."""
    path = write_yaml(tmp_path / "axis.yaml", sweep_data(grid={}, zip=[{"tp": [1, 2]}]))
    assert parse(load_yaml(path), SweepConfig).zip == [{"tp": [1, 2]}]
    write_yaml(path, sweep_data(grid={}))
    with pytest.raises(ConfigError, match=r"nothing varies.*method.exit_layer: \[2, 4\]"):
        parse(load_yaml(path), SweepConfig)
