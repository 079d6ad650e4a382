"""Axes to points: which points there are, what they say, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simspec.core.errors import ConfigError
from simspec.core.yamlio import load_yaml, parse
from simspec.sweeps.grid import Point, expand
from simspec.sweeps.schema import SweepConfig
from tests.sweeps.factory import GRID, SCENARIO, write_sweep

CHAT = {"name": "kangaroo", "exit_layer": 2, "num_speculative_tokens": 3, "confidence_threshold": 0}


def points(folder: Path, **changes: Any) -> list[Point]:
    document = load_yaml(write_sweep(folder, **changes))
    return expand(parse(document, SweepConfig), document)


def columns(found: list[Point], *, baselines: bool = False) -> list[dict[str, Any]]:
    return [dict(p.columns) for p in found if p.is_baseline == baselines]


def test_points_are_the_product_of_the_axes(tmp_path: Path) -> None:
    """Every combination is there once, the last axis fastest, with its values in the scenario."""
    found = [p for p in points(tmp_path) if not p.is_baseline]
    assert [tuple(p.columns.values()) for p in found] == [
        (load, e, k) for load in ("low", "high") for e in (2, 3) for k in (1, 2)
    ]
    for point in found:
        assert point.config.method.exit_layer == point.columns["method.exit_layer"]  # type: ignore[attr-defined]
    assert len({p.point_id for p in found}) == len(found)


def test_each_load_has_one_baseline(tmp_path: Path) -> None:
    """Autoregression runs once per load, and every point knows the one of its load."""
    found = points(tmp_path)
    baselines = {p.point_id: p for p in found if p.is_baseline}
    assert columns(found, baselines=True) == [
        {"load": load, "method.name": "autoregressive"} for load in ("low", "high")
    ]
    for point in found[len(baselines) :]:
        assert point.baseline_id is not None
        assert baselines[point.baseline_id].columns["load"] == point.columns["load"]
        ours, plain = point.config, baselines[point.baseline_id].config
        assert plain == ours.model_copy(update={"method": plain.method, "acceptance": None})


@pytest.mark.parametrize(
    ("short", "field", "values"),
    [
        (0.7, "alpha", [0.5, 0.6]),
        ([0.6, 0.3], "rates", [[0.5], [0.6, 0.2]]),
        (
            "layerskip-llama-2-7b-cnn-text",
            "profile",
            ["layerskip-llama-2-7b-cnn-text", "layerskip-llama-2-7b-cnn-summaries"],
        ),
    ],
)
def test_a_short_acceptance_has_the_fields_it_stands_for(
    tmp_path: Path, short: Any, field: str, values: list[Any]
) -> None:
    """A number, a list and a profile's name can be varied like what is written out."""
    scenario = {**SCENARIO, "acceptance": short}
    found = points(
        tmp_path,
        scenario=scenario,
        grid={f"acceptance.{field}": values},
        sweep={"baseline": False},
    )
    given = [point.config.model_dump()["acceptance"][field] for point in found]
    assert [list(v) if isinstance(v, tuple) else v for v in given] == values


def test_without_baselines(tmp_path: Path) -> None:
    """``baseline: false`` leaves the grid alone."""
    found = points(tmp_path, sweep={"baseline": False})
    assert len(found) == 8
    assert not any(p.is_baseline or p.baseline_id for p in found)


def test_zipped_axes_move_together(tmp_path: Path) -> None:
    """The i-th values belong together; the group multiplies with the other axes."""
    zipped = [{"tp": [1, 2], "dtype": ["bf16", "fp8"]}]
    found = points(tmp_path, grid={"method.exit_layer": [2, 3]}, zip=zipped)
    assert columns(found) == [
        {"method.exit_layer": e, "tp": tp, "dtype": dtype}
        for e in (2, 3)
        for tp, dtype in ((1, "bf16"), (2, "fp8"))
    ]
    assert columns(found, baselines=True) == [
        {"tp": tp, "dtype": dtype, "method.name": "autoregressive"}
        for tp, dtype in ((1, "bf16"), (2, "fp8"))
    ]


def test_a_zip_of_load_and_method_names_its_baselines_by_the_load(tmp_path: Path) -> None:
    """Of a group that also changes the method the baseline shows the other columns."""
    zipped = [{"hardware": ["h100_sxm", "l40s"], "method.exit_layer": [2, 3]}]
    found = points(tmp_path, grid={}, zip=zipped)
    assert columns(found, baselines=True) == [
        {"hardware": name, "method.name": "autoregressive"} for name in ("h100_sxm", "l40s")
    ]


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ([{"load": "low"}], 4),
        ([{"method.exit_layer": 2, "method.num_speculative_tokens": 2}], 6),
        ([{"method.exit_layer": 2.0}], 4),
        ([{"load": ["low", "high"], "method.exit_layer": 3}], 4),
        ([{"load": "low"}, {"method.exit_layer": 3}], 2),
    ],
)
def test_excluded_combinations(tmp_path: Path, rules: list[dict[str, Any]], left: int) -> None:
    """A rule removes the points that match all of it; a list matches any of its values."""
    found = points(tmp_path, exclude=rules)
    assert len(columns(found)) == left
    loads = {p.columns["load"] for p in found}
    assert {p.columns["load"] for p in found if p.is_baseline} == loads


def test_an_excluded_point_need_not_be_valid(tmp_path: Path) -> None:
    """Combinations that make no sense are what exclusion is for."""
    grid = {"method": ["autoregressive", CHAT], "method.exit_layer": [2, 3], "acceptance": [0.7]}
    rules = [{"method": "autoregressive"}]
    assert len(columns(points(tmp_path, grid=grid, exclude=rules))) == 2


