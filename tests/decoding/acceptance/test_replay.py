"""Replay: the tape is the trace, and the closed form is its walk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from simspec.core.errors import ConfigError, TraceError
from simspec.decoding._chain import chain_outcomes
from simspec.decoding.acceptance.replay import Config, process_of
from simspec.traces.accepted import AcceptedText
from simspec.traces.io import write_trace
from simspec.traces.schema import Round, TraceHeader

TEXTS = ((0, 2, 1, 0, 0, 4, 3, 2, 1, 0, 1, 0), (1, 0, 0, 5, 4, 3, 2, 1, 0, 0))


@pytest.mark.parametrize("max_draft", [1, 2, 5, 20])
def test_a_round_accepts_what_the_trace_says(max_draft: int) -> None:
    """From every start a = min(trace, K), read on around the circle."""
    process = Config(accepted=TEXTS).at(None)
    circle = [*TEXTS[0], *TEXTS[1]]
    text = process.tape(1, 4, 100)
    outcomes = chain_outcomes(text, max_draft, 0.0)
    starts = [
        first
        for first in range(len(circle))
        if all(
            outcomes.accepted[t] == min(circle[(first + t) % len(circle)], max_draft)
            for t in range(100)
        )
    ]
    assert len(starts) >= 1
    assert set(outcomes.drafted[:100].tolist()) == {max_draft}


def test_rounds_end_with_their_text() -> None:
    """What the trace accepted beyond a text's end is not carried into the next text."""
    process = Config(accepted=((0, 0, 9), (1, 0))).at(None)
    assert process.accepted.tolist() == [0, 0, 0, 1, 0]


def test_the_closed_form_by_hand() -> None:
    """Texts 2 1 0: every walk falls into rounds of three tokens at K >= 2, of 2 and 1 at K = 1."""
    process = Config(accepted=((2, 1, 0),)).at(None)
    assert process.statistics(2, 0.0).tokens_per_round == pytest.approx(3.0)
    assert process.statistics(1, 0.0).tokens_per_round == pytest.approx(1.5)
    assert process.statistics(1, 0.0).all_accepted == pytest.approx(0.5)


def test_matches_of_the_trace_are_kept(tmp_path: Path) -> None:
    """No match: nothing drafted there."""
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps({"accepted": [0, 1, 0], "matched": [False, True, False]}) + "\n")
    process = Config(path=str(path)).at(None)
    # Rounds at 0 (no match), 1 (accepts one), then 0 again.
    statistics = process.statistics(4, 0.0)
    assert statistics.drafted_pmf == pytest.approx([0.5, 0, 0, 0, 0.5])
    assert statistics.accepted_per_round == pytest.approx(0.5)


def test_a_round_trace_answers_thresholds(tmp_path: Path) -> None:
    """Captured at K = 3 and threshold 0; at 0.5 drafting stops after the unsure token.

    One text of two rounds: three drafts of which two were right, then one of one. The second
    round's confidence (0.2) stops nothing more.
    """
    header = TraceHeader(
        model="m", method="kangaroo", device="d", dtype="bf16", engine="e",
        num_speculative_tokens=3, confidence_threshold=0.0,
    )  # fmt: skip
    rounds = [
        Round(0, 0, 10, 1, drafted=3, accepted=2, confidences=(0.9, 0.3, 0.8)),
        Round(0, 1, 13, 1, drafted=3, accepted=0, confidences=(0.2, 0.6, 0.7)),
    ]
    path = tmp_path / "trace.jsonl"
    write_trace(path, header, rounds)
    process = Config(path=str(path)).at(4)
    # Positions: 2 1 0 | 0.
    assert process.accepted.tolist() == [2, 1, 0, 0]
    assert process.confidence is not None
    assert process.confidence.tolist() == pytest.approx([0.9, 0.3, 0.8, 0.2])
    full, early = process.statistics(3, 0.0), process.statistics(3, 0.5)
    assert full.tokens_per_round == pytest.approx(2.0)
    # The round at 0 stops after its second token and still accepts both; then 0.2 stops at one.
    assert early.drafted_per_round == pytest.approx(1.5)
    assert early.tokens_per_round == pytest.approx(2.0)


def test_a_threshold_of_one_stops_even_the_surest_draft() -> None:
    """A captured confidence of exactly 1 counts as below a threshold of 1, like everywhere."""
    text = AcceptedText(np.array([1, 0]), confidence=np.ones(2), off_track=np.ones(2))
    assert process_of([text]).statistics(2, 1.0).drafted_per_round == pytest.approx(1.0)
    assert process_of([text]).statistics(2, 0.99).drafted_per_round == pytest.approx(2.0)


def test_thresholds_need_confidences() -> None:
    """A trace without them is refused."""
    with pytest.raises(ConfigError, match="the replayed trace has none"):
        Config(accepted=TEXTS).at(None).statistics(3, 0.5)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "none is given"),
        ({"path": "a.jsonl", "accepted": [[1]]}, "both are given"),
        ({"accepted": [[1]], "drafter": "eagle"}, "there is none; remove it"),
        ({"accepted": [[]]}, "accepted"),
    ],
)
def test_one_trace_is_needed(fields: dict[str, object], says: str) -> None:
    """A file or numbers, not both."""
    with pytest.raises(ValidationError, match=says):
        Config.model_validate(fields)


def test_a_missing_file_is_named() -> None:
    """The error is that of the reader."""
    with pytest.raises(TraceError, match=r"nowhere\.jsonl: no such file"):
        Config(path="/nonexistent/nowhere.jsonl").at(None)


def test_an_edited_trace_is_another_trace(tmp_path: Path) -> None:
    """The sentence, which results are stored under, holds a digest of the numbers."""
    path = tmp_path / "trace.jsonl"
    sentences = []
    for numbers in ([1, 0, 2, 1, 0], [1, 0, 2, 1, 0, 0]):
        path.write_text(json.dumps({"accepted": numbers}) + "\n")
        sentences.append(Config(path=str(path)).at(None).describe())
    assert sentences[0] != sentences[1]
    assert "trace.jsonl (5 positions of 1 texts, digest" in sentences[0]


def test_requests_read_on_from_places_of_their_own() -> None:
    """Different requests begin at different places of the circle."""
    process = Config(accepted=(tuple(range(50, 0, -1)),)).at(None)
    firsts = {np.argmin(process.tape(0, r, 60).accept[0]) for r in range(40)}
    assert len(firsts) > 10
