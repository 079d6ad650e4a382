"""The page of ``simspec workload describe``: what the traffic looks like."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simspec.core.provenance import manifest
from simspec.core.resources import shown_name
from simspec.reports.dashboards._parts import Tile, figure_card
from simspec.reports.dashboards._table import Cell, Column, Row, Table
from simspec.reports.figures import (
    arrival_rate,
    gap_distribution,
    length_distribution,
    prefix_reuse,
)
from simspec.reports.labels import number_text, shorten, visible
from simspec.reports.page import Page
from simspec.workloads.description import WorkloadDescription, table_rows

REPORT = "report.html"
_TEMPLATE = "tables.html.j2"
_LEADS = {
    "arrival_rate": "A queue builds where the rate stays above what a server completes.",
    "gap_distribution": "Bursts show as more short gaps, and more long ones, than a Poisson "
    "process of the same rate has.",
    "length_distribution": "Long prompts cost prefill and memory; long outputs hold a place in "
    "the batch.",
    "prefix_reuse": "Blocks that an earlier prompt began with need no prefill while they are kept.",
}


def write_workload_report(found: WorkloadDescription, folder: Path) -> Path:
    """Write ``report.html`` into a folder and return its path.

    Raises
    ------
    ConfigError
        It cannot be written.
    """
    return workload_page(found).write(folder / REPORT)


def workload_page(found: WorkloadDescription) -> Page:
    """Return the page of a description."""
    summary = found.summary()
    made = [
        arrival_rate.figure(found),
        gap_distribution.figure(found),
        length_distribution.figure(found),
        prefix_reuse.figure(found),
    ]
    figures = [spec for spec in made if spec is not None]
    # Two in a row; one that would stand alone takes the whole row.
    alone = figures[-1] if len(figures) % 2 else None
    cards = [
        figure_card(spec.name, spec.title, _LEADS[spec.name], [spec], (), wide=spec is alone)
        for spec in figures
    ]
    facts = manifest({shown_name(path): path for path in found.files}, None, workload=found.source)
    inputs = facts["inputs"]
    assert isinstance(inputs, dict)
    tables = [
        ("arrivals", "Arrivals", _pairs(table_rows(summary))),
        ("lengths", "Lengths", _lengths(summary)),
        ("rejected", "Rejected lines", _rejected(found)),
    ]
    report = {
        "kind": "workload",
        "name": visible(shorten(found.name, 120)),
        "description": visible(shorten(found.source, 600)),
        "tiles": list(_tiles(summary)),
        "cards": cards,
        "tables": [entry for entry in tables if entry[2].rows],
        "inputs": [(visible(name), value["sha256"]) for name, value in inputs.items()],
        "manifest_json": json.dumps(facts, indent=2, ensure_ascii=False),
    }
    title = f"{visible(shorten(found.name, 80))} · simspec workload"
    return Page(_TEMPLATE, title, [], figures, {"report": report})


def _text(value: object) -> str:
    if value is None:
        return "–"
    number = float(str(value))
    if isinstance(value, int) or abs(number) >= 1000:
        return f"{number:,.0f}"
    return number_text(number, "significant")


def _tiles(summary: dict[str, Any]) -> Iterator[Tile]:
    duration_s = summary["duration_s"]
    span = "" if duration_s is None else f"in {_text(float(duration_s))} s"
    yield Tile("Requests", f"{summary['num_requests']:,}", span or "without times")
    if summary["rate_per_s"] is not None:
        peak = summary["peak_rate_per_s"]
        tail = "" if peak is None else f"{_text(peak)} in the busiest 10 s"
        yield Tile("Requests/s", _text(summary["rate_per_s"]), "on average", tail=tail)
    if summary["gap_cv"] is not None:
        swing = summary["dispersion_60s"]
        tail = "" if swing is None else f"index of dispersion over a minute {_text(swing)}"
        yield Tile("CV of gaps", _text(summary["gap_cv"]), "1 in a Poisson process", tail=tail)
    for side in ("prompt", "output"):
        yield Tile(
            f"{side.capitalize()} tokens",
            _text(summary[f"{side}_mean_tokens"]),
            f"mean; median {_text(summary[f'{side}_p50_tokens'])}",
            tail=f"99 in 100 below {_text(summary[f'{side}_p99_tokens'])}",
        )
    if summary["prefix_reuse"] is not None:
        share = summary["prefix_reuse"]["hit_share"]
        yield Tile("Prefix hits", f"{share:.1%}", "of prompt blocks, in an infinite cache")


def _pairs(named: dict[str, object]) -> Table:
    rows = [
        Row([Cell(name, is_text=True), Cell(_text(value))], "") for name, value in named.items()
    ]
    note = "Index of dispersion: variance over mean of the arrivals per window, 1 in a Poisson "
    note += "process; growth with the window means that the rate itself swings."
    return Table(note, [Column("Figure", False), Column("Value", True)], rows)


def _lengths(summary: dict[str, Any]) -> Table:
    names = ("mean", "std", "p50", "p90", "p99", "max")
    rows = [
        Row(
            [
                Cell(side.capitalize(), is_text=True),
                *(Cell(_text(summary[f"{side}_{name}_tokens"])) for name in names),
            ],
            "",
        )
        for side in ("prompt", "output")
    ]
    return Table("Tokens.", [Column("", False), *(Column(name, True) for name in names)], rows)


def _rejected(found: WorkloadDescription) -> Table:
    count = found.left_out.get("rejected_lines", 0)
    rows = [Row([Cell(visible(shorten(text, 300)), is_text=True)], "") for text in found.rejected]
    note = f"{count:,} lines are no request and were left out; the first {len(rows):,} of them."
    return Table(note, [Column("Where and why", False)], rows)
