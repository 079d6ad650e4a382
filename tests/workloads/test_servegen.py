"""ServeGen's clients: what is read, what is drawn, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simspec.core.errors import ConfigError, SimspecError, TraceError
from simspec.core.rng import stream
from simspec.workloads.arrivals.servegen import Config, renewals
from simspec.workloads.servegen_files import Law, client_files, read_client
from tests.helpers.shared import shared

TRACE = "0,0.5,1.2,Gamma,0.7,2.8\n600,1,2,Weibull,0.5,0.5\n1200,0,0,,0,0\n"
LENGTHS = {"input_tokens": "{3: 0.25, 8: 0.75}", "output_tokens": "{1: 1.0}"}
EMPTY = {"input_tokens": "{}", "output_tokens": "{}"}


def client(folder: Path, number: int, trace: str = TRACE, **datasets: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"chunk-{number}-trace.csv").write_text(trace)
    found = {key.removeprefix("t"): value for key, value in datasets.items()} or {"0": LENGTHS}
    (folder / f"chunk-{number}-dataset.json").write_text(json.dumps(found))
    return folder


def drawn(folder: Path, seed: int = 1, **fields: Any) -> Any:
    return Config(name="servegen", path=str(folder), **fields).draw(stream(seed, "a"), 0)


@pytest.mark.parametrize(("law", "shape"), [("Gamma", 0.3), ("Gamma", 2.0), ("Weibull", 0.4)])
def test_a_window_holds_its_rate_from_its_first_second(law: Law, shape: float) -> None:
    """Stationary: the mean count in any part of the window is rate × length, bursty or not."""
    num_runs, edges_s = 1500, np.array([0.0, 10.0, 100.0, 600.0])
    counts = np.array(
        [
            np.diff(np.searchsorted(renewals(stream(i, law), law, shape, 0.05, 600.0), edges_s))
            for i in range(num_runs)
        ]
    )
    expected = 0.05 * np.diff(edges_s)
    error = counts.std(axis=0) / math.sqrt(num_runs)
    assert np.all(np.abs(counts.mean(axis=0) - expected) <= 5 * error)


def test_gaps_have_the_published_burstiness() -> None:
    """CV of gamma gaps 1/sqrt(shape), of Weibull gaps from its moments."""
    for law, shape, cv in (
        ("Gamma", 0.25, 2.0),
        ("Weibull", 0.5, math.sqrt(math.gamma(5) / math.gamma(3) ** 2 - 1)),
    ):
        gaps_s = np.diff(renewals(stream(3, law), law, shape, 300.0, 600.0))  # type: ignore[arg-type]
        assert gaps_s.mean() == pytest.approx(1 / 300, rel=0.03)
        assert gaps_s.std() / gaps_s.mean() == pytest.approx(cv, rel=0.05)


def test_idle_windows_and_windows_without_lengths_are_left_out(tmp_path: Path) -> None:
    """Nothing comes where the law or the lengths are empty."""
    folder = client(tmp_path / "c", 4, t0=LENGTHS, t600=EMPTY)
    found = drawn(folder)
    assert found.times_s.size > 200
    assert found.times_s[-1] < 600.0
    assert set(found.lengths.prompt_lens.tolist()) == {3, 8}
    share = float((found.lengths.prompt_lens == 8).mean())
    assert abs(share - 0.75) < 5 * math.sqrt(0.75 * 0.25 / found.times_s.size)
    assert [path.name for path in found.files] == ["chunk-4-trace.csv", "chunk-4-dataset.json"]


def test_a_window_is_the_same_whatever_else_is_drawn(tmp_path: Path) -> None:
    """Clients and windows have streams of their own."""
    folder = client(client(tmp_path / "c", 1), 2)
    both, one = drawn(folder), drawn(folder, clients=[2])
    later = drawn(folder, clients=[2], start_s=600.0)
    assert set(one.times_s.tolist()) < set(both.times_s.tolist())
    whole = one.times_s[one.times_s >= 600.0] - 600.0
    assert np.array_equal(later.times_s, whole)
    assert drawn(folder, duration_s=300.0).times_s[-1] < 300.0
    assert drawn(folder, rate_scale=3.0).times_s.size > 2 * both.times_s.size


@pytest.mark.parametrize(
    ("trace", "dataset", "says"),
    [
        ("0,1,2\n", None, r"chunk-1-trace\.csv:1: broken line: 3 fields"),
        (TRACE + "x,1,1,Gamma,1,1\n", None, r":4: start: 'x'; expected a number"),
        ("0,1,1,Normal,1,1\n", None, r":1: law: 'Normal'; expected Gamma, Weibull"),
        ("0,1,1,,1,1\n", None, r":1: rate 1 without a law"),
        ("0,1,1,Gamma,0,1\n", None, r":1: shape: 0; expected"),
        ("", None, "the file is empty"),
        (TRACE, "{", "is no JSON document"),
        (TRACE, "[]", "expected a JSON object"),
        (
            TRACE,
            '{"0": {"input_tokens": "__import__(\'os\')"}}',
            "0.input_tokens: .* no dictionary",
        ),
        (TRACE, '{"0": {"input_tokens": "' + "(" * 5000 + '"}}', "no dictionary of numbers"),
        (TRACE, '{"0": {"input_tokens": "{1: \'a\'}"}}', "whole tokens with probabilities"),
        (TRACE, '{"0": {"input_tokens": "{1: 0}"}}', "probabilities are all 0"),
        (TRACE, '{"0": {"input_tokens": 5}}', "expected a text"),
    ],
)
def test_wrong_files_are_one_sentence(
    tmp_path: Path, trace: str, dataset: str | None, says: str
) -> None:
    """File and line, or window and key; literals are read and never run."""
    folder = client(tmp_path / "c", 1, trace)
    if dataset is not None:
        (folder / "chunk-1-dataset.json").write_text(dataset)
    with pytest.raises(TraceError, match=says) as caught:
        drawn(folder)
    assert len(str(caught.value)) < len(str(tmp_path)) + 250


def test_missing_parts_are_named(tmp_path: Path) -> None:
    """No folder, no client, no dataset, no such client, no time, too much."""
    (tmp_path / "empty").mkdir()
    folder = client(tmp_path / "c", 1)
    for fields, says in (
        ({"path": str(tmp_path / "none")}, "not found"),
        ({"path": str(tmp_path / "empty")}, "no file named chunk-N-trace.csv"),
        ({"path": str(folder), "clients": [7]}, "no client 7 in the folder; choices: 1"),
        ({"path": str(folder), "start_s": 5000.0}, "no request from 5000 s on"),
    ):
        with pytest.raises(SimspecError, match=says):
            Config(name="servegen", **fields).draw(stream(1, "a"), 0)
    client(tmp_path / "big", 1, "0,900000,1,Gamma,1,1\n")
    with pytest.raises(ConfigError, match="about 540,000,000 requests would come"):
        drawn(tmp_path / "big")
    (folder / "chunk-1-dataset.json").unlink()
    with pytest.raises(TraceError, match=r"has no chunk-1-dataset\.json beside it"):
        drawn(folder)


def test_the_published_clients_have_their_rates() -> None:
    """deepseek-r1: as many requests in a day as the windows with lengths promise."""
    folder = shared("traces/servegen/data/reason/deepseek-r1")
    expected = 0.0
    for number, paths in client_files(folder).items():
        read = read_client(number, *paths)
        assert len(read.windows) == 144
        for window in read.windows:
            if read.lengths_at(window.start_s) is not None:
                expected += 600 * window.rate_per_s
    found = drawn(folder)
    assert found.times_s.size == pytest.approx(expected, rel=0.03)
    assert found.times_s[-1] < 86_400
