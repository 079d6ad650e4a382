"""The ``simspec`` command."""

from __future__ import annotations

import importlib
import os
import sys

import typer

from simspec import __version__
from simspec.core.errors import SimspecError

COMMANDS = ("sweep", "simulate", "estimate", "cost", "memory", "hardware", "models", "calibrate")

app = typer.Typer(
    name="simspec",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Predict how a language model serves on given hardware, with and without speculation.",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"simspec {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Hold the options that stand before a command."""


for _name in COMMANDS:
    importlib.import_module(f"simspec.cli.commands.{_name}").register(app)


def run() -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2."""
    try:
        app()
    except SimspecError as error:
        typer.echo(f"simspec: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("simspec: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone (`simspec … | head`); say nothing more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
