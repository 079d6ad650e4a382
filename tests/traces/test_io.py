"""Writing and reading round traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import TraceError
from simspec.traces.io import TraceWriter, read_trace, stream_trace, write_trace
from simspec.traces.schema import Prefill, Round, Step, TraceRecord
from tests.traces.strategies import header, records

HEADER = {
    "kind": "header",
    "schema_version": 1,
    "model": "m",
    "method": "kangaroo",
    "device": "d",
    "dtype": "bf16",
    "engine": "e",
    "num_speculative_tokens": 4,
}
STEP = {"kind": "step", "sequence_id": 0, "step_id": 0, "context_len": 5, "batch_size": 1}
ROUND = STEP | {"kind": "round", "drafted": 2, "accepted": 1}
SAMPLE: tuple[TraceRecord, ...] = (
    Prefill(0, 0, 0, 1, 12, total_s=0.02),
    Round(0, 1, 12, 1, 3, 1, (0.9, 0.5, 0.25), (True, False, True), 0.004, 0.012, 0.0175),
    Step(0, 2, 14, 1, total_s=0.01),
)


def write_lines(path: Path, *lines: dict[str, Any] | str) -> Path:
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    return path


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    """Header and records come back; nothing but the trace is left in the folder."""
    write_trace(tmp_path / name, header(), SAMPLE)
    trace = read_trace(tmp_path / name)
    assert trace.header == header()
    assert trace.records == SAMPLE
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_the_file_is_json_lines_in_milliseconds(tmp_path: Path) -> None:
    """The documented format: one object per line, kind first, times in ms, no nulls."""
    write_trace(tmp_path / "t.jsonl", header(), SAMPLE)
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["header", "prefill", "round", "step"]
    assert all(next(iter(line)) == "kind" for line in lines)
    assert lines[0]["schema_version"] == 1
    assert lines[2] == {
        "kind": "round",
        "sequence_id": 0,
        "step_id": 1,
        "context_len": 12,
        "batch_size": 1,
        "drafted": 3,
        "accepted": 1,
        "confidences": [0.9, 0.5, 0.25],
        "agreements": [True, False, True],
        "draft_ms": 4.0,
        "verify_ms": 12.0,
        "total_ms": 17.5,
    }


@given(written=st.lists(records, min_size=1, max_size=8), packed=st.booleans())
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, written: list[TraceRecord], packed: bool
) -> None:
    """Everything survives, times to a nanosecond; rewriting what was read gives equal bytes."""
    folder = tmp_path_factory.mktemp("trip")
    name = "t.jsonl.gz" if packed else "t.jsonl"
    write_trace(folder / name, header(), written)
    trace = read_trace(folder / name)
    for before, after in zip(written, trace.records, strict=True):
        assert type(before) is type(after)
        for field in type(before).__slots__:
            old, new = getattr(before, field), getattr(after, field)
            if field.endswith("_s") and old is not None:
                # Half a nanosecond of rounding, and the last bit of a float.
                assert new == pytest.approx(old, abs=0.6e-9, rel=1e-15)
            else:
                assert new == old
    write_trace(folder / f"again_{name}", trace.header, trace.records)
    assert (folder / f"again_{name}").read_bytes() == (folder / name).read_bytes()


def test_equal_traces_give_equal_bytes_under_any_name(tmp_path: Path) -> None:
    """Gzip neither stores the name nor the time."""
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_trace(tmp_path / name, header(), SAMPLE)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_a_failed_capture_leaves_the_old_file(tmp_path: Path) -> None:
    """The writer is atomic: an exception in between changes nothing."""
    path = tmp_path / "t.jsonl"
    write_trace(path, header(), SAMPLE)
    before = path.read_bytes()

    def capture() -> None:
        with TraceWriter(path, header(model="another")) as writer:
            writer.write(SAMPLE[0])
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        capture()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (Round(0, 0, 5, 1, 1, 2), "accepted is 2 but drafted is 1"),
        (Round(0, 0, 5, 1, 7, 2), "drafted: 7 exceeds the header's num_speculative_tokens 6"),
        (Round(0, 0, 5, 1, 2, 1, confidences=(0.5,)), "confidences has 1 values"),
        (Round(0, 0, 5, 1, 2, 0, agreements=(True, False)), "agreements begin with 1 true"),
        (Round(0, 0, 5, 1, 1, 0, confidences=(1.5,)), "confidences.0"),
        (Round(0, 0, 5, 1, 1, 0, draft_s=2.0, verify_s=2.0, total_s=3.0), "more than total_ms"),
        (Step(0, 0, -1, 1), "context_len"),
        (Step(0, 0, 1, 0), "batch_size"),
        (Step(0, 0, 1, 1, total_s=float("nan")), "total_ms"),
        (Prefill(0, 0, 0, 1, 0), "num_tokens"),
    ],
)
def test_records_that_contradict_themselves_are_not_written(
    tmp_path: Path, record: TraceRecord, says: str
) -> None:
    """The record is named by its number; no file appears."""
    with pytest.raises(TraceError) as caught:
        write_trace(tmp_path / "t.jsonl", header(), [SAMPLE[0], record])
    assert "t.jsonl: record 2: " in str(caught.value)
    assert says in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_trace_is_not_written(tmp_path: Path) -> None:
    """A trace has at least one record."""
    with pytest.raises(TraceError, match="no record to write"):
        write_trace(tmp_path / "t.jsonl", header(), [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["t.json", "t.csv", "t.gz"])
def test_the_name_says_the_format(tmp_path: Path, name: str) -> None:
    """Only .jsonl and .jsonl.gz are written."""
    with pytest.raises(TraceError, match=r"named \.jsonl or \.jsonl\.gz"):
        TraceWriter(tmp_path / name, header())


def test_a_wrong_header_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """A capture that takes hours must not fail at its end."""
    with pytest.raises(TraceError, match="header: confidence_threshold"):
        TraceWriter(tmp_path / "t.jsonl", header(confidence_threshold=1.5))


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    """A missing folder is a user error."""
    with pytest.raises(TraceError, match="cannot be written"):
        write_trace(tmp_path / "no" / "t.jsonl", header(), SAMPLE)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON"),
        ("[1]", "Input should be an object"),
        ({"a": 1}, "kind: missing; choices: prefill, round, step"),
        ({"kind": "rund"}, "kind: unknown rund; did you mean 'round'?"),
        ({"kind": "header"}, "kind: unknown header"),
        ({"kind": "step"}, "sequence_id: Field required"),
        (STEP | {"totl_ms": 3}, "totl_ms: unknown key; did you mean 'total_ms'?"),
        ({"kind": "step", "sequenceid": 1}, "sequenceid: unknown key; did you mean 'sequence_id'"),
        (STEP | {"sequence_id": "0"}, "sequence_id: Input should be a valid integer"),
        (STEP | {"context_len": 5.5}, "context_len"),
        (STEP | {"batch_size": True}, "batch_size"),
        (STEP | {"total_ms": -1}, "total_ms: Input should be greater than or equal to 0"),
        (json.dumps(STEP)[:-1] + ', "total_ms": NaN}', "total_ms: Input should be a finite"),
        (ROUND | {"accepted": 3}, "accepted is 3 but drafted is 2"),
        (ROUND | {"drafted": 5}, "drafted: 5 exceeds the header's num_speculative_tokens 4"),
        (ROUND | {"confidences": [0.5, 0.4, 0.3]}, "confidences has 3 values but drafted is 2"),
        (ROUND | {"confidences": [0.5, 1.4]}, "confidences.1: Input should be less than"),
        (ROUND | {"agreements": [True, True]}, "accepted is 1 but agreements begin with 2 true"),
        (ROUND | {"agreements": [1, 0]}, "agreements.0"),
        (ROUND | {"draft_ms": 2, "verify_ms": 2, "total_ms": 3}, "add up to 4.0"),
        (STEP | {"x" * 5000: 1}, "unknown key"),
        (STEP | {"two\nlines": 1}, "unknown key"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, line: dict[str, Any] | str, says: str) -> None:
    """File, line, field and what is wrong, in one short sentence."""
    path = write_lines(tmp_path / "t.jsonl", HEADER, STEP, line)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:3: ")
    assert says in message
    assert "\n" not in message
    assert len(message) < len(str(path)) + 300


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "the file is empty"),
        ("TIMESTAMP,ContextTokens", "t.jsonl:1: header: not JSON"),
        (STEP, "t.jsonl:1: header: "),
        (HEADER | {"modell": "x"}, "header: modell: unknown key; did you mean 'model'?"),
        (HEADER | {"schema_version": 0}, "header: schema_version"),
        (HEADER | {"schema_version": 2, "new": 1}, "schema_version: 2 is newer than 1"),
        (HEADER | {"tp": 0}, "header: tp"),
        (HEADER | {"software": {"torch": 2.9}}, "header: software.torch"),
        ({k: v for k, v in HEADER.items() if k != "model"}, "header: model: Field required"),
        ({k: v for k, v in HEADER.items() if k != "schema_version"}, "header: schema_version"),
    ],
)
def test_wrong_headers_are_named(tmp_path: Path, line: dict[str, Any] | str, says: str) -> None:
    """A newer version is told apart from a wrong file."""
    with pytest.raises(TraceError) as caught:
        read_trace(write_lines(tmp_path / "t.jsonl", line, STEP))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_header_alone_is_refused(tmp_path: Path) -> None:
    """A trace without records answers nothing."""
    with pytest.raises(TraceError, match="no records below the header"):
        read_trace(write_lines(tmp_path / "t.jsonl", HEADER, ""))


def test_the_content_decides_about_gzip(tmp_path: Path) -> None:
    """A packed trace under a plain name is read all the same."""
    write_trace(tmp_path / "t.jsonl.gz", header(), SAMPLE)
    (tmp_path / "t.jsonl.gz").rename(tmp_path / "t.jsonl")
    assert read_trace(tmp_path / "t.jsonl").records == SAMPLE


def test_streaming_reads_no_further_than_asked(tmp_path: Path) -> None:
    """The header comes at once, records one by one, errors where they stand."""
    path = write_lines(tmp_path / "t.jsonl", HEADER, STEP, "{")
    head, stream = stream_trace(path)
    assert head.model == "m"
    assert next(stream) == Step(0, 0, 5, 1)
    with pytest.raises(TraceError, match=r"t\.jsonl:3: not JSON"):
        next(stream)


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    """A small file that unfolds beyond the bound stops there."""
    path = tmp_path / "t.jsonl.gz"
    text = json.dumps(HEADER) + "\n" + (json.dumps(STEP) + "\n") * 50_000
    path.write_bytes(gzip.compress(text.encode()))
    assert path.stat().st_size < 50_000
    with pytest.raises(TraceError, match="more than 1,000,000 bytes after decompression"):
        read_trace(path, max_bytes=1_000_000)


@given(data=st.data())
def test_any_bytes_give_a_trace_or_a_trace_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Fuzz: bytes, JSON of any shape, and a good trace with pieces replaced."""
    good = "\n".join(json.dumps(line) for line in (HEADER, STEP, ROUND)).encode()
    mutated = st.tuples(st.integers(0, len(good)), st.integers(0, 20), st.binary(max_size=10)).map(
        lambda m: good[: m[0]] + m[2] + good[m[0] + m[1] :]
    )
    leaf = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    anything = st.recursive(leaf, lambda x: st.lists(x) | st.dictionaries(st.text(), x))
    keys = st.sampled_from([*ROUND, "kind", "confidences", "agreements", "total_ms"])
    json_lines = st.tuples(keys, anything).map(
        lambda kv: "\n".join(map(json.dumps, (HEADER, ROUND | {kv[0]: kv[1]}))).encode()
    )
    path = tmp_path_factory.mktemp("fuzz") / "t.jsonl"
    path.write_bytes(data.draw(st.one_of(st.binary(max_size=60), mutated, json_lines)))
    message = str(path)
    try:
        read_trace(path)
    except TraceError as error:
        message = str(error)
    assert str(path) in message
    assert "\n" not in message
