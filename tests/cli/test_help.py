"""Help: every command explains itself with an example that runs."""

from __future__ import annotations

import importlib.util
import inspect
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from simspec.cli.main import COMMANDS, app
from tests.cli.conftest import Command
from tests.helpers.shared import REPO_ROOT, shared_root

NEEDS_DATA = {
    "calibrate kernels": ("measured/kernels/a100_sxm", "a100_sxm_80gb"),
    "calibrate acceptance": (
        "acceptance_traces/llama3.1-8b_eagle3_ngram_gsm8k.jsonl.gz",
        "--drafter",
        "eagle",
    ),
    "calibrate engine": ("measured/serving_closed_loop.csv", "trtllm", "--leave-out", "qwen3-32b"),
    "workload describe": ("traces/azure/AzureLLMInferenceTrace_conv.csv",),
    "calibrate host": ("reference/published_speedups.csv", "--engine", "pytorch"),
}
"""Commands whose example works on data too large for the repository, and their arguments."""


def commands(group: typer.Typer, prefix: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield every command's words and its function."""
    for command in group.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        yield f"{prefix}{name}", command.callback
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from commands(inner.typer_instance, f"{prefix}{inner.name} ")


ALL = dict(commands(app))
GROUPS = sorted({name.rpartition(" ")[0] for name in ALL})


def example(function: Callable[..., Any]) -> str | None:
    found = re.search(r"^Example: (.+?)(?:\n\n|\Z)", inspect.getdoc(function) or "", re.M | re.S)
    return None if found is None else " ".join(found[1].split())


def test_every_file_is_a_command() -> None:
    """What lies in ``cli/commands`` is on the command line, and nothing else."""
    files = {p.stem for p in (REPO_ROOT / "simspec/cli/commands").glob("[!_]*.py")}
    assert files == set(COMMANDS) == {name.split()[0] for name in ALL}


@pytest.mark.parametrize("name", ALL)
def test_every_option_says_what_it_is(name: str) -> None:
    """Each argument and option of each command has a help text."""
    for parameter in inspect.signature(ALL[name]).parameters.values():
        assert getattr(parameter.default, "help", None), f"{name}: {parameter.name}"


@pytest.mark.parametrize("name", ALL)
def test_help_of_a_command(simspec: Command, name: str) -> None:
    """``--help`` and ``-h`` print the same, on stdout, with the example in it."""
    long, short = (simspec(*name.split(), flag) for flag in ("--help", "-h"))
    assert long == short
    assert (long.code, long.err) == (0, "")
    assert "Example: simspec" in long.out
    assert (inspect.getdoc(ALL[name]) or "").split("\n")[0].split()[0] in long.out


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_without_a_command_prints_its_help(simspec: Command, name: str) -> None:
    """``simspec`` and ``simspec hardware`` say what there is."""
    said = simspec(*name.split())
    assert (said.code, said.err) == (0, "")
    assert said.out.strip() == simspec(*name.split(), "--help").out.strip()


@pytest.mark.parametrize("name", ALL)
def test_the_example_runs(
    simspec: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What the help shows can be typed, from any folder."""
    shown = example(ALL[name])
    assert shown is not None, f"the help of {name} has no example"
    assert shown.startswith(f"simspec {name}")
    monkeypatch.chdir(tmp_path)
    arguments = shlex.split(shown)[1:]
    runs_torch = name == "hardware measure" or name.split()[0] in {"companion", "capture"}
    if runs_torch and importlib.util.find_spec("torch") is None:
        pytest.skip("needs simspec[companion]")
    if runs_torch and name != "hardware measure":
        Path("bible.txt").write_text("\n\n".join(f"In beginning {i}" * 9 for i in range(900)))
        if name == "companion convert":
            from tests.companion.small_gguf import write_gguf

            write_gguf(Path("model.gguf"))
        elif name != "companion train":
            made = simspec(*shlex.split(example(ALL["companion train"]) or "")[1:])
            assert made.code == 0, made.err
    if name == "sweep":
        arguments.append("--dry-run")  # all of it takes minutes
    if name == "calibrate captures":
        from tests.calibration.test_captures import write_capture

        Path("traces").mkdir()
        write_capture(Path("traces"), drafts=3, threshold=0.0, texts=8)
    if name in NEEDS_DATA:
        data, *others = NEEDS_DATA[name]
        if not (shared_root() / data).exists():
            pytest.skip(f"needs {shared_root() / data}")
        arguments[2:] = [str(shared_root() / data), *others]
    said = simspec(*arguments)
    assert said.code == 0, said.err
    assert said.out


def test_version(simspec: Command) -> None:
    """``--version`` is one line."""
    from simspec import __version__

    said = simspec("--version")
    assert (said.code, said.out, said.err) == (0, f"simspec {__version__}\n", "")
