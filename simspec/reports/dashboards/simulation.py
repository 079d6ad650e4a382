"""The report of one simulated scenario, beside autoregression on the same tapes.

A scenario is a sweep of one point, so this page shows a sweep's figures with nothing to select,
and every metric of both sides in one table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from simspec.core.errors import ConfigError
from simspec.reports.dashboards._parts import Card, Report, Tile, figure_card
from simspec.reports.dashboards._table import Cell, Column, Row, Table
from simspec.reports.data import BASELINE, METHOD, Axis, Point, SweepData, finite
from simspec.reports.figures import latency_cdf, over_time, round_time
from simspec.reports.findings import Finding
from simspec.reports.labels import METRICS, Metric, method_title, metric, visible
from simspec.reports.page import Page
from simspec.reports.phrases import ratio_text, slo_text, tpot_text
from simspec.reports.spec import FigureSpec
from simspec.reports.verdicts import includes_one, pays
from simspec.reports.view import DRAFT_LENGTH, EXIT_LAYER, THRESHOLD, SweepView, sweep_view

RESULT = "result.json"
REPORT = "report.html"
_FIRST = (EXIT_LAYER, DRAFT_LENGTH, THRESHOLD)
"""Options in the order a sentence names them; others follow."""


def write_simulation_report(result_dir: Path) -> Path:
    """Write ``report.html`` beside a simulation's ``result.json`` and return its path.

    Raises
    ------
    ConfigError
        The directory holds no result of ``simspec simulate``, or cannot be written.
    """
    return simulation_page(read_simulation(result_dir)).write(result_dir / REPORT)


def read_simulation(result_dir: Path) -> SweepData:
    """Read ``result.json`` as a sweep of one point.

    Raises
    ------
    ConfigError
        It is missing or not the result of a simulation.
    """
    path = result_dir / RESULT
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise ConfigError(
            f"{result_dir}: no {RESULT} here; give the directory that "
            "'simspec simulate --output' wrote"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path}: not valid JSON ({error}); simulate again") from None
    if not isinstance(result, dict) or "method" not in result or "status" not in result:
        raise ConfigError(f"{path}: not the result of a simulation; simulate again")
    return _as_sweep(result_dir, result)


def _as_sweep(result_dir: Path, result: Mapping[str, object]) -> SweepData:
    options = result.get("method_options")
    fields = {
        f"method.{name}": value
        for name, value in (options.items() if isinstance(options, Mapping) else ())
        if isinstance(value, int | float | str) and not isinstance(value, bool)
    }
    first = [name for name in _FIRST if name in fields]
    fields = {name: fields[name] for name in dict.fromkeys([*first, *fields])}
    name = str(result["method"])
    ours = Point({**result, **fields, METHOD: name})
    baseline = result.get("baseline")
    rows = [ours]
    if isinstance(baseline, Mapping) and name != BASELINE:
        rows.append(Point({**baseline, METHOD: BASELINE}))
    return SweepData(
        directory=result_dir,
        manifest=_manifest(result),
        axes=tuple(Axis(field, None, (value,)) for field, value in fields.items()),
        points=tuple(rows),
        baselines=tuple(row for row in rows if row.is_baseline),
        curves=(),
    )


def _manifest(result: Mapping[str, object]) -> dict[str, object]:
    inner = result.get("manifest")
    made = dict(inner) if isinstance(inner, Mapping) else {}
    scenario = made.pop("scenario", None)
    sources = made.get("profile_sources")
    if isinstance(sources, Mapping):
        made["profile_sources"] = {str(result.get("hardware", "the hardware")): sources}
    told = (
        "name", "hardware", "model", "engine", "tp", "dtype", "kv_dtype", "calibrated",
        "replications", "acceptance", "workload", "assumptions",
    )  # fmt: skip
    made.update({key: result[key] for key in told if result.get(key) is not None})
    if relative := result.get("efficiencies_of"):
        made["uncalibrated_hardware"] = [f"{result['hardware']}: efficiencies of {relative}"]
    if isinstance(scenario, Mapping):
        made["slo"] = scenario.get("slo")
        made["description"] = scenario.get("description", "")
        made["scenario_settings"] = scenario
    return made


def simulation_page(data: SweepData) -> Page:
    """Return the page of one scenario."""
    view = sweep_view(data)
    figures = _figures(view)
    return Report(
        kind="simulation",
        data=data,
        tiles=list(_tiles(view)),
        findings_title="What this simulation says",
        findings=list(_findings(view)),
        cards=list(_cards(figures)),
        figures=figures,
        selectors=[own for spec in figures for own in spec.selectors],
        table_title="All metrics",
        table=_table(view),
    ).page()


def _figures(view: SweepView) -> list[FigureSpec]:
    made = [
        round_time.figure(view),
        *(latency_cdf.figure(view, latency) for latency in latency_cdf.LATENCIES),
        *(over_time.figure(view, chart) for chart in over_time.CHARTS),
    ]
    return [spec for spec in made if spec is not None]


def _cards(figures: list[FigureSpec]) -> Iterator[Card]:
    own = [selector for spec in figures for selector in spec.selectors]
    for spec in figures:
        if spec.name == "round_time":
            lead = "Mean parts of one engine step with a decoding round in it."
            yield figure_card(spec.name, spec.title, lead, [spec], own)
    latencies = [spec for spec in figures if spec.name.startswith("latency_")]
    if latencies:
        lead = "Quantiles over requests, averaged over replications."
        yield figure_card("latency", "How latency is distributed", lead, latencies, own)
    times = [spec for spec in figures if spec.name.startswith("over_time_")]
    if times:
        lead = "The first replication, from its first step to its last."
        yield figure_card("over_time", "What the engine did over time", lead, times, own)


def _tiles(view: SweepView) -> Iterator[Tile]:
    point = view.shown[0]
    baseline = view.data.baseline(point)
    if point.number("speedup") is not None:
        tone = {True: "good", False: "neutral"}.get(bool(pays(point)), "neutral")
        detail = ratio_text(point).partition("(")[2].rstrip(")")
        yield Tile("Speedup", metric("speedup").text(point.number("speedup")), detail, tone)
    for key, label in (
        ("tpot_ms", "Time per output token"),
        ("ttft_ms", "Time to first token"),
        ("throughput_tokens_per_s", "Throughput"),
    ):
        shown = metric(key)
        theirs = baseline.number(key) if baseline is not None else None
        detail = f"autoregression: {shown.text(theirs)}" if theirs is not None else ""
        if point.number(key) is not None:
            tail = _slowest(key, point, baseline)
            yield Tile(label, shown.text(point.number(key)), detail, tail=tail)
    if not point.is_ok:
        yield Tile("Status", visible(point.status.replace("_", " ")), "reason below", "bad")


def _slowest(key: str, point: Point, baseline: Point | None) -> str:
    """Return what 95% of the requests stay below, on both sides; empty without percentiles."""
    column = f"{key.removesuffix('_ms')}_p95_ms"
    shown, mine = metric(column), point.number(column)
    if mine is None:
        return ""
    theirs = baseline.number(column) if baseline is not None else None
    against = f" (autoregression: {shown.text(theirs)})" if theirs is not None else ""
    return f"95% of requests below {shown.text(mine)}{against}"


def _findings(view: SweepView) -> Iterator[Finding]:
    point = view.shown[0]
    baseline = view.data.baseline(point)
    name = view.describe(point)
    if not point.is_ok:
        reason = visible(point.reason) or "no reason given"
        yield Finding("status", f"No result: {point.status.replace('_', ' ')}", reason, "bad")
    if baseline is not None and not baseline.is_ok:
        reason = visible(baseline.reason) or "no reason given"
        yield Finding("baseline", "Autoregression has no result", reason)
    if point.number("speedup") is not None:
        yield _speedup_finding(view, point, name)
    if (drafted := point.number("drafted_per_round")) and drafted > 0:
        yield _draft_finding(point)
    targets = slo_text(view.data.manifest.get("slo"))
    mine = point.number("slo_attainment")
    if targets and mine is not None:
        share = metric("slo_attainment")
        theirs = baseline.number("slo_attainment") if baseline is not None else None
        against = f", against {share.text(theirs)} under autoregression" if theirs else ""
        text = f"{share.text(mine)} of the requests meet {targets}{against}."
        yield Finding("slo", f"{share.text(mine)} within the SLO", text)
    if point.number("busy_share") is not None:
        yield _use_finding(point)


def _speedup_finding(view: SweepView, point: Point, name: str) -> Finding:
    pair = tpot_text(view, point)
    text = f"{name}: {ratio_text(point)}{f', {pair}' if pair else ''}."
    if pays(point):
        return Finding("speedup", "Speculation pays here", text, "good")
    if includes_one(point):
        return Finding("speedup", "No difference shown", f"{text} The interval includes 1.")
    return Finding("speedup", "Speculation does not pay here", text, "bad")


def _draft_finding(point: Point) -> Finding:
    drafted, accepted = point.number("drafted_per_round"), point.number("accepted_per_round")
    rate, tokens = point.number("acceptance_rate"), point.number("tokens_per_round")
    text = (
        f"A round drafts {metric('drafted_per_round').text(drafted)}, of which "
        f"{metric('accepted_per_round').text(accepted, unit=False)} are accepted "
        f"({metric('acceptance_rate').text(rate)}), and yields "
        f"{metric('tokens_per_round').text(tokens)}."
    )
    return Finding("drafts", f"{metric('tokens_per_round').text(tokens)} per round", text)


def _use_finding(point: Point) -> Finding:
    parts = [
        f"{words} {metric(key).text(point.number(key))}"
        for key, words in (
            ("busy_share", "busy"),
            ("bandwidth_utilisation", "memory bandwidth"),
            ("compute_utilisation", "compute"),
            ("kv_utilisation", "KV cache"),
        )
        if point.number(key) is not None
    ]
    return Finding("use", "Use of the machine", f"Over the run: {', '.join(parts)}.")


def _table(view: SweepView) -> Table:
    ours = view.shown[0]
    baseline = view.data.baseline(ours)
    sides = [ours] if baseline is None else [ours, baseline]
    columns = [Column("Metric", False), Column("Unit", False)]
    for side in sides:
        columns += [Column(method_title(side.method), True), Column("95% interval", False)]
    rows = [
        Row([Cell(shown.label, is_text=True), Cell(shown.unit, is_text=True), *cells], "")
        for shown in _metrics(ours)
        if (cells := [cell for side in sides for cell in _cells(side, shown)])
    ]
    note = f"{len(rows)} metrics; means over replications."
    return Table(note, columns, rows)


def _metrics(point: Point) -> list[Metric]:
    keys = [
        key
        for key, value in point.row.items()
        if finite(value) is not None and f"{key}_ci95_low" in point.row
    ]
    order = {key: i for i, key in enumerate(METRICS)}
    return [metric(key) for key in sorted(keys, key=lambda key: order.get(key, len(order)))]


def _cells(point: Point, shown: Metric) -> list[Cell]:
    interval = point.interval(shown.key)
    bounds = "–".join(shown.text(b, unit=False) for b in interval) if interval else "–"
    value = shown.text(point.number(shown.key), unit=False)
    return [Cell(value), Cell(bounds, is_text=True)]
