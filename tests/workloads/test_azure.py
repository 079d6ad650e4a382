"""The Azure importer, against the published file and against the ways such files differ."""

from __future__ import annotations

import csv
import gzip
import math
import time
from pathlib import Path

import numpy as np
import pytest

from simspec.core.errors import TraceError
from simspec.workloads.importers.azure import Config
from simspec.workloads.request_log import RequestLog, read_log
from tests.helpers.shared import shared

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def read(tmp_path: Path, *lines: str) -> list[tuple[float, int, int]]:
    path = tmp_path / "log.csv"
    path.write_text("\n".join([HEADER, *lines]), encoding="utf-8")
    return [tuple(row) for row in Config().rows(path)]


@pytest.fixture(scope="module")
def conversation() -> RequestLog:
    return read_log(Config(), shared("traces/azure/AzureLLMInferenceTrace_conv.csv"))


def test_conversation_trace_has_the_published_shape(conversation: RequestLog) -> None:
    """Counts, span, rate, burstiness and lengths are those stated for the file."""
    prompts, outputs = conversation.lengths.prompt_lens, conversation.lengths.output_lens
    assert prompts.size == 19_366
    assert conversation.num_empty == 0
    assert conversation.times_s[-1] == pytest.approx(3501.7, abs=0.05)
    assert conversation.rate_per_s == pytest.approx(5.53, abs=0.005)
    assert round(prompts.mean()) == 1155
    assert np.median(prompts) == 1020
    assert prompts.max() == 14_050
    assert round(outputs.mean()) == 211
    assert np.median(outputs) == 129
    assert outputs.max() == 1000


