"""A ``config.json`` with positions: strict JSON and typed fields whose errors name the line.

Every message is one sentence of the form
``<file>:<line>: <key>: <what is wrong>; <what is allowed>``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from simspec.core.errors import ProfileError

MAX_BYTES = 4 * 2**20
"""A config.json is a few kilobytes; quantisation ignore lists reach some tens."""

_MAX_COUNT = 2**31 - 1


class _Repeated(Exception):
    """A key that stands twice in one object."""


@dataclass(frozen=True)
class ConfigFile:
    """The fields of a config, and where they stand.

    Attributes
    ----------
    label : str
        The file as messages name it.
    text : str
        The text it was read from, for line numbers.
    fields : mapping
        The fields of the language model: those of ``text_config`` in a multimodal config.
    start : int
        Offset in ``text`` at which the fields begin.
    """

    label: str
    text: str
    fields: Mapping[str, Any]
    start: int = 0

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raise the error that ``key`` has ``problem``, at the line of the key."""
        raise ProfileError(f"{self.label}:{self.line(key)}: {key}: {problem}")

    def line(self, key: str) -> int:
        """Return the line ``key`` stands on, that of the opening brace if it is absent."""
        found = re.compile(rf'"{re.escape(key)}"\s*:').search(self.text, self.start)
        at = found.start() if found else self.text.find("{", self.start)
        return self.text.count("\n", 0, max(at, 0)) + 1

    def has(self, key: str) -> bool:
        """Return whether ``key`` is given and not null."""
        return self.fields.get(key) is not None

    def count(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        """Return a whole number of at least ``minimum``; ``default`` where absent or null."""
        value = self.fields.get(key)
        if value is None:
            if default is None:
                self.fail(key, "is missing, and guessing it would change the model")
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"{_shown(value)} is not a whole number")
        if not minimum <= value <= _MAX_COUNT:
            self.fail(key, f"{value} is out of range; allowed: {minimum} to {_MAX_COUNT}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return a true or false; ``default`` where absent or null."""
        value = self.fields.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(key, f"{_shown(value)} is neither true nor false")
        return value

    def text_of(self, key: str, default: str | None = None) -> str:
        """Return a string; ``default`` where absent or null."""
        value = self.fields.get(key)
        if value is None:
            if default is None:
                self.fail(key, "is missing")
            return default
        if not isinstance(value, str):
            self.fail(key, f"{_shown(value)} is not a text")
        return value

    def sequence(self, key: str) -> Sequence[Any] | None:
        """Return a list, None where absent or null."""
        value = self.fields.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            self.fail(key, f"{_shown(value)} is not a list")
        return value

    def layer_indices(self, key: str) -> Sequence[int] | None:
        """Return a list of layer numbers from 0, None where absent or null."""
        values = self.sequence(key)
        for value in values or ():
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                self.fail(key, f"{_shown(value)} is not a layer number")
        return values


def parse_config(text: str, label: str) -> ConfigFile:
    """Parse the text of a config.

    Raises
    ------
    ProfileError
        Broken JSON (with its line), a key given twice, or not an object.
    """
    try:
        data = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        problem = f"{label}:{error.lineno}: not valid JSON: {error.msg}"
        raise ProfileError(f"{problem} (column {error.colno})") from None
    except _Repeated as error:
        key = str(error)
        second = list(re.finditer(rf'"{re.escape(key)}"\s*:', text))[-1]
        line = text.count("\n", 0, second.start()) + 1
        raise ProfileError(f"{label}:{line}: {key}: is given twice; keep one") from None
    except (ValueError, RecursionError) as error:
        reason = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        if "digits" in reason:  # Python's own limit, with advice for programmers
            reason = "a whole number has thousands of digits"
        raise ProfileError(f"{label}: not a model config: {reason}") from None
    if not isinstance(data, dict):
        raise ProfileError(f"{label}:1: a model config is a JSON object, not {_shown(data)}")
    return ConfigFile(label=label, text=text, fields=data)


def read_config(path: Path) -> ConfigFile:
    """Read and parse a config file.

    Raises
    ------
    ProfileError
        The file cannot be read as UTF-8 JSON of a sensible size.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ProfileError(
                f"{path}: {size} bytes is too large for a config.json (at most {MAX_BYTES})"
            )
        raw = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ProfileError(f"{path}:{line}: not UTF-8 text (byte {error.start})") from None
    if not text.strip():
        raise ProfileError(f"{path}:1: the file is empty")
    return parse_config(text, str(path))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _Repeated(key)
        result[key] = value
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "..."
