"""``simspec simulate``: one scenario, beside plain autoregression on the same tapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from simspec.cli._output import JSON_OPTION, note, print_json, print_rows


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("simulate")(simulate)


def simulate(
    scenario: Path = typer.Argument(help="Scenario YAML, e.g. experiments/kangaroo_chat.yaml."),
    output: Path | None = typer.Option(None, "--output", "-o", help="Folder for the result."),
    baseline: bool = typer.Option(
        True, "--baseline/--no-baseline", help="Also run autoregression and report the speedup."
    ),
    check: bool = typer.Option(
        False, "--check", help="Assert every conservation law after every step (slow)."
    ),
    trace_from_s: float | None = typer.Option(
        None, "--trace-from", min=0.0, help="Start of what trace.json shows, simulated seconds."
    ),
    trace_to_s: float | None = typer.Option(
        None, "--trace-to", min=0.0, help="End of what trace.json shows, simulated seconds."
    ),
    trace_events: int | None = typer.Option(
        None, "--trace-events", min=100, help="Most events in trace.json (100,000 if not given)."
    ),
    series_rows: int | None = typer.Option(
        None,
        "--series-rows",
        min=1,
        help="Most rows per replication in timeseries.parquet (10,000 if not given).",
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Simulate one scenario: latencies, throughput, acceptance, memory, with 95 % intervals.

    Example: simspec simulate experiments/kangaroo_chat.yaml
    """
    from simspec.scenarios.files import experiment_path
    from simspec.scenarios.report import simulate_file
    from simspec.scenarios.result_folder import FolderOptions

    given = {
        "trace_from_s": trace_from_s,
        "trace_to_s": trace_to_s,
        "trace_events": trace_events,
        "series_rows": series_rows,
    }
    chosen: dict[str, Any] = {name: v for name, v in given.items() if v is not None}
    result = simulate_file(
        experiment_path(scenario),
        baseline=baseline,
        check=check,
        output=output,
        options=FolderOptions(**chosen) if chosen else None,
    )
    if as_json:
        print_json(result.document)
    else:
        for line in result.header:
            typer.echo(line)
        print_rows("", result.rows)
    if output is not None:
        from simspec.reports.dashboards.simulation import write_simulation_report

        note(f"results    {output}")
        note(f"report     {write_simulation_report(output)}")