def test_conversation_trace_agrees_with_an_independent_import(conversation: RequestLog) -> None:
    """Vidur's processed copy of the trace holds the same requests, pair by pair, in order."""
    with shared("traces/vidur/splitwise_conv.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert conversation.lengths.prompt_lens.tolist() == [int(r["num_prefill_tokens"]) for r in rows]
    assert conversation.lengths.output_lens.tolist() == [int(r["num_decode_tokens"]) for r in rows]
    theirs_s = np.array([float(r["arrived_at"]) for r in rows])
    # They keep microseconds, the file has tenths of them.
    assert np.abs(theirs_s - conversation.times_s).max() < 1.01e-6


def test_reading_is_fast(conversation: RequestLog) -> None:
    """19,366 rows take less than 0.3 s of processor time, best of five on a busy machine."""
    path = shared("traces/azure/AzureLLMInferenceTrace_conv.csv")
    best_s = math.inf
    for _ in range(5):
        start = time.process_time()
        read_log(Config(), path)
        best_s = min(best_s, time.process_time() - start)
    assert best_s < 0.3


@pytest.mark.parametrize("name", ["code", "conv"])
def test_2024_rows_are_read(name: str) -> None:
    """The 2024 files have UTC offsets and fewer or no fractional digits."""
    path = shared(f"traces/format-samples/azure2024_{name}_10rows.csv")
    rows = list(Config().rows(path))
    assert len(rows) == 10
    # First and last five rows of one week of traffic.
    assert rows[0].arrival_s == 0
    assert rows[4].arrival_s < 1
    assert 6 * 86_400 < rows[-1].arrival_s <= 8 * 86_400


def test_the_seventh_digit_counts(tmp_path: Path) -> None:
    """100 ns ticks survive, across midnight and month too."""
    rows = read(
        tmp_path,
        "2023-11-30 23:59:59.9999999,1,1",
        "2023-12-01 00:00:00.0000000,2,2",
        "2023-12-01 00:00:00.00000001,3,3",
    )
    assert [row[0] for row in rows] == [0.0, 1e-7, 1.1e-7]


def test_no_digit_is_lost_after_a_long_time(tmp_path: Path) -> None:
    """Years after the first row a tick still is one."""
    rows = read(
        tmp_path,
        "2000-02-29 00:00:00.0000001,1,1",
        "2023-11-16 12:00:00.0000001,1,1",
        "2023-11-16 12:00:00.0000002,1,1",
    )
    days = 23 * 365 + 6 - 31 - 29 + 320
    assert rows[1][0] == days * 86_400 + 43_200
    assert rows[2][0] - rows[1][0] == pytest.approx(1e-7, abs=1e-7 / 2)


def test_offsets_are_taken_into_account(tmp_path: Path) -> None:
    """Equal instants written in two zones are equal; order is that of instants."""
    rows = read(
        tmp_path,
        "2024-05-10 01:00:00+01:00,1,1",
        "2024-05-10T00:00:00Z,2,2",
        "2024-05-09 19:00:01.5-05:00,3,3",
    )
    assert [row[0] for row in rows] == [0.0, 0.0, 1.5]


def test_ties_keep_their_order(tmp_path: Path) -> None:
    """Requests at one time stay in file order."""
    rows = read(tmp_path, *(f"2024-05-10 00:00:00,{i},1" for i in range(9, 0, -1)))
    assert [row[1] for row in rows] == list(range(9, 0, -1))


def test_blank_lines_carry_nothing(tmp_path: Path) -> None:
    """Empty lines are passed over, and do not shift the line numbers of errors."""
    assert len(read(tmp_path, "2024-05-10 00:00:00,1,1", "", "  ", "")) == 1
    with pytest.raises(TraceError, match=r"log\.csv:4: "):
        read(tmp_path, "2024-05-10 00:00:00,1,1", "", "x")


def test_gzip_is_read(tmp_path: Path) -> None:
    """A packed log needs no unpacking."""
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(Config.sample))
    assert tuple(Config().rows(path)) == Config.sample_rows


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("2024-05-10 00:00:00,1", "2 fields"),
        ("2024-05-10 00:00:00,1,1,1", "4 fields"),
        ("2024-05-10 24:00:00,1,1", "TIMESTAMP: '2024-05-10 24:00:00'; expected YYYY"),
        ("2024-02-30 00:00:00,1,1", "TIMESTAMP: '2024-02-30' is no date"),
        ("2024-05-10 00:00:00.0123456789,1,1", "TIMESTAMP"),
        ("10/05/2024 00:00,1,1", "TIMESTAMP"),
        ("1715299200,1,1", "TIMESTAMP"),
        ("2024-05-10 00:00:00,-1,1", "ContextTokens: '-1'; expected a whole number of tokens"),
        ("2024-05-10 00:00:00,1.0,1", "ContextTokens: '1.0'"),
        ("2024-05-10 00:00:00,1_0,1", "ContextTokens: '1_0'"),
        ("2024-05-10 00:00:00,٣,1", "ContextTokens"),
        ("2024-05-10 00:00:00,1,", "GeneratedTokens: ''"),
        ("2024-05-10 00:00:00,1," + "9" * 5000, "GeneratedTokens: '9999"),
        ("2024-05-10 00:00:00+00:00,1,1", "UTC offset given, unlike the rows before"),
        ("2024-05-08 23:59:59,1,1", "1 s before the row above; sort the file by TIMESTAMP"),
    ],
)
def test_wrong_lines_say_what_is_wrong(tmp_path: Path, line: str, says: str) -> None:
    """File, line, field, value and what was expected, in one short sentence."""
    with pytest.raises(TraceError) as caught:
        read(tmp_path, "2024-05-09 00:00:00,1,1", line)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'log.csv'}:3: ")
    assert says in message
    assert len(message) < len(str(tmp_path)) + 200


@pytest.mark.parametrize("header", ["", "TIMESTAMP,ContextTokens", "a,b,c", HEADER.lower()])
def test_another_header_is_another_format(tmp_path: Path, header: str) -> None:
    """The message shows the header that an Azure trace has."""
    path = tmp_path / "log.csv"
    path.write_text(f"{header}\n2024-05-10 00:00:00,1,1\n")
    with pytest.raises(TraceError, match=f"log.csv:1: .*{HEADER}"):
        next(Config().rows(path))
