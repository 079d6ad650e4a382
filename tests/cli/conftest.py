"""Run commands inside the test process, which is quicker than a process each."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from simspec.cli.main import run

GOLDEN = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


Command = Callable[..., Said]


@pytest.fixture
def simspec(capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs ``simspec ARGUMENTS``."""

    def call(*arguments: str | Path) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return Said(stopped.value.code, printed.out, printed.err)

    return call


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder with the round device, engine, scenario and sweep in it."""
    for source in GOLDEN.glob("*.yaml"):
        (tmp_path / source.name).write_text(source.read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path
