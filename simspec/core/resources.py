"""Where the data files that ship with simspec are.

``hardware_profiles/`` and ``experiments/`` stand at the top of a checkout, where people edit
them, and inside the wheel under ``simspec/_data/``. Code that wants them asks here and works
the same in both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

DataKind = Literal["hardware_profiles", "experiments"]


def data_dir(kind: DataKind) -> Path:
    """Return the folder of one kind of packaged data.

    Parameters
    ----------
    kind : "hardware_profiles" or "experiments"
        Which folder.

    Raises
    ------
    FileNotFoundError
        The installation is broken: the folder is in neither place. This is not the user's
        configuration, so it keeps its traceback.
    """
    if kind not in get_args(DataKind):
        raise ValueError(f"unknown data folder {kind!r}; choices: {', '.join(get_args(DataKind))}")
    package = Path(__file__).resolve().parents[1]
    # The wheel first: a folder of that name beside site-packages has nothing to do with us.
    candidates = (package / "_data" / kind, package.parent / kind)
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    looked = " and ".join(str(candidate) for candidate in candidates)
    raise FileNotFoundError(f"simspec's {kind} folder is missing (looked at {looked})")


def exists(path: Path) -> bool:
    """Return whether anything is there; False for a name the system cannot hold."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """Return whether a regular file is there; False for a name the system cannot hold."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_special(path: Path) -> bool:
    """Return whether a pipe or a device is there: it may have no end, or wait for ever."""
    return exists(path) and not path.is_file() and not path.is_dir()


def shown_name(path: Path) -> str:
    """Return what results call a file: packaged data by their place in simspec, others as given.

    Where simspec is installed must not show in a result: the same inputs give the same bytes.
    """
    package = Path(__file__).resolve().parents[1]
    resolved = path.resolve()
    if resolved.is_relative_to(package / "_data"):
        return resolved.relative_to(package / "_data").as_posix()
    if resolved.is_relative_to(package):
        return (Path("simspec") / resolved.relative_to(package)).as_posix()
    return str(path)
