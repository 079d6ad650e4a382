"""A bar for work that goes file by file and row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from simspec.cli._output import note, stderr_console


@contextmanager
def file_progress(verb: str) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a callback for (file, rows done, rows in all).

    On a terminal a bar with the time left; else one line for every file that is finished.

    Parameters
    ----------
    verb : str
        What is done to a file, for the lines: ``"judged"``.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = stderr_console()
    if not console.is_terminal:
        yield (
            lambda file, done, total: (
                note(f"{verb} {file} ({total:,} rows)") if done == total else None
            )
        )
        return
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        tasks: dict[str, object] = {}

        def report(file: str, done: int, total: int) -> None:
            if file not in tasks:
                for old in tasks.values():
                    bar.remove_task(old)  # type: ignore[arg-type]
                tasks.clear()
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=done)  # type: ignore[arg-type]

        yield report
