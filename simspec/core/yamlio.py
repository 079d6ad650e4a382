"""Strict YAML: every mistake is one sentence with file, line, field and the nearest choice.

:func:`load_yaml` reads a file into a :class:`Document`, which knows the line of every value;
:func:`parse` turns it into a pydantic model. Both raise :class:`~simspec.core.errors.ConfigError`
and nothing else, whatever the file holds::

    sweep.yaml:12: method.exit_layer: 40 is out of range; give a whole number from 1 to 31

Scalars follow YAML 1.2, see :mod:`simspec.core._yaml_nodes`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from simspec.core._explain import Problem, child, explain, explained, shown, silent_coercions
from simspec.core._yaml_nodes import YamlProblem, read_yaml
from simspec.core.errors import ConfigError, one_line
from simspec.core.resources import is_special

M = TypeVar("M", bound=BaseModel)
FieldPath = Sequence[str | int]

MAX_FILE_BYTES = 1_000_000
"""A configuration is a few kilobytes; reading YAML takes about 10 s per megabyte."""
_MAX_OTHERS = 5
"""Further mistakes named by line and field before the rest is only counted."""


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data and where each piece of it was written.

    Attributes
    ----------
    data : dict
        Text keys; values are None, bool, int, float, str, list or dict.
    name : str
        What messages call it: the path as the user gave it, or ``"command line"``.
    path : Path or None
        The file; None for text and for data made by a program.
    positions : mapping
        Line, counted from 1, of each field path; empty when the data have no lines.
    """

    data: dict[str, Any]
    name: str
    path: Path | None = None
    positions: Mapping[tuple[str | int, ...], int] = field(default_factory=dict)

    def locate(self, field_path: FieldPath = ()) -> str:
        """Return ``"file.yaml:12"`` for a field, or for its nearest parent that was written."""
        line = self.line(field_path)
        return self.name if line is None else f"{self.name}:{line}"

    def line(self, field_path: FieldPath = ()) -> int | None:
        """Return the line of a field or of its nearest parent; None without lines."""
        place = tuple(field_path)
        parents = (place[:length] for length in range(len(place), -1, -1))
        return next((self.positions[p] for p in parents if p in self.positions), None)

    def at(self, field_path: FieldPath = ()) -> Any:
        """Return the value at a field path.

        Raises
        ------
        ConfigError
            There is no such field.
        """
        value: Any = self.data
        for index, key in enumerate(field_path):
            inside, value = child(value, key)
            if not inside:
                raise self.error(field_path[: index + 1], "is missing; add it")
        return value

    def error(self, field_path: FieldPath, problem: str) -> ConfigError:
        """Return (not raise) the error that says ``problem`` about a field."""
        return ConfigError(_message(self, Problem(tuple(field_path), problem)))

    def with_value(
        self, field_path: FieldPath, value: Any, *, source: FieldPath | None = None
    ) -> Document:
        """Return a copy in which one nested value is replaced.

        Mappings on the way are made when absent, and a plug-in given by its bare name
        becomes ``{"name": ...}`` when a field inside it is set.

        Parameters
        ----------
        field_path : sequence of str or int
            Where the value goes, at least one step.
        value : plain data
            What goes there.
        source : sequence or None
            Field path whose line the new value gets in messages: a sweep's axis, for example.
            None: the line of the replaced value.

        Raises
        ------
        ConfigError
            A number, flag or list is in the way.
        """
        place = tuple(field_path)
        data = _replaced(self, self.data, place, 0, value)
        line = self.positions.get(place) if source is None else self.line(source)
        positions = {p: at for p, at in self.positions.items() if p[: len(place)] != place}
        if line is not None:
            positions[place] = line
        return replace(self, data=data, positions=positions)


