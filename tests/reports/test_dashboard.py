"""The sweep dashboard as a document: complete, self-contained, escaped, light enough."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from simspec.core.errors import ConfigError
from simspec.reports.dashboards.sweep import PAYLOAD_BYTES, sweep_page, write_sweep_dashboard
from simspec.reports.data import read_sweep
from simspec.reports.summary import sweep_text
from tests.helpers.fake_results import (
    HOSTILE_NAMES,
    LOADS,
    fake_manifest,
    fake_row,
    write_fake_results,
    write_hostile_results,
)
from tests.helpers.html import PageReader, read_page

MAX_BYTES = 6_000_000


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> PageReader:
    """The dashboard of the main sweep."""
    path = write_sweep_dashboard(write_fake_results(tmp_path_factory.mktemp("sweep")))
    assert path.name == "dashboard.html"
    assert path.stat().st_size < MAX_BYTES
    return read_page(path.read_text(encoding="utf-8"))


def test_the_page_loads_nothing_and_forbids_loading(page: PageReader) -> None:
    """No element names an outside address, and the policy would block one."""
    assert page.outside == []
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv"))
    assert policy is not None
    assert "default-src 'none'" in policy


def test_plotly_stands_in_the_page_once(page: PageReader) -> None:
    """Four million bytes are inlined a single time, beside our own script and the data."""
    sizes = sorted(len(script) for script in page.scripts)
    assert len(sizes) == 3
    assert sum(size > 2_000_000 for size in sizes) == 1


def test_everything_a_reader_must_see_is_text(page: PageReader) -> None:
    """Scenario, hardware, model, badge, assumptions, command and findings need no script."""
    manifest = fake_manifest()
    wanted = [
        manifest["name"],
        manifest["description"],
        "h100_sxm",
        "vicuna-7b",
        "vllm",
        "uncalibrated",
        manifest["acceptance"],
        *manifest["assumptions"],
        manifest["command"],
        "TTFT ≤ 500 ms and TPOT ≤ 20 ms",
        "0f" * 32,
        "Stops paying at 20 requests/s",
        "12 points unstable",
    ]
    for text in wanted:
        assert str(text) in page.text, text


def test_a_calibrated_profile_has_no_badge(tmp_path: Path) -> None:
    """The badge follows the manifest."""
    manifest = fake_manifest(calibrated=True, hardware={"name": "h100_sxm", "calibrated": True})
    path = write_sweep_dashboard(write_fake_results(tmp_path, manifest=manifest))
    assert "uncalibrated" not in read_page(path.read_text(encoding="utf-8")).text.lower()


def test_the_table_has_every_point_best_first(page: PageReader) -> None:
    """Rows: 4 baselines and 300 grid points; sortable heads are buttons."""
    rows = [attrs for tag, attrs in within(page, "points") if tag == "tr"]
    assert sum(attrs.get("class") == "best" for attrs in rows) == 1
    assert sum(attrs.get("class") == "baseline" for attrs in rows) == 4
    assert sum(attrs.get("class") == "failed" for attrs in rows) == 12
    assert "304 points, best first" in page.text


def within(page: PageReader, section: str) -> list[tuple[str, dict[str, str | None]]]:
    """Return the tags of one section of the page."""
    tags = iter(page.tags)
    found = itertools.dropwhile(lambda t: t[1].get("id") != section, tags)
    return [next(found), *itertools.takewhile(lambda t: t[0] != "section", found)]


def test_the_best_of_each_load_is_the_table_of_the_terminal(tmp_path: Path) -> None:
    """Heads and cells are those the summary prints; each row is named by its load."""
    text = sweep_text(write_fake_results(tmp_path))
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    printed = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in lines]
    page = read_page(write_sweep_dashboard(tmp_path).read_text(encoding="utf-8"))
    shown = page.text.partition("Best at each load Means")[2].partition("Speedup by")[0]
    for row in [printed[0], *printed[2:]]:
        assert " ".join(" ".join(row).split()) in shown, row
    tags = within(page, "best")
    heads = [attrs.get("scope") for tag, attrs in tags if tag == "th"]
    assert heads == ["col"] * len(printed[0]) + ["row"] * 2 * len(LOADS)
    rows = [attrs.get("class") for tag, attrs in tags if tag == "tr"]
    assert rows == [None, *[None, "baseline"] * len(LOADS)]


def test_each_control_has_a_label_and_ids_are_unique(page: PageReader) -> None:
    """Selectors are native and labelled; figures name a caption that exists."""
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in page.tags:
        for name in ("aria-labelledby", "aria-describedby"):
            if name in attrs:
                assert attrs[name] in ids
    depth = 0
    for tag, _ in page.tags:
        depth = 1 if tag == "label" else depth
        if tag == "select":
            assert depth == 1
            depth = 0


def test_hostile_names_are_text(tmp_path: Path) -> None:
    """Nothing a user can name becomes an element, a script or an event handler."""
    path = write_sweep_dashboard(write_hostile_results(tmp_path))
    page = read_page(path.read_text(encoding="utf-8"))
    assert page.outside == []
    assert len(page.scripts) == 3
    names = {tag for tag, _ in page.tags}
    assert not names & {"img", "svg", "i", "b", "iframe"}
    for name in (HOSTILE_NAMES[0], HOSTILE_NAMES[1], HOSTILE_NAMES[5], HOSTILE_NAMES[6]):
        assert name in page.text
    payload = next(s for s in page.scripts if s.startswith('{"palettes"'))
    assert json.loads(payload)["figures"]


def test_a_large_sweep_stays_below_the_limit_and_says_what_is_left_out(tmp_path: Path) -> None:
    """Ten thousand points shrink the page's choice of metrics, not its honesty."""
    axes = {
        "method.exit_layer": [2, 4, 8, 12],
        "method.num_speculative_tokens": list(range(1, 11)),
        "method.confidence_threshold": [i / 10 for i in range(10)],
        "load": [f"{n} users" for n in range(1, 26)],
    }
    listed = [{"field": f, "label": None, "values": v} for f, v in axes.items()]
    base = fake_row({"method.name": "kangaroo"}, 8)
    rows = [
        {**base, **dict(zip(axes, cells, strict=True)), "point_id": str(n)}
        for n, cells in enumerate(itertools.product(*axes.values()))
    ]
    for row in rows:
        for key in ("ttft", "tpot", "e2e"):
            row.pop(f"{key}_quantiles_ms", None)
    write_fake_results(
        tmp_path, points=rows, manifest=fake_manifest(axes=listed), with_curves=False
    )
    path = write_sweep_dashboard(tmp_path)
    assert path.stat().st_size < MAX_BYTES
    text = read_page(path.read_text(encoding="utf-8")).text
    assert "of 10,000 points" in text
    assert "all of them are in points.parquet" in text


