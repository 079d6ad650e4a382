"""``simspec validate``: predictions against measurements, with the rows that miss most."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from simspec.cli._output import JSON_OPTION, format_value, note, print_rows
from simspec.cli._progress import file_progress

if TYPE_CHECKING:
    from simspec.validation._thresholds import Verdict
    from simspec.validation.api import ValidationResult

_CAPTION = (
    "median, mean, p90 of |predicted / measured - 1|; bias: mean with its sign; in 95 %: share of "
    "rows inside their prediction interval"
)
_EXAMPLES = 3
"""Rows shown for each cause of leaving out; --json and --output have all of them."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("validate")(validate)


def validate(
    files: list[Path] | None = typer.Argument(
        None,
        metavar="[FILE|FOLDER]...",
        help="Tables of measurements (CSV, Parquet); default: the built-in published figures.",
    ),
    group_by: str = typer.Option(
        "family",
        "--group-by",
        help="family, group, file, or columns of the tables, comma-separated: hardware,engine.",
    ),
    worst: int = typer.Option(5, "--worst", min=0, max=1000, help="Rows shown that miss most."),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Folder for validation.json and report.html."
    ),
    check: bool = typer.Option(
        False, "--check", help="Exit with 1 if a group's error is 10 % above the recorded one."
    ),
    thresholds: Path | None = typer.Option(
        None, "--thresholds", help="Recorded errors that --check compares with."
    ),
    write_thresholds: Path | None = typer.Option(
        None, "--write-thresholds", help="Record the errors of these tables in a file."
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Judge predictions against measurements: errors by group, worst rows, what is left out.

    Example: simspec validate
    """
    from simspec.validation._document import document
    from simspec.validation._thresholds import check_thresholds, record
    from simspec.validation.api import validate as judge

    if output is not None:
        _check_folder(output)
    by = [name.strip() for name in group_by.split(",") if name.strip()]
    with file_progress("judged") as progress:
        result = judge(files, progress=progress)
    groups = result.summary(*by)
    verdict = check_thresholds(result, thresholds) if check or thresholds is not None else None
    facts: dict[str, object] = {} if verdict is None else {"check": verdict.as_dict()}
    if as_json:
        for piece in document(result, **facts):
            typer.echo(piece, nl=False)
    else:
        from simspec.validation._document import summary_rows

        _print(result, summary_rows(groups, *by), by, worst)
        if verdict is not None:
            _print_verdict(verdict)
    if output is not None:
        _write(result, output, facts)
    if write_thresholds is not None:
        note(f"thresholds {record(result, write_thresholds)}")
    if verdict is not None and not verdict.passed:
        sys.exit(1)


def _print(
    result: ValidationResult, groups: list[dict[str, object]], by: list[str], worst: int
) -> None:
    def percent(value: object) -> float | None:
        return None if value is None else round(100.0 * float(value), 1)  # type: ignore[arg-type]

    typer.echo(
        f"figures compared: {result.num_compared:,}, rows left out: {result.num_left_out:,}; "
        "errors in per cent of the measured figure"
    )
    kinds = list(dict.fromkeys(str(row["kind"]) for row in groups))
    for kind in kinds:
        own = [row for row in groups if row["kind"] == kind]
        # What is the same in every row of a table is said once, above it.
        same = [name for name in ("quantity", "role") if len({row[name] for row in own}) == 1]
        rows = [
            {
                **{name: row[name] for name in ("quantity", "role", *by) if name not in same},
                "rows": row["rows"],
                "median": percent(row["median_abs_error"]),
                "mean": percent(row["mean_abs_error"]),
                "p90": percent(row["p90_abs_error"]),
                "bias": percent(row["bias"]),
                "in 95 %": percent(row["interval_coverage"]),
            }
            for row in own
        ]
        said = "".join(f", {own[0][name]}" for name in same)
        print_rows(f"{kind}{said}", rows, caption=_CAPTION if kind == kinds[-1] else "")
    if worst and result.num_compared:
        _print_worst(result, worst)
    if result.num_left_out:
        _print_left_out(result)
    for file, reason in result.skipped:
        note(f"note: {file} is no table of measurements: {reason.partition('; kinds and')[0]}")


def _print_worst(result: ValidationResult, worst: int) -> None:
    from simspec.validation._document import parts_text

    rows: list[dict[str, object]] = [
        {
            "where": f"{Path(table.file).name}:{row.line}",
            "quantity": row.quantity,
            "measured": float(row.measured),
            "predicted": float(row.predicted),
            "error %": round(100.0 * row.error, 1),
            "group": row.group,
            "made of": parts_text(row),
        }
        for table, row in result.worst(worst)
    ]
    print_rows(f"The {len(rows)} rows that miss most", rows)


def _print_left_out(result: ValidationResult) -> None:
    shown: dict[tuple[str, str], set[str]] = {}
    rows: list[dict[str, object]] = []
    for table, row in result.left_out():
        reasons = shown.setdefault((table.kind, row.cause), set())
        # Many rows share a reason; examples differ.
        if len(reasons) < _EXAMPLES and row.reason not in reasons:
            reasons.add(row.reason)
            where = f"{Path(table.file).name}:{row.line}"
            rows.append({"cause": row.cause, "where": where, "reason": row.reason})
    counted = ", ".join(f"{format_value(n)} {cause}" for cause, n in result.causes().items())
    print_rows(
        f"Left out: {counted}; up to {_EXAMPLES} reasons of each table",
        sorted(rows, key=lambda row: str(row["cause"])),
    )


def _print_verdict(verdict: Verdict) -> None:
    for line in verdict.lines():
        typer.echo(line)


def _check_folder(output: Path) -> None:
    from simspec.core.errors import ConfigError
    from simspec.core.provenance import why_no_folder

    if reason := why_no_folder(output):
        raise ConfigError(
            f"{output}: cannot be used as a result folder ({reason}); choose another one with "
            "--output"
        )


def _write(result: ValidationResult, output: Path, facts: dict[str, object]) -> None:
    from simspec.reports.dashboards.validation import write_validation_report
    from simspec.validation._document import write_document

    note(f"results    {write_document(result, output / 'validation.json', **facts)}")
    note(f"report     {write_validation_report(result, output)}")
