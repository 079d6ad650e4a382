"""Two simulations beside each other: what differs, and whether the difference is more than chance.

Both must have met the same requests and tapes: same seed, same workload. Then the difference is
taken replication by replication, and its interval is that of paired values (common random
numbers; A. M. Law, *Simulation Modeling and Analysis*, 5th ed., section 10.2), far narrower than
the two intervals would allow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simspec.core.errors import ConfigError
from simspec.core.stats import paired_difference
from simspec.scenarios.report import SHOWN, simulate_file
from simspec.scenarios.stored_result import read_result
from simspec.serving.metrics import METRICS

_LABELS = frozenset({"name", "description"})
_SAMPLING = ("intervals", "num_batches")


@dataclass(frozen=True, slots=True)
class Difference:
    """What ``simspec diff`` prints."""

    document: dict[str, Any]
    header: list[str]

    def rows(self, *, everything: bool) -> list[dict[str, Any]]:
        """Return the rows of the table: the metrics that ``simulate`` shows, or all."""
        found = self.document["metrics"]
        names = [name for name in (found if everything else SHOWN) if name in found]
        return [
            {
                "metric": name,
                "A": row["a"],
                "B": row["b"],
                "B - A": row["difference"],
                "95 % low": row["ci95_low"],
                "95 % high": row["ci95_high"],
                "% of A": row["percent"],
                "excludes 0": row["excludes_zero"],
            }
            for name in names
            for row in [found[name]]
        ]


def diff_paths(a: Path, b: Path) -> Difference:
    """Compare two result folders or scenario files, which are simulated here.

    Raises
    ------
    ConfigError
        One of them is no result and no scenario, or the two did not meet the same requests.
    """
    # Both are read before either is simulated: a wrong name costs no waiting.
    read = [read_result(path) if path.is_dir() else None for path in (a, b)]
    documents = [
        simulate_file(path, baseline=False).document if found is None else found
        for path, found in zip((a, b), read, strict=True)
    ]
    return diff((str(a), documents[0]), (str(b), documents[1]))


def diff(a: tuple[str, Mapping[str, Any]], b: tuple[str, Mapping[str, Any]]) -> Difference:
    """Compare two results, each with the name shown to people.

    Raises
    ------
    ConfigError
        The two did not meet the same requests.
    """
    (name_a, first), (name_b, second) = a, b
    _require_common_tapes(name_a, first, name_b, second)
    counts = [_num_samples(document) for document in (first, second)]
    common = min(counts)
    changed = list(_changed(_scenario(first), _scenario(second)))
    document = {
        "a": name_a,
        "b": name_b,
        "samples": common,
        "changed": {field: {"a": x, "b": y} for field, x, y in changed},
        "status": {"a": first["status"], "b": second["status"]},
        "metrics": {
            metric: _compared(metric, first, second, common)
            for metric in METRICS
            if metric in first["by_replication"] and metric in second["by_replication"]
        },
    }
    header = [f"A  {name_a}", f"B  {name_b}"]
    header += [
        f"differs     {field}: {_short(x)} in A, {_short(y)} in B" for field, x, y in changed
    ]
    kind = "batches" if _sampling(first)["intervals"] == "batch_means" else "replications"
    header.append(f"paired      {common} {kind} on the same requests and tapes")
    if counts[0] != counts[1]:
        header.append(f"left out    A has {counts[0]} {kind}, B {counts[1]}: only the common ones")
    if any(_scenario(document)["simulation"]["warmup"] == "auto" for document in (first, second)):
        header.append(
            "warm-up     MSER-5 may end it at different requests in A and B; a given "
            "simulation.warmup ends it at the same one"
        )
    versions = [_version(document) for document in (first, second)]
    if versions[0] != versions[1]:
        header.append(f"versions    A was made by {versions[0]}, B by {versions[1]}")
    header += [
        f"{side} is {document['reason']}"
        for side, document in (("A", first), ("B", second))
        if document["status"] != "ok"
    ]
    return Difference(document, header)


def _compared(
    metric: str, first: Mapping[str, Any], second: Mapping[str, Any], common: int
) -> dict[str, Any]:
    x, y = (document["by_replication"][metric][:common] for document in (first, second))
    row: dict[str, Any] = dict.fromkeys(
        ("a", "b", "difference", "ci95_low", "ci95_high", "percent", "excludes_zero")
    )
    row["unit"] = METRICS[metric].unit
    for side, values in (("a", x), ("b", y)):
        if None not in values:
            row[side] = sum(values) / common
    if row["a"] is None or row["b"] is None:
        return row
    interval = paired_difference(y, x)
    row |= {
        "difference": interval.mean,
        "ci95_low": interval.low,
        "ci95_high": interval.high,
        "percent": 100.0 * interval.mean / row["a"] if row["a"] else None,
    }
    if interval.low is not None and interval.high is not None:
        row["excludes_zero"] = interval.low > 0.0 or interval.high < 0.0
    return row


def _require_common_tapes(
    name_a: str, first: Mapping[str, Any], name_b: str, second: Mapping[str, Any]
) -> None:
    seeds = [document["manifest"]["seed"] for document in (first, second)]
    if seeds[0] != seeds[1]:
        raise ConfigError(
            f"{name_a} and {name_b} have different seeds ({seeds[0]} and {seeds[1]}), so their "
            "requests and tapes differ and cannot be paired; simulate both with one "
            "simulation.seed"
        )
    loads = [_scenario(document).get("workload") for document in (first, second)]
    changed = [field for field, _, _ in _changed(loads[0], loads[1], "workload.")]
    if changed:
        raise ConfigError(
            f"{name_a} and {name_b} have different workloads ({', '.join(changed)}), so their "
            "requests differ and cannot be paired; give both the same workload"
        )
    files = [document["manifest"].get("workload_files") for document in (first, second)]
    if files[0] != files[1]:
        raise ConfigError(
            f"{name_a} and {name_b} read different contents of the workload's files, so their "
            "requests differ and cannot be paired; simulate both again"
        )
    samplings = [_sampling(document) for document in (first, second)]
    if samplings[0] != samplings[1]:
        raise ConfigError(
            f"{name_a} and {name_b} have different simulation.intervals, so their values cannot "
            "be paired; give both the same"
        )


def _scenario(document: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["manifest"]["scenario"]
    return {key: value for key, value in found.items() if key not in _LABELS}


def _sampling(document: Mapping[str, Any]) -> dict[str, Any]:
    simulation = _scenario(document)["simulation"]
    return {key: simulation.get(key) for key in _SAMPLING}


def _num_samples(document: Mapping[str, Any]) -> int:
    return int(document["precision"]["samples"])


def _version(document: Mapping[str, Any]) -> str:
    made = document["manifest"]
    return f"{made['simspec_version']} ({made['git_commit'] or 'no checkout'})"


def _changed(a: Any, b: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted fields that differ, with both values; mappings are looked into."""
    if not isinstance(a, Mapping) or not isinstance(b, Mapping):
        if a != b:
            yield prefix.rstrip("."), a, b
        return
    for key in dict.fromkeys([*a, *b]):
        yield from _changed(a.get(key), b.get(key), f"{prefix}{key}.")


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
