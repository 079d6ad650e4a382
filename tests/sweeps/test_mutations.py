"""Whatever stands in a sweep file, planning it works or ends in one sentence."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simspec.core.errors import SimspecError
from simspec.sweeps.plan import plan_sweep
from tests.sweeps.factory import sweep_data, write_yaml

Path_ = tuple[str | int, ...]
STRANGE: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 64, 1024, 99999, 2**62, 0.5, 1e-300, 1e308, -1e308,
    "", " ", "x", "1", "auto", "é\u202e", "a/b", "../..", "/", "x" * 300, "%s", "{x}", "[b]", "\n",
    [], [1], [None], [[1]], [0.9, 0.1], {}, {"a": 1}, {"name": None}, {"name": "x"},
    {"name": "kangaroo"}, {"from": 1, "to": 3, "step": 1},
)  # fmt: skip
UNTOUCHED = {"num_requests", "replications"}
"""A hundred thousand of these are right, and take hours."""


def places(value: Any, place: Path_ = ()) -> Iterator[Path_]:
    if place:
        yield place
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*place, key))


def parent(data: Any, place: Path_) -> Any:
    for key in place[:-1]:
        data = data[key]
    return data


BASE = sweep_data(
    zip=[{"dtype": ["bf16", "fp8"], "kv_dtype": ["bf16", "fp8"]}],
    exclude=[{"dtype": "fp8", "load": ["low", "high"]}],
)
PLACES = [place for place in places(BASE) if place[-1] not in UNTOUCHED]
changes = st.lists(
    st.tuples(
        st.sampled_from(PLACES),
        st.sampled_from(["set", "set", "set", "delete", "add"]),
        st.sampled_from(STRANGE),
    ),
    min_size=1,
    max_size=3,
)


def mutated(steps: list[tuple[Path_, str, Any]]) -> Any:
    data = copy.deepcopy(BASE)
    for place, action, value in steps:
        try:
            inside = parent(data, place)
            if action == "delete":
                del inside[place[-1]]
            elif action == "add" and isinstance(inside, dict):
                inside[f"{place[-1]}_"] = copy.deepcopy(value)
            else:
                inside[place[-1]] = copy.deepcopy(value)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier step took the place away
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutations")


@settings(max_examples=200)
@given(steps=changes)
def test_a_strange_file_is_planned_or_refused(folder: Path, steps: list[Any]) -> None:
    """No value in no place makes anything but a plan or one sentence that begins with the file."""
    path = write_yaml(folder / "sweep.yaml", mutated(steps))
    try:
        plan = plan_sweep(path)
    except SimspecError as error:
        assert_is_a_sentence(str(error), path)
    else:
        assert plan.points
        assert set(plan.keys) == {point.point_id for point in plan.points}


def assert_is_a_sentence(message: str, path: Path) -> None:
    assert message.startswith(str(path))
    assert len(message.splitlines()) == 1
    assert len(message) < 1000
