"""pydantic's validation errors in plain words.

Each error becomes the place in the input and one sentence: what is wrong with which value,
and what is allowed there.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from simspec.core._field_types import (
    Option,
    describe,
    fields_at,
    literal_choices,
    options_of,
    step,
)
from simspec.core.errors import nearest
from simspec.core.units import parse_quantity, split_name

FieldPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in the input: where it is and what is wrong."""

    path: FieldPath
    text: str


@dataclass(frozen=True, slots=True)
class _Error:
    """One pydantic error, placed in the input and in the model."""

    kind: str
    path: FieldPath
    from_union: bool
    """Whether pydantic tried several types; then it reports each of them."""
    value: object
    context: Mapping[str, Any]
    message: str
    options: list[Option]
    """What the model allows at ``path``; empty when unknown."""
    siblings: list[str]
    """Names of the fields allowed beside ``path``; empty when unknown."""
    is_key: bool
    """Whether the key of a table is wrong, not the value under it."""


_NOUNS = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "path_type": "a path",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "iterable_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
    "none_required": "empty",
}
"""Errors that say only "wrong type", and the type that was wanted."""

_OUT_OF_RANGE = {
    "greater_than": ("gt", "above {}"),
    "greater_than_equal": ("ge", "of at least {}"),
    "less_than": ("lt", "below {}"),
    "less_than_equal": ("le", "of at most {}"),
    "multiple_of": ("multiple_of", "that is a multiple of {}"),
}


def explain(error: ValidationError, model: type[BaseModel], data: object) -> list[Problem]:
    """Return every mistake of ``data`` against ``model`` in plain words, one per place."""
    return [Problem(group[0].path, _sentence(group)) for group in _grouped(error, model, data)]


def explained(error: ValidationError, model: type[BaseModel], data: object) -> ValidationError:
    """Return the same errors with plain sentences, for a model inside another one.

    pydantic forgets the inner model when it merges the errors of a validator into those of
    the outer model, and with it the valid fields and ranges.
    """
    return ValidationError.from_exception_data(
        model.__name__,
        [
            InitErrorDetails(
                # The same kind, so that the outer model places it the same way.
                type=PydanticCustomError(
                    group[0].kind, "{sentence}", {"sentence": _sentence(group)}
                ),
                loc=group[0].path,
                input=group[0].value,
            )
            for group in _grouped(error, model, data)
        ],
    )


def _grouped(error: ValidationError, model: type[BaseModel], data: object) -> list[list[_Error]]:
    """Return the errors that matter, those about one place together."""
    placed = [_place(item, model, data) for item in error.errors(include_url=False)]
    by_path: dict[FieldPath, list[_Error]] = {}
    for item in placed:
        deeper = any(_is_below(other.path, item.path) for other in placed)
        if item.from_union and item.kind in _NOUNS and deeper:
            # ``float | list[float]`` given a list with one bad item: only the item is wrong.
            continue
        if item.kind == "too_short" and deeper:
            # pydantic counts only the items that were right: the wrong one is the mistake.
            continue
        if item.kind == "missing" and any(_means(other, item) for other in placed):
            # A misspelled field: one mistake, one sentence.
            continue
        by_path.setdefault(item.path, []).append(item)
    return list(by_path.values())


def silent_coercions(data: object, value: object, path: FieldPath = ()) -> list[Problem]:
    """Return what pydantic accepted although it was hardly meant.

    ``true`` where a number belongs becomes 1, and the text ``nan`` becomes a float.
    """
    if isinstance(value, BaseModel) and isinstance(data, Mapping):
        pairs = [
            (info.validation_alias or name, getattr(value, name))
            for name, info in type(value).model_fields.items()
        ]
        return _coercions_below(pairs, data, path)
    if isinstance(value, Mapping) and isinstance(data, Mapping):
        pairs = [(str(key), item) for key, item in value.items()]
        return _coercions_below(pairs, data, path)
    if isinstance(value, (list, tuple)) and isinstance(data, list) and len(value) == len(data):
        return [
            problem
            for index, (given, item) in enumerate(zip(data, value, strict=True))
            for problem in silent_coercions(given, item, (*path, index))
        ]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and isinstance(data, bool):
        return [Problem(path, f"{shown(data)} is not a number; give a number")]
    if isinstance(value, float) and not math.isfinite(value) and isinstance(data, str):
        return [Problem(path, f"{shown(data)} is not a usable number; give a finite one")]
    return []


