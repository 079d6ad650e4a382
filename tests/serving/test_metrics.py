"""Metrics against their definitions, on runs small enough to write out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.serving.measured import Gaps, Roofs, Slo
from simspec.serving.metrics import METRICS, latency_quantiles_ms, summarise
from simspec.serving.records import PHASES, RunRecords
from simspec.serving.simulate import simulate
from simspec.workloads.request import Request
from tests.serving.fakes import FakeCost, limits, poisson, setup, together

ONE_SECOND = FakeCost(pass_s=1.0, token_s=0.0, kv_token_s=0.0)


def whole(run: RunRecords, slo: Slo | None = None, roofs: Roofs | None = None) -> dict[str, float]:
    return summarise(run, slo, roofs=roofs, warmup=0.0, cooldown=0.0)


def token_times(max_draft: int, alpha: float, policy: str) -> tuple[RunRecords, list[list[float]]]:
    """A run with stalls and preemptions, and the time of every token of every request."""
    times: dict[int, list[float]] = {}
    load = poisson(12, 100.0, prompt_len=12, output_len=15, seed=3)
    given = {"max_draft": max_draft, "alpha": alpha, "num_blocks": 60, "block_size_tokens": 1}
    finished = simulate(setup(load, scheduler=limits(policy), **given))  # type: ignore[arg-type]
    for stop in [*finished.steps.end_s.tolist(), finished.end_s + 1]:
        # Stopped just after each step, a run shows how many tokens everybody has by then.
        at = np.nextafter(stop, math.inf)
        stopped = setup(load, scheduler=limits(policy), max_simulated_s=float(at), **given)  # type: ignore[arg-type]
        seen = simulate(stopped)
        for request_id, emitted in zip(
            seen.requests.request_id.tolist(), seen.requests.emitted.tolist(), strict=True
        ):
            have = times.setdefault(request_id, [])
            have += [stop] * (emitted - len(have))
    return finished, [times[i] for i in sorted(times)]


@pytest.mark.parametrize("policy", ["continuous", "prefill_first"])
@pytest.mark.parametrize(("max_draft", "alpha"), [(0, 0.0), (3, 0.6)])
def test_latencies_are_those_of_the_tokens(max_draft: int, alpha: float, policy: str):
    """TTFT, TPOT, ITL and E2E equal what a client computes from the times of its tokens."""
    run, times = token_times(max_draft, alpha, policy)
    assert run.requests.num_preemptions.sum() > 0
    arrivals = run.requests.arrival_s
    got = whole(run)
    ttft = [t[0] - a for t, a in zip(times, arrivals, strict=True)]
    e2e = [t[-1] - a for t, a in zip(times, arrivals, strict=True)]
    tpot = [(t[-1] - t[0]) / (len(t) - 1) for t in times]
    assert got["ttft_ms"] == pytest.approx(1e3 * np.mean(ttft))
    assert got["e2e_ms"] == pytest.approx(1e3 * np.mean(e2e))
    assert got["tpot_ms"] == pytest.approx(1e3 * np.mean(tpot))
    assert got["tpot_p90_ms"] == pytest.approx(1e3 * np.percentile(tpot, 90))
    longest = [max(np.diff(t)) for t in times]
    assert got["longest_gap_ms"] == pytest.approx(1e3 * np.mean(longest))


@pytest.mark.parametrize("policy", ["continuous", "prefill_first"])
@pytest.mark.parametrize(("max_draft", "alpha"), [(0, 0.0), (3, 0.6)])
def test_pooled_gaps_are_those_of_the_tokens(max_draft: int, alpha: float, policy: str):
    """Pooled ITL is the sample of all differences of token times, zeros in bursts included."""
    run, times = token_times(max_draft, alpha, policy)
    # The window of rates must hold every token: pretend that the clock was stopped.
    object.__setattr__(run, "num_not_arrived", 1)
    gaps = np.concatenate([np.diff(t) for t in times])
    got = whole(run)
    assert got["itl_ms"] == pytest.approx(1e3 * gaps.mean())
    for level in (50, 90, 95, 99):
        assert got[f"itl_p{level}_ms"] == pytest.approx(1e3 * np.percentile(gaps, level), abs=1e-9)
    assert got["burst_gap_ms"] == pytest.approx(1e3 * gaps[gaps > 0].mean())


@given(
    st.lists(st.tuples(st.floats(0.001, 10.0), st.integers(0, 5)), max_size=20),
    st.integers(0, 10),
    st.floats(0, 100),
)
def test_percentile_of_counted_values(pairs: list[tuple[float, int]], zeros: int, level: float):
    """Counted values give the percentile of the sample written out."""
    values, counts = np.array(sorted(pairs), dtype=float).reshape(-1, 2).T
    sample = np.concatenate([np.zeros(zeros), np.repeat(values, counts.astype(int))])
    got = Gaps(values, counts, float(zeros)).percentile(level)
    if sample.size == 0:
        assert math.isnan(got)
    else:
        assert got == pytest.approx(np.percentile(sample, level), rel=1e-9, abs=1e-12)


def test_rounds_are_counted_per_sequence():
    """m, a and a + 1 are means over rounds of one sequence; the rate leaves the bonus out."""
    got = whole(simulate(setup(together((10, 13)), max_draft=3, alpha=1.0)))
    assert got["drafted_per_round"] == 3.0
    assert got["accepted_per_round"] == 3.0
    assert got["tokens_per_round"] == 4.0
    assert got["acceptance_rate"] == 1.0
    assert got["wasted_draft_share"] == 0.0


def test_phases_add_up_to_the_round():
    """Draft, verify, prefill and host time of a round are all of it."""
    cost = FakeCost(host_s=0.002)
    got = whole(simulate(setup(together((10, 20), (30, 20)), max_draft=3, cost=cost)))
    parts = [got[f"time_{part}_ms"] for part in ("draft", "verify", "prefill", "host")]
    assert sum(parts) == pytest.approx(got["round_time_ms"])
    assert got["time_host_ms"] == pytest.approx(2.0)


def test_rates_and_goodput():
    """Two of four requests, one second each on a lone server, meet a target of 2.5 s."""
    run = simulate(
        setup(together(*[(10, 1)] * 4), cost=ONE_SECOND, scheduler=limits(max_num_seqs=1))
    )
    got = whole(run, Slo(e2e_s=2.5))
    assert got["requests_per_s"] == 1.0
    assert got["throughput_tokens_per_s"] == 1.0
    assert got["goodput_requests_per_s"] == 0.5
    assert got["slo_attainment"] == 0.5
    assert got["queue_ms"] == 1500.0
    assert got["queueing_share"] == pytest.approx(6 / 10)


def test_one_output_token_has_no_tpot():
    """TPOT is undefined for one token; such a request meets any TPOT target."""
    run = simulate(setup(together((10, 1), (10, 3)), cost=ONE_SECOND))
    got = whole(run, Slo(tpot_s=1.5))
    assert got["tpot_ms"] == 1000.0
    assert got["slo_attainment"] == 1.0


def test_refused_and_unfinished_requests_miss_the_target():
    """They are in no mean latency, but they are counted and they lower the attainment."""
    load = [Request(0, 0.0, 10, 2), Request(1, 0.0, 900, 2), Request(2, 3.0, 10, 50)]
    run = simulate(setup(load, cost=ONE_SECOND, num_blocks=10, max_simulated_s=9.5))
    got = whole(run, Slo(ttft_s=100.0))
    assert got["num_measured"] == 3.0
    assert got["num_refused"] == 1.0
    assert got["num_censored"] == 1.0
    assert got["slo_attainment"] == pytest.approx(1 / 3)
    assert got["e2e_ms"] == 2000.0


def test_use_of_the_machine():
    """Work over what the roofs allow in the window, idle time included."""
    load = [Request(0, 0.0, 32, 2), Request(1, 8.0, 32, 2)]
    run = simulate(setup(load, cost=ONE_SECOND, num_blocks=10))
    got = whole(run, roofs=Roofs(peak_flop_per_s=100.0, bandwidth_bytes_per_s=1000.0))
    # Up to the second arrival: one prefill of 32 tokens and one round, then idle to t = 8.
    assert got["busy_share"] == 2 / 8
    assert got["compute_utilisation"] == pytest.approx((32 + 1) / 800)
    assert got["bandwidth_utilisation"] == pytest.approx((32 + 33) / 8000)
    assert got["kv_utilisation"] == pytest.approx((2 + 3) / 80)


def test_utilisation_without_roofs_is_undefined():
    """Nobody guesses a roof."""
    got = whole(simulate(setup(together((10, 5)))))
    assert math.isnan(got["compute_utilisation"])


def test_an_empty_run_defines_every_key():
    """Counts are zero, means are NaN, nothing raises."""
    empty = whole(simulate(setup([])))
    full = whole(simulate(setup(together((10, 5)), max_draft=2)))
    assert empty.keys() == full.keys() == METRICS.keys()
    assert empty["num_measured"] == 0.0
    assert math.isnan(empty["ttft_ms"])


def test_quantiles_end_at_the_extremes():
    """101 quantiles from the least to the largest latency."""
    run = simulate(setup(poisson(30, 10.0, prompt_len=20, output_len=20)))
    quantiles = latency_quantiles_ms(run, warmup=0.0)
    e2e = run.requests.last_token_s - run.requests.arrival_s
    assert quantiles["e2e_quantiles_ms"].shape == (101,)
    assert quantiles["e2e_quantiles_ms"][[0, -1]].tolist() == [1e3 * e2e.min(), 1e3 * e2e.max()]
    assert set(quantiles) == {f"{name}_quantiles_ms" for name in ("ttft", "tpot", "e2e")}


def test_every_metric_says_its_unit_and_meaning():
    """A unit and one sentence; keys in milliseconds end in _ms."""
    for name, entry in METRICS.items():
        assert entry.unit, name
        assert entry.meaning.endswith("."), name
        assert name.endswith("_ms") == (entry.unit == "ms"), name


def test_phases_cover_what_passes_may_be():
    """The columns of ``phase_s`` are the phases of the cost model's passes."""
    assert PHASES == ("prefill", "decode", "draft", "verify", "catch_up")


def test_every_metric_is_on_its_page():
    """``docs/reference/metrics.md`` has a row for each key, with its unit."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for name, entry in METRICS.items():
        row = [line for line in rows if f"`{name}`" in line.split("|")[1]]
        assert len(row) == 1, name
        assert row[0].split("|")[2].strip() == entry.unit, name
