"""How commands print: results to stdout as a table or one JSON document, all else to stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

JSON_OPTION = typer.Option(False, "--json", help="Print one JSON document to stdout.")


WIDTH_OF_A_PIPE = 120
"""Columns of a table that is not printed on a terminal."""


def help_without_command(context: typer.Context) -> None:
    """Print the help of a group that was called without one of its commands."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def stdout_console() -> Console:
    """Return the console for results; wide enough not to cut numbers when piped."""
    from rich.console import Console

    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return Console(width=None if is_terminal else WIDTH_OF_A_PIPE, highlight=False)


def stderr_console() -> Console:
    """Return the console for progress and notes."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def note(text: str) -> None:
    """Say something that is not the result."""
    typer.echo(text, err=True)


def print_json(document: object) -> None:
    """Print one JSON document; NaN and infinity become null."""
    text = json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding if sys.stdout is not None else "utf-8")
    except UnicodeEncodeError:
        # JSON has its own way to write what the terminal cannot show.
        text = json.dumps(_finite(document), indent=2, allow_nan=False)
    typer.echo(text)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def format_value(value: object) -> str:
    """Return a number with four significant digits and grouped thousands, text as it is."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "–"
        if value == 0 or 1e-3 <= abs(value) < 1e4:
            return f"{value:.4g}"
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.3e}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={format_value(item)}" for name, item in value.items()) or "–"
    return str(value)


def print_pairs(title: str, values: Mapping[str, object]) -> None:
    """Print a two-column table of names and values."""
    print_rows(title, [{"": name, "value": value} for name, value in values.items()])


def print_rows(title: str, rows: Sequence[Mapping[str, object]], caption: str = "") -> None:
    """Print rows as a table; numbers right, text left. Cells are shown literally, not as markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for name in columns:
        numeric = all(
            isinstance(row.get(name), int | float) or row.get(name) is None for row in rows
        )
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(format_value(row.get(name))) for name in columns))
    console = stdout_console()
    # Title and caption stand outside the table, which may be narrower than they are.
    for part in (title, table, caption):
        if part:
            console.print(Text(part) if isinstance(part, str) else part)
