"""Timings on disk: one machine per file, nothing lost by a stop, foreign files refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simspec.core.errors import TraceError
from simspec.traces.samples import Machine, Sample, SampleWriter, read_samples

MACHINE = Machine("a CPU", "cpu", 2**34, "torch 0", 1, 1, is_quick=True)
GEMM = Sample("gemm", "bf16", {"m": 1, "n": 4, "k": 2}, 1e-3, 0.1)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """The machine, what was kept from before, and what is new."""
    path = tmp_path / "a.samples.jsonl"
    kept = [replace(GEMM, seconds=2.0)]
    writer = SampleWriter(path, MACHINE, kept)
    writer.write(GEMM)
    assert read_samples(path) == (MACHINE, [*kept, GEMM])


def test_a_line_cut_off_by_a_stop_is_left_out(tmp_path: Path) -> None:
    """The last one only: a broken line in the middle is no stop."""
    path = tmp_path / "a.samples.jsonl"
    SampleWriter(path, MACHINE, [GEMM, GEMM])
    text = path.read_text(encoding="utf-8")
    path.write_text(text[:-20], encoding="utf-8")
    assert read_samples(path)[1] == [GEMM]
    first, second, _ = text.splitlines()
    path.write_text(f"{first}\n{second[:-9]}\n{second}\n", encoding="utf-8")
    with pytest.raises(TraceError, match=r"jsonl:2: is not a timing; delete the line"):
        read_samples(path)


@pytest.mark.parametrize("text", ["", "[]\n", '{"schema": "other"}\n', "no\n", '{"schema": 1}\n'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    """One sentence with the place."""
    path = tmp_path / "other.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TraceError, match=r"other.jsonl:1: is not the header of timings"):
        read_samples(path)
    with pytest.raises(TraceError, match="cannot be read"):
        read_samples(tmp_path)


def test_the_key_is_what_was_timed() -> None:
    """Sizes and type, not the result."""
    assert GEMM.key == replace(GEMM, seconds=9.0, spread=0.0).key
    assert GEMM.key != replace(GEMM, dtype="fp32").key
    assert GEMM.key != replace(GEMM, shape={"m": 2, "n": 4, "k": 2}).key
