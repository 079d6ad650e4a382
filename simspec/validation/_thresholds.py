"""Recorded errors, so that a change that makes predictions worse does not pass unseen.

For every table the file ``thresholds.yaml`` holds its name, the hash of its content and, by
family and by group, the rows compared and the median, mean and 90th percentile of the absolute
error. A group fails when its median or mean is more than a tenth above the recorded one, or when
fewer rows are compared than were: leaving the bad rows out is no improvement. Errors that get
better are recorded anew on purpose only::

    simspec validate --write-thresholds simspec/validation/data/thresholds.yaml
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simspec.core.errors import ConfigError
from simspec.core.provenance import write_atomic
from simspec.core.yamlio import Document, load_yaml
from simspec.validation._summary import Collector, Errors
from simspec.validation.api import DATA, JudgedTable, ValidationResult

DEFAULT = DATA / "thresholds.yaml"

WORSE = 1.10
"""An error may grow by this factor; noise of other libraries and machines is far smaller."""
_NEGLIGIBLE = 0.001
"""Errors below a tenth of a per cent are rounding."""
_KINDS = ("families", "groups")
_NUMBERS = ("rows", "median", "mean", "p90")


@dataclass(frozen=True, slots=True)
class Failure:
    """A group that got worse."""

    file: str
    group: str
    what: str
    """One clause with both numbers."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether every recorded group is as good as it was."""

    num_groups: int
    failures: tuple[Failure, ...]
    unknown: tuple[str, ...]
    """Tables without a record."""

    @property
    def passed(self) -> bool:
        """Whether nothing got worse."""
        return not self.failures

    def as_dict(self) -> dict[str, object]:
        """Return the verdict as plain data."""
        return {
            "passed": self.passed,
            "groups": self.num_groups,
            "failures": [{"file": f.file, "group": f.group, "what": f.what} for f in self.failures],
            "without_record": list(self.unknown),
        }

    def lines(self) -> Iterator[str]:
        """Yield the verdict for people."""
        for failure in self.failures:
            yield f"worse: {failure.file}, {failure.group}: {failure.what}"
        for file in self.unknown:
            yield f"no recorded errors for {file}"
        state = "as good as recorded" if self.passed else f"{len(self.failures)} worse"
        yield f"check: {self.num_groups} groups, {state}"


def check_thresholds(result: ValidationResult, path: Path | None = None) -> Verdict:
    """Compare the errors of every group with the recorded ones.

    Parameters
    ----------
    result : ValidationResult
        What was judged.
    path : Path, optional
        The recorded errors; those that ship with simspec when not given.

    Raises
    ------
    ConfigError
        The file is wrong, or holds none of the tables.
    """
    source = path or DEFAULT
    by_hash = _groups_by_hash(load_yaml(source))
    failures: list[Failure] = []
    unknown: list[str] = []
    num_groups = 0
    for table in result.tables:
        groups = by_hash.get(table.sha256)
        if groups is None:
            unknown.append(table.file)
            continue
        errors = {name: value for kind in _KINDS for name, value in _errors(table, kind).items()}
        num_groups += len(groups)
        for name, record in groups.items():
            for what in _worse(errors.get(name), record):
                failures.append(Failure(table.file, name, what))
    if not num_groups:
        raise ConfigError(
            f"{source}: holds no recorded errors of {', '.join(unknown)} as it is now; record "
            "them with --write-thresholds, and give that file with --thresholds"
        )
    return Verdict(num_groups, tuple(failures), tuple(unknown))


def record(result: ValidationResult, path: Path) -> Path:
    """Write the errors of every table into ``path``; other tables recorded there stay.

    Raises
    ------
    ConfigError
        The file there is something else, or cannot be written.
    """
    old = recorded(path) if path.exists() else []
    names = {_recorded_as(table) for table in result.tables}
    kept = [entry for entry in old if entry["file"] not in names]
    lines = ["# Recorded by: simspec validate [FILE...] --write-thresholds", "tables:"]
    for entry in sorted([*kept, *map(_entry, result.tables)], key=lambda entry: entry["file"]):
        lines += [
            f"- file: {json.dumps(entry['file'])}",
            f"  sha256: {json.dumps(entry['sha256'])}",
        ]
        for kind in _KINDS:
            lines.append(f"  {kind}:" if entry[kind] else f"  {kind}: {{}}")
            for name, numbers in sorted(entry[kind].items()):
                inside = ", ".join(f"{key}: {value:g}" for key, value in numbers.items())
                lines.append(f"    {json.dumps(name)}: {{{inside}}}")
    try:
        write_atomic(path, ("\n".join(lines) + "\n").encode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error
    return path


def recorded(path: Path) -> list[dict[str, Any]]:
    """Return the recorded tables: ``file``, ``sha256``, ``families`` and ``groups``.

    Raises
    ------
    ConfigError
        The file is missing or wrong.
    """
    document = load_yaml(path)
    _groups_by_hash(document)
    tables: list[dict[str, Any]] = document.data["tables"]
    return tables


def _entry(table: JudgedTable) -> dict[str, Any]:
    entry: dict[str, Any] = {"file": _recorded_as(table), "sha256": table.sha256}
    for kind in _KINDS:
        entry[kind] = {
            name: {
                "rows": value.rows,
                "median": float(f"{value.median_abs_error:.4g}"),
                "mean": float(f"{value.mean_abs_error:.4g}"),
                "p90": float(f"{value.p90_abs_error:.4g}"),
            }
            for name, value in _errors(table, kind).items()
        }
    return entry


def _recorded_as(table: JudgedTable) -> str:
    # Where somebody keeps a file does not matter; its folder often names the device.
    return "/".join(table.path.resolve().parts[-2:])


def _errors(table: JudgedTable, kind: str) -> dict[str, Errors]:
    """Return the errors of a table by family or by group."""
    collector = Collector()
    for row in table.comparisons:
        name = row.group if kind == "groups" else row.family or row.group
        collector.add((row.quantity, row.role, name), row)
    return {" | ".join(key): value for key, value in collector.errors().items()}


def _worse(errors: Errors | None, recorded: Mapping[str, float]) -> Iterator[str]:
    if errors is None:
        yield f"no row is compared any more, {recorded['rows']:g} were"
        return
    if errors.rows < recorded["rows"]:
        yield f"{errors.rows} rows are compared, {recorded['rows']:g} were"
    for name, value in (("median", errors.median_abs_error), ("mean", errors.mean_abs_error)):
        if value > WORSE * recorded[name] + _NEGLIGIBLE:
            yield f"{name} error {value:.2%}, recorded {recorded[name]:.2%}"


def _groups_by_hash(document: Document) -> dict[str, dict[str, dict[str, float]]]:
    """Return the recorded families and groups of every table, by the hash of its content."""
    tables = document.at(["tables"])
    if not isinstance(tables, list):
        raise document.error(["tables"], "is not a list; record it with --write-thresholds")
    found: dict[str, dict[str, dict[str, float]]] = {}
    for index in range(len(tables)):
        named = found[str(document.at(["tables", index, "sha256"]))] = {}
        document.at(["tables", index, "file"])
        for kind in _KINDS:
            groups = document.at(["tables", index, kind])
            for name, numbers in groups.items() if isinstance(groups, dict) else ():
                if not _is_record(numbers):
                    raise document.error(
                        ["tables", index, kind, name], f"does not hold {', '.join(_NUMBERS)}"
                    )
                named[name] = numbers
    return found


def _is_record(numbers: object) -> bool:
    return (
        isinstance(numbers, dict)
        and set(numbers) == set(_NUMBERS)
        and all(isinstance(value, int | float) for value in numbers.values())
    )
