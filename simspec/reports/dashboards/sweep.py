"""The dashboard of a sweep: findings in words, heat map, curves, round time, latencies, points."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simspec.reports.dashboards._table import Table, points_table
from simspec.reports.data import SweepData, read_sweep, sentences_of, text_of, told_apart
from simspec.reports.figures import (
    latency_cdf,
    round_time,
    speedup_vs_batch,
    speedup_vs_load,
    tau_vs_k,
)
from simspec.reports.findings import (
    Finding,
    best_curves,
    break_even_batch,
    findings,
    pays,
    slo_text,
    verdicts,
)
from simspec.reports.labels import axis_label, metric, shorten, visible
from simspec.reports.page import Page, payload
from simspec.reports.spec import FigureSpec, Selector
from simspec.reports.view import DEFAULT_METRICS, SweepView, axis_selectors, sweep_view

PAYLOAD_BYTES = 700_000
"""Data the figures may take: with Plotly, table and text the page stays below 6 MB."""

DASHBOARD = "dashboard.html"


@dataclass(frozen=True, slots=True)
class Control:
    """A selector as the page shows it."""

    id: str
    label: str
    options: Sequence[str]
    default: int


@dataclass(frozen=True, slots=True)
class Panel:
    """A place for one figure."""

    name: str
    title: str
    short: str
    height: int


@dataclass(frozen=True, slots=True)
class Card:
    """A section of the page with one or more figures."""

    id: str
    title: str
    lead: str
    panels: Sequence[Panel]
    controls: Sequence[Control]
    wide: bool = True
    marks: Sequence[tuple[str, str]] = ()
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """One key number at the top."""

    label: str
    value: str
    detail: str
    tone: str = "neutral"


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
    found = findings(view)
    cards = list(_cards(view, figures, selectors))
    table = points_table(view)
    sections = [("findings", "Findings")]
    sections += [
        (card.id, "Heat map" if card.id == "fig-tau_vs_k" else card.title) for card in cards
    ]
    sections += [
        ("assumptions", "Assumptions"),
        ("points", "All points"),
        ("manifest", "Reproduce"),
    ]
    sweep = {
        "name": visible(data.name),
        "description": visible(text_of(data.manifest, "description")),
        "facts": _facts(data),
        "calibrated": data.is_calibrated,
        "contents": sections,
        "tiles": list(_tiles(view, found)),
        "findings": found,
        "acceptance": [
            visible(text) for text in told_apart(sentences_of(data.manifest, "acceptance"))
        ],
        "assumptions": [visible(text) for text in _assumptions(data, left_out)],
        "sources": _sources(data.manifest),
        "cards": cards,
        "table": table,
        "command": _command(data.manifest),
        "manifest": list(_manifest_rows(data.manifest)),
        "inputs": _inputs(data.manifest),
        "manifest_json": json.dumps(data.manifest, indent=2, ensure_ascii=False),
    }
    title = f"{shorten(visible(data.name), 80)} · simspec sweep"
    return Page("sweep.html.j2", title, selectors, figures, {"sweep": sweep})


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
        yield _card(spec.name, spec.title, leads[spec.name], [spec], selectors, wide=wide)
    if (spec := by_name.get("round_time")) is not None:
        lead = "Mean parts of one engine step with a decoding round in it."
        yield _card(spec.name, spec.title, lead, [spec], selectors)
    latencies = [spec for spec in figures if spec.name.startswith("latency_")]
    if latencies:
        lead = "All requests of all replications: the best configuration against autoregression."
        yield _card("latency", "How latency is distributed", lead, latencies, selectors)


def _heat_map_card(view: SweepView, spec: FigureSpec, selectors: Sequence[Selector]) -> Card:
    marks = [("best", "best value shown")]
    if any(p.interval("speedup") is not None for p in view.shown):
        marks.append(("undecided", "speedup whose 95% interval includes 1"))
    if spec.picks:
        marks.append(("chosen", "chosen: click a cell, or use the selectors, to follow it below"))
    marks.append(("hatched", "no result"))
    card = _card(spec.name, spec.title, "", [spec], selectors)
    return replace(card, marks=tuple(marks), reset=bool(view.varied), title=_plane_title(view))


def _plane_title(view: SweepView) -> str:
    x, y = view.roles.x, view.roles.y
    assert x is not None
    across = x.label[:1].lower() + x.label[1:] if x.label[1:2].islower() else x.label
    return f"{y.label} against {across}" if y is not None else f"By {across}"


def _card(
    card_id: str,
    title: str,
    lead: str,
    specs: Sequence[FigureSpec],
    selectors: Sequence[Selector],
    *,
    wide: bool = True,
) -> Card:
    by_id = {selector.id: selector for selector in selectors}
    used = list(dict.fromkeys(name for spec in specs for name in spec.uses))
    controls = [
        Control(name, by_id[name].label, by_id[name].options, by_id[name].default) for name in used
    ]
    panels = [_panel(spec) for spec in specs]
    return Card(f"fig-{card_id}", title, lead, panels, controls, wide)


def _panel(spec: FigureSpec) -> Panel:
    layout = spec.base["layout"]
    height = layout.get("height", 360) if isinstance(layout, Mapping) else 360
    short = spec.name.removeprefix("latency_").upper()
    return Panel(spec.name, spec.title, short, int(height))


def _tiles(view: SweepView, found: Sequence[Finding]) -> Iterator[Tile]:
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
    known = [v for v in verdicts(view) if v.pays is not None]
    best = view.best(view.shown)
    detail = "by the best configuration of each load"
    if best is not None and view.data.curves:
        limits = [break_even_batch(c) for c in best_curves(view, best).values()]
        if len(limits) == 1 and limits[0] is not None:
            detail += f"; closed form of the best point: batch {limits[0]:.0f}"
    if not any(v.pays for v in known):
        return Tile("Speculation", "never pays", detail, "bad")
    stop = next((v for v in known if not v.pays), None)
    if stop is None:
        return Tile("Speculation", "always pays", f"at every load swept, {detail}", "good")
    return Tile("Stops paying at", stop.load, detail)


def _facts(data: SweepData) -> list[tuple[str, str]]:
    names = (
        ("Hardware", ("hardware",)),
        ("Model", ("model",)),
        ("Engine", ("engine",)),
        ("Workload", ("workload", "profile")),
    )
    varied = {axis.field for axis in data.axes if len(axis.values) > 1}
    facts = []
    for label, keys in names:
        if label.lower() in varied:
            facts.append((label, "varied"))
        elif text := text_of(data.manifest, *keys):
            facts.append((label, visible(text)))
    if slo := slo_text(data.manifest.get("slo")):
        facts.append(("SLO", slo))
    return facts


def _assumptions(data: SweepData, left_out: str) -> list[str]:
    stated = _workload(data)
    stated += sentences_of(data.manifest, "assumptions")
    if not data.is_calibrated:
        stated.append(
            "Uncalibrated: the constants of the hardware profile are not fitted to measurements "
            "of this device; trust ratios before milliseconds."
        )
    if not any("speedup" in text.lower() for text in stated):
        stated.append(
            "Speedup is the time per output token (TPOT) of autoregression divided by that of "
            "the point."
        )
    return [*stated, left_out] if left_out else stated


def _workload(data: SweepData) -> list[str]:
    """Return the sentence of each load, in the order of the load axis."""
    listed = data.manifest.get("workload")
    if not isinstance(listed, Mapping):
        return [f"Workload: {text}" for text in sentences_of(data.manifest, "workload")]
    load = data.axis("load")
    order = {text: i for i, text in enumerate(load.texts)} if load is not None else {}
    loads = sorted(listed, key=lambda name: order.get(str(name), len(order)))
    sentences = told_apart([str(listed[name]) for name in loads])
    return [
        f"Load {name}: {text}" if len(loads) > 1 else f"Workload: {text}"
        for name, text in zip(loads, sentences, strict=True)
    ]


def _sources(manifest: Mapping[str, object]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return, by hardware profile, which source each group of its numbers names."""
    listed = manifest.get("profile_sources")
    if not isinstance(listed, Mapping):
        return []
    return [
        (visible(str(name)), [(visible(str(k)), visible(str(v))) for k, v in groups.items()])
        for name, groups in listed.items()
        if isinstance(groups, Mapping)
    ]