def load_yaml(path: Path | str, *, error: type[ConfigError] = ConfigError) -> Document:
    """Read a YAML file.

    Parameters
    ----------
    path : Path or str
        The file.
    error : type
        Class of the errors raised, for profiles that have their own.

    Raises
    ------
    ConfigError
        The file cannot be read or is not one mapping in strict YAML.
    """
    name = _one_line(str(path))
    try:
        if is_special(Path(path)):
            raise error(f"{name}: is a pipe or a device; save it as a file and give that")
        with open(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as failure:
        raise error(f"{name}: {_why_unreadable(Path(path), failure)}") from failure
    if len(content) > MAX_FILE_BYTES:
        raise error(
            f"{name}: is larger than {MAX_FILE_BYTES // 1000} kB; give a configuration file"
        )
    document = loads_yaml(content, name, error=error)
    return replace(document, path=Path(path))


def loads_yaml(text: str | bytes, name: str, *, error: type[ConfigError] = ConfigError) -> Document:
    """Read YAML from a string, or from the bytes of a file; ``name`` stands in messages."""
    if isinstance(text, bytes):
        text = _decoded(text, name, error)
    try:
        data, positions = read_yaml(text)
        if not isinstance(data, dict):
            raise YamlProblem(
                f"the top level is {shown(data)}, not a mapping; write 'field: value' lines",
                positions[()],
            )
    except YamlProblem as problem:
        at = name if problem.line is None else f"{name}:{problem.line}"
        raise error(": ".join(filter(None, [at, dotted(problem.path), problem.problem]))) from None
    return Document(data, name, positions=positions)


def parse(
    document: Document,
    model: type[M],
    *,
    base: FieldPath = (),
    error: type[ConfigError] = ConfigError,
) -> M:
    """Validate a document, or the part of it under ``base``, into a pydantic model.

    Raises
    ------
    ConfigError
        One sentence on the first mistake in the order of the file, which also counts the
        others and says where they are.
    """
    data = document.at(base)
    try:
        result = model.model_validate(data)
    except ValidationError as failure:
        problems = explain(failure, model, data)
    else:
        problems = silent_coercions(data, result)
        if not problems:
            return result
    placed = [Problem((*base, *problem.path), problem.text) for problem in problems]
    raise error(_report(document, placed)) from None


def parse_mapping(
    data: Mapping[str, Any], model: type[M], where: str, *, error: type[ConfigError] = ConfigError
) -> M:
    """Validate data that has no file, for example options of a command.

    Parameters
    ----------
    where : str
        What messages begin with, for example ``"command line"``.
    """
    return parse(Document(dict(data), where), model, error=error)


def nested(model: type[M], value: object) -> M:
    """Validate a model inside a validator of another one; its mistakes keep their sentences.

    pydantic forgets the inner model when it merges the errors, and with it which fields would
    have been valid there.

    Raises
    ------
    ValidationError
        For the surrounding validation to collect.
    """
    try:
        return model.model_validate(value)
    except ValidationError as failure:
        raise explained(failure, model, value) from None


def dotted(field_path: FieldPath) -> str:
    """Return a field path for people: ``methods.1.exit_layer``."""
    return ".".join(_one_line(str(key)) for key in field_path)


def _report(document: Document, problems: list[Problem]) -> str:
    ordered = sorted(problems, key=lambda problem: document.line(problem.path) or 0)
    others = [
        " ".join(filter(None, [f"line {line}" if line else "", dotted(problem.path)]))
        for problem in ordered[1:]
        for line in [document.line(problem.path)]
    ]
    first = _message(document, ordered[0])
    if not others:
        return first
    hidden = [f"{len(others) - _MAX_OTHERS} elsewhere"] if len(others) > _MAX_OTHERS else []
    places = "; ".join([*others[:_MAX_OTHERS], *hidden])
    return f"{first} (and {len(others)} more: {places})"


def _message(document: Document, problem: Problem) -> str:
    at = document.locate(problem.path)
    return ": ".join(filter(None, [at, dotted(problem.path), _one_line(problem.text, None)]))


def _one_line(text: str, limit: int | None = 200) -> str:
    """Return text without control characters, shortened to ``limit``."""
    clean = one_line(text)
    return clean if limit is None or len(clean) <= limit else clean[: limit - 1] + "…"


def _decoded(content: bytes, name: str, error: type[ConfigError]) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise error(f"{name}:1: is UTF-16 text; save it as UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as failure:
        line = content.count(b"\n", 0, failure.start) + 1
        raise error(
            f"{name}:{line}: byte 0x{content[failure.start]:02x} is not UTF-8 text; "
            "save it as UTF-8"
        ) from failure


def _why_unreadable(path: Path, failure: OSError | ValueError) -> str:
    """Return the sentence for a file that cannot be opened."""
    if isinstance(failure, IsADirectoryError):
        return f"is a folder; give a YAML file ({_listing(path)})"
    if isinstance(failure, PermissionError):
        return "may not be read; check its permissions"
    if isinstance(failure, FileNotFoundError):
        folder = path.parent
        if not folder.is_dir():
            return f"no such file; there is no folder {_one_line(str(folder))!r} either"
        # A link to nothing stands in the folder itself.
        others = [name for name in _yaml_names(folder) if name != path.name]
        close = difflib.get_close_matches(path.name, others, n=1, cutoff=0.5)
        if close:
            return f"no such file; did you mean {str(folder / close[0])!r}?"
        return f"no such file; {_listing(folder)}"
    reason = failure.strerror if isinstance(failure, OSError) else str(failure)
    return f"cannot be read ({reason}); give the path of a YAML file"


def _yaml_names(folder: Path) -> list[str]:
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return []
    return sorted(_one_line(name) for name in names if name.endswith((".yaml", ".yml")))


def _listing(folder: Path) -> str:
    names = _yaml_names(folder)
    if not names:
        return "it holds no .yaml file" if folder.name else "no .yaml file is there"
    more = f", and {len(names) - 8} more" if len(names) > 8 else ""
    return "choices there: " + ", ".join(names[:8]) + more


def _replaced(
    document: Document, node: Any, place: tuple[str | int, ...], depth: int, value: Any
) -> Any:
    """Return ``node`` with ``value`` at ``place[depth:]``; what is not on the way is shared."""
    if depth == len(place):
        return value
    key = place[depth]
    if node is None:
        node = {}
    elif isinstance(node, str):
        node = {"name": node}
    if isinstance(node, Mapping) and isinstance(key, str):
        return {**node, key: _replaced(document, node.get(key), place, depth + 1, value)}
    if isinstance(node, list) and isinstance(key, int) and 0 <= key < len(node):
        items = list(node)
        items[key] = _replaced(document, node[key], place, depth + 1, value)
        return items
    raise document.error(
        place[:depth], f"{shown(node)} has no field {key!r}; set a field inside a mapping"
    )
