"""The workload section of a scenario, and the requests it builds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simspec.core.errors import ConfigError, TraceError
from simspec.workloads.importers.azure import Config as Azure
from simspec.workloads.profile import packaged_profile_path
from simspec.workloads.workload import WorkloadConfig, WorkloadRun
from tests.helpers.shared import shared

PROFILE = {"name": "empirical", "profile": "azure_conv_2023"}
FIXED = {"name": "fixed", "prompt_len": 100, "output_len": 20}
REPLAY = {"name": "replay", "path": "log.csv", "format": "azure"}


def workload(**fields: Any) -> WorkloadConfig:
    """A workload with defaults for what the test is not about."""
    defaults: dict[str, Any] = {
        "arrivals": {"name": "poisson", "rate_per_s": 4.0},
        "lengths": PROFILE,
        "num_requests": 200,
    }
    return WorkloadConfig.model_validate(defaults | fields)


def replay(**fields: Any) -> WorkloadConfig:
    """A replay of ``log.csv``."""
    return WorkloadConfig.model_validate({"arrivals": REPLAY | fields})


def lengths(run: WorkloadRun) -> list[tuple[int, int]]:
    return [(r.prompt_len, r.output_len) for r in run.requests]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_bytes(Azure.sample)
    return tmp_path


def test_the_same_seed_gives_the_same_requests() -> None:
    """A workload is a function of configuration, seed and replication."""
    assert workload().build(7, replication=2) == workload().build(7, replication=2)


def test_replications_and_seeds_are_different_draws() -> None:
    """Both lengths and times change with the seed and with the replication."""
    runs = [workload().build(s, replication=r) for s, r in ((1, 0), (1, 1), (2, 0))]
    assert len({tuple(lengths(run)) for run in runs}) == 3
    assert len({tuple(r.arrival_s for r in run.requests) for run in runs}) == 3


@pytest.mark.parametrize(
    "arrivals",
    [
        {"name": "poisson", "rate_per_s": 400},
        {"name": "gamma", "rate_per_s": 1, "cv": 3},
        {"name": "constant", "rate_per_s": 1},
        {"name": "closed_loop", "concurrency": 3},
    ],
)
def test_lengths_do_not_depend_on_arrivals(arrivals: dict[str, Any]) -> None:
    """Request i is as long at every load: common random numbers."""
    assert lengths(workload(arrivals=arrivals).build(3)) == lengths(workload().build(3))


def test_arrivals_do_not_depend_on_lengths() -> None:
    """Another length distribution leaves the arrival times alone."""
    a, b = workload(lengths=FIXED).build(3), workload().build(3)
    assert [r.arrival_s for r in a.requests] == [r.arrival_s for r in b.requests]


def test_lengths_and_gaps_are_independent() -> None:
    """Their streams share no random numbers."""
    n = 20_000
    lognormal = {"median": 500, "sigma": 1.0, "max": 10**6}
    run = workload(
        lengths={"name": "lognormal", "prompt": lognormal, "output": lognormal}, num_requests=n
    ).build(0)
    gaps_s = np.diff([r.arrival_s for r in run.requests], prepend=0.0)
    correlation = np.corrcoef(np.log(gaps_s), np.log([r.prompt_len for r in run.requests]))[0, 1]
    # Standard error 1/sqrt(n); 5 of them fail by chance once in 1.7 million.
    assert abs(correlation) < 5 / math.sqrt(n)


def test_more_requests_extend_a_workload() -> None:
    """A longer run begins with the shorter one."""
    short, long = workload(num_requests=50).build(1), workload(num_requests=500).build(1)
    assert long.requests[:50] == short.requests


def test_open_and_closed_loops_say_their_load() -> None:
    """A rate or a number in flight, never both."""
    opened = workload().build(0)
    assert (opened.concurrency, opened.offered_rate_per_s) == (None, 4.0)
    closed = workload(arrivals={"name": "closed_loop", "concurrency": 8}).build(0)
    assert (closed.concurrency, closed.offered_rate_per_s) == (8, None)
    assert {r.arrival_s for r in closed.requests} == {0.0}


def test_a_replay_is_the_log(base: Path) -> None:
    """Times, lengths and order are those of the file, ties included; nothing is random."""
    run = replay().build(1, base=base)
    assert [(r.arrival_s, r.prompt_len, r.output_len) for r in run.requests] == [
        row[:3] for row in Azure.sample_rows
    ]
    assert [r.request_id for r in run.requests] == [0, 1, 2]
    assert run == replay().build(2, replication=5, base=base)
    assert run.files == (base / "log.csv",)


def test_rate_scale_squeezes_time_and_nothing_else(base: Path) -> None:
    """Twice the rate is half of every time."""
    plain, fast = replay().build(0, base=base), replay(rate_scale=2).build(0, base=base)
    assert [r.arrival_s for r in fast.requests] == [r.arrival_s / 2 for r in plain.requests]
    assert lengths(fast) == lengths(plain)
    assert plain.offered_rate_per_s is not None
    assert fast.offered_rate_per_s == pytest.approx(2 * plain.offered_rate_per_s)
    assert "2 times its rate" in fast.source


def test_limit_reads_the_first_rows(base: Path) -> None:
    """``limit`` is the only way to shorten a replay."""
    assert len(replay(limit=2).build(0, base=base).requests) == 2


def test_a_changed_log_is_read_again(base: Path) -> None:
    """Reading is remembered between replications, not beyond a change of the file."""
    assert len(replay().build(0, base=base).requests) == 3
    (base / "log.csv").write_bytes(Azure.sample.rsplit(b"\n", 1)[0])
    assert len(replay().build(0, base=base).requests) == 2


def test_relative_files_start_from_the_experiment_then_from_here(
    base: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both places are tried, and both are named when the file is in neither."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(base)
    assert len(replay().build(0, base=elsewhere).requests) == 3
    with pytest.raises(ConfigError) as caught:
        replay(path="lag.csv").build(0, base=elsewhere)
    for part in ("'lag.csv' not found", str(elsewhere), str(base)):
        assert part in str(caught.value)


def test_a_missing_log_offers_the_nearest_name(base: Path) -> None:
    """The folder's files are the choices."""
    with pytest.raises(ConfigError, match=r"did you mean 'log.csv'"):
        replay(path="logs.csv").build(0, base=base)


