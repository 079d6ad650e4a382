"""What every report page is made of: cards, tiles, and the manifest in readable form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from simspec.reports.dashboards._table import BestTable, Table
from simspec.reports.data import NAME_WIDTH, SweepData, sentences_of, text_of, told_apart
from simspec.reports.findings import Finding
from simspec.reports.labels import axis_label, shorten, visible
from simspec.reports.page import Page
from simspec.reports.phrases import slo_text
from simspec.reports.spec import FigureSpec, Selector

TEMPLATE = "report.html.j2"


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
    tail: str = ""
    """A line below the detail, about the slowest requests."""


@dataclass(frozen=True, slots=True)
class Report:
    """The parts of one page; ``kind`` is the command it comes from."""

    kind: str
    data: SweepData
    tiles: Sequence[Tile]
    findings_title: str
    findings: Sequence[Finding]
    cards: Sequence[Card]
    figures: Sequence[FigureSpec]
    selectors: Sequence[Selector]
    table_title: str
    table: Table
    note: str = ""
    """One more assumption, about the page itself."""
    best: BestTable | None = None
    """What stands directly below the findings."""

    def page(self) -> Page:
        """Return the page."""
        manifest = self.data.manifest
        report = {
            "kind": self.kind,
            "name": visible(self.data.name),
            "description": visible(text_of(manifest, "description")),
            "facts": _facts(self.data),
            "calibrated": self.data.is_calibrated,
            "uncalibrated": visible(self.data.uncalibrated),
            "contents": self._contents(),
            "tiles": self.tiles,
            "findings_title": self.findings_title,
            "findings": self.findings,
            "best": self.best,
            "acceptance": [
                visible(text) for text in told_apart(sentences_of(manifest, "acceptance"))
            ],
            "assumptions": [visible(text) for text in _assumptions(self.data, self.note)],
            "sources": _sources(manifest),
            "cards": self.cards,
            "table_title": self.table_title,
            "table": self.table,
            "command": _command(manifest),
            "manifest": list(_manifest_rows(manifest)),
            "inputs": _inputs(manifest),
            "manifest_json": json.dumps(manifest, indent=2, ensure_ascii=False),
        }
        title = f"{shorten(visible(self.data.name), 80)} · simspec {self.kind}"
        return Page(TEMPLATE, title, self.selectors, self.figures, {"report": report})

    def _contents(self) -> list[tuple[str, str]]:
        sections = [("findings", "Findings")]
        sections += [("best", self.best.title)] if self.best is not None else []
        sections += [
            (card.id, "Heat map" if card.id == "fig-tau_vs_k" else card.title)
            for card in self.cards
        ]
        return [
            *sections,
            ("assumptions", "Assumptions"),
            ("points", self.table_title),
            ("manifest", "Reproduce"),
        ]


def figure_card(
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
        elif (text := text_of(data.manifest, *keys)) and len(text) <= NAME_WIDTH:
            facts.append((label, visible(text)))
    if slo := slo_text(data.manifest.get("slo")):
        facts.append(("SLO", slo))
    return facts


def _assumptions(data: SweepData, left_out: str) -> list[str]:
    stated = _workload(data)
    stated += sentences_of(data.manifest, "assumptions")
    if not data.is_calibrated:
        stated.append(
            f"Uncalibrated{f' ({data.uncalibrated})' if data.uncalibrated else ''}: the constants "
            "of the hardware profile are not fitted to measurements of this device; trust ratios "
            "before milliseconds."
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
    "inputs", "columns", "kind", "workload", "profile_sources", "uncalibrated_hardware",
}  # fmt: skip


_ROW_LABELS = {
    "slo": "SLO",
    "num_points": "Points",
    "curve_context": "Context of the closed form (tokens)",
}


def _manifest_rows(manifest: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for key, value in manifest.items():
        if key in _SHOWN_ELSEWHERE or value is None:
            continue
        text = slo_text(value) if key == "slo" else _named(value)
        if text:
            yield (
                _ROW_LABELS.get(key) or visible(axis_label(key)),
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