_SHOWN_ELSEWHERE = {
    "name", "scenario", "description", "acceptance", "assumptions", "command", "axes", "metrics",
    "inputs", "columns", "kind", "workload", "profile_sources",
}  # fmt: skip


def _manifest_rows(manifest: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for key, value in manifest.items():
        if key in _SHOWN_ELSEWHERE or value is None:
            continue
        text = slo_text(value) if key == "slo" else _named(value)
        if text:
            yield (
                "SLO" if key == "slo" else visible(axis_label(key)),
                visible(shorten(text, 400)),
            )


def _named(value: object) -> str:
    """Return the name of something that has one, else everything in it."""
    name = value.get("name") if isinstance(value, Mapping) else None
    return str(name) if name else _flat(value)


def _flat(value: object) -> str:
    if isinstance(value, Mapping):
        simple = {k: v for k, v in value.items() if isinstance(v, str | int | float | bool)}
        return ", ".join(f"{key} {_flat(item)}" for key, item in simple.items())
    if isinstance(value, list):
        return ", ".join(_flat(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _command(manifest: Mapping[str, object]) -> str:
    command = manifest.get("command")
    words = [str(word) for word in command] if isinstance(command, list) else []
    return visible(" ".join(words) if words else text_of(manifest, "command"))


def _inputs(manifest: Mapping[str, object]) -> list[tuple[str, str]]:
    listed = manifest.get("inputs")
    if not isinstance(listed, Mapping):
        return []
    rows = []
    for name, value in listed.items():
        digest = value.get("sha256", "") if isinstance(value, Mapping) else value
        rows.append((visible(str(name)), visible(str(digest))))
    return rows


__all__ = ["DASHBOARD", "Table", "sweep_page", "write_sweep_dashboard"]
