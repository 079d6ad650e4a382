"""The records in memory."""

from __future__ import annotations

import pytest

from simspec.traces.schema import Prefill, Round, RoundTrace, Step, accepted_run
from tests.traces.strategies import header


@pytest.mark.parametrize(
    ("agreements", "accepted"),
    [((), 0), ((True,), 1), ((False, True), 0), ((True, True, False, True), 2)],
)
def test_acceptance_ends_at_the_first_rejection(
    agreements: tuple[bool, ...], accepted: int
) -> None:
    """What agrees behind a rejection is information, not progress."""
    assert accepted_run(agreements) == accepted


def test_a_trace_sorts_its_records_by_kind() -> None:
    """Each kind is a view in file order."""
    prefill = Prefill(0, 0, 0, 1, 10)
    first, second = Round(0, 1, 10, 1, 2, 1), Round(0, 2, 12, 1, 2, 2)
    step = Step(1, 3, 5, 1)
    trace = RoundTrace(header(), (first, prefill, step, second))
    assert trace.prefills == (prefill,)
    assert trace.rounds == (first, second)
    assert trace.steps == (step,)
