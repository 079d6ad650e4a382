"""Names, files, terminals and loads that nobody sane would give, each with its sentence."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Command
from tests.helpers.command import command, environment
from tests.helpers.command import simspec as process

LONG = "x" * 3000
KANGAROO = ("estimate", "--method", "kangaroo", "--confidence-threshold", "0")


def one_sentence(code: int, out: str, err: str) -> str:
    """Return the message, after checking that it is all there is."""
    assert (code, out) == (2, ""), err
    assert err.startswith("simspec: ")
    assert len(err.splitlines()) == 1, err
    assert "Traceback" not in err
    return err


def edit(path: Path, **changes: object) -> None:
    """Set fields of the scenario in ``path``."""
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", LONG),
        ("sweep", LONG),
        ("simulate", "scenario.yaml", "--output", LONG),
        ("sweep", "sweep.yaml", "--dry-run", "--output", LONG),
        (*KANGAROO, "--acceptance", LONG),
        ("hardware", "show", LONG),
        ("models", "show", LONG),
    ],
    ids=lambda arguments: " ".join(part[:12] for part in arguments),
)
def test_a_name_the_system_cannot_hold(
    simspec: Command, golden: Path, arguments: tuple[str, ...]
) -> None:
    """A path of thousands of letters is a mistake in words."""
    said = simspec(*arguments)
    one_sentence(said.code, said.out, said.err)


def test_a_log_whose_name_the_system_cannot_hold(simspec: Command, golden: Path) -> None:
    """The same inside a scenario, with its place."""
    replay = {"name": "replay", "path": LONG, "format": "azure"}
    edit(golden / "scenario.yaml", workload={"arrivals": replay})
    said = simspec("simulate", "scenario.yaml")
    message = one_sentence(said.code, said.out, said.err)
    assert "workload.arrivals: file 'xxx" in message
    assert len(message) < 1000


@pytest.mark.parametrize("option", ["--hardware", "--engine", "--model", "--method"])
def test_a_line_break_in_a_name(simspec: Command, option: str) -> None:
    """Whatever a name holds, the message is one line."""
    said = simspec("estimate", option, "a\nb\x1b[31m")
    assert r"a\nb" in one_sentence(said.code, said.out, said.err)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize(
    "arguments", [("simulate",), ("sweep",), (*KANGAROO, "--acceptance"), ("models", "show")]
)
def test_a_pipe_is_not_waited_for(
    simspec: Command, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """A pipe nobody writes to does not hang the command."""
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    said = simspec(*arguments, pipe)
    assert "is a pipe or a device" in one_sentence(said.code, said.out, said.err)


def test_a_link_to_nothing_is_not_its_own_suggestion(simspec: Command, golden: Path) -> None:
    """``did you mean`` never repeats the name that was given."""
    Path("gone.yaml").symlink_to("nowhere")
    said = simspec("simulate", "gone.yaml")
    assert "did you mean 'gone.yaml'" not in one_sentence(said.code, said.out, said.err)


@pytest.mark.parametrize("output", ["scenario.yaml", "scenario.yaml/below", "link"])
def test_a_folder_that_cannot_be_made_is_found_before_the_work(
    simspec: Command, golden: Path, output: str
) -> None:
    """A result that could not be written is not computed first."""
    Path("link").symlink_to("nowhere")
    edit(golden / "scenario.yaml", simulation={"replications": 10_000})
    start = time.monotonic()
    said = simspec("simulate", "scenario.yaml", "--output", output)
    message = one_sentence(said.code, said.out, said.err)
    assert f"{output}: cannot be used as a result folder" in message
    assert time.monotonic() - start < 20
    said = simspec("sweep", "sweep.yaml", "--dry-run", "--output", output)
    assert "cannot be used as a result folder" in one_sentence(said.code, said.out, said.err)


@pytest.mark.parametrize(
    "options", [("--executor", "serail"), ("--executor", "serial", "--workers", "2")]
)
def test_a_dry_run_checks_every_option(
    simspec: Command, golden: Path, options: tuple[str, ...]
) -> None:
    """What the real run would refuse, the dry run refuses."""
    said = simspec("sweep", "sweep.yaml", "--dry-run", *options)
    one_sentence(said.code, said.out, said.err)


@pytest.mark.parametrize(
    "arguments",
    [
        (*KANGAROO, "--acceptance", "{name: constant, alpha: 0.5}\nlost: 1"),
        (*KANGAROO, "--acceptance", "0.5", "--method-option", "exit_layer=2\nlost: 3"),
    ],
    ids=["acceptance", "method option"],
)
def test_a_second_line_of_inline_yaml_is_not_lost(
    simspec: Command, arguments: tuple[str, ...]
) -> None:
    """Nothing that was written is ignored."""
    said = simspec(*arguments)
    assert "the line 'lost' follows the value" in one_sentence(said.code, said.out, said.err)


def test_an_unknown_kv_dtype_offers_what_a_cache_can_have(simspec: Command) -> None:
    """Formats for weights only are no choices for the KV cache."""
    said = simspec("estimate", "--kv-dtype", "fp7")
    message = one_sentence(said.code, said.out, said.err)
    assert "unknown KV dtype 'fp7'" in message
    assert "q4_k_m" not in message


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_range_too_wide_for_numbers(simspec: Command, golden: Path, scale: str) -> None:
    """The ends of a range may overflow when they meet."""
    ends = {"from": 1e-308 if scale == "log" else -1e308, "to": 1e308, "num": 3, "scale": scale}
    edit(golden / "sweep.yaml", grid={"method.confidence_threshold": ends})
    said = simspec("sweep", "sweep.yaml", "--dry-run")
    message = one_sentence(said.code, said.out, said.err)
    assert "grid.method.confidence_threshold: 'from' and 'to' are too far apart" in message


def test_a_wrong_item_is_not_a_short_list(simspec: Command, golden: Path) -> None:
    """One list inside another: the inner one is the mistake, alone."""
    edit(golden / "scenario.yaml", acceptance=[[0.5]])
    said = simspec("simulate", "scenario.yaml")
    message = one_sentence(said.code, said.out, said.err)
    assert "acceptance.0: " in message
    assert "too short" not in message


def test_a_number_of_thousands_of_digits_in_a_model(simspec: Command, tmp_path: Path) -> None:
    """Python's own limit is not what the user has to hear about."""
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llama", "hidden_size": ' + "1" * 5000 + "}")
    said = simspec("models", "show", config)
    message = one_sentence(said.code, said.out, said.err)
    assert "thousands of digits" in message
    assert "sys." not in message


