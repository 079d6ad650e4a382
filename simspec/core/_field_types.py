"""What a pydantic model allows at each place of its input, in words.

pydantic reports the place and the kind of an error; the fields that would have been valid
there, and the range a number may have, must be read from the model.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Literal, Union

import annotated_types
from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class Option:
    """One type that is allowed at a place, with the constraints on it."""

    annotation: object
    metadata: tuple[object, ...] = ()


def options_of(annotation: object, metadata: Iterable[object] = ()) -> list[Option]:
    """Return the types an annotation allows, unions taken apart, None left out."""
    constraints = tuple(metadata)
    while True:
        if typing.get_origin(annotation) is Annotated:
            annotation, *more = typing.get_args(annotation)
            constraints += tuple(more)
        elif hasattr(annotation, "__supertype__"):  # NewType
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__"):  # the ``type X = ...`` statement
            annotation = annotation.__value__
        else:
            break
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return [
            option
            for part in typing.get_args(annotation)
            for option in options_of(part, constraints)
        ]
    return [] if annotation is type(None) else [Option(annotation, constraints)]


def fields_at(options: Iterable[Option]) -> dict[str, FieldInfo] | None:
    """Return the fields a mapping at this place may have, by the name used in the input.

    None when the place is not known to hold a model.
    """
    found: dict[str, FieldInfo] | None = None
    for option in options:
        model = _model_class(option.annotation)
        if model is None:
            continue
        found = found or {}
        for name, info in _model_fields(model).items():
            found.setdefault(_input_name(name, info), info)
    return found


def step(options: Iterable[Option], key: str | int) -> list[Option] | None:
    """Return the options one level down; None when the types do not know that level."""
    choices = list(options)
    fields = fields_at(choices)
    if fields is not None and key in fields:
        info = fields[str(key)]
        return options_of(info.annotation, info.metadata)
    below: list[Option] = []
    for option in choices:
        origin = typing.get_origin(option.annotation)
        args = typing.get_args(option.annotation)
        if not isinstance(origin, type) or not args:
            continue
        if issubclass(origin, Mapping):
            below += options_of(args[1])
        elif isinstance(key, int):
            # A tuple of fixed length has a type for each place.
            fixed = origin is tuple and args[-1] is not Ellipsis
            below += options_of(args[key] if fixed and key < len(args) else args[0])
    return below or None


def describe(options: Iterable[Option]) -> str | None:
    """Return what may stand at a place, for example ``"a whole number from 1 to 64"``.

    A model that can be written in more ways than as a mapping says so in a class attribute
    ``described_as``.
    """
    words: list[str] = []
    for option in options:
        word = _describe(option)
        if word is not None and word not in words:
            words.append(word)
    return ", or ".join(words) or None


def literal_choices(options: Iterable[Option]) -> list[str]:
    """Return the texts a closed choice allows at a place."""
    choices: list[str] = []
    for option in options:
        if typing.get_origin(option.annotation) is Literal:
            choices += [str(value) for value in typing.get_args(option.annotation)]
        elif isinstance(option.annotation, type) and issubclass(option.annotation, enum.Enum):
            choices += [str(member.value) for member in option.annotation]
    return choices


def _model_class(annotation: object) -> type[Any] | None:
    if isinstance(annotation, type) and (
        issubclass(annotation, BaseModel) or hasattr(annotation, "__pydantic_fields__")
    ):
        return annotation
    return None


def _model_fields(model: type[Any]) -> dict[str, FieldInfo]:
    if issubclass(model, BaseModel):
        return dict(model.model_fields)
    return dict(model.__pydantic_fields__)


def _input_name(name: str, info: FieldInfo) -> str:
    alias = info.validation_alias
    if isinstance(alias, AliasChoices):
        alias = next((choice for choice in alias.choices if isinstance(choice, str)), None)
    return alias if isinstance(alias, str) else name


_SIMPLE: dict[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
}


def _describe(option: Option) -> str | None:
    annotation, metadata = option.annotation, option.metadata
    choices = literal_choices([option])
    if choices:
        return "one of " + ", ".join(repr(choice) for choice in choices)
    if annotation in _SIMPLE:
        return " ".join(filter(None, [_SIMPLE[annotation], _range_words(metadata)]))
    origin = typing.get_origin(annotation) or annotation
    if not isinstance(origin, type):
        return None
    if issubclass(origin, PurePath):
        return "a path"
    model = _model_class(origin)
    if model is not None:
        described = getattr(model, "described_as", None)
        if isinstance(described, str):
            return described
        names = [_input_name(name, info) for name, info in _model_fields(model).items()]
        return "the fields " + ", ".join(names[:8]) + ", …" * (len(names) > 8)
    if issubclass(origin, Mapping):
        return "a mapping"
    if issubclass(origin, (list, tuple, set, frozenset)) or origin in _SEQUENCES:
        args = [arg for arg in typing.get_args(annotation) if arg is not Ellipsis]
        inner = describe(options_of(args[0])) if len(args) == 1 else None
        return f"a list ({inner} each)" if inner else "a list"
    return None


_SEQUENCES = (typing.get_origin(typing.Sequence[int]), typing.get_origin(typing.Iterable[int]))


def _range_words(metadata: Iterable[object]) -> str:
    low = high = step_words = ""
    for item in _flat(metadata):
        if isinstance(item, annotated_types.Gt):
            low = f"above {item.gt}"
        elif isinstance(item, annotated_types.Ge):
            low = f"of at least {item.ge}"
        elif isinstance(item, annotated_types.Lt):
            high = f"below {item.lt}"
        elif isinstance(item, annotated_types.Le):
            high = f"of at most {item.le}"
        elif isinstance(item, annotated_types.MultipleOf):
            step_words = f"that is a multiple of {item.multiple_of}"
    if low.startswith("of at least") and high.startswith("of at most"):
        words = f"from {low.removeprefix('of at least ')} to {high.removeprefix('of at most ')}"
    else:
        words = " and ".join(filter(None, [low, high]))
    return " ".join(filter(None, [words, step_words]))


def _flat(metadata: Iterable[object]) -> Iterable[object]:
    for item in metadata:
        if isinstance(item, annotated_types.GroupedMetadata):
            yield from item
        elif isinstance(item, FieldInfo):  # Annotated[int, Field(gt=0)] inside a list
            yield from item.metadata
        else:
            yield item
