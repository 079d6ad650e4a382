"""Choose the built-in set of published figures from larger tables, by what rows are.

From every group of rows (one device, engine, model and format, or one source) the same number is
taken, evenly over the file, whatever their errors; of the rows that are refuted or suspect one for
each reason, so that the set shows them too. Rows are copied as they stand, source included.

::

    python benchmarks/choose_built_in.py shared/reference simspec/validation/data
    simspec validate --write-thresholds simspec/validation/data/thresholds.yaml
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simspec.validation.api import JudgedTable, validate

ROWS_PER_GROUP = {
    "kv_capacity_reports.csv": 100,
    "measured_inference.csv": 1,
    "verify_cost_curves.csv": 8,
}
"""Tables that may be shown in part, and how many rows of each group are."""
MAX_LEFT_OUT = 12


def chosen_lines(table: JudgedTable, per_group: int) -> set[int]:
    """Return the lines of a table that belong to the set."""
    groups: dict[str, list[int]] = {}
    for row in table.comparisons:
        lines = groups.setdefault(row.group, [])
        if row.line not in lines[-1:]:
            lines.append(row.line)
    chosen: set[int] = set()
    for lines in groups.values():
        count = min(per_group, len(lines))
        places = np.linspace(0, len(lines) - 1, count) if count > 1 else [len(lines) // 2]
        chosen |= {lines[round(place)] for place in places}
    doubted = {row.reason: row.line for row in table.left_out if row.cause != "unsupported"}
    return chosen | set(list(doubted.values())[:MAX_LEFT_OUT])


def with_context(name: str, lines: set[int], rows: Sequence[Sequence[str]]) -> set[int]:
    """Return the lines with those that a reader needs beside them.

    Of a cost curve that is the pass over a single token.
    """
    named = [dict(zip(rows[0], row, strict=True)) for row in rows]
    if name == "verify_cost_curves.csv":
        keys = ("hardware", "engine", "build", "model", "weight_dtype", "context_depth", "kind")
        curves = {tuple(named[line - 1][key] for key in keys) for line in lines}
        return lines | {
            number
            for number, row in enumerate(named[1:], start=2)
            if float(row["n_tokens_per_forward"]) == 1 and tuple(row[k] for k in keys) in curves
        }
    return lines


def main(arguments: Sequence[str]) -> None:
    """Write the chosen rows of every table into the folder of the built-in set."""
    source, target = (Path(argument) for argument in arguments)
    for name, per_group in ROWS_PER_GROUP.items():
        path = source / name
        (table,) = validate(path).tables
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        lines = with_context(name, chosen_lines(table, per_group), rows)
        with (target / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(rows[0])
            writer.writerows(rows[line - 1] for line in sorted(lines))
        print(f"{name}: {len(lines)} of {len(rows) - 1} rows")


if __name__ == "__main__":
    main(sys.argv[1:])
