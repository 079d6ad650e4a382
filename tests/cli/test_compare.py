"""``simspec compare``, ``breakeven`` and ``acceptance``: what they print, write and refuse."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Command

HERE = "--hardware gpu.yaml --engine engine.yaml"
NAMED = f"compare {HERE} --model vicuna-7b --methods kangaroo,dual_model --batch 1,8"
MISTAKES = {
    f"{NAMED} --methods kangoroo": "did you mean 'kangaroo'",
    f"{NAMED} --methods autoregressive": "stands beside every method",
    f"{NAMED} --batch 1,x": "'1,x' is not a list of whole numbers",
    f"{NAMED} --batch 0": "batch",
    f"{NAMED} --hardware gpv.yaml": "unknown hardware profile",
    f"{NAMED} --model vicuna-8b": "did you mean",
    f"{NAMED} --draft-model nothing": "nothing",
    f"{NAMED} --acceptance 1.5": "acceptance: 1.5 is out of range",
    f"{NAMED} --methods kangaroo --draft-model llama-68m": "none of these methods has a draft",
    "compare nowhere.yaml": "nowhere.yaml: no such file",
    "compare mine.yaml --batch 4": "--batch: a comparison file says all of it",
    "compare scenario.yaml": "methods",
    f"breakeven {HERE} --over load": "--over: unknown choice 'load'",
    f"breakeven {HERE} --over batch --batch 4 --acceptance 0.5": "--batch has no effect",
    f"breakeven {HERE} --over context --context 4 --acceptance 0.5": "--context has no effect",
    f"breakeven {HERE} --over acceptance --acceptance 0.5": "--acceptance has no effect",
    f"breakeven {HERE} --over batch": "needs an acceptance model",
    f"breakeven {HERE} --over batch --acceptance 0.5 --exit-layer 99": "exit_layer: 99",
    "breakeven --hardware h100_sxm, --acceptance 0.5": "empty name",
    "breakeven --hardware h100_sxm,h101 --acceptance 0.5": "unknown hardware profile 'h101'",
    f"breakeven {HERE} --over acceptance --method autoregressive": "drafts nothing",
    "acceptance show nothing": "unknown acceptance profile 'nothing'",
    "acceptance list --method kangoroo": "did you mean 'kangaroo'",
    f"estimate {HERE} --method kangaroo --acceptance kangaroo-vicuna": "did you mean",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_one_sentence(simspec: Command, golden: Path, arguments: str) -> None:
    """Exit code 2, nothing on stdout, one line on stderr that says what is wrong."""
    Path("mine.yaml").write_text("model: vicuna-7b\n", encoding="utf-8")
    said = simspec(*shlex.split(arguments))
    assert (said.code, said.out) == (2, ""), said.out
    assert MISTAKES[arguments] in said.err
    assert said.err.count("\n") == 1


def test_every_row_has_the_times_of_both(simspec: Command, golden: Path) -> None:
    """Never a ratio alone; the acceptance of each method is named."""
    document = simspec(*shlex.split(NAMED), "--json").json
    assert len(document["rows"]) == 4
    for row in document["rows"]:
        assert row["speedup"] == pytest.approx(row["autoregressive_tpot_ms"] / row["tpot_ms"])
    said = [line["acceptance"] for line in document["methods"]]
    assert "acceptance profile dual-vicuna-7b-68m" in said[1]
    assert "acceptance profile kangaroo-vicuna-7b-math" in said[0]


def test_one_acceptance_for_all_replaces_the_catalogs(simspec: Command, golden: Path) -> None:
    """Where Kangaroo's threshold needs confidences the assumption is in the sentence."""
    document = simspec(*shlex.split(f"{NAMED} --acceptance 0.6"), "--json").json
    kangaroo, dual = (line["acceptance"] for line in document["methods"])
    assert "assumed to be calibrated" in kangaroo
    assert "constant acceptance 0.6" in dual
    assert document["cautions"] == []


