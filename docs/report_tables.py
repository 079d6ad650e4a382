"""The generated part about users' reports: what each lets expect, and what simspec says."""

from __future__ import annotations

from functools import cache

from simspec.validation.user_reports import Judged, judge, load_reports


@cache
def _judged() -> tuple[Judged, ...]:
    return tuple(judge(load_reports()))


def user_reports() -> str:
    """Return one section per report: its facts, and a line per expectation."""
    counted = [row.verdict for row in _judged()]
    missed = counted.count("lower") + counted.count("higher")
    parts = [
        f"{counted.count('holds')} expectations hold, {missed} are missed, "
        f"{counted.count('not judged')} are not judged."
    ]
    for report in load_reports():
        rows = "\n".join(_row(row) for row in _judged() if row.report.id == report.id)
        parts.append(
            f"## {report.id}: {report.title}\n\n{report.observed.strip()} ({report.source}).\n\n"
            "| expected | obtained | verdict | why not |\n| --- | --- | --- | --- |\n" + rows
        )
    return "\n\n".join(parts)


def _row(row: Judged) -> str:
    cells = (
        row.expectation.says,
        "–" if row.obtained is None else _figure(row.obtained),
        row.verdict if row.verdict in {"holds", "not judged"} else f"**{row.verdict}**",
        row.expectation.because.strip(),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
