"""``simspec diff``: two simulations, paired on common requests and tapes."""

from __future__ import annotations

from pathlib import Path

import typer

from simspec.cli._output import JSON_OPTION, print_json, print_rows


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("diff")(diff)


def diff(
    a: Path = typer.Argument(help="Folder of 'simspec simulate --output', or a scenario YAML."),
    b: Path = typer.Argument(help="The same, for what A is compared with."),
    everything: bool = typer.Option(False, "--all", help="Show every metric."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Compare two simulations: B minus A with 95 % intervals, replication by replication.

    Both must have the same seed and workload. "excludes 0" says that the difference is more than
    chance.

    Example: simspec diff experiments/kangaroo_chat.yaml experiments/kangaroo_chat_k5.yaml
    """
    from simspec.scenarios.diff import diff_paths
    from simspec.scenarios.files import experiment_path

    found = diff_paths(*(path if path.is_dir() else experiment_path(path) for path in (a, b)))
    if as_json:
        print_json(found.document)
        return
    for line in found.header:
        typer.echo(line)
    print_rows("", found.rows(everything=everything))
