"""A change that makes a group's error a tenth worse does not pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simspec.core.errors import ConfigError
from simspec.validation._thresholds import DEFAULT, check_thresholds, record
from simspec.validation.api import ValidationResult, validate
from tests.helpers.shared import shared_root
from tests.validation.conftest import GEMM, ROW, Write
from tests.validation.test_summary import result, row


def changed(found: ValidationResult, factor: float) -> ValidationResult:
    """Return a result whose errors are all larger by a factor."""
    tables = [
        replace(
            table,
            comparisons=[
                replace(r, predicted=r.measured * (1 + factor * r.error)) for r in table.comparisons
            ],
        )
        for table in found.tables
    ]
    return replace(found, tables=tuple(tables))


def test_a_tenth_worse_fails(tmp_path: Path) -> None:
    """Errors of 20 %: 21.9 % pass, 22.2 % do not; better ones always pass."""
    found = result(row(10, 12), row(10, 8), row(10, 12, "b"))
    path = record(found, tmp_path / "t.yaml")
    for factor, passes in ((1.0, True), (1.095, True), (1.11, False), (0.1, True)):
        verdict = check_thresholds(changed(found, factor), path)
        assert verdict.passed is passes, factor
        assert verdict.num_groups == 3, "two groups and a family"
    said = list(check_thresholds(changed(found, 1.5), path).lines())
    assert said[0] == (
        "worse: runs/serving.csv, tpot_ms | held_out | a: median error 30.00%, recorded 20.00%"
    )
    assert said[-1] == "check: 3 groups, 6 worse"


def test_leaving_rows_out_is_no_improvement(tmp_path: Path) -> None:
    """A group that compares fewer rows than recorded fails, however good they are."""
    found = result(row(10, 12), row(10, 10), row(10, 12, "b"))
    path = record(found, tmp_path / "t.yaml")
    fewer = check_thresholds(result(row(10, 10), row(10, 12, "b")), path)
    assert [f.what for f in fewer.failures] == ["1 rows are compared, 2 were"] * 2
    gone = check_thresholds(result(row(10, 12), row(10, 10)), path)
    assert [f.what for f in gone.failures] == ["no row is compared any more, 1 were"]
    assert [f.group for f in gone.failures] == ["tpot_ms | held_out | b"]


def test_recording_again_keeps_other_tables(tmp_path: Path, write: Write) -> None:
    """A table is replaced by its name; a changed file has no record under its old hash."""
    path = tmp_path / "t.yaml"
    first, second = write(GEMM, ROW, name="a.csv"), write(GEMM, ROW, ROW, name="b.csv")
    for table in (first, second, first):
        record(validate(table), path)
    assert path.read_text().count("sha256:") == 2
    assert check_thresholds(validate([first, second]), path).num_groups == 4
    write(GEMM, ROW, ROW, ROW, name="b.csv")
    verdict = check_thresholds(validate([first, second]), path)
    assert verdict.passed
    assert [Path(name).name for name in verdict.unknown] == ["b.csv"]
    with pytest.raises(ConfigError, match=r"holds no recorded errors of .*b\.csv as it is now"):
        check_thresholds(validate(second), path)


TABLE = "tables:\n- file: x\n  sha256: y\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tables: 3\n", "t.yaml:1: tables: is not a list"),
        ("a: 1\n", "tables: is missing"),
        (f"{TABLE}  families: {{}}\n  groups: {{g: {{rows: 1}}}}\n", "t.yaml:5"),
        (f"{TABLE}  families: {{g: {{rows: 1, median: a, mean: 1, p90: 1}}}}\n", "median"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    """What is no record is refused with its line."""
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        check_thresholds(result(row(1, 1)), tmp_path / "t.yaml")


def test_the_built_in_set_is_as_good_as_recorded() -> None:
    """Every group of the published figures that ship with simspec."""
    verdict = check_thresholds(validate())
    assert not verdict.unknown
    assert verdict.passed, "\n".join(verdict.lines())


RECORDED = Path(__file__).with_name("thresholds.yaml")
TABLES = (
    "measured/serving_closed_loop.csv",
    "reference/measured_inference.csv",
    "reference/published_speedups.csv",
    "reference/kv_capacity_reports.csv",
    "reference/verify_cost_curves.csv",
    "measured/kernels/h100_sxm",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_shared_tables_are_as_good_as_recorded(name: str) -> None:
    """Every group of a whole table, where the data are there."""
    path = shared_root() / name
    if not path.exists():
        pytest.skip(f"needs {path}")
    verdict = check_thresholds(validate(path), RECORDED)
    assert verdict.passed, "\n".join(verdict.lines())
    assert DEFAULT.exists()
