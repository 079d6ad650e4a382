"""The ``simspec`` command."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import typer

from simspec import __version__
from simspec.cli._output import help_without_command
from simspec.core.errors import SimspecError, one_line

COMMANDS = (
    "sweep",
    "simulate",
    "diff",
    "estimate",
    "compare",
    "breakeven",
    "acceptance",
    "validate",
    "cost",
    "memory",
    "hardware",
    "models",
    "workload",
    "calibrate",
    "companion",
    "capture",
)

app = typer.Typer(
    name="simspec",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Predict how a language model serves on given hardware, with and without speculation.",
)

# Whichever click typer brings: its own copy in newer versions, the package in older ones.
_USAGE_ERROR: type[Any] = typer.BadParameter.__mro__[1]


def _version(value: bool) -> None:
    if value:
        typer.echo(f"simspec {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Hold the options that stand before a command."""
    help_without_command(context)


for _name in COMMANDS:
    importlib.import_module(f"simspec.cli.commands.{_name}").register(app)


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2.

    Parameters
    ----------
    arguments : sequence of str, optional
        Instead of those of the process.
    """
    _write_what_the_terminal_cannot_show()
    try:
        code = app(arguments, standalone_mode=False) or 0
        # What is left in the buffer would fail at exit, where nobody can catch it.
        if sys.stdout is not None:
            sys.stdout.flush()
    except SimspecError as error:
        _complain(str(error))
        code = error.exit_code
    except _USAGE_ERROR as error:
        where = f"; see '{error.ctx.command_path} --help'" if error.ctx is not None else ""
        _complain(error.format_message().rstrip(".") + where)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # The reader of our output has gone (`simspec … | head`); say nothing more.
        _drop_stdout()
        code = 141
    except OSError as error:
        _drop_stdout()
        _complain(_of_the_system(error))
        code = 2
    if code == 130:  # also what typer makes of Ctrl-C
        _complain("interrupted")
    sys.exit(code)


def _drop_stdout() -> None:
    """Send what is still buffered to nowhere, so that the flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_what_the_terminal_cannot_show() -> None:
    """Let stdout write ``\\u2013`` for a character its encoding lacks, as stderr does already."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _of_the_system(error: OSError) -> str:
    """Return the sentence for what the operating system refused where nobody expected it."""
    if error.errno == errno.ENOSPC:
        return "cannot write the output (no space left on the device); free some space"
    try:
        Path.cwd()
    except OSError:
        return "the working folder is gone; change to one that exists"
    what = f"{error.filename}: " if error.filename is not None else ""
    return f"{what}the system says {error.strerror or error}; check the path and its permissions"


def _complain(sentence: str) -> None:
    typer.echo(f"simspec: {one_line(sentence)}", err=True)
