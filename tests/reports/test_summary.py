"""The terminal summary and its JSON form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simspec.core.errors import ConfigError
from simspec.reports.summary import markdown_table, sweep_document, sweep_text
from tests.helpers.fake_results import (
    LOADS,
    fake_manifest,
    fake_row,
    write_fake_results,
    write_hostile_results,
)


def test_each_load_shows_the_best_configuration_and_autoregression(tmp_path: Path) -> None:
    """Two lines per load, so that a ratio never stands without both times."""
    text = sweep_text(write_fake_results(tmp_path))
    for load in LOADS:
        lines = [line for line in text.splitlines() if line.startswith(f"| {load}")]
        assert len(lines) == 2
        assert "Kangaroo" in lines[0]
        assert "×" in lines[0]
        assert "Autoregressive" in lines[1]
    assert "Acceptance assumed: Kangaroo's published" in text
    assert "Uncalibrated" in text
    assert "- Stops paying at 20 requests/s." in text


def test_the_profiles_that_are_not_calibrated_are_named(tmp_path: Path) -> None:
    """Among several devices a reader must know whose milliseconds to doubt."""
    manifest = fake_manifest(uncalibrated_hardware=["m4_max"])
    text = sweep_text(write_fake_results(tmp_path, manifest=manifest))
    assert "Uncalibrated hardware profile (m4_max): trust ratios" in text


def test_table_lines_are_equally_wide(tmp_path: Path) -> None:
    """Columns stay aligned also with wide characters; a bar in a name is escaped."""
    table = markdown_table(
        ["Name", "n"], [["a|b", "1"], ["東京", "12"], ["e\u0301", "123"]], num_text=1
    )
    assert table.splitlines() == [
        "| Name |   n |",
        "| ---- | --: |",
        "| a\\|b |   1 |",
        "| 東京 |  12 |",
        "| e\u0301    | 123 |",
    ]


def test_the_document_is_json_with_the_same_keys_as_the_table(tmp_path: Path) -> None:
    """Best and baseline are rows of the result; nothing is NaN; every load has a pair."""
    document = sweep_document(write_fake_results(tmp_path))
    again = json.loads(json.dumps(document, allow_nan=False))
    assert again["points"] == 304
    assert again["status"] == {"ok": 292, "unstable": 12}
    assert again["best"]["speedup"] > 1
    assert again["best"]["speedup_ci95_low"] < again["best"]["speedup"]
    assert [entry["load"] for entry in again["by_condition"]] == list(LOADS)
    for entry in again["by_condition"]:
        assert entry["baseline"]["method.name"] == "autoregressive"
        assert entry["baseline"]["load"] == entry["load"]
    assert {"best", "stops_paying"} <= {finding["kind"] for finding in again["findings"]}


def test_every_setting_has_its_own_lines(tmp_path: Path) -> None:
    """Devices are not mixed: each has its best configuration and its baseline."""
    rows = [
        fake_row({"method.name": name, "hardware": device, "load": load}, 4)
        for name in ("autoregressive", "kangaroo")
        for device in ("h100", "l40s")
        for load in ("calm", "busy")
    ]
    axes = [
        {"field": "hardware", "label": None, "values": ["h100", "l40s"]},
        {"field": "load", "label": None, "values": ["calm", "busy"]},
    ]
    manifest = fake_manifest(axes=axes)
    write_fake_results(tmp_path, points=rows, manifest=manifest, with_curves=False)
    table = [line for line in sweep_text(tmp_path).splitlines() if line.startswith("| h100")]
    assert len(table) == 4
    conditions = sweep_document(tmp_path)["by_condition"]
    assert isinstance(conditions, list)
    assert [(c["hardware"], c["load"]) for c in conditions] == [
        ("h100", "calm"),
        ("h100", "busy"),
        ("l40s", "calm"),
        ("l40s", "busy"),
    ]
    assert all(c["best"]["hardware"] == c["hardware"] for c in conditions)


def test_several_acceptance_sentences_are_all_printed(tmp_path: Path) -> None:
    """One per exit layer, for example."""
    manifest = fake_manifest(acceptance=["first sentence", "second sentence"])
    text = sweep_text(write_fake_results(tmp_path, manifest=manifest))
    assert "- first sentence\n- second sentence" in text


def test_a_sweep_without_load_or_baseline_has_a_table(tmp_path: Path) -> None:
    """One line: the best point."""
    rows = [fake_row({"method.name": "kangaroo", "tp": tp}, 4) for tp in (1, 2)]
    rows = [{k: v for k, v in row.items() if not k.startswith("speedup")} for row in rows]
    axes = [{"field": "tp", "label": None, "values": [1, 2]}]
    manifest = fake_manifest(axes=axes)
    write_fake_results(tmp_path, points=rows, manifest=manifest, with_curves=False)
    text = sweep_text(tmp_path)
    assert "| Configuration" in text
    assert "Speedup" not in text.split("\n- ", maxsplit=1)[0]


def test_hostile_names_reach_the_terminal_without_control_characters(tmp_path: Path) -> None:
    """No escape sequence and no directional override of a name is printed."""
    text = sweep_text(write_hostile_results(tmp_path))
    assert not any(c in text for c in "\x1b\u202e\u0007")


def test_a_folder_that_is_no_result_is_one_sentence(tmp_path: Path) -> None:
    """Both forms refuse it."""
    for read in (sweep_text, sweep_document):
        with pytest.raises(ConfigError, match="no manifest"):
            read(tmp_path)
