"""Finding scenario and sweep files: where the user stands, else among the packaged examples."""

from __future__ import annotations

from pathlib import Path

from simspec.core.resources import data_dir, exists


def experiment_path(path: Path) -> Path:
    """Return ``path``, or the packaged example of that name when there is no such file here.

    ``simspec sweep experiments/tau_vs_K.yaml`` thus works from any folder.
    """
    if exists(path) or path.is_absolute():
        return path
    packaged = data_dir("experiments") / path.name
    is_example = len(path.parts) == 1 or path.parts[:-1] == ("experiments",)
    return packaged if is_example and exists(packaged) else path
