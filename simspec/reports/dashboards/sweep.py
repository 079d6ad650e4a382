"""The dashboard of a sweep: findings in words, heat map, curves, round time, latencies, points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from simspec.reports.dashboards._parts import Card, Report, Tile, figure_card
from simspec.reports.dashboards._table import best_table, points_table
from simspec.reports.data import SweepData, read_sweep
from simspec.reports.figures import (
    latency_cdf,
    round_time,
    speedup_vs_batch,
    speedup_vs_load,
    tau_vs_k,
)
from simspec.reports.findings import findings
from simspec.reports.labels import metric
from simspec.reports.page import Page, payload
from simspec.reports.phrases import listed
from simspec.reports.spec import FigureSpec, Selector
from simspec.reports.verdicts import best_curves, break_even_batch, pays, verdicts
from simspec.reports.view import DEFAULT_METRICS, SweepView, axis_selectors, sweep_view

PAYLOAD_BYTES = 700_000
"""Data the figures may take: with Plotly, table and text the page stays below 6 MB."""

DASHBOARD = "dashboard.html"


def write_sweep_dashboard(result_dir: Path) -> Path:
    """Write ``dashboard.html`` into a sweep's result directory and return its path.

    Parameters
    ----------
    result_dir : Path
        Holds ``manifest.json``, ``points.parquet`` and, optionally, ``curves.parquet``.

    Raises
    ------
    ConfigError
        The directory is not a sweep's result, or cannot be written.
    """
    return sweep_page(read_sweep(result_dir)).write(result_dir / DASHBOARD)


def sweep_page(data: SweepData) -> Page:
    """Return the page of a sweep."""
    view = sweep_view(data)
    view, selectors, figures, left_out = _within_budget(view)
    cards = list(_cards(view, figures, selectors))
    return Report(
        kind="sweep",
        data=data,
        tiles=list(_tiles(view)),
        findings_title="What this sweep says",
        findings=findings(view),
        best=best_table(view),
        cards=cards,
        figures=figures,
        selectors=selectors,
        table_title="All points",
        table=points_table(view),
        note=left_out,
    ).page()


def _figures(view: SweepView) -> list[FigureSpec]:
    made = [
        tau_vs_k.figure(view),
        speedup_vs_load.figure(view),
        speedup_vs_batch.figure(view),
        round_time.figure(view),
        *(latency_cdf.figure(view, latency) for latency in latency_cdf.LATENCIES),
    ]
    return [spec for spec in made if spec is not None]


def _within_budget(
    view: SweepView,
) -> tuple[SweepView, list[Selector], list[FigureSpec], str]:
    """Return the figures, with fewer metrics and details if they would make the page heavy."""
    metrics = view.metrics
    core = tuple(m for m in metrics if m.key in DEFAULT_METRICS) or metrics
    levels = [
        (metrics, False),
        (core, False),
        (core[:10], True),
        (core[:4], True),
        (core[:1], True),
    ]
    # A point takes some 1,000 bytes on a full page, 40 per metric on a lean one.
    likely = 0 if len(view.shown) < 1_000 else 2 if len(view.shown) < 5_000 else 3
    for kept, lean in levels[likely:]:
        view = replace(view, metrics=kept, lean=lean)
        figures = _figures(view)
        selectors = axis_selectors(view, view.best(view.shown))
        selectors += [own for spec in figures for own in spec.selectors]
        if len(payload(selectors, figures).encode()) <= PAYLOAD_BYTES:
            break
    hidden = len(metrics) - len(view.metrics)
    note = ""
    if hidden or view.lean:
        note = (
            f"To keep this page small the heat map offers {len(view.metrics)} of {len(metrics)} "
            "metrics and some details are left out; all of them are in points.parquet."
        )
    return view, selectors, figures, note


def _cards(
    view: SweepView, figures: Sequence[FigureSpec], selectors: Sequence[Selector]
) -> Iterator[Card]:
    by_name = {spec.name: spec for spec in figures}
    if (spec := by_name.get("tau_vs_k")) is not None:
        yield _heat_map_card(view, spec, selectors)
    pair = [by_name[n] for n in ("speedup_vs_load", "speedup_vs_batch") if n in by_name]
    leads = {
        "speedup_vs_load": "Simulated, with queues. Below 1, plain decoding is faster.",
        "speedup_vs_batch": "Closed form at a fixed batch: no queue, no interval.",
    }
    for spec in pair:
        wide = len(pair) == 1
        yield figure_card(spec.name, spec.title, leads[spec.name], [spec], selectors, wide=wide)
    if (spec := by_name.get("round_time")) is not None:
        lead = "Mean parts of one engine step with a decoding round in it."
        yield figure_card(spec.name, spec.title, lead, [spec], selectors)
    latencies = [spec for spec in figures if spec.name.startswith("latency_")]
    if latencies:
        lead = "The best configuration against autoregression; quantiles over requests, averaged "
        lead += "over replications."
        yield figure_card("latency", "How latency is distributed", lead, latencies, selectors)


def _heat_map_card(view: SweepView, spec: FigureSpec, selectors: Sequence[Selector]) -> Card:
    marks = [("best", "best value shown")]
    if any(p.interval("speedup") is not None for p in view.shown):
        marks.append(("undecided", "speedup whose 95% interval includes 1"))
    if spec.picks:
        marks.append(("chosen", "chosen: click a cell, or use the selectors, to follow it below"))
    marks.append(("hatched", "no result"))
    card = figure_card(spec.name, spec.title, "", [spec], selectors)
    return replace(card, marks=tuple(marks), reset=bool(view.varied), title=_plane_title(view))


def _plane_title(view: SweepView) -> str:
    x, y = view.roles.x, view.roles.y
    assert x is not None
    across = x.label[:1].lower() + x.label[1:] if x.label[1:2].islower() else x.label
    return f"{y.label} against {across}" if y is not None else f"By {across}"


def _tiles(view: SweepView) -> Iterator[Tile]:
    best = view.best(view.shown)
    rank = view.primary
    if best is not None:
        interval = best.interval(rank.key)
        bounds = "–".join(rank.text(b, unit=False) for b in interval) if interval else ""
        detail = f"95% interval {bounds}" if bounds else "no interval (one replication)"
        name = view.describe(best)
        tone = "good" if rank.key == "speedup" and pays(best) else "neutral"
        label = "Best speedup" if rank.key == "speedup" else f"Best: {rank.label}"
        yield Tile(label, rank.text(best.number(rank.key)), f"{detail} · {name}", tone)
        baseline = view.data.baseline(best)
        tpot = metric("tpot_ms")
        if baseline is not None and best.number("tpot_ms") is not None:
            theirs = tpot.text(baseline.number("tpot_ms"))
            mine = tpot.text(best.number("tpot_ms"))
            yield Tile("Time per output token", mine, f"autoregression: {theirs}, same load")
    if rank.key == "speedup":
        yield _stop_tile(view)
    failed = sum(not p.is_ok for p in view.data.points)
    total = len(view.data.points)
    detail = f"{failed:,} without a result, reasons below" if failed else "all with results"
    yield Tile("Points", f"{total - failed:,}", f"of {total:,}; {detail}")


def _stop_tile(view: SweepView) -> Tile:
    choices = view.setting_choices()
    found = [[v for v in verdicts(view, setting) if v.pays is not None] for setting in choices]
    detail = "by the best configuration of each load"
    if len(choices) > 1:
        always = sum(bool(known) and all(v.pays for v in known) for known in found)
        names = listed([axis.label.lower() for axis in view.settings])
        return Tile("Pays at every load", f"{always} of {len(choices)}", f"by {names}; {detail}")
    known = found[0]
    best = view.best(view.shown)
    if best is not None and view.data.curves:
        limits = [break_even_batch(c) for c in best_curves(view, best).values()]
        if len(limits) == 1 and limits[0] is not None:
            detail += f"; closed form of the best point: batch {limits[0]:.0f}"
    if not any(v.pays for v in known):
        return Tile("Speculation", "never pays", detail, "bad")
    stop = next((v for v in known if not v.pays), None)
    if stop is None and view.num_loads == 1:
        return Tile(
            "Speculation", "pays", "at the one load swept, by the best configuration", "good"
        )
    if stop is None:
        return Tile("Speculation", "always pays", f"at every load swept, {detail}", "good")
    return Tile("Stops paying at", stop.load, detail)
