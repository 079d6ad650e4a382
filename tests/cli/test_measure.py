"""``simspec hardware measure``: without torch, stopped, resumed, and whole on tiny sizes."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simspec.traces.samples import Machine, Sample, read_samples
from tests.calibration.test_own_machine import seconds_of
from tests.cli.conftest import Command

TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not TORCH, reason="needs simspec[companion]")


def test_without_torch_it_says_what_to_install(
    simspec: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence with the line to type, exit code 2, nothing written."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = simspec("hardware", "measure", "--output", tmp_path / "mine.yaml")
    assert said.code == 2
    assert "pip install 'simspec[companion]'" in said.err
    assert len(said.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "says"),
    [("mine.txt", "give a name that ends in .yaml"), ("no/mine.yaml", "there is no folder")],
)
def test_a_profile_needs_a_place(simspec: Command, tmp_path: Path, name: str, says: str) -> None:
    """Before anything is timed, which takes minutes."""
    said = simspec("hardware", "measure", "--output", tmp_path / name)
    assert said.code == 2
    assert says in said.err


@needs_torch
def test_an_unknown_type_is_refused(simspec: Command, tmp_path: Path) -> None:
    """With those there are."""
    said = simspec("hardware", "measure", "-o", tmp_path / "a.yaml", "--dtype", "bf61")
    assert said.code == 2
    assert "unknown data type 'bf61'; did you mean 'bf16'?" in said.err


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[Sample]:
    """Replace the timing by a formula; return what was timed."""
    from simspec.companion import measure
    from simspec.companion.device import Timing

    taken: list[Sample] = []

    def pretend(sample: Sample, *_: Any) -> Any:
        taken.append(sample)
        return Timing(seconds_of(sample), 0.0)

    monkeypatch.setattr(measure, "_timed", pretend)
    return taken


@needs_torch
def test_a_stopped_run_goes_on(
    simspec: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timed: list[Sample]
) -> None:
    """Ctrl-C keeps what was timed; the same command times the rest and no more."""
    from simspec.companion import measure

    pretend, output = measure._timed, tmp_path / "mine.yaml"

    def interrupted(sample: Sample, *rest: Any) -> Any:
        if len(timed) == 20:
            raise KeyboardInterrupt
        return pretend(sample, *rest)

    arguments = ("hardware", "measure", "--quick", "--device", "cpu", "--threads", "1")
    monkeypatch.setattr(measure, "_timed", interrupted)
    said = simspec(*arguments, "--output", output)
    assert said.code == 130
    assert "stopped after 20 of" in said.err
    assert not output.exists()
    log = tmp_path / "mine.samples.jsonl"
    assert len(read_samples(log)[1]) == 20
    monkeypatch.setattr(measure, "_timed", pretend)
    said = simspec(*arguments, "--output", output, "--json")
    assert said.code == 0, said.err
    assert len(timed) == len({sample.key for sample in timed}) == said.json["timings"]
    assert output.exists()
    assert {"kv_reads", "steps", "profile"} <= said.json.keys()
    assert all(step["predicted_ms"] > 0 for step in said.json["steps"])


@needs_torch
def test_timings_of_other_settings_are_not_mixed_in(
    simspec: Command, tmp_path: Path, timed: list[Sample]
) -> None:
    """Another machine, another number of threads: everything is timed again, and it is said."""
    from simspec.traces.samples import SampleWriter

    other = Machine("elsewhere", "cpu", 2**34, "torch 0", 1, 1, is_quick=True)
    log = tmp_path / "mine.samples.jsonl"
    SampleWriter(log, other, [replace(Sample("launch", "fp32"), seconds=9.0)])
    said = simspec(
        "hardware", "measure", "--quick", "--device", "cpu", "-o", tmp_path / "mine.yaml"
    )
    assert said.code == 0, said.err
    assert "is of another machine or other settings and is measured again" in said.err
    assert read_samples(log)[0] != other
    assert any(sample.kind == "launch" for sample in timed)


@needs_torch
@pytest.mark.slow
def test_this_machine_is_measured(
    simspec: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On tiny sizes: a profile that loads, and steps predicted within an order of magnitude."""
    from simspec.companion import plan
    from simspec.companion.device import Device

    tiny = replace(
        plan._QUICK,
        rows=(1, 4, 16, 64),
        batches=(1, 2),
        contexts=(128, 512),
        stack=plan.StackShape(2, 512, 4, 2, 128, 1024, 2048),
        steps=((1, 1, 128), (2, 2, 128)),
    )
    monkeypatch.setattr(plan, "_QUICK", tiny)
    # Allocating what no cache holds takes most of the time, and says nothing about the command.
    monkeypatch.setattr(Device, "flush_bytes", 2**20)
    output = tmp_path / "mine.yaml"
    said = simspec(
        "hardware", "measure", "--quick", "--device", "cpu", "--threads", "1",
        "--output", output, "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    for step in said.json["steps"]:
        assert 0.1 < step["predicted_ms"] / step["measured_ms"] < 10.0
    shown = simspec("hardware", "show", output)
    assert shown.code == 0
    estimated = simspec(
        "estimate", "--hardware", output, "--engine", "ideal", "--model", "llama-3.2-1b",
        "--dtype", said.json["steps"][0]["dtype"], "--json",
    )  # fmt: skip
    assert estimated.code == 0, estimated.err
    assert estimated.json["tpot_ms"] > 0