def shown(value: object) -> str:
    """Return a value as YAML would show it, shortened, on one line."""
    if value is None:
        return "an empty value"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:39] + "…")
    if isinstance(value, (int, float)):
        return f"{value!r}"[:40]
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, Sequence):
        return f"a list of {len(value)}" if value else "an empty list"
    return type(value).__name__


def _coercions_below(
    pairs: Sequence[tuple[object, object]], data: Mapping[Any, object], path: FieldPath
) -> list[Problem]:
    return [
        problem
        for key, item in pairs
        if isinstance(key, str) and key in data
        for problem in silent_coercions(data[key], item, (*path, key))
    ]


def _place(item: Any, model: type[BaseModel], data: object) -> _Error:
    """Follow pydantic's location through data and model, dropping the union tags in it."""
    kind, location = str(item["type"]), list(item["loc"])
    options: list[Option] | None = options_of(model)
    siblings: list[str] = []
    path: FieldPath = ()
    from_union = False
    here = data
    for index, key in enumerate(location):
        fields = fields_at(options or [])
        inside, below = child(here, key)
        ends_here = index == len(location) - 1 and kind in ("missing", "extra_forbidden")
        if not (inside or ends_here or (fields is not None and key in fields)):
            from_union = from_union or key != "[key]"
            continue
        siblings = sorted(fields or ())
        options = step(options or [], key)
        path = (*path, key)
        here = below
    return _Error(
        kind=kind,
        path=path,
        from_union=from_union,
        value=item["input"],
        context=item.get("ctx") or {},
        message=str(item["msg"]),
        options=options or [],
        siblings=siblings,
        is_key="[key]" in location,
    )


def child(data: object, key: str | int) -> tuple[bool, object]:
    """Return whether ``data`` has ``key``, and what stands there."""
    if isinstance(data, Mapping):
        # Keys are text in a document; pydantic reports a table's key as it converted it.
        name = key if key in data else str(key)
        return name in data, data.get(name)
    if isinstance(data, list) and isinstance(key, int):
        inside = 0 <= key < len(data)
        return inside, data[key] if inside else None
    return False, None


def _is_below(path: FieldPath, ancestor: FieldPath) -> bool:
    return len(path) > len(ancestor) and path[: len(ancestor)] == ancestor


def _sentence(group: list[_Error]) -> str:
    """Return the sentence for all errors at one place."""
    written = next((item for item in group if "sentence" in item.context), None)
    if written is not None:
        return written.message
    others = [item for item in group if item.kind not in _NOUNS]
    if len(group) > 1 and group[0].value is not None and len(others) < len(group):
        others = [item for item in others if _same_kind_of_value(item)]
    first = others[0] if others else group[0]
    if first.kind in _NOUNS:
        return _wrong_type(group)
    return _explain_one(first)


def _same_kind_of_value(item: _Error) -> bool:
    """Whether the value reached a check beyond its type in one branch of a union."""
    return item.kind in _OUT_OF_RANGE or item.kind.startswith(("string_", "too_", "value_"))


def _wrong_type(group: list[_Error]) -> str:
    first = group[0]
    nouns = list(dict.fromkeys(_NOUNS[item.kind] for item in group if item.kind in _NOUNS))
    expected = " or ".join(nouns)
    if first.is_key:
        return f"the key {shown(first.value)} is not {expected}; use {expected} as key"
    wanted = describe(first.options) or expected
    if first.value is None:
        return f"has no value; give {wanted}"
    if first.kind == "string_type" and isinstance(first.value, (int, float)):
        return f"{shown(first.value)} is not text; put it in quotes"
    hint = _unit_hint(first) if any("number" in noun for noun in nouns) else ""
    if wanted == expected and not hint:
        return f"expected {expected}, found {shown(first.value)}"
    return f"{shown(first.value)} is not {expected}; {hint}give {wanted}"


def _unit_hint(item: _Error) -> str:
    """Return what to say to ``bandwidth_gb_s: 3.35 TB/s``, else nothing."""
    written = parse_quantity(item.value) if isinstance(item.value, str) else None
    field = next((key for key in reversed(item.path) if isinstance(key, str)), "")
    unit = split_name(field)[1]
    if written is None:
        return ""
    if unit is None:
        return "write the number without a unit: "
    number, given = written
    if given is not None and given.dimension == unit.dimension:
        plain = number * given.to_si / unit.to_si
        return f"the unit {unit.symbol} stands in the name, write {plain:g}: "
    return f"the unit {unit.symbol} stands in the name: "


