"""A sweep in a terminal or a pipe: findings and the best configuration at each load.

As Markdown that reads well in a terminal (:func:`sweep_text`), or as one JSON document
(:func:`sweep_document`).
"""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from simspec.reports.by_load import load_table
from simspec.reports.data import Point, SweepData, read_sweep, sentences_of, told_apart
from simspec.reports.findings import findings
from simspec.reports.labels import shorten, visible
from simspec.reports.view import SweepView, sweep_view

WIDTH = 96
"""Wrap sentences at this many columns."""
MAX_CELL = 60
MAX_ROWS = 40


def sweep_text(result_dir: Path) -> str:
    """Return the summary of a result directory as Markdown.

    Raises
    ------
    ConfigError
        The directory is not a sweep's result.
    """
    return summary(read_sweep(result_dir))


def summary(data: SweepData) -> str:
    """Return the summary of a sweep: title, assumption, table by load, findings."""
    view = sweep_view(data)
    blocks = [f"# {shorten(visible(data.name), WIDTH - 2)}"]
    if not data.is_calibrated:
        names = f" ({visible(data.uncalibrated)})" if data.uncalibrated else ""
        text = f"Uncalibrated hardware profile{names}: trust ratios before milliseconds."
        blocks.append(_wrapped(text))
    acceptance = [visible(text) for text in told_apart(sentences_of(data.manifest, "acceptance"))]
    if len(acceptance) == 1:
        blocks.append(_wrapped(f"Acceptance assumed: {acceptance[0]}"))
    elif acceptance:
        lines = [_wrapped(f"- {text}", hanging="  ") for text in acceptance]
        blocks.append("\n".join(["Acceptance assumed:", *lines]))
    blocks.append(_load_table(view))
    lines = [_wrapped(f"- {f.headline}. {f.text}", hanging="  ") for f in findings(view)]
    blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def sweep_document(result_dir: Path) -> dict[str, object]:
    """Return the summary of a result directory as plain data.

    ``best`` and ``baseline`` are rows of ``points.parquet`` without quantiles and empty cells;
    ``by_condition`` has such a pair for each load (smallest first) and each value of the axes
    that are neither the method's nor the load.

    Raises
    ------
    ConfigError
        The directory is not a sweep's result.
    """
    data = read_sweep(result_dir)
    view = sweep_view(data)
    return {
        "name": data.name,
        "output": str(result_dir),
        "calibrated": data.is_calibrated,
        "acceptance": data.manifest.get("acceptance"),
        "points": len(data.points),
        "status": dict(Counter(point.status for point in data.points)),
        **_pair(view, view.shown),
        "by_condition": [
            {**_condition(view, setting, i), **_pair(view, view.at_load(i, setting))}
            for setting in view.setting_choices()
            for i in range(view.num_loads)
        ],
        "findings": [
            {"kind": f.kind, "headline": f.headline, "text": f.text} for f in findings(view)
        ],
    }


def _condition(view: SweepView, setting: Mapping[str, int], position: int) -> dict[str, object]:
    load = view.roles.load
    named = {axis.field: axis.values[setting[axis.field]] for axis in view.settings}
    return {**named, load.field: load.values[position]} if load is not None else dict(named)


def _pair(view: SweepView, points: Sequence[Point]) -> dict[str, object]:
    best = view.best(points)
    baseline = view.data.baseline(best) if best is not None else None
    return {
        "best": _plain_row(best) if best is not None else None,
        "baseline": _plain_row(baseline) if baseline is not None else None,
    }


def _plain_row(point: Point) -> dict[str, object]:
    return {
        key: value
        for key, value in point.row.items()
        if value not in (None, "")
        and not isinstance(value, list)
        and not (isinstance(value, float) and not math.isfinite(value))
    }


def _load_table(view: SweepView) -> str:
    table = load_table(view)
    cells = [row.cells for row in table.rows[:MAX_ROWS]]
    text = markdown_table(table.heads, cells, num_text=table.num_text)
    rest = len(table.rows) - MAX_ROWS
    return f"{text}\n\n{rest} more rows are in the dashboard." if rest > 0 else text


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, num_text: int) -> str:
    """Return an aligned Markdown table; the first ``num_text`` columns are left-aligned."""
    cells = [[_cell(text) for text in row] for row in [heads, *rows]]
    widths = [max(3, *(_columns(row[i]) for row in cells)) for i in range(len(heads))]
    lines = []
    for row in cells:
        padded = [
            text + pad if i < num_text else pad + text
            for i, text in enumerate(row)
            for pad in (" " * (widths[i] - _columns(text)),)
        ]
        lines.append(f"| {' | '.join(padded)} |")
    rule = ["-" * w if i < num_text else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join([lines[0], f"| {' | '.join(rule)} |", *lines[1:]])


def _cell(text: str) -> str:
    return shorten(" ".join(text.split()), MAX_CELL).replace("|", "\\|")


def _columns(text: str) -> int:
    """Return how many terminal columns a text takes: wide characters two, combining none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _wrapped(text: str, *, hanging: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )
