"""The page of ``simspec validate``: predicted against measured, and what is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from simspec.reports.dashboards._parts import Tile, figure_card
from simspec.reports.dashboards._table import Cell, Column, Row, Table
from simspec.reports.figures import error_by_group, predicted_vs_measured
from simspec.reports.figures.predicted_vs_measured import quantity_label, subject_text
from simspec.reports.labels import number_text, shorten, visible
from simspec.reports.page import Page
from simspec.validation._document import parts_text
from simspec.validation._summary import Errors, Key
from simspec.validation.api import ValidationResult

REPORT = "report.html"
MAX_GROUPS = 400
MAX_WORST = 60
MAX_REASONS = 200
_TEMPLATE = "tables.html.j2"


def write_validation_report(result: ValidationResult, folder: Path) -> Path:
    """Write ``report.html`` into a folder and return its path.

    Raises
    ------
    ConfigError
        It cannot be written.
    """
    return validation_page(result).write(folder / REPORT)


def validation_page(result: ValidationResult) -> Page:
    """Return the page of a validation."""
    made = [predicted_vs_measured.figure(result), error_by_group.figure(result)]
    figures = [spec for spec in made if spec is not None]
    leads = {
        "predicted_vs_measured": "Every point is one measured figure; on the line the prediction "
        "is right, in the band it is within 10%.",
        "error_by_group": "What a threshold is set on: rows measured alike, summed up.",
    }
    cards = [
        figure_card(spec.name, spec.title, leads[spec.name], [spec], spec.selectors)
        for spec in figures
    ]
    # A selector that stands in two figures changes both.
    selectors = {own.id: own for spec in figures for own in spec.selectors}
    manifest = result.manifest()
    inputs = manifest["inputs"]
    assert isinstance(inputs, dict)
    tables = [
        ("groups", "Every group", _groups(result)),
        ("worst", "The rows that miss most", _worst(result)),
        ("left-out", "Left out, and why", _left_out(result)),
        ("tables", "Tables", _tables(result)),
    ]
    report = {
        "kind": "validate",
        "name": "Predicted against measured",
        "description": _description(result),
        "tiles": list(_tiles(result)),
        "cards": cards,
        "tables": [entry for entry in tables if entry[2].rows],
        "inputs": [(visible(name), value["sha256"]) for name, value in inputs.items()],
        "manifest_json": json.dumps(manifest, indent=2, ensure_ascii=False),
    }
    title = "Predicted against measured · simspec validate"
    return Page(_TEMPLATE, title, list(selectors.values()), figures, {"report": report})


def _description(result: ValidationResult) -> str:
    if result.is_built_in:
        return "The built-in set of published figures."
    names = [visible(shorten(table.file, 120)) for table in result.tables]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} other tables"


def _tiles(result: ValidationResult) -> Iterator[Tile]:
    held_out = [(key, e) for key, e in result.summary().items() if key[2] == "held_out"]
    for (kind, quantity, _), errors in sorted(held_out, key=lambda item: -item[1].rows)[:6]:
        yield Tile(
            quantity_label(quantity),
            f"{errors.median_abs_error:.1%}",
            f"median error of {errors.rows:,} held-out rows, {kind.replace('_', ' ')}",
            tail=f"9 in 10 within {errors.p90_abs_error:.1%}, bias {errors.bias:+.1%}",
        )
    counted = ", ".join(f"{count:,} {cause}" for cause, count in result.causes().items())
    yield Tile("Left out", f"{result.num_left_out:,}", counted or "no row")


def _percent(value: float | None) -> Cell:
    return Cell("–" if value is None else f"{100 * value:.1f}")


def _groups(result: ValidationResult) -> Table:
    heads = ("Quantity", "Table", "Group", "Role")
    numbers = ("Rows", "Median", "Mean", "p90", "Bias", "In 95% interval", "Interval width")
    columns = [Column(head, False) for head in heads] + [Column(head, True) for head in numbers]
    found = sorted(result.summary("group").items(), key=_by_rows)
    rows = [
        Row(
            [
                *(Cell(visible(key[i]), is_text=True) for i in (1, 0, 3, 2)),
                Cell(f"{e.rows:,}"),
                _percent(e.median_abs_error),
                _percent(e.mean_abs_error),
                _percent(e.p90_abs_error),
                _percent(e.bias),
                _percent(e.interval_coverage),
                _percent(e.median_interval_width),
            ],
            "baseline" if key[2] == "fitted" else "",
        )
        for key, e in found[:MAX_GROUPS]
    ]
    note = "Per cent of |predicted / measured − 1|; bias is the mean with its sign. Rows that a "
    note += "fit has used stand apart as fitted."
    if len(found) > MAX_GROUPS:
        note += f" The largest {MAX_GROUPS} of {len(found):,} groups."
    return Table(note, columns, rows)


def _by_rows(item: tuple[Key, Errors]) -> tuple[str, int, Key]:
    key, errors = item
    return key[1], -errors.rows, key


def _worst(result: ValidationResult) -> Table:
    columns = [
        Column("Where", False),
        Column("Quantity", False),
        Column("Measured", True),
        Column("Predicted", True),
        Column("Error (%)", True),
        Column("Group", False),
        Column("What was measured", False),
        Column("Made of", False),
    ]
    rows = [
        Row(
            [
                Cell(f"{visible(Path(table.file).name)}:{row.line}", is_text=True),
                Cell(row.quantity, is_text=True),
                Cell(number_text(row.measured, "significant")),
                Cell(number_text(row.predicted, "significant")),
                Cell(f"{100 * row.error:+.1f}"),
                Cell(visible(row.group), is_text=True),
                Cell(visible(shorten(subject_text(row), 220)), is_text=True),
                Cell(visible(shorten(parts_text(row), 220)), is_text=True),
            ],
            "baseline" if row.role == "fitted" else "",
        )
        for table, row in result.worst(MAX_WORST)
    ]
    return Table(f"The {len(rows)} largest errors, by |log(predicted / measured)|.", columns, rows)


def _left_out(result: ValidationResult) -> Table:
    columns = [
        Column("Cause", False),
        Column("Rows", True),
        Column("Reason", False),
        Column("First at", False),
    ]
    counted: dict[tuple[str, str], int] = {}
    first: dict[tuple[str, str], str] = {}
    for table, row in result.left_out():
        key = (row.cause, row.reason)
        counted[key] = counted.get(key, 0) + 1
        first.setdefault(key, f"{Path(table.file).name}:{row.line}")
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    rows = [
        Row(
            [
                Cell(cause, is_text=True),
                Cell(f"{count:,}"),
                Cell(visible(shorten(reason, 300)), is_text=True),
                Cell(visible(first[cause, reason]), is_text=True),
            ],
            "failed" if cause == "refuted" else "",
        )
        for (cause, reason), count in ordered[:MAX_REASONS]
    ]
    note = "Refuted: arithmetic contradicts the figure. Suspect: its publisher or its neighbours "
    note += "doubt it. Unsupported: simspec has no profile, architecture, method or rule for it."
    if len(ordered) > MAX_REASONS:
        note += f" The most frequent {MAX_REASONS} of {len(ordered):,} reasons."
    return Table(note, columns, rows)


def _tables(result: ValidationResult) -> Table:
    columns = [
        Column("File", False),
        Column("Kind", False),
        Column("Rows", True),
        Column("Compared", True),
        Column("Left out", True),
    ]
    rows = [
        Row(
            [
                Cell(visible(table.file), is_text=True),
                Cell(table.kind, is_text=True),
                Cell(f"{table.num_rows:,}"),
                Cell(f"{len(table.comparisons):,}"),
                Cell(f"{len(table.left_out):,}"),
            ],
            "",
        )
        for table in result.tables
    ]
    rows += [
        Row(
            [Cell(visible(file), visible(shorten(reason, 200)), is_text=True)] + [Cell("–")] * 4, ""
        )
        for file, reason in result.skipped
    ]
    return Table("A row may hold several figures, each compared by itself.", columns, rows)
