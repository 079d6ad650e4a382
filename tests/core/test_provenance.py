"""Manifests identify a result; files are whole or absent; JSON is canonical."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import simspec
from simspec.core import provenance
from simspec.core.provenance import manifest, sha256_of, to_json, write_atomic, write_json

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_hash_is_sha256(tmp_path: Path) -> None:
    """Bytes and a file of the same bytes have the same hash (empty input: FIPS 180-4)."""
    path = tmp_path / "x"
    path.write_bytes(b"")
    assert sha256_of(b"") == sha256_of(path) == EMPTY_SHA256
    path.write_bytes(b"abc" * 100_000)
    assert sha256_of(path) == hashlib.sha256(b"abc" * 100_000).hexdigest()


def test_manifest_names_versions_inputs_and_seed(tmp_path: Path) -> None:
    """Everything a number depends on is there, inputs by hash."""
    path = tmp_path / "scenario.yaml"
    path.write_bytes(b"")
    made = manifest({"scenario": path, "axis": b""}, 7, command="simspec sweep")
    assert made["simspec_version"] == simspec.__version__
    assert made["inputs"] == {
        "axis": {"sha256": EMPTY_SHA256},
        "scenario": {"sha256": EMPTY_SHA256},
    }
    assert made["seed"] == 7
    assert made["command"] == "simspec sweep"
    versions = made["library_versions"]
    assert isinstance(versions, dict)
    assert versions["numpy"] == np.__version__


def test_manifest_does_not_change_from_run_to_run() -> None:
    """Two manifests of the same inputs are the same bytes: no clock, no host."""
    assert to_json(manifest({"a": b"1"}, 0)) == to_json(manifest({"a": b"1"}, 0))


def test_commit_is_a_commit_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkout the full commit is recorded, and whether files are changed."""
    commit = provenance.git_commit()
    assert commit is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", commit)
    monkeypatch.setattr(provenance, "_checkout", lambda: tmp_path)
    assert provenance.git_commit() is None
    (tmp_path / ".git").mkdir()
    assert provenance.git_commit() is None


@dataclass(frozen=True)
class Point:
    x: float
    tags: tuple[str, ...]


class Settings(BaseModel):
    alpha: float


def test_json_writes_our_types_as_plain_data() -> None:
    """NumPy values, dataclasses, models, paths, sets and tuples become JSON."""
    data = {
        "b": np.float64(1.5),
        "a": np.array([[1, 2]]),
        "point": Point(np.float32(0.5).item(), ("x",)),
        "model": Settings(alpha=0.25),
        "path": Path("a") / "b",
        "set": {"q", "p"},
        3: np.bool_(True),
    }
    assert json.loads(to_json(data)) == {
        "3": True,
        "a": [[1, 2]],
        "b": 1.5,
        "model": {"alpha": 0.25},
        "path": "a/b",
        "point": {"tags": ["x"], "x": 0.5},
        "set": ["p", "q"],
    }


def test_json_has_no_nan() -> None:
    """A number that does not exist is null, so that every reader can read the file."""
    assert json.loads(to_json([float("nan"), float("inf"), np.float64("nan")])) == [None] * 3


def test_json_refuses_what_has_no_plain_form() -> None:
    """An object that would lose its meaning is an error of the programmer."""
    with pytest.raises(TypeError, match="cannot write object as JSON"):
        to_json({"a": object()})


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=5))
def test_json_is_canonical(data: dict[str, int | str]) -> None:
    """The order of insertion leaves no trace; the text ends with one newline."""
    turned = dict(reversed(list(data.items())))
    assert to_json(data) == to_json(turned)
    assert to_json(data).endswith("\n")
    assert json.loads(to_json(data)) == data


def test_written_file_is_readable_and_alone(tmp_path: Path) -> None:
    """A file has the permissions of any new file, and nothing else is left beside it."""
    path = tmp_path / "manifest.json"
    write_json(path, {"b": 1, "a": 2})
    assert path.read_text() == '{\n  "a": 2,\n  "b": 1\n}\n'
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    assert {p.name for p in tmp_path.iterdir()} == {"manifest.json", "plain"}


def test_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C before the rename leaves the old content and no half-written file."""
    path = tmp_path / "x"
    write_atomic(path, b"old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
