"""The result folder: what survives, what is dropped, and whose folder it is."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from simspec.core.errors import ConfigError
from simspec.sweeps.store import JOURNAL, ResultStore, check_folder, peek
from tests.helpers.command import environment

RESULT = {"status": "ok", "reason": None, "replications": {"tpot_ms": [1.5, None]}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "results"


def fill(folder: Path, *keys: str) -> None:
    with ResultStore(folder) as store:
        for key in keys:
            store.add(key, RESULT)


def test_results_come_back(folder: Path) -> None:
    """What was added is there in the next session, in the order it was added."""
    fill(folder, "b", "a")
    fill(folder, "c")
    assert peek(folder) == {"b": RESULT, "a": RESULT, "c": RESULT}
    assert list(peek(folder)) == ["b", "a", "c"]


def test_a_point_survives_a_kill_right_after_it(folder: Path) -> None:
    """``add`` returns only when the line is in the file."""
    with ResultStore(folder) as store:
        store.add("a", RESULT)
        assert set(peek(folder)) == {"a"}


@pytest.mark.parametrize("cut", [1, 2, 20, 60])
def test_a_torn_last_line_is_dropped(folder: Path, cut: int) -> None:
    """A line that a kill cut short is forgotten, and the next one starts a line of its own."""
    fill(folder, "a", "b")
    journal = folder / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-cut])
    with ResultStore(folder) as store:
        assert set(store.finished()) == {"a"}
        store.add("c", RESULT)
    assert set(peek(folder)) == {"a", "c"}


@pytest.mark.parametrize("kept", [0, 5])
def test_a_torn_header_is_written_again(folder: Path, kept: int) -> None:
    """A kill during the very first write leaves a folder that still works."""
    fill(folder)
    journal = folder / JOURNAL
    header = journal.read_bytes()
    journal.write_bytes(header[:kept])
    fill(folder, "a")
    assert journal.read_bytes().startswith(header)
    assert set(peek(folder)) == {"a"}


@pytest.mark.parametrize(
    "line", [b"\xff\xfe\n", b"[1, 2]\n", b'{"key": "x"}\n', b'{"key": "x", "result": 3}\n', b"\n"]
)
def test_a_damaged_line_is_no_result(folder: Path, line: bytes) -> None:
    """Whatever a broken disk made of a line, the others are read."""
    fill(folder, "a")
    with (folder / JOURNAL).open("ab") as stream:
        stream.write(line)
    fill(folder, "b")
    assert set(peek(folder)) == {"a", "b"}


def test_leftovers_of_a_kill_are_removed(folder: Path) -> None:
    """A half-written table of an earlier session does not stay."""
    fill(folder)
    leftover = folder / ".points.parquet.0011aabb.tmp"
    leftover.write_bytes(b"half")
    fill(folder)
    assert not leftover.exists()


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    """A folder that holds something else is named, and stays as it is."""
    (tmp_path / "thesis.docx").write_text("precious")
    with pytest.raises(ConfigError, match=r"holds other files \(thesis.docx\).*--output"):
        fill(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.docx"]


@pytest.mark.parametrize("content", [b"my own notes", b'{"a": 1}\n{"b": 2}', b"\n\n"])
def test_a_journal_of_somebody_else_is_refused(tmp_path: Path, content: bytes) -> None:
    """A ``points.jsonl`` that simspec did not write is not touched, torn or not."""
    (tmp_path / JOURNAL).write_bytes(content)
    with pytest.raises(ConfigError, match="was not written by 'simspec sweep'"):
        fill(tmp_path)
    assert (tmp_path / JOURNAL).read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == [JOURNAL]


def test_more_files_beside_results_are_left_alone(folder: Path) -> None:
    """Notes that somebody keeps in the result folder do not stop the next run."""
    fill(folder, "a")
    (folder / "notes.txt").write_text("good run")
    fill(folder, "b")
    assert (folder / "notes.txt").read_text() == "good run"


@pytest.mark.parametrize("kind", ["file", "below a file"])
def test_a_file_in_the_way_is_refused(tmp_path: Path, kind: str) -> None:
    """An output that is a file, or below one, is one sentence."""
    (tmp_path / "taken").write_text("")
    output = tmp_path / "taken" if kind == "file" else tmp_path / "taken" / "results"
    for touch in (check_folder, fill):
        if touch is check_folder and kind == "below a file":
            continue
        with pytest.raises(ConfigError, match=r"taken.*(result folder|write results).*--output"):
            touch(output)
    assert (tmp_path / "taken").read_text() == ""


def test_a_second_session_is_refused(folder: Path) -> None:
    """Two sweeps never write into one folder; the first one goes on undisturbed."""
    with ResultStore(folder) as first:
        first.add("a", RESULT)
        with pytest.raises(ConfigError, match=r"another sweep is writing here.*--output"):
            fill(folder, "x")
        first.add("b", RESULT)
    fill(folder, "c")
    assert set(peek(folder)) == {"a", "b", "c"}


def test_an_error_frees_the_folder(folder: Path) -> None:
    """After a failure inside the session the folder can be used again."""
    with pytest.raises(RuntimeError), ResultStore(folder):
        raise RuntimeError
    fill(folder, "a")
    assert set(peek(folder)) == {"a"}


READ_ONLY = """
import sys
from pathlib import Path
from simspec.core.errors import ConfigError
from simspec.sweeps.store import ResultStore
try:
    with ResultStore(Path(sys.argv[1])):
        print("wrote")
