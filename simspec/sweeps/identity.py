"""What makes two points the same: everything their numbers depend on.

A stored result is reused exactly when the scenario, the loaded profiles and architecture, the
trace files, simspec's own models and the libraries that draw numbers are unchanged. Editing one
GPU's YAML recomputes that GPU's points and no others; editing a figure recomputes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

import simspec
from simspec.scenarios.build import Deployment
from simspec.scenarios.schema import ScenarioConfig

_WITHOUT_NUMBERS = frozenset(
    {"calibration", "cli", "companion", "planning", "reports", "validation"}
)
"""Packages that cannot change what a point computes."""
_OF_SWEEPS = "work.py"
"""The one module of this package that a result depends on."""
_LIBRARIES = ("numpy", "scipy", "simpy")


def point_key(config: ScenarioConfig, deployment: Deployment, file_digests: Sequence[str]) -> str:
    """Return a short hash of all a point's numbers depend on.

    Parameters
    ----------
    file_digests : sequence of str
        SHA-256 of each file the workload reads.
    """
    parts = [
        code_digest(),
        config.model_dump_json(exclude={"name", "description"}),
        repr(deployment.hardware),
        repr(deployment.engine),
        repr(deployment.architecture),
        # A draft model is a file too.
        repr((dict(deployment.method.stacks()), deployment.method.footprint())),
        # So is a trace to replay: its sentence holds a digest of its numbers.
        deployment.acceptance.describe() if deployment.acceptance is not None else "",
        *file_digests,
    ]
    return hashlib.blake2b("\x1e".join(parts).encode(), digest_size=12).hexdigest()


@cache
def code_digest() -> str:
    """Return a hash of the sources and library versions that can move a number."""
    root = Path(simspec.__file__).parent
    digest = hashlib.blake2b(digest_size=12)
    for library in _LIBRARIES:
        digest.update(f"{library} {metadata.version(library)}\n".encode())
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        package = place.parts[0]
        if package in _WITHOUT_NUMBERS or (package == "sweeps" and place.name != _OF_SWEEPS):
            continue
        digest.update(place.as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
