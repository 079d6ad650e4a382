"""``result.json`` of an earlier simulation, read again and looked at before it is believed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simspec.core.errors import ConfigError
from simspec.core.json_text import parse_json
from simspec.scenarios.result_folder import RESULT

_MOST = 1e100
"""Beyond every value of a metric, and sums of squares of such values are still numbers."""


def read_result(folder: Path) -> dict[str, Any]:
    """Return the result in a folder that ``simspec simulate --output`` wrote.

    Raises
    ------
    ConfigError
        There is none, or it lacks what comparing needs; the message names the field.
    """
    path = folder / RESULT
    try:
        document = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(
            f"{folder}: no {RESULT} here; give a folder that 'simspec simulate --output' wrote, or "
            "a scenario file"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); check the path and its rights"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path}: not valid JSON ({error}); simulate again") from None
    if (field := _wrong_field(document)) is not None:
        raise ConfigError(
            f"{path}: {field} is missing or of the wrong kind, so this is not the result of a "
            "simulation by this version; simulate again with --output"
        )
    assert isinstance(document, dict)
    return document


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


_NEEDED: tuple[tuple[str, Callable[[object], bool]], ...] = (
    ("status", _is_text),
    ("manifest.seed", _is_count),
    ("manifest.simspec_version", _is_text),
    ("manifest.git_commit", lambda value: value is None or _is_text(value)),
    ("manifest.workload_files", lambda value: isinstance(value, list)),
    ("manifest.scenario.workload", _is_mapping),
    ("manifest.scenario.simulation", _is_mapping),
    ("manifest.scenario.simulation.warmup", lambda value: isinstance(value, str | int | float)),
    ("precision.samples", lambda value: _is_count(value) and value != 0),
    ("by_replication", _is_mapping),
)


def _wrong_field(document: object) -> str | None:
    """Return the first field that cannot be compared; None when all can."""
    for field, is_right in _NEEDED:
        value = document
        for key in field.split("."):
            if not isinstance(value, Mapping) or key not in value:
                return field
            value = value[key]
        if not is_right(value):
            return field
    assert isinstance(document, Mapping)
    if document["status"] != "ok" and not _is_text(document.get("reason")):
        return "reason"
    samples = document["precision"]["samples"]
    for metric, values in document["by_replication"].items():
        is_whole = isinstance(values, list) and len(values) == samples
        if not is_whole or not all(_is_value(value) for value in values):
            return f"by_replication.{metric}"
    return None


def _is_value(value: object) -> bool:
    if value is None:
        return True
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) < _MOST  # type: ignore[arg-type]