except ConfigError as error:
    print(error)
"""


def obey_permissions() -> None:
    """Take the right to ignore file permissions from a process of root (Linux capability 1)."""
    pr_capbset_drop, cap_dac_override = 24, 1
    ctypes.CDLL(None).prctl(pr_capbset_drop, cap_dac_override, 0, 0, 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="permissions as on Linux")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    """Where nothing may be written, one sentence says so."""
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    found = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(locked)],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
        preexec_fn=obey_permissions if os.geteuid() == 0 else None,
    ).stdout
    assert "may not be written); choose another one with --output" in found
    assert list(locked.iterdir()) == []


def test_a_full_disk_is_a_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running out of space keeps what was finished and says what to do."""
    fill(folder, "a")

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with ResultStore(folder) as store:
        monkeypatch.setattr(os, "fsync", no_space)
        with pytest.raises(ConfigError, match=r"No space left on device.*free some space"):
            store.add("b", RESULT)
        with pytest.raises(ConfigError, match="cannot write"):
            store.write_table("points.parquet", [{"a": 1}])
        monkeypatch.undo()
    assert "a" in peek(folder)
    assert not (folder / "points.parquet").exists()


def test_tables_have_one_type_per_column(folder: Path) -> None:
    """Whole and broken numbers become floats, mixtures become text, absent cells are null."""
    rows = [
        {"n": 1, "mixed": 1, "list": [1.0, None], "only": None},
        {"n": 2.5, "mixed": "auto", "late": True},
    ]
    with ResultStore(folder) as store:
        path = store.write_table("points.parquet", rows)
    table = pq.read_table(path)
    assert table.column_names == ["n", "mixed", "list", "only", "late"]
    assert table.to_pylist() == [
        {"n": 1.0, "mixed": "1", "list": [1.0, None], "only": None, "late": None},
        {"n": 2.5, "mixed": "auto", "list": None, "only": None, "late": True},
    ]


def test_the_journal_is_plain_json_lines(folder: Path) -> None:
    """Other programs can read the journal line by line."""
    fill(folder, "a")
    first, second = (json.loads(line) for line in (folder / JOURNAL).read_text().splitlines())
    assert first["journal"] == "simspec sweep points"
    assert second == {"key": "a", "result": RESULT}
