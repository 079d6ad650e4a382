"""The packaged data folders are found in a checkout and in an installed wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import simspec.core.resources as resources
from simspec.core.resources import data_dir, shown_name
from tests.helpers.shared import REPO_ROOT

FIND = "from simspec.core.resources import data_dir; print(data_dir('experiments'))"


def _install_copy(site: Path) -> None:
    """Copy the one module and its packages, as a wheel would lay them out."""
    (site / "simspec" / "core").mkdir(parents=True)
    (site / "simspec" / "__init__.py").touch()
    (site / "simspec" / "core" / "__init__.py").touch()
    shutil.copy(Path(resources.__file__), site / "simspec" / "core" / "resources.py")


def _run_from(site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", FIND],
        cwd=site.parent,
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_checkout_uses_the_folders_people_edit() -> None:
    """In a checkout the folders are those at its top."""
    assert data_dir("hardware_profiles") == REPO_ROOT / "hardware_profiles"
    assert data_dir("experiments") == REPO_ROOT / "experiments"


def test_wheel_uses_its_own_copy(tmp_path: Path) -> None:
    """An installed package uses ``simspec/_data`` even if a stranger's folder is beside it."""
    site = tmp_path / "site-packages"
    _install_copy(site)
    (site / "experiments").mkdir()
    own = site / "simspec" / "_data" / "experiments"
    own.mkdir(parents=True)
    assert Path(_run_from(site).stdout.strip()) == own


def test_broken_installation_says_where_it_looked(tmp_path: Path) -> None:
    """When the data are nowhere, the error names both places."""
    site = tmp_path / "site-packages"
    _install_copy(site)
    message = _run_from(site).stderr
    assert "simspec's experiments folder is missing" in message
    assert str(site / "simspec" / "_data" / "experiments") in message
    assert str(site / "experiments") in message


def test_unknown_kind_lists_the_choices() -> None:
    """A misspelled kind is a programming error that names the valid ones."""
    with pytest.raises(ValueError, match="choices: hardware_profiles, experiments"):
        data_dir("models")  # type: ignore[arg-type]


def test_results_do_not_say_where_simspec_is_installed() -> None:
    """A packaged file has the same name in every result; a user's file is shown as given."""
    import simspec

    packaged = Path(simspec.__file__).parent / "models" / "catalog" / "llama-2-7b.json"
    assert shown_name(packaged) == "simspec/models/catalog/llama-2-7b.json"
    assert shown_name(Path("mine/trace.csv")) == "mine/trace.csv"
