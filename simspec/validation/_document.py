"""A validation as one JSON document, written row by row.

A table of kernels has hundreds of thousands of rows; the document is never whole in memory.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from simspec.core.errors import ConfigError
from simspec.core.units import format_bytes, format_seconds, split_name
from simspec.validation._base import Comparison, LeftOut
from simspec.validation._summary import Errors, Key
from simspec.validation.api import COLUMNS_OF_A_GROUP, JudgedTable, ValidationResult

_BEYOND_READING = 1e15
_ENCODER = json.JSONEncoder(allow_nan=False)
_BATCH = 2000
"""Rows written at once."""


def comparison_dict(table: JudgedTable, row: Comparison) -> dict[str, object]:
    """Return one comparison under the keys of ``rows``."""
    return {
        "file": table.file,
        "line": row.line,
        "kind": table.kind,
        "quantity": row.quantity,
        "measured": row.measured,
        "predicted": row.predicted,
        "error": row.error,
        "interval": None if row.interval is None else list(row.interval),
        "group": row.group,
        "family": row.family or row.group,
        "role": row.role,
        "subject": dict(row.subject),
        "breakdown": dict(row.breakdown),
    }


def left_out_dict(table: JudgedTable, row: LeftOut) -> dict[str, object]:
    """Return one row that is left out under the keys of ``left_out``."""
    return {
        "file": table.file,
        "line": row.line,
        "kind": table.kind,
        "cause": row.cause,
        "reason": row.reason,
        "group": row.group,
        "subject": dict(row.subject),
    }


def parts_text(row: Comparison) -> str:
    """Return what a prediction is made of, with units: ``"memory 3.62 µs, overhead 12.9 µs"``.

    A key that ends in ``_bytes`` or ``_s`` is in that unit; any other is in seconds, of memory
    figures in bytes.
    """
    in_bytes = row.quantity in ("kv_cache_tokens", "kv_bytes_per_token")
    words = []
    for key, value in row.breakdown.items():
        name, unit = split_name(key)
        is_bytes = unit.symbol == "B" if unit is not None else in_bytes
        if abs(value) >= _BEYOND_READING:
            shown = f"{value:.3g} {'B' if is_bytes else 's'}"
        else:
            shown = format_bytes(value) if is_bytes else format_seconds(value)
        words.append(f"{name.replace('_', ' ')} {shown}")
    return ", ".join(words)


def summary_rows(errors: Mapping[Key, Errors], *by: str) -> list[dict[str, object]]:
    """Return a summary as one flat mapping a group."""
    names = (*COLUMNS_OF_A_GROUP, *by)
    return [
        {**dict(zip(names, key, strict=True)), **value.as_dict()} for key, value in errors.items()
    ]


def summary_dict(result: ValidationResult) -> dict[str, object]:
    """Return the errors overall, by family and by group, and what is left out."""
    return {
        "compared": result.num_compared,
        "left_out": result.num_left_out,
        "left_out_by_cause": result.causes(),
        "overall": summary_rows(result.summary()),
        "families": summary_rows(result.summary("family"), "family"),
        "groups": summary_rows(result.summary("group"), "group"),
        "tables": [
            {
                "file": table.file,
                "kind": table.kind,
                "rows": table.num_rows,
                "compared": len(table.comparisons),
                "left_out": len(table.left_out),
            }
            for table in result.tables
        ],
        "skipped": [{"file": file, "reason": reason} for file, reason in result.skipped],
    }


def document(result: ValidationResult, **facts: object) -> Iterator[str]:
    """Yield the document ``{"rows", "left_out", "summary", "manifest"}`` in pieces of text.

    Parameters
    ----------
    result : ValidationResult
        What was judged.
    **facts : plain data
        Further keys, for example ``check``.
    """
    pieces = _pieces(result, facts)
    while batch := list(islice(pieces, _BATCH)):
        yield "".join(batch)


def write_document(result: ValidationResult, path: Path, **facts: object) -> Path:
    """Write the document piece by piece; the file is whole or unchanged.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("x", encoding="ascii") as file:
            file.writelines(document(result, **facts))
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written ({error.strerror}); choose another folder with --output"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _pieces(result: ValidationResult, facts: Mapping[str, object]) -> Iterator[str]:
    yield '{\n"rows": ['
    yield from _listed(comparison_dict(*pair) for pair in result.rows())
    yield '],\n"left_out": ['
    yield from _listed(left_out_dict(*pair) for pair in result.left_out())
    yield "]"
    rest = {"summary": summary_dict(result), **facts, "manifest": result.manifest()}
    for name, value in rest.items():
        yield f",\n{json.dumps(name)}: {_json(value)}"
    yield "\n}\n"


def _listed(rows: Iterable[dict[str, object]]) -> Iterator[str]:
    separator = "\n"
    for row in rows:
        yield separator + _json(row)
        separator = ",\n"
    if separator != "\n":
        yield "\n"


def _json(value: object) -> str:
    # Pure ASCII: a subject may hold what the terminal or the file system's encoding cannot.
    try:
        return _ENCODER.encode(value)
    except (ValueError, TypeError):
        return _ENCODER.encode(_finite(value))


def _finite(value: Any) -> Any:
    """Return plain data; NaN and infinity, which JSON lacks, become null."""
    if isinstance(value, str) or value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return _finite(value.item()) if hasattr(value, "item") else str(value)
