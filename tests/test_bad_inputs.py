"""Every malformed file in ``tests/bad_inputs`` gets one sentence with its place.

Each file begins with three comment lines: the command, a text its message must hold, and the
line and field it must name (``-``: the error has no single place).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simspec.cli.main import run

FOLDER = Path(__file__).parent / "bad_inputs"
FILES = sorted(FOLDER.glob("*.yaml"))


def header(path: Path) -> dict[str, str]:
    lines = path.read_bytes().decode("latin-1").splitlines()[:3]
    return dict(line.removeprefix("# ").split(": ", 1) for line in lines)


def test_there_are_at_least_forty_of_them() -> None:
    """The collection covers the kinds of mistakes people make."""
    assert len(FILES) >= 40


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_bad_input(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One sentence with file, line and field; exit code 2; no traceback; no output left behind."""
    expected = header(path)
    output = tmp_path / "out"
    arguments = ["simspec", *expected["command"].split(), str(path)]
    if expected["command"] in {"simulate", "sweep"}:
        arguments += ["--output", str(output)]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", arguments)

    with pytest.raises(SystemExit) as stopped:
        run()

    message = capsys.readouterr()
    assert stopped.value.code == 2, message
    assert message.out == ""
    assert "Traceback" not in message.err
    text = message.err.strip()
    assert text.startswith("simspec: ")
    assert len(text.splitlines()) == 1, text
    assert str(path) in text
    assert expected["says"] in text
    line, field = expected["at"].split()
    if line != "-":
        assert re.search(rf"{re.escape(path.name)}:{line}\b", text), f"line {line} not in: {text}"
    if field != "-":
        assert field in text
    assert list(tmp_path.iterdir()) == []