def test_a_broken_log_is_a_trace_error(base: Path) -> None:
    """The importer's sentence comes through."""
    (base / "log.csv").write_text("nonsense")
    with pytest.raises(TraceError, match=r"log\.csv:1: "):
        replay().build(0, base=base)


def test_dropping_leaves_out_what_is_too_long() -> None:
    """What remains is unchanged and renumbered; the offered rate falls with the share."""
    full = workload(num_requests=2000).build(5)
    run = workload(num_requests=2000, max_context_tokens=2000, over_context="drop").build(5)
    fitting = [r for r in full.requests if r.prompt_len + r.output_len <= 2000]
    assert run.num_dropped == 2000 - len(fitting) > 0
    assert run.num_clipped == 0
    assert lengths(run) == [(r.prompt_len, r.output_len) for r in fitting]
    assert [r.arrival_s for r in run.requests] == [r.arrival_s for r in fitting]
    assert [r.request_id for r in run.requests] == list(range(len(fitting)))
    assert run.offered_rate_per_s == pytest.approx(4.0 * len(fitting) / 2000)
    assert f"{run.num_dropped:,} of 2,000 requests left out" in run.source


@given(prompt_len=st.integers(1, 50), output_len=st.integers(1, 50), limit=st.integers(2, 60))
def test_clipping_keeps_every_request_within_the_limit(
    prompt_len: int, output_len: int, limit: int
) -> None:
    """The prompt leaves room for a token, the output takes what is left, the rest is untouched."""
    run = workload(
        lengths={"name": "fixed", "prompt_len": prompt_len, "output_len": output_len},
        num_requests=2,
        max_context_tokens=limit,
        over_context="clip",
    ).build(0)
    request = run.requests[0]
    if prompt_len + output_len <= limit:
        assert (request.prompt_len, request.output_len) == (prompt_len, output_len)
        assert run.num_clipped == 0
    else:
        assert request.prompt_len + request.output_len == limit
        assert request.prompt_len == min(prompt_len, limit - 1)
        assert run.num_clipped == 2
    assert run.num_dropped == 0


