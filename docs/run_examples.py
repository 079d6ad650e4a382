"""Run the commands that the pages show, and keep the output beside them true.

In a page, a block with a title is a file, and a ``console`` block holds commands and what they
print. Files are written and ``$ simspec`` commands run in the order of the page, in a folder of
its own; other commands are for people. HTML comments on the line before a block say more:

``<!-- slow -->``        run only with ``SIMSPEC_SLOW_DOCS=1``
``<!-- fails -->``       the exit code is 2
``<!-- keep: REGEX -->`` of the output show only lines that match
``<!-- quiet -->``       show no output

::

    python docs/run_examples.py           # compare, exit code 1 on a difference
    python docs/run_examples.py --write   # put what the commands print into the pages
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"^(?P<notes>(?:<!-- [^\n]* -->\n)*)"
    r"(?P<indent> *)(?P<fence>`{3,})(?P<language>\w+)(?P<info>[^\n]*)\n"
    r"(?P<body>.*?)^(?P=indent)(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)
GAP = "..."
TOLERANCE = 0.02
"""Numbers of an example may differ by this share: other machines, other rounding."""


@dataclass(frozen=True)
class Command:
    """One ``$ `` line and the output shown below it."""

    line: str
    shown: str


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str | None
    body: str
    notes: tuple[str, ...]
    start: int
    end: int
    """Place of the body in the page."""

    @property
    def is_slow(self) -> bool:
        """Whether it takes too long to run every time."""
        return "slow" in self.notes

    @property
    def commands(self) -> list[Command]:
        """The commands, in order; a line that ends in a backslash goes on."""
        found: list[Command] = []
        for part in re.split(r"^\$ ", self.body, flags=re.MULTILINE)[1:]:
            line = re.match(r"(?:[^\n]*\\\n)*[^\n]*", part)
            assert line is not None
            found.append(Command(line[0], part[line.end() :].strip("\n")))
        return found


@dataclass
class Difference:
    """What a command printed, against what the page shows."""

    command: str
    shown: str
    printed: str
    problems: list[str] = field(default_factory=list)


def pages() -> list[Path]:
    """Return every page with commands, the README included."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page."""
    for found in BLOCK.finditer(page):
        title = re.search(r'title="([^"]+)"', found["info"])
        yield Block(
            language=found["language"],
            title=title[1] if title else None,
            body=found["body"],
            notes=tuple(re.findall(r"<!-- (.*?) -->", found["notes"])),
            start=found.start("body"),
            end=found.end("body"),
        )


def run(command: str, folder: Path) -> tuple[int, str]:
    """Run one ``simspec`` command; return its exit code and what it printed."""
    arguments = shlex.split(command.replace("\\\n", " "), comments=True)
    if "sweep" in arguments and "--dry-run" not in arguments:
        # Its workers start from a fresh interpreter and need a main module of their own.
        done = subprocess.run(
            [sys.executable, "-m", "simspec", *arguments[1:]],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout if done.returncode == 0 else done.stderr
    from simspec.cli.main import run as simspec

    printed, code = io.StringIO(), 0
    with (
        contextlib.chdir(folder),
        mock.patch.object(sys, "argv", arguments),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        try:
            simspec()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return code, printed.getvalue()


def shortened(printed: str, notes: Sequence[str]) -> str:
    """Return what the page shows of an output: all of it, or what its notes ask for."""
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    if "quiet" in notes:
        return ""
    for note in notes:
        if note.startswith("keep: "):
            wanted = re.compile(note.removeprefix("keep: "))
            marked = [line if wanted.search(line) else GAP for line in lines]
            marked = [re.sub(r"\s{8,}│$", "", line) for line in marked]
            lines = [
                a for a, b in zip(marked, [None, *marked], strict=False) if (a, b) != (GAP, GAP)
            ]
    return "\n".join(lines)


def same(shown: str, printed: str) -> bool:
    """Return whether the words of ``shown`` stand in ``printed`` in order, gaps allowed."""
    rest = words(printed)
    pieces = [words(piece) for piece in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)]
    for number, piece in enumerate(pieces):
        starts = range(len(rest) - len(piece) + 1) if number else range(1)
        ends = [s + len(piece) for s in starts if _equal(piece, rest[s : s + len(piece)])]
        if not ends:
            return False
        rest = rest[ends[0] :]
    return not rest or shown.endswith(GAP)


def words(text: str) -> list[str]:
    """Return the words and numbers, without the lines tables are drawn with."""
    return re.sub(r"[\u2500-\u257f]|-{3,}:?", " ", text).split()


def _equal(left: Sequence[str], right: Sequence[str]) -> bool:
    return len(left) == len(right) and all(map(_alike, left, right))


def _alike(left: str, right: str) -> bool:
    if left == right:
        return True
    pattern = r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?"
    if re.sub(pattern, "#", left) != re.sub(pattern, "#", right):
        return False
    pairs = zip(re.findall(pattern, left), re.findall(pattern, right), strict=True)
    numbers = [(float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs]
    return all(abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) for a, b in numbers)


def check_page(path: Path, folder: Path, *, slow: bool = False) -> tuple[str, list[Difference]]:
    """Run a page in ``folder``; return it with fresh outputs, and what differs.

    Parameters
    ----------
    slow : bool
        Whether to run blocks marked as slow too.
    """
    page = path.read_text(encoding="utf-8")
    fresh, copied, found = "", 0, []
    for block in blocks(page):
        if block.title is not None:
            target = folder / block.title
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.body, encoding="utf-8")
        if block.language != "console" or (block.is_slow and not slow):
            continue
        body = ""
        for command in block.commands:
            output = command.shown
            if re.match(r"simspec\b", command.line):
                code, printed = run(command.line, folder)
                output = shortened(printed, block.notes)
                difference = Difference(command.line, command.shown, printed)
                if code != (2 if "fails" in block.notes else 0):
                    difference.problems.append(f"exit code {code}")
                if "quiet" not in block.notes and not same(command.shown, printed):
                    difference.problems.append("the page shows another output")
                if difference.problems:
                    found.append(difference)
            body += f"$ {command.line}\n" + (f"{output}\n" if output else "")
        fresh += page[copied : block.start] + body
        copied = block.end
    return fresh + page[copied:], found


def main(arguments: Sequence[str]) -> int:
    """Run every page; report differences or write the fresh outputs."""
    slow = os.environ.get("SIMSPEC_SLOW_DOCS") == "1"
    chosen = [Path(name).resolve() for name in arguments if not name.startswith("--")] or pages()
    failed = 0
    for path in chosen:
        with tempfile.TemporaryDirectory() as folder:
            fresh, found = check_page(path, Path(folder), slow=slow)
        if "--write" in arguments:
            path.write_text(fresh, encoding="utf-8")
            found = [item for item in found if any("exit" in p for p in item.problems)]
        for item in found:
            problems = ", ".join(item.problems)
            sys.stdout.write(
                f"{path.relative_to(ROOT)}: $ {item.command}\n{problems}; it prints\n{item.printed}"
            )
        failed += len(found)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