def test_a_method_axis_may_hold_the_baseline(tmp_path: Path) -> None:
    """Autoregression among the methods is the baseline itself, not a second point."""
    grid = {
        "way": {
            "plain": {"method": "autoregressive", "acceptance": None},
            "kangaroo": {},
        }
    }
    found = points(tmp_path, grid=grid)
    assert columns(found) == [{"way": "kangaroo"}]
    assert columns(found, baselines=True) == [{"method.name": "autoregressive"}]


def test_a_label_may_set_nothing(tmp_path: Path) -> None:
    """A label without fields is the scenario as it stands, and its baseline knows the label."""
    grid = {"load": {"as written": {}, "more": GRID["load"]["high"]}}
    found = points(tmp_path, grid=grid)
    assert [c["load"] for c in columns(found, baselines=True)] == ["as written", "more"]
    assert columns(found) == [{"load": "as written"}, {"load": "more"}]


def test_two_labels_of_one_scenario_stay_two_rows(tmp_path: Path) -> None:
    """A label is not dropped because another one means the same."""
    same = {"workload.num_requests": 6}
    found = points(tmp_path, grid={"load": {"a": same, "b": same}})
    a, b = (p for p in found if not p.is_baseline)
    assert (a.columns["load"], b.columns["load"]) == ("a", "b")
    assert a.point_id == b.point_id


def test_whole_objects_come_before_their_fields(tmp_path: Path) -> None:
    """An axis over ``method`` and one over a field of it combine, in whatever order they stand."""
    grid = {"method.exit_layer": [3, 4], "method": [CHAT]}
    found = [p.config.method for p in points(tmp_path, grid=grid) if not p.is_baseline]
    assert [m.exit_layer for m in found] == [3, 4]  # type: ignore[attr-defined]


def test_a_bare_name_can_be_given_fields(tmp_path: Path) -> None:
    """``method: kangaroo`` in the scenario and ``method.exit_layer`` on an axis go together."""
    scenario = {**SCENARIO, "method": "kangaroo"}
    grid = {"method.exit_layer": [2, 3], "method.confidence_threshold": [0]}
    found = points(tmp_path, scenario=scenario, grid=grid)
    assert [p.config.method.exit_layer for p in found if not p.is_baseline] == [2, 3]  # type: ignore[attr-defined]


def test_errors_carry_the_line_of_the_value(tmp_path: Path) -> None:
    """The message of one wrong point names the file, the value's line and the scenario's field."""
    path = tmp_path / "sweep.yaml"
    path.write_text(
        "name: x\nscenario:\n  model: llama-3.2-1b\n  hardware: h100_sxm\n  method: kangaroo\n"
        "  acceptance: 0.5\n  workload:\n    arrivals: {name: closed_loop, concurrency: 1}\n"
        "    lengths: {name: fixed, prompt_len: 8, output_len: 8}\n    num_requests: 2\n"
        "grid:\n  method.confidence_threshold: [0]\n  method.exit_layer:\n    - 2\n    - 0\n"
    )
    document = load_yaml(path)
    with pytest.raises(ConfigError) as refused:
        expand(parse(document, SweepConfig), document)
    message = str(refused.value)
    assert message.startswith(f"{path}:15: scenario.method.exit_layer: 0 is out of range")


def same_field_twice() -> dict[str, Any]:
    return {"grid": {"tp": [1, 2], "size": {"a": {"tp": 1}, "b": {"tp": 2}}}}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (same_field_twice(), "grid.size: 'tp' is set by axis 'tp' too"),
        ({"grid": {"tp": [1]}, "zip": [{"tp": [1]}]}, "zip.0: 'tp' is set by axis 'tp' too"),
        ({"grid": {"tp": [1, 2, 1.0]}}, "grid.tp: 1.0 is given twice"),
        ({"grid": {"name": ["a", "b"]}}, "'name' is only a label"),
        ({"grid": {"acceptance.source": ["a", "b"]}}, "says where numbers are from"),
        ({"grid": {"tpot_ms": {"a": {"tp": 1}}}}, "'tpot_ms' is a column of the result"),
        ({"grid": {"status": {"a": {"tp": 1}}}}, "'status' is a column of the result"),
        ({"grid": {"load": {"a": {}, "b": {}}}}, "grid.load: no label sets a field"),
        ({"grid": {"": [1]}}, "a field name is missing"),
        ({"grid": {"method..exit_layer": [1]}}, "unknown field"),
        ({"grid": {"method.exit_layer.deep": [1]}}, "has no field 'deep'"),
        ({"grid": {"acceptance.rates": [[0.5]]}}, "scenario.acceptance.rates: unknown field"),
        ({"grid": {"nonsense": [1]}}, "scenario.nonsense: unknown field"),
        ({"exclude": [{"depth": 1}]}, "'depth' is not an axis"),
        ({"exclude": [{"method.exit_layer": 5}]}, "exclude.0: excludes no point"),
        ({"exclude": [{"method.exit_layer": True}]}, "exclude.0: excludes no point"),
        ({"exclude": [{}]}, "exclude.0: the rule is empty"),
        ({"exclude": [{"load": ["low", "high"]}]}, "every point of the grid is excluded"),
        (
            {
                "grid": {
                    name: {"from": 1, "to": 1000, "step": 1}
                    for name in ("simulation.seed", "workload.num_requests")
                }
            },
            "grid: 1,000,000 points are more than the limit of 100,000",
        ),
    ],
)
def test_refused_grids(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    """What contradicts itself, changes nothing or has no end is one sentence with a place."""
    with pytest.raises(ConfigError) as refused:
        points(tmp_path, **changes)
    message = str(refused.value)
    assert says in message
    assert message.startswith(f"{tmp_path / 'sweep.yaml'}:")
