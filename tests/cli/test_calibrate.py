"""``simspec calibrate``: help, the fragment on stdout, mistakes in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from tests.helpers.shared import REPO_ROOT, shared


def simspec(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    command = [sys.executable, "-m", "simspec", *arguments]
    return subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, check=False)


def test_help_shows_an_example() -> None:
    """The help of the subcommand says how to call it."""
    result = simspec("calibrate", "kernels", "--help")
    assert result.returncode == 0
    assert "simspec calibrate kernels" in result.stdout


def test_stdout_is_the_yaml_fragment() -> None:
    """What is printed parses as the kernels and link of a profile, and says how far off it is."""
    tables = shared("measured/kernels/a100_sxm")
    result = simspec("calibrate", "kernels", str(tables), "a100_sxm_80gb")
    assert result.returncode == 0
    fragment = yaml.safe_load(result.stdout)
    assert set(fragment) == {"kernels", "link"}
    assert fragment["kernels"]["gemm"]["bf16"]["held_out_error"]["median"] < 0.1


def test_a_folder_without_tables_is_one_line(tmp_path: Path) -> None:
    """A wrong folder is exit code 2 and one sentence."""
    result = simspec("calibrate", "kernels", str(tmp_path), "h100_sxm")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("simspec: ")
    assert "no such table" in result.stderr
    assert result.stderr.count("\n") == 1