def test_the_limit_can_be_left_to_the_model() -> None:
    """``over_context`` alone means the model's context, which somebody has to say."""
    config = workload(over_context="clip")
    cut = config.build(5, model_context_tokens=500)
    assert cut == workload(over_context="clip", max_context_tokens=500).build(5)
    assert cut.num_clipped > 0
    with pytest.raises(ConfigError, match="nothing says the longest context"):
        config.build(5)


def test_dropping_everything_is_refused() -> None:
    """No request left is an error that says what to change."""
    config = workload(lengths=FIXED, max_context_tokens=100, over_context="drop")
    with pytest.raises(ConfigError, match="no request fits 100 tokens; raise it or choose"):
        config.build(0)


def test_the_source_names_arrivals_lengths_and_licence() -> None:
    """One sentence a report can print."""
    source = workload().build(0).source
    for part in ("Poisson arrivals at 4 requests/s", "azure_conv_2023", "Patel", "CC-BY 4.0"):
        assert part in source


def test_an_own_profile_is_read_from_its_path(base: Path) -> None:
    """The packaged profile under another name and place gives the same lengths."""
    fields = json.loads(packaged_profile_path("azure_conv_2023").read_text())
    (base / "own.json").write_text(json.dumps(fields | {"name": "own"}))
    run = workload(lengths={"name": "empirical", "profile": "own.json"}).build(3, base=base)
    assert lengths(run) == lengths(workload().build(3))
    assert run.files == (base / "own.json",)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"lengths": None}, "'lengths' is missing; poisson arrivals need it"),
        ({"num_requests": None}, "'num_requests' is missing"),
        ({"num_requests": 0}, "num_requests"),
        ({"arrivals": REPLAY}, "'lengths' has no effect"),
        ({"arrivals": REPLAY, "lengths": None}, "'num_requests' has no effect"),
        ({"arrivals": "poison"}, "did you mean 'poisson'"),
        ({"arrivals": {"name": "poisson", "rate_per_s": 0}}, "rate_per_s"),
        ({"arrivals": {"name": "poisson", "rate_per_s": math.inf}}, "finite"),
        ({"arrivals": {"name": "gamma", "rate_per_s": 1, "cv": 0}}, "cv"),
        ({"arrivals": {"name": "closed_loop", "concurrency": 0}}, "concurrency"),
        ({"arrivals": REPLAY | {"format": "azur"}}, "did you mean 'azure'"),
        ({"arrivals": REPLAY | {"rate_scale": 0}}, "rate_scale"),
        ({"lengths": FIXED | {"prompt_len": 0}}, "prompt_len"),
        ({"lengths": {"name": "empirical", "profile": "azure"}}, "did you mean 'azure_conv_2023'"),
        ({"max_context_tokens": 10}, "max_context_tokens needs over_context"),
        ({"max_context_tokens": 10, "over_context": "cut"}, "over_context"),
    ],
)
def test_wrong_workloads_are_refused(fields: dict[str, Any], says: str) -> None:
    """Nothing is ignored: what has no effect, is missing or misspelt is an error."""
    with pytest.raises(ValidationError) as caught:
        workload(**fields)
    assert says in str(caught.value)


def test_the_conversation_trace_replays_whole() -> None:
    """19,366 requests at 5.53 per second, ids in order of arrival."""
    path = shared("traces/azure/AzureLLMInferenceTrace_conv.csv")
    run = replay(path=str(path)).build(0)
    assert len(run.requests) == 19_366
    assert run.offered_rate_per_s == pytest.approx(5.53, abs=0.005)
    assert [r.request_id for r in run.requests] == list(range(19_366))
