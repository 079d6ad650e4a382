"""Every figure: valid for Plotly under every selection, with units, and true to the tables."""

from __future__ import annotations

import itertools
import math
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from simspec.reports import figures
from simspec.reports.dashboards.sweep import sweep_page
from simspec.reports.data import read_sweep
from simspec.reports.figures import (
    latency_cdf,
    round_time,
    speedup_vs_batch,
    speedup_vs_load,
    tau_vs_k,
)
from simspec.reports.spec import FigureSpec
from simspec.reports.theme import PALETTES, paint
from simspec.reports.view import SweepView, axis_selectors, sweep_view
from tests.helpers.fake_results import fake_manifest, fake_row, write_fake_results
from tests.helpers.shared import REPO_ROOT


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> SweepView:
    """The main sweep."""
    return sweep_view(read_sweep(write_fake_results(tmp_path_factory.mktemp("sweep"))))


def all_figures(view: SweepView) -> list[FigureSpec]:
    """Return every figure the view has data for."""
    made = [
        tau_vs_k.figure(view),
        speedup_vs_load.figure(view),
        speedup_vs_batch.figure(view),
        round_time.figure(view),
        *(latency_cdf.figure(view, name) for name in latency_cdf.LATENCIES),
    ]
    return [spec for spec in made if spec is not None]