def _explain_one(item: _Error) -> str:
    """Return the sentence for one error that is not a plain wrong type."""
    kind, context = item.kind, item.context
    wanted = describe(item.options)
    if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return f"is missing; give {wanted}" if wanted else "is missing; add it"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return _unknown_field(item)
    if kind in _OUT_OF_RANGE:
        name, words = _OUT_OF_RANGE[kind]
        rule = wanted or f"a number {words.format(context.get(name))}"
        return f"{shown(item.value)} is out of range; give {rule}"
    if kind == "finite_number":
        return f"{shown(item.value)} is not a usable number; give {wanted or 'a finite number'}"
    if kind in ("literal_error", "enum"):
        return _not_a_choice(item)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        expected = str(context.get("expected_tags", ""))
        key = str(context.get("discriminator", "")).strip("'")
        tags = re.findall(r"'([^']*)'", expected) or [expected]
        given = context.get("tag")
        if given is None:
            return f"{key} is missing; {nearest('', tags)}"
        return f"unknown {key} {shown(str(given))}; {nearest(str(given), tags)}"
    if kind in ("value_error", "assertion_error"):
        cause = context.get("error")
        return str(cause) if cause is not None and str(cause) else _cleaned(item.message)
    if kind in ("too_short", "too_long", "string_too_short", "string_too_long"):
        return _wrong_length(item)
    if kind == "string_pattern_mismatch":
        return f"{shown(item.value)} has the wrong form; give text like {context.get('pattern')}"
    if kind.startswith("plugin_") or not _is_builtin(item):
        return item.message
    return f"{shown(item.value)} is not accepted ({_cleaned(item.message)}); " + (
        f"give {wanted}" if wanted else "see the reference of this field"
    )


def _is_builtin(item: _Error) -> bool:
    """Whether the message is pydantic's own; ours are written for people already."""
    return item.message.startswith(("Input ", "Value ", "Unable ", "JSON ", "Invalid "))


def _cleaned(message: str) -> str:
    """Return pydantic's sentence without its habits."""
    text = re.sub(r"^(Value error|Assertion failed), ", "", message)
    return text[:1].lower() + text[1:]


def _means(unknown: _Error, missing: _Error) -> bool:
    """Whether an unknown field is a misspelling of a missing one beside it."""
    if unknown.kind != "extra_forbidden" or unknown.path[:-1] != missing.path[:-1]:
        return False
    return _intended(str(unknown.path[-1]), unknown.siblings)[0] == missing.path[-1]


def _intended(name: str, known: list[str]) -> tuple[str | None, bool]:
    """Return the field that was probably meant, and whether only its unit is missing."""
    stem, _ = split_name(name)
    for candidate in known:
        candidate_stem, unit = split_name(candidate)
        if unit is not None and candidate_stem == stem:
            return candidate, True
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return (close[0] if close else None), False


def _unknown_field(item: _Error) -> str:
    name = str(item.path[-1]) if item.path else ""
    if not item.siblings:
        return "unknown field; remove it"
    meant, only_unit = _intended(name, item.siblings)
    if only_unit:
        return (
            f"unknown field; did you mean {meant!r}? (the unit is part of the name; "
            f"choices: {', '.join(item.siblings)})"
        )
    return f"unknown field; {nearest(name, item.siblings)}"


def _not_a_choice(item: _Error) -> str:
    expected = str(item.context.get("expected", ""))
    choices = literal_choices(item.options) or re.findall(r"'([^']*)'", expected)
    if not choices:
        return f"{shown(item.value)} is not a valid choice; choices: {expected}"
    if isinstance(item.value, str):
        return f"{shown(item.value)} is not a valid choice; {nearest(item.value, choices)}"
    return f"{shown(item.value)} is not a valid choice; choices: {', '.join(choices)}"


def _wrong_length(item: _Error) -> str:
    low, high = item.context.get("min_length"), item.context.get("max_length")
    unit = "character" if item.kind.startswith("string") else "item"
    bound = f"at least {low}" if low is not None else f"at most {high}"
    count = low if low is not None else high
    plural = "" if count == 1 else "s"
    fault = "too short" if low is not None else "too long"
    return f"{shown(item.value)} is {fault}; give {bound} {unit}{plural}"
