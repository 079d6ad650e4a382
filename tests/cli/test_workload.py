"""``simspec workload``: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simspec.workloads._base import IMPORTERS
from simspec.workloads.detect import importer_of
from tests.cli.conftest import Command

BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    rows = [f"{t},GPT-4,{10 + t},5,{15 + t},API log" for t in range(40)]
    rows[7] = "7,GPT-4,17,0,17,API log"
    rows[9] = "rubbish"
    path.write_text(BURST + "\n".join(rows))
    return path


def test_a_log_is_described_with_what_was_left_out(simspec: Command, log: Path) -> None:
    """Figures to stdout; a sentence for each line that is no request to stderr."""
    said = simspec("workload", "describe", str(log))
    assert said.code == 0
    assert "burstgpt format" in said.out
    assert said.err == f"rejected   {log}:11: broken line: 1 fields in 'rubbish'; expected 6\n"


def test_one_json_document(simspec: Command, log: Path) -> None:
    """The same as data."""
    said = simspec("workload", "describe", str(log), "--json")
    found = json.loads(said.out)
    assert (said.code, said.err) == (0, "")
    assert found["num_requests"] == 38
    assert found["left_out"] == {"without_tokens": 1, "rejected_lines": 1}
    assert found["rate_per_s"] == pytest.approx(37 / 39)
    assert found["prefix_reuse"] is None


def test_many_wrong_lines_are_counted(simspec: Command, log: Path) -> None:
    """Ten sentences, then how many more there are."""
    with log.open("a") as file:
        file.write("\n" + "\n".join(["x"] * 200))
    lines = simspec("workload", "describe", str(log)).err.splitlines()
    assert len(lines) == 11
    assert lines[-1] == "rejected   and 191 more"


def test_a_folder_gets_the_data_and_the_page(simspec: Command, log: Path, tmp_path: Path) -> None:
    """workload.json is what --json prints; the page stands alone and names the rejected line."""
    out = tmp_path / "out"
    said = simspec("workload", "describe", str(log), "--json", "--output", str(out))
    assert json.loads((out / "workload.json").read_text()) == json.loads(said.out)
    page = (out / "report.html").read_text()
    for part in ("arrival_rate", "gap_distribution", "length_distribution", "log.csv:11: broken"):
        assert part in page
    assert "prefix_reuse" not in page.partition('"figures"')[2]


@pytest.mark.parametrize("name", IMPORTERS.names())
def test_every_sample_can_be_described(simspec: Command, name: str, tmp_path: Path) -> None:
    """By its own first lines, and by name."""
    path = tmp_path / "sample"
    path.write_bytes(importer_of(name).sample)
    by_itself = simspec("workload", "describe", str(path), "--json")
    named = simspec("workload", "describe", str(path), "--json", "--format", name)
    assert by_itself == named
    usable = sum(row.output_len > 0 for row in importer_of(name).sample_rows)
    assert json.loads(named.out)["num_requests"] == usable


def test_lengths_without_arrivals_have_no_rate(simspec: Command, tmp_path: Path) -> None:
    """What is not there is null, not 0."""
    path = tmp_path / "log"
    path.write_text("num_prefill_tokens,num_decode_tokens\n10,3\n20,4\n30,5\n")
    found = json.loads(simspec("workload", "describe", str(path), "--json").out)
    keys = ("duration_s", "rate_per_s", "gap_cv", "peak_rate_per_s", "tied_share")
    assert [found[key] for key in keys] == [None] * 5
    assert found["prompt_p50_tokens"] == 20


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{log}", "--format", "azur"], "did you mean 'azure'"),
        (["{log}", "--format", "azure"], "the first line is 'Timestamp,Model"),
        (["{log}x"], "no such file; did you mean 'log.csv'"),
        (["{folder}"], "no file named chunk-N-trace.csv"),
        (["{folder}", "--format", "azure"], "is no log, so it has no format"),
        (["{log}", "--output", "{log}"], "cannot be used as a result folder"),
    ],
)
def test_mistakes_are_one_sentence(
    simspec: Command, log: Path, arguments: list[str], says: str
) -> None:
    """Exit code 2, nothing on stdout, nothing left behind."""
    before = sorted(log.parent.iterdir())
    said = simspec(
        "workload", "describe", *(a.format(log=log, folder=log.parent) for a in arguments)
    )
    assert (said.code, said.out) == (2, "")
    assert len(said.err.splitlines()) == 1
    assert says in said.err
    assert sorted(log.parent.iterdir()) == before
