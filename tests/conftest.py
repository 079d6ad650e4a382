"""Settings every test shares: reproducible property tests without wall-clock limits."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# No deadline: a busy machine must not turn a slow example into a failure.
settings.register_profile(
    "ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer ``--update-golden``: write the expected outputs anew instead of comparing."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden outputs")
