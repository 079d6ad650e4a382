"""The page of a validation in a real browser: silent, offline, every view draws."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simspec.reports.dashboards.validation import write_validation_report
from simspec.validation._base import LeftOut
from tests.browser.test_dashboard import opened
from tests.helpers.browser import chromium
from tests.validation.test_summary import result, row

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for the module."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with two families, a fitted row and a row that is left out."""
    rows = [row(10.0 + n, (10.0 + n) * (1 + 0.01 * n), "dense / x") for n in range(30)]
    rows += [row(20, 22, "moe / y", role="fitted"), row(21, 20, "moe / y")]
    left_out = LeftOut(9, "refuted", "faster than its memory", {"hardware": "h100"})
    return write_validation_report(result(*rows, left_out), tmp_path_factory.mktemp("page"))


def test_it_is_silent_and_draws_every_point(browser: Browser, report: Path) -> None:
    """No message, no request but the file itself, and as many marks as rows."""
    watched = opened(browser, report)
    page = watched.page
    page.wait_for_selector('[data-figure="predicted_vs_measured"] .scatterlayer .point')
    figure = '[data-figure="predicted_vs_measured"]'
    assert page.locator(f"{figure} .scatterlayer .point").count() == 32
    page.select_option('[data-selector="shown"]', index=2)
    page.wait_for_function(
        "document.querySelectorAll('[data-figure=predicted_vs_measured] .point').length === 2"
    )
    page.select_option('[data-selector="by"]', index=1)
    assert page.locator('[data-figure="error_by_group"] .bars .point').count() == 3
    watched.check(report)


def test_a_click_sorts_a_table(browser: Browser, report: Path) -> None:
    """The group table sorts by its median, as numbers."""
    page = opened(browser, report).page
    head = page.locator("#groups th button", has_text="Median")
    head.click()
    column = page.locator("#groups tbody tr td:nth-child(6)").all_inner_texts()
    assert [float(text) for text in column] == sorted(float(text) for text in column)


@pytest.mark.parametrize("width", [320, 768, 1920])
def test_it_fits_any_screen(browser: Browser, report: Path, width: int) -> None:
    """Nothing is wider than the window; wide tables scroll within themselves."""
    page = opened(browser, report, viewport={"width": width, "height": 800}).page
    page.wait_for_selector(".scatterlayer .point")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
