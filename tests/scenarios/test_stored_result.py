"""A stored result is looked at before it is compared."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from simspec.core.errors import ConfigError
from simspec.scenarios.stored_result import read_result

GOOD: dict[str, Any] = {
    "status": "ok",
    "manifest": {
        "seed": 1,
        "simspec_version": "0",
        "git_commit": None,
        "workload_files": [],
        "scenario": {"workload": {}, "simulation": {"warmup": "auto"}},
    },
    "precision": {"samples": 2},
    "by_replication": {"tpot_ms": [1.0, None]},
}


def write(folder: Path, document: object) -> None:
    (folder / "result.json").write_text(json.dumps(document))


def test_a_whole_result_is_read(tmp_path: Path) -> None:
    """What is right comes back as it is."""
    write(tmp_path, GOOD)
    assert read_result(tmp_path) == GOOD


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("manifest",), 3, "manifest.seed"),
        (("manifest", "seed"), "x", "manifest.seed"),
        (("precision", "samples"), 0, "precision.samples"),
        (("by_replication", "tpot_ms"), [1.0], "by_replication.tpot_ms"),
        (("by_replication", "tpot_ms"), [1.0, "2"], "by_replication.tpot_ms"),
        (("by_replication", "tpot_ms"), [1.0, 1e300], "by_replication.tpot_ms"),
        (("status",), "unstable", "reason"),
    ],
)
def test_what_is_of_the_wrong_kind_is_named(
    tmp_path: Path, path: tuple[str, ...], value: object, field: str
) -> None:
    """One sentence with the file and the field."""
    document = copy.deepcopy(GOOD)
    inner: Any = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    write(tmp_path, document)
    with pytest.raises(
        ConfigError, match=rf"result\.json: {field} is missing or of the wrong kind"
    ):
        read_result(tmp_path)


def test_no_result_and_no_json(tmp_path: Path) -> None:
    """An empty folder, and a cut file."""
    with pytest.raises(ConfigError, match=r"no result\.json here"):
        read_result(tmp_path)
    (tmp_path / "result.json").write_text('{"status": ')
    with pytest.raises(ConfigError, match="not valid JSON"):
        read_result(tmp_path)
