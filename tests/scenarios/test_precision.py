"""How many replications there are, what intervals are made of, and both views of an overload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simspec.core.errors import ConfigError
from simspec.core.stats import mean_interval
from simspec.core.yamlio import parse_mapping
from simspec.scenarios.build import build
from simspec.scenarios.offered_load import offered_load
from simspec.scenarios.report import simulate_file
from simspec.scenarios.run import Outcome, draw_workload, simulate_scenario
from simspec.scenarios.samples import Samples
from simspec.scenarios.schema import ScenarioConfig, SimulationConfig
from simspec.serving.measured import Roofs, Slo
from simspec.serving.simulate import simulate
from simspec.serving.window import in_batches, measured_window
from tests.serving.fakes import poisson, setup
from tests.sweeps.factory import SCENARIO, write_yaml

OPEN = {
    "arrivals": {"name": "poisson", "rate_per_s": 4.0},
    "lengths": {"name": "fixed", "prompt_len": 32, "output_len": 60},
    "num_requests": 30,
}


def config(**fields: Any) -> ScenarioConfig:
    return parse_mapping({**SCENARIO, "workload": OPEN, **fields}, ScenarioConfig, "scenario")


def outcome(**simulation: Any) -> Outcome:
    scenario = config(simulation={"seed": 3, "warmup": 0.0, **simulation})
    return simulate_scenario(scenario, build(scenario))


def test_replications_go_on_until_the_target() -> None:
    """The first number of them at which the rule holds, and not one more."""
    target = 0.03
    got = outcome(replications=2, target_half_width=target, max_replications=40)
    assert got.precision is not None
    assert got.precision["reached"]
    values = got.replications["tpot_ms"]
    assert 2 < len(values) < 40
    for n in range(2, len(values) + 1):
        interval = mean_interval([v for v in values[:n] if v is not None])
        assert interval.half_width is not None
        is_enough = interval.half_width <= target / (1 + target) * interval.mean
        assert is_enough == (n == len(values))


def test_the_most_replications_end_it_and_the_result_says_so(tmp_path: Path) -> None:
    """Not reached is no failure, but stands in the header; the baseline has as many."""
    simulation = {
        "seed": 3, "replications": 2, "target_half_width": 1e-6, "max_replications": 3,
        "metric": "ttft_ms",
    }  # fmt: skip
    path = write_yaml(tmp_path / "s.yaml", {**SCENARIO, "workload": OPEN, "simulation": simulation})
    report = simulate_file(path)
    found = report.document
    assert found["replications"] == found["precision"]["replications"] == 3
    assert found["precision"]["metric"] == "ttft_ms"
    assert not found["precision"]["reached"]
    assert found["precision"]["half_width"] > 0
    assert any("not reached" in line for line in report.header)
    assert found["speedup_ci95_low"] is not None


def test_an_undefined_metric_ends_it() -> None:
    """Plain decoding accepts nothing; more runs would not change that."""
    scenario = config(
        method="autoregressive", acceptance=None,
        simulation={"replications": 2, "target_half_width": 0.1, "metric": "acceptance_rate"},
    )  # fmt: skip
    got = simulate_scenario(scenario, build(scenario))
    assert got.num_runs == 2
    assert got.precision is not None
    assert got.precision["half_width"] is None
    assert not got.precision["reached"]


def test_batches_divide_the_measured_requests() -> None:
    """Equal, consecutive, and their times fill the window."""
    records = simulate(setup(poisson(53, 5.0, prompt_len=10, output_len=8)))
    window = measured_window(records, warmup=0.0)
    parts = in_batches(records, window, 5)
    assert [part.requests.size for part in parts] == [10] * 5
    joined = np.concatenate([part.requests for part in parts])
    assert np.array_equal(joined, window.requests[3:])
    ends = [part.end_s for part in parts]
    assert [part.start_s for part in parts[1:]] == ends[:-1]
    assert ends[-1] == window.end_s


def test_batch_means_of_a_run() -> None:
    """One value per batch; their mean is that of the requests in them."""
    records = simulate(setup(poisson(200, 5.0, prompt_len=10, output_len=8)))
    options = SimulationConfig(replications=1, warmup=0.0, intervals="batch_means", num_batches=4)
    samples = Samples(options, Slo(), Roofs(1.0, 1.0))
    samples.add(records)
    assert samples.is_enough()
    values = samples.values()
    ttft_ms = 1e3 * (records.requests.first_token_s - records.requests.arrival_s)
    assert values["ttft_ms"] == pytest.approx(ttft_ms.reshape(4, 50).mean(axis=1).tolist())
    assert sum(v or 0 for v in values["num_measured"]) == 200
    told = samples.precision()
    assert (told["intervals"], told["samples"]) == ("batch_means", 4)


def test_batches_need_requests() -> None:
    """A sentence with the number there is and the number it takes."""
    with pytest.raises(ConfigError, match="need 100 measured requests, the run has 30"):
        outcome(replications=1, intervals="batch_means")


@pytest.mark.parametrize(
    ("simulation", "words"),
    [
        ({"num_batches": 4}, "no effect without intervals: batch_means"),
        ({"metric": "ttft_ms"}, "no effect without target_half_width"),
        ({"max_replications": 9}, "no effect without target_half_width"),
        ({"target_half_width": 0.1, "metric": "ttft"}, "ttft_ms"),
        ({"target_half_width": 0.1, "replications": 9, "max_replications": 5}, "below"),
    ],
)
def test_what_would_have_no_effect_is_refused(simulation: dict[str, Any], words: str) -> None:
    """One sentence, with the nearest choice where there is one."""
    with pytest.raises(ConfigError, match=words):
        config(simulation=simulation)


def test_both_views_of_an_overload_agree() -> None:
    """Drift of the queue and the closed form: far below capacity and far above it."""
    for factor, unstable in ((0.3, False), (3.0, True)):
        scenario = config(scheduler={"max_num_seqs": 4})
        load = offered_load(build(scenario), draw_workload(scenario, 0, None))
        assert load is not None
        rate = factor * load["capacity_requests_per_s"]
        workload = {
            **OPEN,
            "arrivals": {"name": "poisson", "rate_per_s": rate},
            "num_requests": 300,
        }
        scenario = config(
            scheduler={"max_num_seqs": 4}, workload=workload, simulation={"replications": 2}
        )
        got = simulate_scenario(scenario, build(scenario))
        assert got.stability is not None
        assert got.status == ("unstable" if unstable else "ok")
        assert got.stability["drift"]["unstable_replications"] == (2 if unstable else 0)
        told = got.stability["offered_load"]
        assert told["load"] == pytest.approx(factor, rel=0.02)
        assert told["exceeds_capacity"] == unstable
        if unstable:
            assert got.reason is not None
            assert "closed form" in got.reason
            completed = got.stability["drift"]["completed_requests_per_s"]
            assert completed == pytest.approx(told["capacity_requests_per_s"], rel=0.15)


def test_a_closed_loop_offers_what_is_completed() -> None:
    """There is no load to compare."""
    scenario = parse_mapping(SCENARIO, ScenarioConfig, "scenario")
    assert offered_load(build(scenario), draw_workload(scenario, 0, None)) is None
