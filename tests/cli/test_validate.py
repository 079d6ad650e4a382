"""``simspec validate``: errors, worst rows, left-out rows; one JSON document; exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.validation.conftest import GEMM, MS, ROW

SLOW = ROW.replace(repr(MS), repr(2 * MS))
CACHED = ROW.replace("4096,4096", "1024,1024")
ROW_KEYS = {
    "file", "line", "kind", "quantity", "measured", "predicted", "error", "interval", "group",
    "family", "role", "subject", "breakdown",
}  # fmt: skip
LEFT_OUT_KEYS = {"file", "line", "kind", "cause", "reason", "group", "subject"}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("\n".join([GEMM, ROW, SLOW, CACHED, CACHED, ""]))
    return "t.csv"


def test_errors_worst_rows_and_what_is_left_out(simspec: Command, table: str) -> None:
    """A row twice as slow as predicted misses by half; left-out rows are counted by cause."""
    said = simspec("validate", table, "--worst", "1")
    assert said.code == 0
    assert "figures compared: 2, rows left out: 2" in said.out
    (line,) = [line for line in said.out.splitlines() if line.startswith("│ gemm")]
    assert [cell.strip() for cell in line.split("│")[2:8]] == ["2", "25", "25", "45", "-25", "50"]
    assert "The 1 rows that miss most" in said.out
    assert "t.csv:3" in said.out
    assert "Left out: 2 suspect; up to 3 reasons of each table" in said.out
    assert said.err == "judged t.csv (4 rows)\n"


def test_json_is_one_document(simspec: Command, table: str) -> None:
    """Every row with its keys, every left-out row, the summary and the manifest."""
    document = simspec("validate", table, "--json").json
    assert set(document) == {"rows", "left_out", "summary", "manifest"}
    assert [set(row) for row in document["rows"]] == [ROW_KEYS] * 2
    assert [set(row) for row in document["left_out"]] == [LEFT_OUT_KEYS] * 2
    first, second = document["rows"]
    assert (first["line"], second["line"]) == (2, 3)
    assert second["error"] == pytest.approx(-0.5, abs=1e-6)
    low, high = first["interval"]
    assert low < first["measured"] < high
    assert document["summary"]["compared"] == 2
    assert document["summary"]["left_out_by_cause"] == {"suspect": 2}
    (family,) = document["summary"]["families"]
    assert family["median_abs_error"] == pytest.approx(0.25, abs=1e-6)
    assert list(document["manifest"]["inputs"]) == ["t.csv"]


def test_output_holds_the_same_document(simspec: Command, table: str) -> None:
    """The folder has the document of ``--json`` and the page."""
    said = simspec("validate", table, "--json", "--output", "out")
    assert json.loads(Path("out/validation.json").read_text())["rows"] == said.json["rows"]
    assert {path.name for path in Path("out").iterdir()} == {"validation.json", "report.html"}


def test_a_folder_that_fills_up_leaves_nothing_half(simspec: Command, table: str) -> None:
    """A document that cannot be written is one sentence, and no part of it stays."""
    Path("out").mkdir()
    Path("out/validation.json").mkdir()
    said = simspec("validate", table, "--output", "out")
    assert said.code == 2
    assert "validation.json: cannot be written" in said.err
    assert [path.name for path in Path("out").iterdir()] == ["validation.json"]


def test_grouped_by_columns_of_the_table(simspec: Command, table: str) -> None:
    """Any column of the subjects groups; an unknown one is named with the nearest."""
    said = simspec("validate", table, "--group-by", "hardware, m", "--worst", "0")
    assert "h100_sxm │ 16" in said.out
    said = simspec("validate", table, "--group-by", "hardwear")
    assert said.code == 2
    assert "--group-by: no column 'hardwear'; did you mean 'hardware'?" in said.err


def test_check_exits_with_one_when_a_group_got_worse(simspec: Command, table: str) -> None:
    """Recorded errors pass; smaller recorded ones fail; a table without a record is refused."""
    assert simspec("validate", table, "--write-thresholds", "t.yaml").code == 0
    said = simspec("validate", table, "--check", "--thresholds", "t.yaml")
    assert said.code == 0
    assert "check: 2 groups, as good as recorded" in said.out
    text = Path("t.yaml").read_text()
    Path("t.yaml").write_text(text.replace("median: 0.25", "median: 0.2"))
    said = simspec("validate", table, "--thresholds", "t.yaml")
    assert said.code == 1
    assert "median error 25.00%, recorded 20.00%" in said.out
    said = simspec("validate", table, "--thresholds", "t.yaml", "--json")
    assert (said.code, said.json["check"]["passed"]) == (1, False)
    said = simspec("validate", table, "--check")
    assert said.code == 2
    assert "holds no recorded errors of t.csv as it is now" in said.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nowhere.csv",), "nowhere.csv: no such file or folder; did you mean"),
        (("t.csv", "--worst", "-1"), "--worst"),
        (("t.csv", "--output", "t.csv"), "t.csv: cannot be used as a result folder"),
        (("t.csv", "--thresholds", "t.yml"), "t.yml: no such file"),
        (("t.csv", "--write-thresholds", "no/t.yaml"), "no/t.yaml: cannot be written"),
        (("t.csv", "--write-thresholds", "t.csv"), "t.csv"),
    ],
)
def test_a_mistake_is_one_sentence(
    simspec: Command, table: str, arguments: tuple[str, ...], says: str
) -> None:
    """Exit code 2, one line on stderr that names what is wrong."""
    said = simspec("validate", *arguments)
    assert said.code == 2
    *_, last = said.err.strip().splitlines()
    assert last.startswith("simspec: ")
    assert says in last


def test_the_built_in_set(simspec: Command) -> None:
    """Without a file the published figures that ship with simspec are judged."""
    said = simspec("validate", "--json")
    files = {table["file"] for table in said.json["summary"]["tables"]}
    assert files
    assert all(name.startswith("simspec/validation/data/") for name in files)
    assert said.json["summary"]["compared"] >= 20
