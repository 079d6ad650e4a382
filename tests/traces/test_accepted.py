"""Accepted lengths: the three kinds of files, and what is wrong with others."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from simspec.core.errors import TraceError
from simspec.traces.accepted import read_accepted
from simspec.traces.io import write_trace
from simspec.traces.schema import Round, Step, TraceHeader

BENCH = {"id": "1", "acc_eagle": {"acc_len": [3, 2, 1]}, "acc_ngram": {"acc_len": [1, 1, 2]}}
HEADER = TraceHeader(
    model="m", method="kangaroo", device="d", dtype="bf16", engine="e", num_speculative_tokens=4
)


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_tokens_yielded_are_one_more_than_accepted(tmp_path: Path) -> None:
    """SpecDecode-Bench counts the target's token."""
    path = write(tmp_path / "t.jsonl", BENCH)
    (text,) = read_accepted(path, "eagle")
    assert text.accepted.tolist() == [2, 1, 0]
    assert text.matched is None
    assert read_accepted(path, "ngram")[0].accepted.tolist() == [0, 0, 1]


def test_gzip_and_empty_lines_are_read(tmp_path: Path) -> None:
    """The content decides."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(gzip.compress(b'{"accepted":[1,0]}\n\n{"accepted":[0]}\n'))
    assert [text.accepted.tolist() for text in read_accepted(path)] == [[1, 0], [0]]


def test_a_round_trace_becomes_texts_by_sequence(tmp_path: Path) -> None:
    """a, a - 1, …, 0 for each round of each sequence, in order; m = 0 is no match."""
    path = tmp_path / "t.jsonl"
    write_trace(
        path,
        HEADER,
        [
            Round(7, 0, 10, 2, drafted=4, accepted=2),
            Round(8, 0, 20, 2, drafted=0, accepted=0),
            Step(8, 1, 21, 1),
            Round(7, 2, 13, 1, drafted=4, accepted=0),
        ],
    )
    first, second = read_accepted(path)
    assert first.accepted.tolist() == [2, 1, 0, 0]
    assert first.matched is None
    assert second.accepted.tolist() == [0]
    assert second.matched is not None
    assert second.matched.tolist() == [False]


@pytest.mark.parametrize(
    ("lines", "drafter", "says"),
    [
        ([BENCH], None, r"t.jsonl:1: several drafters; give drafter: eagle or ngram"),
        ([BENCH], "eagel", r"t.jsonl:1: no drafter 'eagel'; did you mean 'eagle'"),
        ([{"accepted": [1]}], "eagle", r"t.jsonl:1: accepted lengths have one drafter"),
        ([{"accepted": [1]}, {"x": 1}], None, r"t.jsonl:2: neither 'accepted' nor .*keys: x"),
        ([{"accepted": [1, -1]}], None, r"t.jsonl:1: accepted is not a list of whole numbers"),
        ([{"accepted": [True]}], None, r"accepted is not a list of whole numbers from 0"),
        ([{"accepted": []}], None, r"accepted is not a list of whole numbers from 0"),
        ([{"acc_e": {"acc_len": [0]}}], None, r"acc_e.acc_len is not a list .* from 1 to"),
        ([{"accepted": [1], "matched": [1]}], None, r"matched is not one true or false for each"),
        ([{"accepted": [1], "matched": [False]}], None, r"accepted where nothing matched"),
        ([[1, 2]], None, r"t.jsonl:1: not an object"),
        ([], None, r"t.jsonl: the file is empty"),
    ],
)
def test_mistakes_name_the_line(
    tmp_path: Path, lines: list[Any], drafter: str | None, says: str
) -> None:
    """File, line and what is expected, in one sentence."""
    with pytest.raises(TraceError, match=says) as refused:
        read_accepted(write(tmp_path / "t.jsonl", *lines), drafter)
    assert "\n" not in str(refused.value)


def test_text_that_is_not_json_is_refused(tmp_path: Path) -> None:
    """The line is named."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"accepted":[1]}\nno json\n')
    with pytest.raises(TraceError, match=r"t\.jsonl:2: not JSON"):
        read_accepted(path)


def test_a_capture_that_stopped_early_is_refused(tmp_path: Path) -> None:
    """A round that stopped does not say what would have been accepted."""
    path = tmp_path / "t.jsonl"
    header = TraceHeader(
        model="m", method="kangaroo", device="d", dtype="bf16", engine="e",
        num_speculative_tokens=4, confidence_threshold=0.6,
    )  # fmt: skip
    write_trace(path, header, [Round(7, 0, 10, 1, drafted=1, accepted=1)])
    with pytest.raises(TraceError, match=r"captured at confidence_threshold 0\.6"):
        read_accepted(path)
