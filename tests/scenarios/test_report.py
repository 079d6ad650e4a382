"""One scenario beside autoregression: intervals, paired ratios, what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simspec.core.errors import ConfigError
from simspec.core.stats import mean_interval, ratio_interval
from simspec.scenarios.report import (
    PAIRED,
    SHOWN,
    comparison_columns,
    interval_of,
    metric_columns,
    simulate_file,
)
from simspec.scenarios.run import Outcome
from simspec.serving.metrics import METRICS
from tests.sweeps.factory import SCENARIO, write_yaml


def outcome(**replications: list[float | None]) -> Outcome:
    return Outcome("ok", None, replications, {})


def test_every_shown_metric_exists() -> None:
    """The table and the ratios name metrics that are computed."""
    assert set(SHOWN) | set(PAIRED.values()) <= set(METRICS)


def test_a_metric_has_three_columns() -> None:
    """Mean over replications and the ends of its 95 % interval."""
    interval = mean_interval([1.0, 2.0, 4.0])
    assert metric_columns(outcome(tpot_ms=[1.0, 2.0, 4.0])) == {
        "tpot_ms": interval.mean,
        "tpot_ms_ci95_low": interval.low,
        "tpot_ms_ci95_high": interval.high,
    }


def test_a_metric_that_one_replication_lacks_has_no_mean() -> None:
    """The mean of the others would be about other replications."""
    assert interval_of([1.0, None]) is None
    assert interval_of([]) is None
    assert set(metric_columns(outcome(tpot_ms=[1.0, None])).values()) == {None}


def test_one_replication_has_no_interval() -> None:
    """A single run says nothing about its own spread."""
    found = metric_columns(outcome(tpot_ms=[3.0]))
    assert list(found.values()) == [3.0, None, None]


def test_speedup_is_the_paired_ratio() -> None:
    """Plain time over ours, replication by replication."""
    plain, ours = [4.0, 5.0, 6.0], [2.0, 2.6, 2.9]
    found = comparison_columns(
        outcome(tpot_ms=ours, e2e_ms=[None] * 3), outcome(tpot_ms=plain, round_time_ms=plain)
    )
    ratio = ratio_interval(plain, ours)
    assert (found["speedup"], found["speedup_ci95_low"]) == (ratio.mean, ratio.low)
    assert found["step_time_ms"] == 5.0
    assert found["e2e_speedup"] is None


def test_plain_decoding_beside_itself_is_one() -> None:
    """Exactly, with an interval of no width."""
    plain = outcome(tpot_ms=[4.0, 5.0], e2e_ms=[1.0, 2.0], round_time_ms=[4.0, 5.0])
    found = comparison_columns(plain, plain)
    assert {found[name] for name in found if "speedup" in name} == {1.0}


def test_without_a_baseline_the_keys_stay() -> None:
    """No number, and no key missing."""
    with_it, without = (
        comparison_columns(outcome(tpot_ms=[1.0]), plain)
        for plain in (outcome(tpot_ms=[2.0]), None)
    )
    assert set(with_it) == set(without)
    assert set(without.values()) == {None}


def simulated(folder: Path, **fields: Any) -> Any:
    return simulate_file(write_yaml(folder / "scenario.yaml", {**SCENARIO, **fields}))


def test_both_runs_meet_the_same_requests(tmp_path: Path) -> None:
    """Common random numbers: the same arrivals and lengths under the method and without it."""
    found = simulated(tmp_path).document
    for key in ("num_measured", "num_refused"):
        assert found[key] == found["baseline"][key]
    assert found["speedup"] == pytest.approx(
        found["baseline"]["tpot_ms"] / found["tpot_ms"], rel=1e-12
    )


def test_the_header_says_what_was_assumed(tmp_path: Path) -> None:
    """Model, hardware, load, acceptance and speedup stand above the table."""
    report = simulated(tmp_path)
    text = "\n".join(report.header)
    for part in ("llama-3.2-1b on h100_sxm", "2 requests in flight", "constant acceptance 0.7",
                 "speedup "):  # fmt: skip
        assert part in text
    assert [row["metric"] for row in report.rows] == list(SHOWN)


def test_an_overload_is_said_and_hides_the_waiting_times(tmp_path: Path) -> None:
    """Latencies that grow with the length of the run are no result."""
    workload = {
        "arrivals": {"name": "poisson", "rate_per_s": 5000},
        "lengths": SCENARIO["workload"]["lengths"],
        "num_requests": 400,
    }
    report = simulated(tmp_path, workload=workload, scheduler={"max_num_seqs": 2})
    found = report.document
    assert found["status"] == found["baseline"]["status"] == "unstable"
    assert found["ttft_ms"] is None
    assert found["throughput_tokens_per_s"] > 0
    text = "\n".join(report.header)
    assert "unstable: offered load exceeds capacity" in text
    assert "autoregression is unstable" in text


def test_the_manifest_is_complete_and_timeless(tmp_path: Path) -> None:
    """Inputs with hashes, the whole scenario, sources; and two runs write the same bytes."""
    path = write_yaml(tmp_path / "scenario.yaml", SCENARIO)
    texts = []
    for _ in range(2):
        document = simulate_file(path, output=tmp_path / "out").document
        texts.append((tmp_path / "out" / "result.json").read_text())
    assert texts[0] == texts[1]
    manifest = json.loads(texts[0])["manifest"]
    assert str(path) in manifest["inputs"]
    assert manifest["seed"] == 1
    assert manifest["scenario"]["method"]["exit_layer"] == 2
    assert manifest["profile_sources"]
    assert document["method_options"]["num_speculative_tokens"] == 3


def test_nothing_is_written_when_it_fails(tmp_path: Path) -> None:
    """The folder appears only with a result in it."""
    path = write_yaml(tmp_path / "scenario.yaml", {**SCENARIO, "tp": 3})
    with pytest.raises(ConfigError):
        simulate_file(path, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_requests_beyond_the_models_context_are_said_or_cut(tmp_path: Path) -> None:
    """Without a policy the assumptions count them; ``over_context`` alone keeps to the model."""
    scenario: dict[str, Any] = {
        "model": "vicuna-7b",
        "hardware": "h100_sxm",
        "method": "autoregressive",
        "workload": {
            "arrivals": {"name": "constant", "rate_per_s": 1.0},
            "lengths": {"name": "fixed", "prompt_len": 4090, "output_len": 8},
            "num_requests": 2,
        },
        "simulation": {"replications": 1, "warmup": 0.0},
    }
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(scenario))
    said = simulate_file(path).document
    assert any("2 of 2 requests are longer than the 4,096" in text for text in said["assumptions"])
    scenario["workload"]["over_context"] = "clip"
    path.write_text(json.dumps(scenario))
    cut = simulate_file(path).document
    assert cut["workload_counts"]["clipped"] == 2
    assert "2 of 2 requests clipped to 4,096 tokens" in cut["workload"]
    assert not any("are longer than" in text for text in cut["assumptions"])
