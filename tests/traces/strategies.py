"""Round-trace records for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from simspec.traces.schema import Prefill, Round, Step, TraceHeader, TraceRecord, accepted_run


def header(**fields: Any) -> TraceHeader:
    """A header with defaults for what the test is not about."""
    defaults: dict[str, Any] = {
        "model": "vicuna-7b",
        "method": "kangaroo",
        "device": "cpu",
        "dtype": "bf16",
        "engine": "pytorch",
        "exit_layer": 2,
        "num_speculative_tokens": 6,
        "confidence_threshold": 0.0,
        "temperature": 0.0,
        "software": {"python": "3.11"},
    }
    return TraceHeader(**(defaults | fields))


_place = {
    "sequence_id": st.integers(0, 2**63 - 1),
    "step_id": st.integers(0, 2**63 - 1),
    "context_len": st.integers(0, 10**9),
    "batch_size": st.integers(1, 10**6),
}
seconds = st.floats(0, 1e5)


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    """Rounds that obey the schema."""
    agreements = tuple(draw(st.lists(st.booleans(), max_size=6)))
    drafted = len(agreements)
    draft_s, verify_s = (draw(st.none() | seconds) for _ in range(2))
    slack_s = draw(st.none() | seconds)
    confidences = draw(
        st.none() | st.lists(st.floats(0, 1), min_size=drafted, max_size=drafted).map(tuple)
    )
    return Round(
        **{name: draw(values) for name, values in _place.items()},
        drafted=drafted,
        accepted=accepted_run(agreements),
        confidences=confidences,
        agreements=draw(st.sampled_from([None, agreements])),
        draft_s=draft_s,
        verify_s=verify_s,
        total_s=None if slack_s is None else slack_s + (draft_s or 0.0) + (verify_s or 0.0),
    )


prefills = st.builds(
    Prefill, **_place, num_tokens=st.integers(1, 10**9), total_s=st.none() | seconds
)
steps = st.builds(Step, **_place, total_s=st.none() | seconds)
records: st.SearchStrategy[TraceRecord] = st.one_of(prefills, rounds(), steps)
