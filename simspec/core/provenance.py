"""What a result was made from, and files written so that they are whole or absent.

A manifest holds nothing that changes from run to run: two runs of the same code on the same
inputs write the same bytes. The time of a run is kept apart (:func:`created_at`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import platform
import secrets
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from simspec import __version__

_LIBRARIES = ("numpy", "pandas", "pyarrow", "pydantic", "scipy", "simpy")
"""Libraries whose version can move a number."""


def manifest(
    inputs: Mapping[str, bytes | Path], seed: int | None, **facts: object
) -> dict[str, object]:
    """Return what identifies a result.

    Parameters
    ----------
    inputs : mapping
        Every file or text the numbers depend on, by the name shown to people.
    seed : int or None
        Experiment seed; None when nothing is random.
    **facts : plain data
        Whatever else belongs to the result, for example ``acceptance`` or ``command``.
    """
    return {
        "simspec_version": __version__,
        "git_commit": git_commit(),
        "python_version": platform.python_version(),
        "library_versions": {name: _installed(name) for name in _LIBRARIES},
        "inputs": {name: {"sha256": sha256_of(inputs[name])} for name in sorted(inputs)},
        "seed": seed,
        **facts,
    }


def sha256_of(source: bytes | Path) -> str:
    """Return the SHA-256 of bytes or of a file's content, in hexadecimal."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def created_at() -> str:
    """Return the current time in UTC, for logs and pages that need not be reproducible."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def git_commit() -> str | None:
    """Return the commit of the checkout simspec runs from, ``-dirty`` if files are changed.

    None for an installed package or without git.
    """
    if not (_checkout() / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(
            command, cwd=_checkout(), capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def to_json(obj: object) -> str:
    """Return canonical JSON: sorted keys, two spaces, UTF-8 text, a newline at the end.

    NumPy values, dataclasses, pydantic models, paths and sets are written as plain data.
    NaN and infinity, which JSON does not have, become ``null``: "there is no such number".
    """
    plain = _plain(obj)
    text = json.dumps(plain, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return text + "\n"


def write_json(path: Path, obj: object) -> None:
    """Write canonical JSON (see :func:`to_json`); the file is whole or unchanged."""
    write_atomic(path, json_bytes(obj))


def json_bytes(obj: object) -> bytes:
    """Return canonical JSON as UTF-8; bytes of a file name that are no text become ``\\udcff``."""
    return to_json(obj).encode("utf-8", "backslashreplace")


def why_no_folder(directory: Path) -> str | None:
    """Return why results cannot be written into ``directory``; None when they can.

    Asked before hours of work; makes nothing.
    """
    for place in (directory, *directory.parents):
        try:
            os.lstat(place)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            return getattr(error, "strerror", None) or str(error)
        if not place.is_dir():
            return f"{place} is not a folder"
        return None if os.access(place, os.W_OK | os.X_OK) else f"{place} may not be written"
    return None


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that a crash at any time leaves the old file or the new one, whole."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _checkout() -> Path:
    return Path(__file__).resolve().parents[2]


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plain(obj: object) -> object:
    """Return nested dicts, lists and scalars that ``json`` takes, keys as text."""
    if isinstance(obj, (str, bool, int)) or obj is None:
        return obj
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    if isinstance(obj, np.generic):
        return _plain(obj.item())
    if isinstance(obj, np.ndarray):
        return _plain(obj.tolist())
    if isinstance(obj, BaseModel):
        return _plain(obj.model_dump())
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return {f.name: _plain(getattr(obj, f.name)) for f in dataclasses.fields(obj)}
    if isinstance(obj, Mapping):
        return {str(key): _plain(value) for key, value in obj.items()}
    if isinstance(obj, (set, frozenset)):
        return sorted((_plain(item) for item in obj), key=repr)
    if isinstance(obj, (list, tuple)):
        return [_plain(item) for item in obj]
    if isinstance(obj, Path):
        return obj.as_posix()
    raise TypeError(f"cannot write {type(obj).__name__} as JSON")
