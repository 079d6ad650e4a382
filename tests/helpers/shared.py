"""Where tests find the public data files that are too large for the repository.

They live in a folder ``shared`` beside the checkout, or where ``SIMSPEC_SHARED`` points. A
test that needs one is skipped with a sentence when it is not there; with
``SIMSPEC_REQUIRE_SHARED=1`` (the full job) a missing file fails instead, so that a broken
installation cannot skip everything in silence.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPO_ROOT = Path(__file__).resolve().parents[2]


def shared_root() -> Path:
    """Return the folder of shared data files, whether or not it exists."""
    override = os.environ.get("SIMSPEC_SHARED")
    return Path(override) if override else REPO_ROOT.parent / "shared"


def shared(path: str) -> Path:
    """Return the shared file or folder ``path``, for example ``shared("traces/azure")``.

    Skips the calling test when it is absent.
    """
    found = shared_root() / path
    if not found.exists():
        message = f"needs {found}, which is not there (set SIMSPEC_SHARED to the data folder)"
        if os.environ.get("SIMSPEC_REQUIRE_SHARED") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return found