def test_without_methods_all_are_tried_and_the_others_say_why(
    simspec: Command, golden: Path
) -> None:
    """What runs and what is left out are all the methods there are."""
    from simspec.decoding._base import METHODS

    said = simspec(*shlex.split(f"compare {HERE} --model vicuna-7b --batch 1"))
    assert said.code == 0
    document = simspec(*shlex.split(f"compare {HERE} --model vicuna-7b --batch 1"), "--json").json
    names = [line["label"] for line in document["methods"]]
    names += [left["method"] for left in document["left_out"]]
    assert sorted([*names, "autoregressive"]) == list(METHODS.names())
    for left in document["left_out"]:
        assert f"left out: {left['method']}" in said.err


def test_the_folder_holds_the_document_and_a_page_that_shows_it(
    simspec: Command, golden: Path
) -> None:
    """Times, claims and acceptances stand in the page as text, not only in the figures."""
    said = simspec("compare", "experiments/seed_tables.yaml", "--output", "made")
    assert said.code == 0
    document = json.loads((golden / "made" / "comparison.json").read_text(encoding="utf-8"))
    page = (golden / "made" / "compare.html").read_text(encoding="utf-8")
    body = page.split("<script", maxsplit=1)[0]
    for entry in document["claims"]:
        assert entry["verdict"] in body
    for row in document["rows"]:
        assert row["label"] in body
    assert "Where each method pays" in body
    assert "written  made/compare.html" in said.err


def test_a_page_cannot_be_written_over_a_file(simspec: Command, golden: Path) -> None:
    Path("made").write_text("", encoding="utf-8")
    said = simspec(*shlex.split(NAMED), "--output", "made")
    assert said.code == 2
    assert "--output: made: cannot write" in said.err


def test_one_card_that_cannot_is_a_row(simspec: Command, golden: Path) -> None:
    """A 70B fits on none of them alone; a card that holds it says where it pays."""
    Path("small.yaml").write_text(
        "extends: ./gpu.yaml\nmemory: {capacity_gb: 10, source: a small one for this test}\n",
        encoding="utf-8",
    )
    arguments = "breakeven --hardware gpu.yaml,small.yaml --engine engine.yaml --acceptance 0.6"
    said = simspec(*shlex.split(arguments), "--method-option", "confidence_threshold=0", "--json")
    assert said.code == 0
    fits, not_ = said.json["rows"]
    assert (fits["status"], not_["status"]) == ("ok", "refused")
    assert fits["verdict"].startswith("pays")
    assert "fit" in not_["reason"]
    for point in (fits["best"], *fits["ends"]):
        assert point["speedup"] == pytest.approx(point["autoregressive_tpot_ms"] / point["tpot_ms"])


def test_the_catalog_lists_and_shows(simspec: Command) -> None:
    """What is published, on what, and what was assumed."""
    rows = simspec("acceptance", "list", "--method", "layerskip", "--json").json["acceptance"]
    assert {row["method"] for row in rows} == {"layerskip"}
    shown = simspec("acceptance", "show", "layerskip-llama-1.5b-topv2", "--json").json
    assert shown["tokens_per_round"] == pytest.approx(7.08)
    assert shown["evidence"] == "transcribed"
    said = simspec("acceptance", "show", "kangaroo-vicuna-7b-math")
    assert "read by eye" in said.out
    assert "assumed" in said.out


def test_a_profile_is_an_acceptance_of_every_command(simspec: Command, golden: Path) -> None:
    """By its name on the command line and in a scenario alike."""
    name = "layerskip-llama-2-7b-cnn-text"
    asked = f"estimate {HERE} --model llama-2-7b --method layerskip --acceptance {name}"
    said = simspec(*shlex.split(asked), "--json").json
    assert said["tokens_per_round"] == pytest.approx(1 + 6 * 0.6268)
    assert name in said["acceptance"]
