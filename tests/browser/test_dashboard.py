"""The dashboard in a real browser: silent, offline, true to the tables, usable by keyboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet

from simspec.reports.dashboards.sweep import write_sweep_dashboard
from tests.helpers.browser import chromium
from tests.helpers.fake_results import (
    DRAFT_LENGTHS,
    EXIT_LAYERS,
    HOSTILE_NAMES,
    LOADS,
    THRESHOLDS,
    write_fake_results,
    write_hostile_results,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

HEATMAP = '[data-figure="tau_vs_k"]'
CARD = "#fig-tau_vs_k"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for the module."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The main sweep's page, beside its tables."""
    return write_sweep_dashboard(write_fake_results(tmp_path_factory.mktemp("sweep")))


class Opened:
    """A page and everything that went wrong or out while it was open."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda m: self.problems.append(f"{m.type}: {m.text}"))
        page.on("pageerror", lambda e: self.problems.append(f"error: {e}"))
        page.on("dialog", self._dialog)
        page.on("request", lambda r: self.requests.append(r.url))

    def _dialog(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def check(self, path: Path) -> None:
        """Assert that nothing was reported and nothing but the file was read."""
        assert self.problems == []
        assert self.requests == [path.as_uri()]


def opened(browser: Browser, path: Path, **context: Any) -> Opened:
    """Open a page in a fresh context."""
    page = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context}).new_page()
    watched = Opened(page)
    page.goto(path.as_uri())
    return watched


def choose(page: Page, selector: str, label: str, card: str = CARD) -> None:
    """Set a selector of a card."""
    page.select_option(f'{card} [data-selector="{selector}"]', label=label)


def shown_z(page: Page) -> list[list[float | None]]:
    """Return the heat map's values as the page holds them."""
    z: list[list[float | None]] = page.evaluate(f"document.querySelector('{HEATMAP}').data[0].z")
    return z


def settle(page: Page, expression: str, reached: Callable[[Any], bool]) -> None:
    """Wait until an expression has the wanted value (the page's policy forbids eval in it)."""
    for _ in range(100):
        if reached(page.evaluate(expression)):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{expression} stays at {page.evaluate(expression)}")


def test_it_opens_in_silence_and_offline(browser: Browser, dashboard: Path) -> None:
    """No console message, no error, no request, every figure drawn, below 6 MB."""
    watched = opened(browser, dashboard)
    figures = watched.page.locator("[data-figure]")
    assert figures.count() == 7
    for index in range(figures.count()):
        assert figures.nth(index).locator("svg.main-svg").count() > 0
    watched.check(dashboard)
    assert dashboard.stat().st_size < 6_000_000


def test_selectors_show_the_values_of_the_table(browser: Browser, dashboard: Path) -> None:
    """For each E, load and metric tried, z equals the Parquet cells, failures are blank."""
    rows = parquet.read_table(dashboard.parent / "points.parquet").to_pylist()
    cells = {
        (
            r["method.exit_layer"],
            r["load"],
            r["method.confidence_threshold"],
            r["method.num_speculative_tokens"],
        ): r
        for r in rows
    }
    metrics = {
        "Speedup over autoregression": "speedup",
        "Time to first token, TTFT": "ttft_ms",
        "Drafted per round": "drafted_per_round",
    }
    watched = opened(browser, dashboard)
    for exit_layer, load in zip(EXIT_LAYERS, list(LOADS)[1:], strict=True):
        choose(watched.page, "method.exit_layer", str(exit_layer))
        choose(watched.page, "load", load)
        for label, key in metrics.items():
            choose(watched.page, "metric", label)
            z = shown_z(watched.page)
            assert (len(z), len(z[0])) == (len(THRESHOLDS), len(DRAFT_LENGTHS))
            for j, threshold in enumerate(THRESHOLDS):
                for i, length in enumerate(DRAFT_LENGTHS):
                    row = cells[exit_layer, load, threshold, length]
                    expected = row[key] if row["status"] == "ok" else None
                    assert z[j][i] == (expected and pytest.approx(expected, rel=1e-4))
    assert "unstable" in watched.page.locator(HEATMAP).inner_text()
    watched.check(dashboard)


def test_a_click_on_a_cell_moves_every_figure(browser: Browser, dashboard: Path) -> None:
    """The cell under the pointer becomes the selection of the cards below, and reset undoes it."""
    watched = opened(browser, dashboard)
    page = watched.page
    before = page.locator('[data-caption="round_time"]').inner_text()
    box = page.locator(f"{HEATMAP} .nsewdrag").bounding_box()
    assert box is not None
    # Column K = 2 (second of five), row tau = 0.2 (second of five from below).
    place = {"x": 1.5 * box["width"] / 5, "y": 3.5 * box["height"] / 5}
    page.locator(f"{HEATMAP} .nsewdrag").click(position=place)
    for card in ("#fig-round_time", "#fig-speedup_vs_load", CARD):
        for selector, value in (
            ("method.num_speculative_tokens", "2"),
            ("method.confidence_threshold", "0.2"),
        ):
            chosen = page.locator(f'{card} [data-selector="{selector}"] option:checked')
            assert chosen.inner_text() == value
    assert page.locator('[data-caption="round_time"]').inner_text() != before
    page.click("[data-reset]")
    assert page.locator('[data-caption="round_time"]').inner_text() == before
    watched.check(dashboard)


