"""Run the command line as its users do: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.helpers.shared import REPO_ROOT


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a child that finds this checkout from any folder."""
    paths = [str(REPO_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **changes}


def command(*arguments: str | Path) -> list[str]:
    """Return the command line of ``simspec ARGUMENTS``."""
    return [sys.executable, "-m", "simspec", *map(str, arguments)]


def simspec(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``simspec ARGUMENTS`` and return what it printed."""
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment() if env is None else dict(env),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
