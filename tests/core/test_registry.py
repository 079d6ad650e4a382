"""Plug-ins are found by file name, imported on use, and explain their own fields."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, SerializeAsAny

from simspec.core.errors import ConfigError
from simspec.core.registry import PluginConfig, Registry
from simspec.core.yamlio import loads_yaml, parse

FILES = {
    "__init__.py": "",
    "_base.py": "raise RuntimeError('never imported by listing')\n",
    "helpers.py": "",
    "square.py": (
        "from pydantic import Field\n"
        "from simspec.core.registry import PluginConfig\n"
        "class Config(PluginConfig):\n"
        "    side: int = Field(ge=1, le=9)\n"
        "    label: str = ''\n"
    ),
    "circle.py": (
        "from simspec.core.registry import PluginConfig\n"
        "class Config(PluginConfig):\n"
        "    radius: float = 1.0\n"
    ),
}
PACKAGE = "toy_shapes"


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry over a package written for this test."""
    folder = tmp_path / PACKAGE
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "nested").mkdir()
    (folder / "nested" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        del sys.modules[name]
    return Registry(PACKAGE, "shape", other_modules=["helpers"])


def test_names_are_the_public_files(shapes: Registry) -> None:
    """Private modules, packages and declared helpers are no plug-ins."""
    assert shapes.names() == ("circle", "square")


def test_listing_imports_no_plugin(shapes: Registry) -> None:
    """A plug-in costs nothing until it is used."""
    shapes.names()
    assert f"{PACKAGE}.square" not in sys.modules
    shapes.module("square")
    assert f"{PACKAGE}.square" in sys.modules


def test_name_or_mapping(shapes: Registry) -> None:
    """A bare name is a mapping with defaults; a parsed config passes through."""
    circle = shapes.parse("circle")
    assert (circle.name, circle.radius) == ("circle", 1.0)
    assert shapes.parse({"name": "circle", "radius": 2}).radius == 2.0
    assert shapes.parse(circle) is circle


def test_unknown_name_in_code_offers_the_nearest(shapes: Registry) -> None:
    """Asking for a module that is not there is a user's mistake."""
    with pytest.raises(ConfigError) as caught:
        shapes.module("squares")
    assert str(caught.value) == (
        "unknown shape 'squares'; did you mean 'square'? (choices: circle, square)"
    )


def _scene(shapes: Registry) -> type[BaseModel]:
    class Scene(BaseModel):
        model_config = ConfigDict(extra="forbid")

        shape: Annotated[SerializeAsAny[PluginConfig], BeforeValidator(shapes.parse)]
        others: list[Annotated[SerializeAsAny[PluginConfig], BeforeValidator(shapes.parse)]] = []

    return Scene


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "shape: squar\n",
            "a.yaml:1: shape: unknown shape 'squar'; did you mean 'square'? "
            "(choices: circle, square)",
        ),
        (
            "shape: square\n",
            "a.yaml:1: shape.side: is missing; give a whole number from 1 to 9",
        ),
        (
            "shape:\n  name: square\n  side: 12\n",
            "a.yaml:3: shape.side: 12 is out of range; give a whole number from 1 to 9",
        ),
        (
            "shape:\n  name: square\n  sides: 2\n",
            "a.yaml:3: shape.sides: unknown field; did you mean 'side'? "
            "(choices: label, name, side)",
        ),
        (
            "shape: circle\nothers:\n- circle\n- {name: circle, radius: big}\n",
            "a.yaml:4: others.1.radius: expected a number, found 'big'",
        ),
        (
            "shape: 3\n",
            "a.yaml:1: shape: give the name of a shape, or a mapping with a key 'name'; "
            "choices: circle, square",
        ),
        (
            "shape: {side: 3}\n",
            "a.yaml:1: shape: give the name of a shape, or a mapping with a key 'name'; "
            "choices: circle, square",
        ),
        (
            "others: []\n",
            "a.yaml:1: shape: is missing; give a name, or a mapping with a key 'name'",
        ),
    ],
)
def test_errors_keep_path_line_and_choices(shapes: Registry, text: str, message: str) -> None:
    """A mistake inside a plug-in is reported like one of the outer model."""
    with pytest.raises(ConfigError) as caught:
        parse(loads_yaml(text, "a.yaml"), _scene(shapes))
    assert str(caught.value) == message


def test_wrapped_parse_still_explains(shapes: Registry) -> None:
    """A validator that adds a short form around ``parse`` loses nothing of the messages."""

    def side_alone(value: object) -> object:
        return shapes.parse({"name": "square", "side": value} if value == 40 else value)

    class Scene(BaseModel):
        shape: Annotated[SerializeAsAny[PluginConfig], BeforeValidator(side_alone)]

    with pytest.raises(ConfigError) as caught:
        parse(loads_yaml("shape: 40\n", "a.yaml"), Scene)
    assert str(caught.value) == (
        "a.yaml:1: shape: 40 is out of range; give a whole number from 1 to 9"
    )
    with pytest.raises(ConfigError) as caught:
        parse(loads_yaml("shape: {name: square, sid: 4}\n", "a.yaml"), Scene)
    assert str(caught.value) == (
        "a.yaml:1: shape.sid: unknown field; did you mean 'side'? (choices: label, name, side)"
    )


def test_config_survives_dump_and_pickle(shapes: Registry) -> None:
    """A config goes to a worker process and to a file and comes back equal."""
    scene = parse(loads_yaml("shape: {name: square, side: 3}\n", "a.yaml"), _scene(shapes))
    shape = scene.shape  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(shape)) == shape
    assert shapes.parse(shape.model_dump()) == shape


def test_config_is_frozen_and_strict(shapes: Registry) -> None:
    """A parsed config cannot change under the simulation."""
    circle = shapes.parse("circle")
    with pytest.raises(ValueError, match="frozen"):
        circle.radius = 2.0