def test_everything_works_by_keyboard(browser: Browser, dashboard: Path) -> None:
    """Tab reaches selectors and table heads, arrows choose, Enter sorts; focus can be seen."""
    watched = opened(browser, dashboard)
    page = watched.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "document.activeElement.dataset.selector ?? document.activeElement.textContent"
            )
        )
    assert {"metric", "load", "method.exit_layer", "per", "Back to the best point"} <= reached
    page.focus(f'{CARD} [data-selector="load"]')
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    first = shown_z(page)
    page.keyboard.press("ArrowDown")
    assert shown_z(page) != first
    page.locator("#points th button", has_text="TPOT").focus()
    page.keyboard.press("Enter")
    head = page.locator("#points th", has_text="TPOT")
    assert head.get_attribute("aria-sort") == "ascending"
    watched.check(dashboard)


def test_the_table_sorts_as_numbers_with_gaps_last(browser: Browser, dashboard: Path) -> None:
    """Ascending then descending by a numeric column; points without a value stay at the end."""
    watched = opened(browser, dashboard)
    page = watched.page
    button = page.locator("#points th button", has_text="TTFT")
    column = page.locator("#points th").evaluate_all(
        "heads => heads.findIndex(h => h.textContent.includes('TTFT'))"
    )
    read = (
        "([n]) => [...document.querySelectorAll('#points tbody tr')]"
        ".map(r => r.cells[n].firstChild.textContent)"
    )
    for sign in (1, -1):
        button.click()
        texts = page.evaluate(read, [column])
        numbers = [float(t.replace(",", "")) for t in texts if t != "–"]
        assert numbers == sorted(numbers, reverse=sign < 0)
        assert texts[len(numbers) :] == ["–"] * 12
    watched.check(dashboard)


def test_hostile_names_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    """No name runs, becomes an element or changes a figure's text into markup."""
    path = write_sweep_dashboard(write_hostile_results(tmp_path))
    watched = opened(browser, path)
    page = watched.page
    assert page.locator("main img, main svg[onload], main i, main b").count() == 0
    assert page.evaluate("document.scripts.length") == 3
    ticks = page.locator(f"{HEATMAP} .ytick").all_text_contents()
    assert any(t.startswith("<script>") for t in ticks)
    assert any(t.startswith("@high") for t in ticks)
    select = f'{CARD} [data-selector="hardware"]'
    for index, name in enumerate(HOSTILE_NAMES):
        page.select_option(select, index=index)
        option = page.locator(f"{select} option").nth(index).text_content() or ""
        assert option.strip("\u2068\u2069") == name.replace("\u202e", "")
    watched.check(path)


def test_the_scheme_of_the_reader_is_followed(browser: Browser, dashboard: Path) -> None:
    """Dark and light differ in page and figures, also when switched while open; print is light."""
    watched = opened(browser, dashboard, color_scheme="dark")
    page = watched.page
    ink = f"document.querySelector('{HEATMAP}').layout.font.color"
    background = "getComputedStyle(document.body).backgroundColor"
    dark = (page.evaluate(ink), page.evaluate(background))
    page.emulate_media(color_scheme="light")
    settle(page, ink, lambda colour: colour != dark[0])
    light = (page.evaluate(ink), page.evaluate(background))
    assert dark[1] != light[1]
    page.emulate_media(color_scheme="dark")
    settle(page, ink, lambda colour: colour == dark[0])
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(ink) == light[0]
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(ink) == dark[0]
    watched.check(dashboard)


@pytest.mark.parametrize("width", [360, 768])
def test_narrow_screens_do_not_scroll_sideways(
    browser: Browser, dashboard: Path, width: int
) -> None:
    """The page fits a phone; only the table scrolls, inside its own frame."""
    watched = opened(browser, dashboard, viewport={"width": width, "height": 740})
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
    watched.check(dashboard)


def test_it_prints(browser: Browser, dashboard: Path) -> None:
    """Paper has no buttons, fits its width, and keeps to a few pages."""
    watched = opened(browser, dashboard)
    page = watched.page
    document = page.pdf(format="A4", print_background=True)
    assert document.startswith(b"%PDF")
    assert 4 <= document.count(b"/Type /Page\n") <= 9
    page.emulate_media(media="print")
    assert not page.locator("[data-reset]").is_visible()
    assert page.locator(".print-note").is_visible()


def test_without_javascript_the_words_remain(browser: Browser, dashboard: Path) -> None:
    """Findings, assumptions, table and manifest are in the document itself."""
    watched = opened(browser, dashboard, java_script_enabled=False)
    text = watched.page.inner_text("main")
    for part in ("Stops paying at", "Acceptance assumed", "TPOT (ms)", "simspec sweep"):
        assert part in text