SWEEPS: dict[str, dict[str, Any]] = {
    "hardware by tp": {"hardware": ["h100", "l40s", "a100"], "tp": [1, 2, 4]},
    "one axis": {"method.num_speculative_tokens": [1, 2, 3]},
    "one load": {
        "method.num_speculative_tokens": [1, 2, 3],
        "method.confidence_threshold": [0.0, 0.5],
        "load": ["busy"],
    },
    "names only": {"model": ["a", "b"], "engine": ["c", "d"], "dtype": ["bf16", "fp8"]},
    "nothing varied": {},
    "other numbers": {
        "slo_ms": [1.5, 2.5, 3.5],
        "method.draft_model": ["x", "y"],
        "on": [True, False],
    },
}


@pytest.mark.parametrize("baseline", [True, False])
@pytest.mark.parametrize("name", SWEEPS)
def test_other_sweeps_make_a_page_too(tmp_path: Path, name: str, *, baseline: bool) -> None:
    """Any axes, no curves, one load, no baseline: every selection of every figure resolves."""
    axes = SWEEPS[name]
    rows = []
    for cells in itertools.product(*axes.values()):
        shown = dict(zip(axes, cells, strict=True))
        row = fake_row({"method.name": "kangaroo", **shown}, 4)
        if not baseline:
            row = {k: v for k, v in row.items() if not k.startswith("speedup")}
        rows.append(row)
        if baseline:
            kept = {k: v for k, v in shown.items() if not k.startswith("method.")}
            rows.append(fake_row({"method.name": "autoregressive", **kept}, 4))
    listed = [{"field": f, "label": None, "values": v} for f, v in axes.items()]
    manifest = {"name": name, "axes": listed}
    data = read_sweep(
        write_fake_results(tmp_path, points=rows, manifest=manifest, with_curves=False)
    )
    made = sweep_page(data)
    start = {s.id: s.default for s in made.selectors}
    for spec in made.figures:
        assert spec.resolve(start)["empty"] is False
    page = read_page(made.html())
    assert page.outside == []
    assert "states no acceptance assumption" in page.text


def test_all_points_failed_is_a_page_as_well(tmp_path: Path) -> None:
    """A sweep in which nothing fits is reported, not crashed on."""
    row = {
        "method.name": "kangaroo",
        "method.num_speculative_tokens": 3,
        "status": "does_not_fit",
        "reason": "needs 140 GB, has 80 GB",
    }
    write_fake_results(tmp_path, points=[row], with_curves=False)
    text = read_page(write_sweep_dashboard(tmp_path).read_text(encoding="utf-8")).text
    assert "No point has results" in text
    assert "needs 140 GB, has 80 GB" in text
    assert "no result (does not fit)" in text.partition("Best configuration")[2]


def test_the_payload_is_within_its_budget(tmp_path: Path) -> None:
    """The main sweep keeps all its metrics."""
    page = sweep_page(read_sweep(write_fake_results(tmp_path)))
    assert len(page.payload().encode()) <= PAYLOAD_BYTES
    assert "To keep this page small" not in page.html()


def test_same_results_same_bytes(tmp_path: Path) -> None:
    """The page has no clock in it."""
    write_fake_results(tmp_path)
    first = write_sweep_dashboard(tmp_path).read_bytes()
    assert write_sweep_dashboard(tmp_path).read_bytes() == first


def test_a_folder_that_is_no_result_is_one_sentence(tmp_path: Path) -> None:
    """The error names the folder and leaves nothing behind."""
    with pytest.raises(ConfigError, match="no manifest"):
        write_sweep_dashboard(tmp_path)
    assert list(tmp_path.iterdir()) == []
