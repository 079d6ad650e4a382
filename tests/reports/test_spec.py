"""The merge rule, number compaction and script-safe JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.reports.spec import FigureSpec, Layer, compact, merge, script_json, view_key

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


def test_objects_merge_key_by_key_and_lists_by_index() -> None:
    """A patch reaches into lists by index and leaves everything it does not name alone."""
    base = {"data": [{"x": [1], "y": [2]}, {"x": [3]}], "layout": {"height": 10}}
    patch = {"data": {"0": {"y": [5, 6]}}, "layout": {"title": "t"}}
    assert merge(base, patch) == {
        "data": [{"x": [1], "y": [5, 6]}, {"x": [3]}],
        "layout": {"height": 10, "title": "t"},
    }
    assert base["layout"] == {"height": 10}


def test_layers_apply_in_order_and_a_missing_view_is_said() -> None:
    """The last layer wins, and a selection without a view is reported empty, not drawn stale."""
    spec = FigureSpec(
        name="f",
        title="F",
        base={"data": [{"x": []}], "layout": {}},
        layers=[
            Layer(("a",), {"0": {"data": {"0": {"x": [1]}}}, "1": {"data": {"0": {"x": [2]}}}}),
            Layer(("a", "b"), {"0,0": {"data": {"0": {"x": [9]}}, "caption": "c"}}),
        ],
    )
    assert spec.uses == ("a", "b")
    chosen = spec.resolve({"a": 0, "b": 0})
    assert (chosen["data"], chosen["caption"], chosen["empty"]) == ([{"x": [9]}], "c", False)
    assert spec.resolve({"a": 1, "b": 0})["empty"] is True
    assert view_key([2, 0, 11]) == "2,0,11"
    assert view_key([]) == ""


@given(st.floats(-1e300, 1e300) | st.sampled_from([float("nan"), float("inf"), -float("inf")]))
def test_compaction_loses_less_than_a_rounding_of_the_fifth_digit(value: float) -> None:
    """A finite number keeps five significant digits; NaN and infinity become null."""
    found = compact(value)
    if value != value or value in (float("inf"), float("-inf")):
        assert found is None
    else:
        assert found is not None
        assert abs(found - value) <= 5.001e-5 * abs(value)


@given(JSON)
def test_script_json_cannot_close_its_element_and_reads_back(document: object) -> None:
    """Embedded JSON holds no ``<`` at all and parses to what went in."""
    text = script_json(document)
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == document


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_script_json_refuses_what_json_does_not_have(bad: float) -> None:
    """NaN in a page would be a syntax error in the browser, so it is one here."""
    with pytest.raises(ValueError, match="JSON"):
        script_json({"x": bad})
