"""From logged rows to requests that can be simulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from simspec.core.errors import TraceError
from simspec.workloads.importers.azure import Config
from simspec.workloads.request_log import read_log


def write(path: Path, *lengths: tuple[int, int]) -> Path:
    rows = [f"2024-05-10 00:00:{i:02d},{p},{o}" for i, (p, o) in enumerate(lengths)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    return path


def test_rows_without_tokens_are_left_out_and_counted(tmp_path: Path) -> None:
    """A failed call has no output; time still runs from the log's first row."""
    log = read_log(Config(), write(tmp_path / "log", (5, 0), (6, 1), (0, 4), (7, 2)))
    assert log.num_empty == 2
    assert log.times_s.tolist() == [1.0, 3.0]
    assert log.lengths.prompt_lens.tolist() == [6, 7]
    assert log.lengths.output_lens.tolist() == [1, 2]
    assert log.rate_per_s == 0.5


def test_a_log_without_any_request_is_refused(tmp_path: Path) -> None:
    """Nothing to simulate is said, not simulated."""
    with pytest.raises(TraceError, match="no request among the 2 rows"):
        read_log(Config(), write(tmp_path / "log", (5, 0), (0, 4)))


def test_limit_counts_rows(tmp_path: Path) -> None:
    """The first rows of the file, usable or not."""
    path = write(tmp_path / "log", (5, 0), (6, 1), (7, 2))
    assert read_log(Config(), path, limit=2).lengths.prompt_lens.tolist() == [6]


def test_one_request_has_no_rate(tmp_path: Path) -> None:
    """A log that spans no time has no rate, and is still a workload."""
    assert read_log(Config(), write(tmp_path / "log", (5, 1))).rate_per_s is None
