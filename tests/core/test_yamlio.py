"""Strict YAML: what is read, where it stood, and that nothing but ConfigError escapes."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from simspec.core.errors import ConfigError
from simspec.core.yamlio import Document, load_yaml, loads_yaml, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9),
        ("1E-3", 1e-3),
        ("2.", 2.0),
        (".5", 0.5),
        ("+7", 7),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("y", "y"),
        ("2024-01-01", "2024-01-01"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("=", "="),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("!!float 5", 5.0),
        ("fp8", "fp8"),
        ("1e", "1e"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    """Words that YAML 1.1 turns into booleans, dates or base-60 numbers stay text."""
    read = loads_yaml(f"x: {text}\n", "f.yaml").data["x"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("key", ["on", "yes", "null", "1", "0.4", "true", "2024-01-01", "'<<'"])
def test_keys_are_text(key: str) -> None:
    """Whatever a key looks like, it is the text that was written."""
    assert loads_yaml(f"{key}: 1\n", "f.yaml").data == {key.strip("'"): 1}


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """A UTF-8 file saved with a byte-order mark reads like one without."""
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    document = load_yaml(path)
    assert document.data == {"a": 1}
    assert document.path == path


def test_merge_keys_fill_in_what_is_not_given() -> None:
    """Explicit fields win over merged ones, earlier sources over later ones."""
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\none:\n  <<: *a\n  x: 9\ntwo:\n  <<: [*a, *b]\n"
    data = loads_yaml(text, "f.yaml").data
    assert data["one"] == {"x": 9, "y": 1}
    assert data["two"] == {"x": 1, "y": 1, "z": 2}


def test_lines_of_merged_and_aliased_values_are_where_they_were_written() -> None:
    """A mistake in an anchor is reported at the anchor."""
    document = loads_yaml("a: &a\n  x: 1\nb:\n  <<: *a\n  y: 2\nc: *a\n", "f.yaml")
    assert document.locate(["b", "x"]) == "f.yaml:2"
    assert document.locate(["b", "y"]) == "f.yaml:5"
    assert document.locate(["c", "x"]) == "f.yaml:2"


def test_a_field_has_the_line_of_its_name_or_of_its_nearest_parent() -> None:
    """Positions are known for fields and list items; what is absent is where it would be."""
    document = loads_yaml("# head\na:\n  b:\n  - 1\n  - x: 2\n", "f.yaml")
    assert document.locate() == "f.yaml:2"
    assert document.locate(["a", "b"]) == "f.yaml:3"
    assert document.locate(["a", "b", 1, "x"]) == "f.yaml:5"
    assert document.locate(["a", "missing", "deeper"]) == "f.yaml:2"
    assert Document({}, "command line").locate(["x"]) == "command line"


def test_with_value_copies_what_it_changes_and_shares_the_rest() -> None:
    """A grid point leaves the document it came from as it was."""
    document = loads_yaml("a: {b: 1, c: [1, 2]}\nd: {e: 1}\n", "f.yaml")
    changed = document.with_value(["a", "c", 1], 7).with_value(["x", "y"], "new")
    assert changed.data == {"a": {"b": 1, "c": [1, 7]}, "d": {"e": 1}, "x": {"y": "new"}}
    assert document.data == {"a": {"b": 1, "c": [1, 2]}, "d": {"e": 1}}
    assert changed.data["d"] is document.data["d"]


def test_overridden_value_is_located_at_its_source() -> None:
    """A wrong value of a sweep axis is reported on the line of the axis."""

    class Method(BaseModel):
        k: int = Field(ge=1)

    class Scenario(BaseModel):
        method: Method

    document = loads_yaml("method: {k: 2}\ngrid:\n  method.k: [1, 0]\n", "f.yaml")
    point = document.with_value(["method", "k"], 0, source=["grid", "method.k", 1])
    with pytest.raises(ConfigError) as caught:
        parse(point, Scenario)
    assert str(caught.value) == (
        "f.yaml:3: method.k: 0 is out of range; give a whole number of at least 1"
    )


def test_replaced_value_forgets_the_lines_below_it() -> None:
    """Lines of an old mapping are not used for the new one in its place."""
    document = loads_yaml("a:\n  b:\n    c: 1\nz: 1\n", "f.yaml")
    changed = document.with_value(["a", "b"], {"c": 2}, source=["z"])
    assert changed.locate(["a", "b", "c"]) == "f.yaml:4"
    assert changed.locate(["a"]) == "f.yaml:1"


def test_setting_a_field_of_a_bare_name_makes_it_a_mapping() -> None:
    """``method: kangaroo`` and an axis ``method.k`` give the mapping a plug-in understands."""
    document = loads_yaml("method: kangaroo\n", "f.yaml").with_value(["method", "k"], 3)
    assert document.data == {"method": {"name": "kangaroo", "k": 3}}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (["n", "k"], "f.yaml:1: n: 5 has no field 'k'; set a field inside a mapping"),
        (["l", 4], "f.yaml:2: l: a list of 2 has no field 4; set a field inside a mapping"),
        (["l", "k"], "f.yaml:2: l: a list of 2 has no field 'k'; set a field inside a mapping"),
    ],
)
def test_nothing_can_be_set_inside_a_number_or_outside_a_list(
    path: list[str | int], message: str
) -> None:
    """An override that has no place is a mistake of the configuration."""
    with pytest.raises(ConfigError) as caught:
        loads_yaml("n: 5\nl: [1, 2]\n", "f.yaml").with_value(path, 1)
    assert str(caught.value) == message


def test_error_places_a_problem_found_later() -> None:
    """Code that finds a contradiction after parsing can still name line and field."""
    document = loads_yaml("a:\n  b: 1\n", "f.yaml")
    error = document.error(["a", "b"], "exceeds the layers\nof the model; give at most 31")
    assert str(error) == ("f.yaml:2: a.b: exceeds the layers\\nof the model; give at most 31")


def test_document_goes_to_another_process() -> None:
    """A document pickles with its positions."""
    document = loads_yaml("a: 1\n", "f.yaml")
    assert pickle.loads(pickle.dumps(document)) == document


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=20),
)
names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(names, trees, max_size=4))
def test_json_is_read_as_json(data: dict[str, Any]) -> None:
    """JSON is YAML: what a program wrote comes back equal, on one known line."""
    document = loads_yaml(json.dumps(data, ensure_ascii=False), "f.yaml")
    assert document.data == data
    assert all(document.locate([key]) == "f.yaml:1" for key in data)


def _refused_in_one_line(content: str | bytes) -> None:
    try:
        document = loads_yaml(content, "f.yaml")
    except ConfigError as error:
        message = str(error)
        assert message.startswith("f.yaml")
        assert len(message.splitlines()) == 1
    else:
        assert isinstance(document.data, dict)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    """Whatever a file holds: data, or one sentence."""
    _refused_in_one_line(content)


yaml_pieces = st.sampled_from(
    [
        "a",
        "b",
        ":",
        " ",
        "\n",
        "  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "&a ",
        "*a",
        "<<",
        "!",
        "!!int ",
    ]
    + [
        "'",
        '"',
        "\\",
        "|",
        ">",
        "#",
        "%",
        "---",
        "...",
        "?",
        "@",
        "\t",
        "1",
        ".",
        "e9",
        "~",
        "\x85",
    ]
    + ["\ufeff", "\u2028", "\\x", "\\U00110000", "!!str ", "%TAG ! x", "%YAML 1.1", "é", "\x7f"]
)


@given(st.lists(yaml_pieces, max_size=40).map("".join))
def test_any_text_that_looks_like_yaml_is_read_or_refused(text: str) -> None:
    """Random pieces of YAML syntax never raise anything else."""
    _refused_in_one_line(text)


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    a: float = Field(gt=0, le=10)
    b: list[int] = []
    c: Literal["x", "y"] = "x"


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    a: Inner | None = None
    b: int | list[Annotated[float, Field(ge=0)]] = 1
    c: dict[int, tuple[float, str]] = {}
    d: dict[str, Inner] = {}
    e: Inner | float | str = 0.0
    f: bool = False
    g: Annotated[str, Field(pattern="^[a-z]+$")] | int = "g"


letters = st.sampled_from("abcdefgh")
inputs = st.recursive(
    st.one_of(scalars, letters),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(letters, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(letters, inputs, max_size=6))
def test_any_data_are_parsed_or_refused(data: dict[str, Any]) -> None:
    """Validation gives the model or one sentence that names the file, for any data."""
    document = loads_yaml(json.dumps(data, ensure_ascii=False), "f.yaml")
    try:
        parse(document, Outer)
    except ConfigError as error:
        message = str(error)
        assert message.startswith("f.yaml:1: ")
        assert len(message.splitlines()) == 1
