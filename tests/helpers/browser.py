"""A headless Chromium for tests, or a skip that says what is missing.

Chromium is looked for at ``SIMSPEC_CHROMIUM``, then ``/usr/bin/chromium``. With
``SIMSPEC_REQUIRE_BROWSER=1`` (the full job) a missing browser fails instead of skipping.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium; skip the test when Playwright or Chromium is not installed."""
    path = os.environ.get("SIMSPEC_CHROMIUM") or shutil.which("chromium", path="/usr/bin")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("Playwright is not installed (pip install 'simspec[dev]')")
    if not path or not os.access(path, os.X_OK):
        _missing("no Chromium at $SIMSPEC_CHROMIUM or /usr/bin/chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def _missing(what: str) -> None:
    if os.environ.get("SIMSPEC_REQUIRE_BROWSER") == "1":
        pytest.fail(f"browser tests are required here: {what}")
    pytest.skip(f"browser test: {what}")
