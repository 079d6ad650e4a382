"""``simspec workload describe | formats``: what traffic looks like, and which logs are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from simspec.cli._output import (
    JSON_OPTION,
    help_without_command,
    note,
    print_json,
    print_pairs,
    print_rows,
)

if TYPE_CHECKING:
    from simspec.workloads.description import WorkloadDescription

_SHOWN_REJECTED = 10
"""Sentences on rejected lines that are printed; --json has a hundred."""

workload_app = typer.Typer(help="Describe traffic, and list the formats of request logs.")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    workload_app.callback(invoke_without_command=True)(help_without_command)
    app.add_typer(workload_app, name="workload")


@workload_app.command()
def describe(
    what: Path = typer.Argument(
        metavar="LOG|FOLDER|SCENARIO.yaml",
        help="A request log, a folder of ServeGen clients, or a scenario.",
    ),
    form: str | None = typer.Option(
        None, "--format", help="Format of a log; by default its first lines tell."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Folder for workload.json and report.html."
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Describe traffic: rates, burstiness, lengths, shared prefixes, what was left out.

    Example: simspec workload describe log.csv
    """
    from simspec.scenarios.traffic import describe_workload

    if output is not None:
        _check_folder(output)
    found = describe_workload(what, form)
    summary = found.summary()
    if as_json:
        print_json(summary)
    else:
        _print(summary)
    if output is not None:
        _write(found, summary, output)


def _print(summary: dict[str, Any]) -> None:
    from simspec.workloads.description import table_rows
    from simspec.workloads.linked import shown_of

    typer.echo(f"{summary['name']}: {summary['source']}")
    print_pairs("Arrivals", table_rows(summary))
    statistics = ("mean", "std", "p50", "p90", "p99", "max")
    print_rows(
        "Lengths (tokens)",
        [
            {"": side, **{name: summary[f"{side}_{name}_tokens"] for name in statistics}}
            for side in ("prompt", "output")
        ],
    )
    if summary["prefix_reuse"] is not None:
        named = {key.replace("_", " "): value for key, value in summary["prefix_reuse"].items()}
        print_pairs("Shared prefixes (hit share: of an infinite cache, by blocks)", named)
    count = summary["left_out"].get("rejected_lines", 0)
    for sentence in shown_of(summary["rejected"], count, _SHOWN_REJECTED):
        note(f"rejected   {sentence}")


@workload_app.command()
def formats(as_json: bool = JSON_OPTION) -> None:
    """List the formats of request logs that are read, with an example of each.

    Example: simspec workload formats
    """
    from simspec.workloads._base import IMPORTERS
    from simspec.workloads.detect import importer_of

    rows = [
        {
            "name": name,
            "about": importer.about,
            "options": sorted(set(type(importer).model_fields) - {"name"}),
            "example": importer.sample.decode("utf-8"),
        }
        for name in IMPORTERS.names()
        for importer in [importer_of(name)]
    ]
    if as_json:
        print_json({"formats": rows})
        return
    print_rows(
        "Formats of request logs (recognised by their first lines)",
        [
            {
                "name": row["name"],
                "what": row["about"],
                "options": ", ".join(map(str, row["options"])) or "–",
            }
            for row in rows
        ],
        caption="A folder of ServeGen clients is read by arrivals: {name: servegen, path: FOLDER}.",
    )
    for row in rows:
        typer.echo(f"\n{row['name']}:")
        for line in str(row["example"]).splitlines():
            typer.echo(f"  {line}")


def _check_folder(output: Path) -> None:
    from simspec.core.errors import ConfigError
    from simspec.core.provenance import why_no_folder

    if reason := why_no_folder(output):
        raise ConfigError(
            f"{output}: cannot be used as a result folder ({reason}); choose another one with "
            "--output"
        )


def _write(found: WorkloadDescription, summary: dict[str, Any], output: Path) -> None:
    from simspec.core.errors import ConfigError
    from simspec.core.provenance import write_json
    from simspec.reports.dashboards.workload import write_workload_report

    try:
        output.mkdir(parents=True, exist_ok=True)
        write_json(output / "workload.json", summary)
    except OSError as error:
        raise ConfigError(f"{output}: cannot write the result ({error.strerror})") from error
    note(f"results    {output / 'workload.json'}")
    note(f"report     {write_workload_report(found, output)}")
