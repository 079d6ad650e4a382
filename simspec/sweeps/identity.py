"""What makes two points the same: everything their numbers depend on.

A stored result is reused exactly when the scenario, the loaded profiles and architecture, the
trace files and simspec's own code are unchanged. Editing one GPU's YAML recomputes that GPU's
points and no others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import simspec
from simspec.core.provenance import sha256_of
from simspec.scenarios.build import Deployment
from simspec.scenarios.schema import ScenarioConfig


def point_key(config: ScenarioConfig, deployment: Deployment | None, files: Sequence[Path]) -> str:
    """Return a short hash of all a point's numbers depend on.

    ``deployment`` is None for a point that does not fit: its result is the refusal.
    """
    parts = [code_digest(), config.model_dump_json(exclude={"name", "description"})]
    if deployment is not None:
        parts += [
            repr(deployment.hardware),
            repr(deployment.engine),
            repr(deployment.architecture),
        ]
    parts += [sha256_of(path) for path in files]
    return hashlib.blake2b("\x1e".join(parts).encode(), digest_size=12).hexdigest()


@cache
def code_digest() -> str:
    """Return a hash of the installed simspec sources."""
    root = Path(simspec.__file__).parent
    digest = hashlib.blake2b(digest_size=12)
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
