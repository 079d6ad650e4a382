"""The packaged reports of users: their verdicts, and what a case may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from simspec.core.errors import ConfigError
from simspec.validation._report_quantities import QUANTITIES
from simspec.validation.user_reports import ExpectationConfig, judge, load_reports

REPORTS = load_reports()
MISSED = {
    "R03": 1, "R07": 3, "R14": 1, "R17": 1, "R22": 1, "R24": 2, "R52": 1, "R54": 1, "R55": 1,
    "R58": 1,
}  # fmt: skip
ASKED = {
    "R01", "R02", "R03", "R06", "R07", "R10", "R11", "R14", "R16", "R17", "R22", "R24", "R25",
    "R52", "R54", "R55", "R58", "R60", "R61",
}  # fmt: skip


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.id)
def test_the_verdicts_of_a_report(report: object) -> None:
    """As many expectations are missed as are known to be, and each of these says why."""
    judged = list(judge((report,), slow=False))  # type: ignore[arg-type]
    missed = [row for row in judged if row.verdict in {"lower", "higher"}]
    assert len(missed) == MISSED.get(report.id, 0), [  # type: ignore[attr-defined]
        (row.expectation.says, row.obtained) for row in judged
    ]
    for row in judged:
        assert bool(row.expectation.because) == (row.verdict != "holds"), row.expectation.says


def test_past_the_knee_requests_queue_outside() -> None:
    """R17: TTFT jumps from milliseconds to seconds while TPOT no more than doubles."""
    (report,) = (report for report in REPORTS if report.id == "R17")
    slow = [row for row in judge((report,)) if (row.expectation.quantity or "").startswith("load")]
    assert [row.verdict for row in slow] == ["holds"] * 3


def test_every_report_that_was_asked_for_is_there() -> None:
    assert {report.id for report in REPORTS} == ASKED


def test_every_quantity_is_used() -> None:
    """A figure that no report asks for is not kept."""
    asked = {e.quantity for report in REPORTS for e in report.expectations if e.quantity}
    assert asked == set(QUANTITIES)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(None, "not judged"), (0.9, "lower"), (1.0, "holds"), (2.0, "holds"), (2.1, "higher"),
     (float("nan"), "lower")],
)  # fmt: skip
def test_a_verdict_is_where_the_value_lies(value: float | None, verdict: str) -> None:
    case = ExpectationConfig(says="x", quantity="speedup", of="a", low=1.0, high=2.0)
    assert case.verdict(value) == verdict


HEAD = "reports:\n  - id: R99\n    title: t\n    source: s\n    observed: o\n"
SETUP = "    setups:\n      a: {model: llama-2-7b, hardware: h100_sxm, method: autoregressive}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SETUP + "    expectations: [{says: x, quantity: speed, of: a, low: 1}]\n", "speed"),
        (SETUP + "    expectations: [{says: x, quantity: speedup, of: b, low: 1}]\n", "setup 'b'"),
        (SETUP + "    expectations: [{says: x}]\n", "says why"),
        ("    setups:\n      a: {like: b}\n    expectations: [{says: x, because: y}]\n", "'b'"),
    ],
)
def test_what_a_case_cannot_say(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "reports.yaml"
    path.write_text(HEAD + text)
    with pytest.raises(ConfigError, match=says):
        load_reports(path)