def test_a_log_of_absurd_lengths_is_refused_at_once(simspec: Command, golden: Path) -> None:
    """A request no pool can hold costs neither memory nor time."""
    Path("log.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,999999999,999999999\n"
    )
    replay = {"name": "replay", "path": "log.csv", "format": "azure"}
    edit(golden / "scenario.yaml", workload={"arrivals": replay})
    start = time.monotonic()
    said = simspec("simulate", "scenario.yaml")
    assert "can ever fit" in one_sentence(said.code, said.out, said.err)
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("seconds", [1e-9, 0.02])
def test_a_clock_that_stops_before_anybody_finishes(
    simspec: Command, golden: Path, seconds: float
) -> None:
    """A run without one finished request has no result; it is not one of zeros."""
    edit(
        golden / "scenario.yaml",
        workload={
            "arrivals": {"name": "closed_loop", "concurrency": 2},
            "lengths": {"name": "fixed", "prompt_len": 64, "output_len": 64},
            "num_requests": 4,
        },
        simulation={"max_simulated_s": seconds, "replications": 1},
    )
    said = simspec("simulate", "scenario.yaml", "--output", "out")
    message = one_sentence(said.code, said.out, said.err)
    assert "no request finishes before the clock stops" in message
    assert not Path("out").exists()


def test_a_burst_has_a_throughput(simspec: Command, golden: Path) -> None:
    """Requests that all come within the first step are measured to the end, not to zero."""
    edit(
        golden / "scenario.yaml",
        workload={
            "arrivals": {"name": "poisson", "rate_per_s": 1e6},
            "lengths": {"name": "fixed", "prompt_len": 64, "output_len": 16},
            "num_requests": 3,
        },
    )
    result = simspec("simulate", "scenario.yaml", "--json").json
    assert result["throughput_tokens_per_s"] > 10
    assert result["acceptance_rate"] is not None


@pytest.mark.parametrize("arguments", [("estimate",), ("hardware", "show", "h100_sxm")])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode(arguments: tuple[str, ...], encoding: str) -> None:
    """Tables are printed with what the terminal has, JSON stays JSON."""
    env = environment(PYTHONIOENCODING=encoding)
    done = process(*arguments, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    done = process(*arguments, "--json", env=env)
    assert done.returncode == 0
    assert json.loads(done.stdout)


@pytest.mark.skipif(os.name != "posix", reason="names that are no text exist on POSIX only")
def test_names_that_are_no_text(golden: Path) -> None:
    """A sweep in a folder whose name is not UTF-8 ends with all its files and one document."""
    name = os.fsdecode(b"b\xff")
    try:
        Path(f"{name}.yaml").write_text(Path("sweep.yaml").read_text())
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    done = process("sweep", f"{name}.yaml", "--output", name, "--executor", "serial", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output"] == name
    assert json.loads(Path(name, "manifest.json").read_text())["command"].endswith(name)


@pytest.mark.skipif(os.name != "posix", reason="an open folder can be deleted on POSIX only")
def test_a_working_folder_that_is_gone(tmp_path: Path, golden: Path) -> None:
    """Deleted under the command's feet: a sentence, or the answer when no folder is needed."""
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$0" && rmdir "$0" && exec "$@"'
    for arguments in (("sweep", "../sweep.yaml", "--dry-run"), ("sweep", "x.yaml")):
        gone.mkdir(exist_ok=True)
        done = subprocess.run(
            ["sh", "-c", script, str(gone), *command(*arguments)],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        one_sentence(done.returncode, done.stdout, done.stderr)


def test_a_journal_somebody_edited(simspec: Command, golden: Path) -> None:
    """Results without a status were not written by simspec: their points are computed again."""
    simspec("sweep", "sweep.yaml", "--executor", "serial", "--output", "out")
    journal = Path("out/points.jsonl")
    tables = {p.name: p.read_bytes() for p in Path("out").glob("*.parquet")}
    header, *lines = journal.read_text().splitlines()
    emptied = [json.dumps({**json.loads(line), "result": {}}) for line in lines]
    journal.write_text("\n".join([header, *emptied, ""]))
    said = simspec("sweep", "sweep.yaml", "--executor", "serial", "--output", "out")
    assert said.code == 0, said.err
    assert tables == {p.name: p.read_bytes() for p in Path("out").glob("*.parquet")}