def selections(spec: FigureSpec, view: SweepView, limit: int = 60) -> Iterator[dict[str, int]]:
    """Yield selections of a figure, spread over all of them when there are many."""
    options = {s.id: len(s.options) for s in [*axis_selectors(view, None), *spec.selectors]}
    ranges = [range(options[name]) for name in spec.uses]
    every = max(1, math.prod(len(r) for r in ranges) // limit)
    for chosen in itertools.islice(itertools.product(*ranges), 0, None, every):
        yield dict(zip(spec.uses, chosen, strict=True))


def test_each_figure_file_is_used_by_the_dashboard(view: SweepView) -> None:
    """A figure is a file; one that no page shows would be dead."""
    pages = (REPO_ROOT / "simspec/reports/dashboards").glob("*.py")
    source = "".join(page.read_text(encoding="utf-8") for page in pages)
    names = [module.name for module in pkgutil.iter_modules(figures.__path__)]
    assert names
    assert all(re.search(rf"\b{name}\.\w*figure\(", source) for name in names)
    assert {spec.name for spec in sweep_page(view.data).figures} == {
        spec.name for spec in all_figures(view)
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_plotly_accepts_every_figure_under_every_selection(view: SweepView, scheme: Any) -> None:
    """Each resolved figure is valid for Plotly and every colour token has a colour."""
    for spec in all_figures(view):
        for selection in selections(spec, view):
            figure: Any = paint(spec.resolve(selection), PALETTES[scheme])
            assert not figure["empty"], (spec.name, selection)
            built = go.Figure({"data": figure["data"], "layout": figure["layout"]})
            assert '"@' not in built.to_json()
            assert figure["caption"]


def test_axis_titles_carry_units(view: SweepView) -> None:
    """Each axis has a title; a quantity with a unit names it in parentheses."""
    unitless = {"Load", ""}
    for spec in all_figures(view):
        layout: Any = spec.base["layout"]
        for name in ("xaxis", "yaxis"):
            title = layout[name]["title"]["text"]
            assert title in unitless or title.endswith(")"), (spec.name, title)


def test_both_palettes_define_the_same_tokens() -> None:
    """Switching the scheme never leaves a token unpainted."""
    assert PALETTES["light"].keys() == PALETTES["dark"].keys()


def test_the_heat_map_shows_the_cells_of_the_table(view: SweepView) -> None:
    """z[row][column] is the metric of the point with that τ and K, for each E, load and metric."""
    spec = tau_vs_k.figure(view)
    assert spec is not None
    rows = {
        tuple(
            row[key]
            for key in (
                "method.exit_layer",
                "load",
                "method.confidence_threshold",
                "method.num_speculative_tokens",
            )
        ): row
        for row in (point.row for point in view.shown)
    }
    axes = {axis.field: axis for axis in view.data.axes}
    for selection in selections(spec, view, limit=200):
        figure: Any = spec.resolve(selection)
        metric = view.metrics[selection["metric"]]
        exit_layer = axes["method.exit_layer"].values[selection["method.exit_layer"]]
        load = axes["load"].values[selection["load"]]
        z = figure["data"][tau_vs_k.HEATMAP]["z"]
        for j, threshold in enumerate(axes["method.confidence_threshold"].values):
            for i, length in enumerate(axes["method.num_speculative_tokens"].values):
                row = rows[exit_layer, load, threshold, length]
                expected = row[metric.key] if row["status"] == "ok" else None
                if expected is None:
                    assert z[j][i] is None
                else:
                    assert z[j][i] == pytest.approx(expected, rel=1e-4)


def test_the_heat_map_marks_best_undecided_and_failed_cells(view: SweepView) -> None:
    """Outline on the best cell, a ring where the interval includes 1, words on failures."""
    spec = tau_vs_k.figure(view)
    assert spec is not None
    load = view.roles.load
    assert load is not None
    heaviest = len(load.values) - 1
    selection = dict.fromkeys(spec.uses, 0) | {"load": heaviest, "method.exit_layer": 1}
    figure: Any = spec.resolve(selection)
    points = [p for p in view.at_load(heaviest) if p.row["method.exit_layer"] == 4]
    best = view.best(points)
    assert best is not None
    x, y = view.roles.x, view.roles.y
    assert x is not None
    assert y is not None
    outline = figure["data"][tau_vs_k.BEST]
    assert sum(outline["x"][:4]) / 4 == pytest.approx(x.index(best.axis_value(x)))
    assert sum(outline["y"][:4]) / 4 == pytest.approx(y.index(best.axis_value(y)))
    undecided = [
        p for p in points if (i := p.interval("speedup")) is not None and i[0] <= 1 <= i[1]
    ]
    assert len(figure["data"][tau_vs_k.RINGS]["x"]) == len(undecided)
    failed = [p for p in points if not p.is_ok]
    assert failed
    assert figure["data"][tau_vs_k.STATUS]["text"] == ["unstable"] * len(failed)
    assert all("exceeds capacity" in why for why in figure["data"][tau_vs_k.STATUS]["customdata"])


def test_speedup_colours_are_symmetric_about_one_and_shared_by_all_views(view: SweepView) -> None:
    """The same colour means the same speedup whatever is selected, and neutral means 1."""
    spec = tau_vs_k.figure(view)
    assert spec is not None
    ranges = set()
    for selection in selections(spec, view, limit=300):
        if view.metrics[selection["metric"]].key == "speedup":
            figure: Any = spec.resolve(selection)
            heatmap = figure["data"][tau_vs_k.HEATMAP]
            ranges.add((heatmap["zmin"], heatmap["zmax"]))
    ((low, high),) = ranges
    assert (low + high) / 2 == pytest.approx(1)


def test_error_bars_reach_the_interval(view: SweepView) -> None:
    """Value plus bar is the upper bound, value minus bar the lower one."""
    spec = speedup_vs_load.figure(view)
    assert spec is not None
    figure: Any = spec.resolve(dict.fromkeys(spec.uses, 0))
    for k in range(len(view.roles.load.values) if view.roles.load else 0):
        best = view.best(view.at_load(k))
        assert best is not None
        trace = figure["data"][0]
        interval = best.interval("speedup")
        assert interval is not None
        assert trace["y"][k] + trace["error_y"]["array"][k] == pytest.approx(interval[1], rel=1e-3)
        low = trace["y"][k] - trace["error_y"]["arrayminus"][k]
        assert low == pytest.approx(interval[0], rel=1e-3)


def test_parts_of_a_round_add_up_to_the_round(view: SweepView) -> None:
    """Bars sum to round_time_ms per round and to round_time_ms / tokens per token."""
    spec = round_time.figure(view)
    assert spec is not None
    for selection in selections(spec, view, limit=40):
        point = view.at({k: v for k, v in selection.items() if k != "per"})
        assert point is not None
        if not point.is_ok:
            continue
        figure: Any = spec.resolve(selection)
        total = sum(trace["x"][1] or 0 for trace in figure["data"])
        expected = point.number("round_time_ms")
        assert expected is not None
        if selection["per"] == 1:
            expected /= point.number("tokens_per_round") or 1
        assert total == pytest.approx(expected, rel=1e-3)


def test_what_the_parts_do_not_explain_is_shown_as_other(tmp_path: Path) -> None:
    """A round longer than its parts gets a bar of its own instead of a silent gap."""
    row = fake_row({"method.name": "kangaroo"}, 4)
    row["round_time_ms"] = 1.5 * row["round_time_ms"]
    data = read_sweep(write_fake_results(tmp_path, points=[row], manifest=fake_manifest(axes=[])))
    spec = round_time.figure(sweep_view(data))
    assert spec is not None
    figure: Any = spec.resolve({"per": 0})
    assert figure["data"][-1]["name"] == "Other"
    assert figure["data"][-1]["x"][1] == pytest.approx(row["round_time_ms"] / 3, rel=1e-3)


def test_latency_curves_are_the_stored_quantiles(view: SweepView) -> None:
    """x holds the quantiles of the best point and of its baseline, y the shares 0..100 %."""
    spec = latency_cdf.figure(view, "tpot")
    assert spec is not None
    best = view.best(view.at_load(0))
    assert best is not None
    baseline = view.data.baseline(best)
    assert baseline is not None
    figure: Any = spec.resolve({"load": 0})
    for trace, point in ((figure["data"][0], best), (figure["data"][1], baseline)):
        assert trace["x"] == pytest.approx(point.quantiles("tpot"), rel=1e-4)
        assert trace["y"] == pytest.approx(list(range(101)))
    assert figure["data"][latency_cdf.TARGET]["x"] == [20.0, 20.0]


def test_a_wide_spread_gets_a_logarithmic_axis_with_every_tick_in_full(tmp_path: Path) -> None:
    """A tick says its milliseconds; a bare 2 or 5 between powers of ten would not."""
    row = fake_row({"method.name": "kangaroo"}, 4)
    row["ttft_quantiles_ms"] = [10.0 * 1.05**i for i in range(101)]
    data = read_sweep(write_fake_results(tmp_path, points=[row], manifest=fake_manifest(axes=[])))
    spec = latency_cdf.figure(sweep_view(data), "ttft")
    assert spec is not None
    figure: Any = spec.resolve({})
    shown = figure["layout"]["xaxis"]
    assert (shown["type"], shown["tickmode"]) == ("log", "array")
    assert {10, 30, 100, 300, 1000} <= set(shown["tickvals"])


def test_batch_curves_are_the_rows_of_the_closed_form(view: SweepView) -> None:
    """Each line is one exit layer's speedups in order of batch at the chosen K and τ."""
    spec = speedup_vs_batch.figure(view)
    assert spec is not None
    selection = {"method.num_speculative_tokens": 2, "method.confidence_threshold": 3}
    figure: Any = spec.resolve(selection)
    for index, exit_layer in enumerate((2, 4, 8)):
        expected = [
            row["speedup"]
            for row in view.data.curves
            if row["method.exit_layer"] == exit_layer
            and row["method.num_speculative_tokens"] == 3
            and row["method.confidence_threshold"] == 0.6
        ]
        assert figure["data"][index]["y"] == pytest.approx(expected, rel=1e-4)


def test_importing_figures_does_not_import_pandas_or_plotly() -> None:
    """The command line pays for heavy libraries only when it draws."""
    code = (
        "import sys, simspec.reports.dashboards.sweep, simspec.reports.summary; "
        "print([m for m in ('pandas', 'plotly', 'pyarrow', 'scipy', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO_ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
