"""The page of ``simspec compare``: absolute times, speedups, memory and claims of every method."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from simspec.hardware.load import load_hardware
from simspec.reports.dashboards._parts import TEMPLATE, Tile, figure_card
from simspec.reports.dashboards._table import BestTable, Cell, Column, Row, Table
from simspec.reports.figures import methods_vs_batch
from simspec.reports.findings import Finding
from simspec.reports.labels import number_text, visible
from simspec.reports.page import Page

Document = Mapping[str, Any]
"""What :func:`simspec.scenarios.compare.compare` returns."""


def write_comparison_page(document: Document, path: Path) -> Path:
    """Write the page of a comparison and return its path.

    Raises
    ------
    ConfigError
        It cannot be written.
    """
    return comparison_page(document).write(path)


def comparison_page(document: Document) -> Page:
    """Return the page of a comparison."""
    figures = [
        methods_vs_batch.tpot_figure(document),
        methods_vs_batch.speedup_figure(document),
    ]
    leads = (
        "Closed form, absolute: the line of plain decoding is the one to beat.",
        "The same figures as a ratio. Below 1, plain decoding is faster.",
    )
    cards = [
        figure_card(spec.name, spec.title, lead, [spec], [], wide=True)
        for spec, lead in zip(figures, leads, strict=True)
    ]
    claims = _claims(document)
    report = {
        **_head(document),
        "contents": [
            ("findings", "Findings"),
            *([("best", claims.title)] if claims else []),
            *((card.id, card.title) for card in cards),
            ("assumptions", "Assumptions"),
            ("points", "All points"),
            ("manifest", "Reproduce"),
        ],
        "tiles": list(_tiles(document)),
        "findings_title": "Where each method pays",
        "findings": list(_findings(document)),
        "best": claims,
        "acceptance": [
            visible(f"{line['label']}: {line['acceptance']}") for line in document["methods"]
        ],
        "assumptions": [*ASSUMPTIONS, *_calibration(document)],
        "sources": _sources(document),
        "cards": cards,
        "table_title": "All points",
        "table": _points(document),
        "command": "",
        "manifest": [
            (key, str(document[key])) for key in ("hardware", "model", "engine", "tp", "dtype")
        ],
        "inputs": [],
        "manifest_json": json.dumps(document, indent=2, ensure_ascii=False),
    }
    title = f"{visible(str(document['name']))[:80]} · simspec compare"
    return Page(TEMPLATE, title, [], figures, {"report": report})


ASSUMPTIONS = (
    "Closed form: one batch at one context, one round after another; no queue, no prompt shares "
    "a step, contexts do not grow.",
    "Speedup is the time per output token (TPOT) of autoregression divided by that of the method, "
    "at the same batch.",
    "The largest batch is what fits in memory beside the method's own weights and KV.",
)


def _calibration(document: Document) -> list[str]:
    """Return the widest intervals that calibration gives to a line of the table."""
    told = []
    for key, words in (("tpot_ms", "TPOT"), ("speedup", "speedup")):
        shares = [
            high / float(row[key]) - 1.0
            for row in document["rows"]
            if row["status"] == "ok"
            for _, high in [row[f"{key}_interval"]]
        ]
        if shares and max(shares) > 0:
            told.append(f"{words} by up to +{100 * max(shares):.0f}%")
    if not told:
        return []
    return [
        f"Calibration: the errors of the profiles allow {' and '.join(told)} (95%, and by the "
        "inverse factor below); each row of the JSON has its interval."
    ]


def _head(document: Document) -> dict[str, object]:
    uncalibrated = [_borrowing(line) for line in document["methods"] if not line["calibrated"]]
    return {
        "kind": "compare",
        "name": visible(str(document["name"])),
        "description": visible(str(document["description"])),
        "facts": [
            ("Hardware", visible(str(document["hardware"]))),
            ("Model", visible(str(document["model"]))),
            ("Engine", visible(str(document["engine"]))),
            ("Context", f"{document['context']:,} tokens"),
        ],
        "calibrated": not uncalibrated,
        "uncalibrated": visible(", ".join(dict.fromkeys(uncalibrated))),
    }


def _sources(document: Document) -> list[tuple[str, list[tuple[str, str]]]]:
    from simspec.hardware.describe import describe

    found = []
    for name in dict.fromkeys(str(line["hardware_reference"]) for line in document["methods"]):
        device = load_hardware(name)
        groups = describe(device)[1]
        found.append((visible(device.name), [(visible(g), visible(s)) for g, s in groups.items()]))
    return found


def _number(value: object, unit: str = "") -> str:
    if not isinstance(value, int | float):
        return "–"
    return number_text(float(value), "significant") + unit


def _tiles(document: Document) -> Iterator[Tile]:
    for batch in dict.fromkeys((document["batches"][0], document["batches"][-1])):
        rows = [r for r in document["rows"] if r["batch"] == batch and r["status"] == "ok"]
        if not rows:
            continue
        best = min(rows, key=lambda row: float(row["tpot_ms"]))
        plain = _number(best["autoregressive_tpot_ms"], " ms")
        yield Tile(
            f"Fastest at batch {batch:,}",
            f"{_number(best['tpot_ms'])} ms",
            f"{visible(str(best['label']))}; autoregression {plain}",
            "good" if best["speedup"] > 1 else "bad",
        )
    fit = max(document["methods"], key=lambda line: int(line["max_batch"]))
    yield Tile(
        "Largest batch that fits",
        f"{fit['max_batch']:,}",
        f"{visible(str(fit['label']))}; autoregression {fit['autoregressive_max_batch']:,}",
    )


def _findings(document: Document) -> Iterator[Finding]:
    for line in document["methods"]:
        rows = [
            row
            for row in document["rows"]
            if row["label"] == line["label"] and row["status"] == "ok"
        ]
        lossless = "" if line["is_lossless"] else " Its output is not the target's own."
        extra = f"{_extra(line)}{lossless}"
        times = "; ".join(
            f"batch {row['batch']:,}: {_number(row['tpot_ms'])} ms instead of "
            f"{_number(row['autoregressive_tpot_ms'])} ms"
            for row in rows
        )
        pays = line["break_even"]
        tone = "good" if line["pays"] else "warn"
        yield Finding(
            "method",
            visible(f"{line['label']}: {pays}"),
            visible(f"{times or 'No batch of these fits'}. {extra}"),
            "good" if tone == "good" else "neutral",
        )


def _extra(line: Mapping[str, Any]) -> str:
    weights, per_token = line["extra_weights_bytes"], line["extra_kv_bytes_per_token"]
    if not weights and not per_token:
        return "It needs no extra memory."
    return (
        f"Extra memory per GPU: {_number(weights / 1e9)} GB of weights, "
        f"{per_token:,.0f} bytes of KV per token."
    )


_UNITS = {"speedup": "×", "extra_weights_gb": " GB", "extra_kv_gb": " GB", "kv_caches": " caches"}
_COLUMNS = (
    ("Batch", "batch"),
    ("Tokens per round", "tokens_per_round"),
    ("Round (ms)", "round_time_ms"),
    ("Draft (ms)", "time_draft_ms"),
    ("Verify (ms)", "time_verify_ms"),
    ("Host (ms)", "time_host_ms"),
    ("TPOT (ms)", "tpot_ms"),
    ("Autoregression (ms)", "autoregressive_tpot_ms"),
    ("Speedup (×)", "speedup"),
    ("Tokens/s", "throughput_tokens_per_s"),
)


def _points(document: Document) -> Table:
    rows = []
    for row in document["rows"]:
        cells = [Cell(visible(str(row["label"])), visible(row["reason"] or ""), is_text=True)]
        cells += [
            Cell(f"{row[key]:,}" if key == "batch" else _number(row.get(key)))
            for _, key in _COLUMNS
        ]
        rows.append(Row(cells, "" if row["status"] == "ok" else "failed"))
    columns = [Column("Method", False), *(Column(title, True) for title, _ in _COLUMNS)]
    return Table("Closed form; a batch that does not fit says why.", columns, rows)


def _claims(document: Document) -> BestTable | None:
    claims = document.get("claims")
    if not claims:
        return None
    columns = [Column(t, False) for t in ("Source", "Claim", "Verdict", "simspec", "Why")]
    rows = []
    for claim in claims:
        values = ", ".join(
            f"{entry['value']:.2f}{_UNITS[claim['quantity']]}"
            + (f" at {entry['batch']:,}" if entry["batch"] else "")
            for entry in claim["values"]
        )
        texts = (claim["source"], claim["says"], claim["verdict"], values, claim["because"])
        mark = "best" if claim["verdict"] == "holds" else ""
        rows.append(Row([Cell(visible(text), is_text=True) for text in texts], mark))
    note = "Speedups at each batch of the comparison, gigabytes over all ranks, KV caches."
    return BestTable("Published claims", 1, Table(note, columns, rows))


def _borrowing(line: Mapping[str, Any]) -> str:
    """Return the device of a method, with the profile whose efficiencies it has."""
    relative = line.get("efficiencies_of")
    return f"{line['hardware']}: efficiencies of {relative}" if relative else str(line["hardware"])
