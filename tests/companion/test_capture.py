"""Captured traces are valid, complete and counted as the simulator counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs simspec[companion]")
pytest.importorskip("tokenizers", reason="needs simspec[companion]")

from typer.testing import CliRunner  # noqa: E402

from simspec.cli.main import app  # noqa: E402
from simspec.companion.capture import Run, captured  # noqa: E402
from simspec.companion.decoding.autoregressive import Autoregressive  # noqa: E402
from simspec.companion.decoding.sampling import Sampler  # noqa: E402
from simspec.core.errors import ConfigError  # noqa: E402
from simspec.traces.io import read_trace  # noqa: E402
from tests.companion.small import loop_of, prompts, small_decoder  # noqa: E402


def test_configurations_take_turns_and_nothing_is_lost() -> None:
    """Every prompt once per run, small batches catching up; a + 1 tokens per round add up."""
    decoder = small_decoder()
    asked = prompts(7)
    runs = [
        Run(lambda _: Autoregressive(decoder, Sampler()), 1, True),
        Run(lambda _: loop_of("layerskip-3-4-0", decoder, Sampler()), 3, False),
    ]
    order, tokens, answers = [], [0, 0], [[], []]
    for number, records, some in captured(runs, asked, 20):
        order.append(number)
        answers[number] += some
        for record in records:
            if record.total_s is not None and hasattr(record, "accepted"):
                tokens[number] += record.accepted + 1
                assert record.draft_s + record.verify_s <= record.total_s * (1 + 1e-9)
            elif not hasattr(record, "num_tokens"):
                tokens[number] += 1
    assert order[:5] == [0, 1, 0, 0, 1] or order[:4] == [0, 1, 0, 0]
    assert order.count(0) == 7
    assert order.count(1) == 3
    assert answers[0] == answers[1]
    # The first token of each comes out of the prefill.
    assert tokens[0] == 7 * 19
    assert tokens[1] >= 7 * 19


def test_the_whole_loop_from_the_command_line(tmp_path: Path) -> None:
    """Train, train a drafter, capture; the traces read back and say what was run."""
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"line {i % 97} of {i % 13} things\n" * 40 for i in range(400)))
    folder = tmp_path / "small"
    run = CliRunner().invoke(app, [
        "companion", "train", "--text", f"lines={text}", "--layers", "3", "--width", "32",
        "--vocabulary", "300", "--steps", "4", "--output", str(folder), "--json",
    ])  # fmt: skip
    assert run.exit_code == 0, run.output
    run = CliRunner().invoke(app, [
        "companion", "draft", str(folder), "--text", f"lines={text}", "--kangaroo", "1",
        "--medusa", "2", "--eagle", "--dual-layers", "1", "--dual-width", "32", "--steps", "2",
    ])  # fmt: skip
    assert run.exit_code == 0, run.output
    methods = [
        option
        for name in (
            "autoregressive", "layerskip", "kangaroo", "eagle", "medusa", "dual_model",
            "prompt_lookup", "unverified_exit",
        )
        for option in ("--method", name)
    ]  # fmt: skip
    run = CliRunner().invoke(app, [
        "capture", str(folder), *methods, "--exit-layer", "1", "--num-speculative-tokens", "3",
        "--num-prompts", "3", "--num-tokens", "9", "--batch", "2", "--output",
        str(tmp_path / "traces"), "--json",
    ])  # fmt: skip
    assert run.exit_code == 0, run.output
    files = [row["file"] for row in json.loads(run.stdout)["traces"]]
    assert len(files) == 8
    for file in files:
        trace = read_trace(Path(file))
        assert trace.header.dataset == "lines"
        assert {r.sequence_id for r in trace.prefills} == {0, 1, 2}
        assert all(r.total_s > 0 for r in trace.records)
        for record in trace.rounds:
            if record.agreements is not None:
                assert len(record.agreements) == record.drafted


def test_what_was_not_trained_is_said(tmp_path: Path) -> None:
    """A drafter that is not there, an exit that cannot be, a folder without prompts."""
    from simspec.companion.folder import CompanionFolder, Setting
    from simspec.companion.model.checkpoints import save_decoder

    save_decoder(tmp_path, small_decoder(), {})
    companion = CompanionFolder(tmp_path)
    with pytest.raises(ConfigError, match=r"kangaroo_exit_2\.safetensors"):
        companion.loop(Setting("kangaroo", 2, 4), Sampler())
    with pytest.raises(ConfigError, match="can be 1 to 3"):
        companion.loop(Setting("layerskip", 4, 4), Sampler())
    with pytest.raises(ConfigError, match=r"prompts\.json"):
        _ = companion.prompts
    with pytest.raises(ConfigError, match="token 50, the decoder has 50"):
        companion.check({"a": [[1, 2], [50]]})
    with pytest.raises(ConfigError, match="layerskip"):
        companion.loop(Setting("layerskp", 2, 4), Sampler())
