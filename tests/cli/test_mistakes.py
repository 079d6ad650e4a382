"""What is wrong on the command line is one sentence on stderr and exit code 2."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Command

KANGAROO = "estimate --method kangaroo --confidence-threshold 0 --acceptance"
MISTAKES = {
    # usage
    "swep": "No such command 'swep'",
    "hardware shw": "No such command 'shw'",
    "estimate --hardwear x": "No such option",
    "estimate extra": "unexpected extra argument",
    "estimate --batch": "requires an argument",
    "sweep": "Missing argument",
    "--nonsense": "No such option",
    # absurd values
    "estimate --batch 0": "--batch",
    "estimate --batch -3": "--batch",
    "estimate --batch 1000000000000000000": "--batch",
    "estimate --batch 1.5": "--batch",
    "estimate --batch nan": "--batch",
    "estimate --context 0": "--context",
    "estimate --context 99999999999999999999999": "--context",
    "estimate --prompt 0": "--prompt",
    "estimate --tp 0": "tp: 0 is out of range",
    "estimate --tp -1": "tp: -1 is out of range",
    "estimate --tp 99999999": "tp: 99999999 is out of range",
    "cost --new-tokens 0": "--new-tokens",
    "cost --first-layer -1": "--first-layer",
    "cost --first-layer 5 --last-layer 5": "not a layer range",
    "cost --last-layer 33": "not a layer range; 0 <= first < last <= 32",
    "memory --context 0": "--context",
    # names
    "estimate --hardware h100": "did you mean 'h100_sxm'",
    "estimate --hardware ''": "hardware",
    "estimate --hardware no/such.yaml": "unknown hardware profile 'no/such.yaml'",
    "estimate --engine vlm": "did you mean 'vllm'",
    "estimate --model llama-3.1-8": "did you mean 'llama-3.1-8b'",
    "estimate --dtype bf17": "did you mean 'bf16'",
    "estimate --kv-dtype int3": "int3",
    "estimate --method kangoroo": "did you mean 'kangaroo'",
    "hardware show h100": "did you mean 'h100_sxm'",
    "models show lama": "unknown model 'lama'",
    "simulate nowhere.yaml": "nowhere.yaml: no such file",
    "sweep nowhere.yaml": "nowhere.yaml: no such file",
    # options of a method that it does not have
    "estimate --exit-layer 3": "--exit-layer: method autoregressive has no such option",
    "estimate --num-speculative-tokens 3": "--num-speculative-tokens: method autoregressive",
    "estimate --confidence-threshold 0.5": "--confidence-threshold: method autoregressive",
    "estimate --acceptance 0.5": "acceptance has no effect",
    "memory --exit-layer 3": "--exit-layer: method autoregressive has no such option",
    "estimate --method-option depth=3": "method autoregressive has no field 'depth'",
    "estimate --method kangaroo --method-option exit_layer": "is not NAME=VALUE",
    "estimate --method kangaroo --method-option exit_layr=2": "did you mean 'exit_layer'",
    "estimate --method kangaroo --exit-layer 2 --method-option exit_layer=3": "given twice",
    "estimate --method kangaroo --method-option exit_layer=[2": "--method-option:1",
    # a method's values
    "estimate --method kangaroo": "needs an acceptance model and simspec assumes none",
    f"{KANGAROO} 0.5 --exit-layer 32": "32 leaves no layer to verify with",
    f"{KANGAROO} 0.5 --exit-layer 0": "exit_layer: 0 is out of range",
    f"{KANGAROO} 0.5 --num-speculative-tokens 0": "num_speculative_tokens: 0 is out of range",
    f"{KANGAROO} 0.5 --num-speculative-tokens 65": "num_speculative_tokens: 65 is out of range",
    "estimate --method kangaroo --acceptance 0.5 --confidence-threshold 1.5": "1.5 is out of range",
    "estimate --method kangaroo --acceptance 0.5 --confidence-threshold nan": "nan is not a usable",
    # acceptance
    f"{KANGAROO} 1.5": "acceptance: 1.5 is out of range",
    f"{KANGAROO} -0.1": "acceptance: -0.1 is out of range",
    f"{KANGAROO} nan": "nan is not a usable number",
    f"{KANGAROO} inf": "inf is not a usable number",
    f"{KANGAROO} 0.3,0.5": "position 2 has rate 0.5",
    f"{KANGAROO} 0.5,,0.3": "neither a number, nor numbers separated by commas",
    f"{KANGAROO} ''": "neither a number",
    f"{KANGAROO} constant": "'constant' is neither a number",
    f"{KANGAROO} '{{name: konstant}}'": "did you mean 'constant'",
    f"{KANGAROO} '{{name: constant, alhpa: 0.5}}'": "alhpa: unknown field; did you mean 'alpha'",
    f"{KANGAROO} '{{name: constant'": "not closed",
    f"{KANGAROO} wrong.yaml": "wrong.yaml:2: alpha: 7 is out of range",
    f"{KANGAROO} nameless.yaml": "nameless.yaml:1: name: is missing",
    f"{KANGAROO} .": "is a folder",
    # the folder of results
    "simulate scenario.yaml --output taken": "taken: exists and holds other things",
    "simulate scenario.yaml --output gpu.yaml": "cannot be used as a result folder",
    "sweep sweep.yaml --output taken": "taken: holds other files (thesis.docx)",
    "sweep sweep.yaml --output taken --dry-run": "taken: holds other files (thesis.docx)",
    "sweep sweep.yaml --output gpu.yaml": "cannot be used as a result folder",
    "sweep sweep.yaml --workers 0": "--workers",
    "sweep sweep.yaml --executor threads": "unknown sweep executor 'threads'",
    "sweep sweep.yaml --executor serial --workers 2": "--workers 2 has no effect",
    # a scenario is not a sweep, and the other way round
    "sweep scenario.yaml": "is one scenario, not a sweep; run 'simspec simulate scenario.yaml'",
    "simulate sweep.yaml": "is a sweep, not one scenario; run 'simspec sweep sweep.yaml'",
    "simulate gpu.yaml": "gpu.yaml:2: model: is missing",
    "sweep gpu.yaml": "gpu.yaml:2: scenario: is missing",
}


@pytest.fixture
def folder(golden: Path) -> Path:
    (golden / "wrong.yaml").write_text("name: constant\nalpha: 7\n")
    (golden / "nameless.yaml").write_text("alpha: 0.7\n")
    (golden / "taken").mkdir()
    (golden / "taken" / "thesis.docx").write_text("precious")
    return golden


def listing(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_sentence(simspec: Command, folder: Path, line: str) -> None:
    """stdout is empty, stderr is one line with the reason, and no file has changed."""
    before = listing(folder)
    said = simspec(*shlex.split(line))
    assert said.code == 2, said
    assert said.out == ""
    assert said.err.startswith("simspec: ")
    assert said.err.count("\n") == 1, said.err
    assert MISTAKES[line] in said.err
    assert listing(folder) == before


def test_usage_errors_point_to_the_help(simspec: Command) -> None:
    """Whoever mistypes an option learns which help to read."""
    assert "hardware show --help'" in simspec("hardware", "show").err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0.7", "0.7"),
        ("0.6,0.3,0.2", "[0.6, 0.3, 0.2]"),
        ("[0.6, 0.3]", "[0.6, 0.3]"),
        ("{name: constant, alpha: 0.7, source: a paper}", "a paper"),
        ("acceptance.yaml", "of a file"),
    ],
)
def test_forms_of_acceptance(simspec: Command, folder: Path, text: str, says: str) -> None:
    """A number, rates, inline YAML and a file all work, and the result repeats what was said."""
    (folder / "acceptance.yaml").write_text("name: constant\nalpha: 0.7\nsource: of a file\n")
    said = simspec(*KANGAROO.split(), text, "--json")
    assert (said.code, said.err) == (0, "")
    assert says in said.json["acceptance"]


def test_what_an_engine_would_not_do_is_noted(simspec: Command) -> None:
    """A batch above the engine's limit and a context beyond the model's are said, not hidden."""
    said = simspec(
        "estimate", "--model", "llama-2-7b", "--context", "5000", "--batch", "3", "--json"
    )
    assert said.code == 0
    assert said.err == "note: context 5,000 is beyond the 4,096 tokens of llama-2-7b\n"
    said = simspec("estimate", "--batch", "300", "--context", "100", "--json")
    assert said.code == 0
    assert said.err.startswith("note: batch 300 is above the 256 sequences that engine vllm runs")
    said = simspec("cost", "--model", "llama-3.1-70b", "--json")
    assert said.code == 0
    assert said.err.startswith("note: llama-3.1-70b does not fit on h100_sxm")
