"""Tables, benchmark fields and trace events of a run against its records."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.serving.event_trace import COUNTERS, Cut, Told, run_events
from simspec.serving.measured import Measured, Roofs, Slo
from simspec.serving.plan import ServingSetup
from simspec.serving.records import Fate, RunRecords
from simspec.serving.request_table import request_table
from simspec.serving.routing._base import ROUTERS
from simspec.serving.simulate import simulate
from simspec.serving.time_series import STATES, SUMS, time_series
from simspec.serving.vllm_bench import bench_result
from simspec.serving.window import measured_window
from simspec.workloads.request import Request
from tests.serving.fakes import poisson, setup
from tests.serving.test_laws import setups

ROOFS = Roofs(1e6, 1e6)
OF_VLLM = {
    "duration", "completed", "failed", "total_input_tokens", "total_output_tokens",
    "request_throughput", "request_goodput", "output_throughput", "total_token_throughput",
    "max_output_tokens_per_s", "max_concurrent_requests",
    *(
        f"{statistic}_{name}_ms"
        for name in ("ttft", "tpot", "itl", "e2el")
        for statistic in ("mean", "median", "std", "p99")
    ),
}  # fmt: skip


def run(**given: Any) -> RunRecords:
    """Preemptions, queueing and an idle stretch; with a clock some never finish."""
    return simulate(chosen(**given))


def chosen(**given: Any) -> ServingSetup:
    load = [*poisson(25, 60.0, prompt_len=20, output_len=15), Request(25, 90.0, 12, 1)]
    return setup(load, **{"num_blocks": 12, "max_draft": 2, "alpha": 0.5, **given})


def table_of(records: RunRecords) -> dict[str, Any]:
    window = measured_window(records, warmup=0.0)
    return request_table(records, Measured(records, window, Slo(), None))


def events_of(records: RunRecords, cut: Cut | None = None) -> tuple[list[dict[str, Any]], Told]:
    told = Told(0.0, 0.0)
    return list(run_events(records, cut or Cut(), told)), told


def test_a_row_per_request() -> None:
    """The parts of TTFT add up, and what did not happen is NaN."""
    records = run(max_simulated_s=0.6)
    table = table_of(records)
    fates = np.array(table["fate"])
    assert {"finished", "running", "waiting"} <= set(fates)
    parts = table["ttft_queue_ms"] + table["ttft_prefill_ms"]
    np.testing.assert_allclose(parts, table["ttft_ms"])
    assert np.array_equal(np.isnan(table["e2e_ms"]), fates != "finished")
    came = np.isnan(table["ttft_ms"]) != (records.requests.emitted > 0)
    assert np.all(came)
    assert table["emitted_tokens"].sum() == records.steps.emitted.sum()
    done = fates == "finished"
    expected = (table["e2e_ms"] - table["ttft_ms"]) / np.maximum(table["output_tokens"] - 1, 1)
    np.testing.assert_allclose(table["tpot_ms"][done], expected[done])


def test_a_refused_request_has_its_reason() -> None:
    """And no times."""
    table = table_of(
        simulate(setup([Request(0, 0.0, 10_000, 5), Request(1, 0.0, 5, 5)], num_blocks=9))
    )
    assert table["fate"] == ["refused", "finished"]
    assert "KV slots" in table["reason"][0]
    assert table["reason"][1] is None
    assert np.isnan(table["e2e_ms"][0])


@pytest.mark.parametrize("max_rows", [1, 7, 100_000])
def test_the_series_keeps_sums_and_means(max_rows: int) -> None:
    """Whatever the resolution: same tokens, same busy time, same time integrals."""
    records = run()
    steps = records.steps
    series = time_series(records, ROOFS, max_rows)
    assert series["start_s"].size == min(max_rows, steps.start_s.size)
    assert series["steps"].sum() == steps.start_s.size
    for name, column in SUMS.items():
        assert series[name].sum() == getattr(steps, column).sum(), name
    for name, column in STATES.items():
        integral = (getattr(steps, column) * steps.duration_s).sum()
        assert (series[name] * series["busy_ms"]).sum() == pytest.approx(1e3 * integral), name
    flop = (series["compute_roof_share"] * series["duration_s"]).sum() * ROOFS.peak_flop_per_s
    assert flop == pytest.approx(steps.flop.sum())
    phases = sum(series[f"{p}_ms"].sum() for p in ("prefill", "decode", "draft", "verify"))
    assert phases + series["host_ms"].sum() == pytest.approx(series["busy_ms"].sum())


def test_the_fields_of_vllm() -> None:
    """Every field of its result, with its definitions, over all requests."""
    records = run()
    got = bench_result(records, Slo(ttft_s=0.3), model="m")
    assert set(got) >= OF_VLLM
    requests, steps = records.requests, records.steps
    ttft_ms = 1e3 * (requests.first_token_s - requests.arrival_s)
    assert got["completed"] == 26
    assert got["failed"] == 0
    assert got["duration"] == records.end_s - requests.arrival_s.min()
    assert got["mean_ttft_ms"] == pytest.approx(ttft_ms.mean())
    assert got["std_ttft_ms"] == pytest.approx(ttft_ms.std())
    assert got["p99_ttft_ms"] == pytest.approx(np.percentile(ttft_ms, 99))
    assert got["request_goodput"] == pytest.approx((ttft_ms <= 300).sum() / got["duration"])
    decode_s = (requests.last_token_s - requests.first_token_s).sum()
    bursts = steps.num_decoding.sum() + steps.num_prefilled.sum() - 26
    assert got["mean_itl_ms"] == pytest.approx(1e3 * decode_s / bursts)
    rounds = steps.num_decoding.sum()
    assert got["spec_decode_acceptance_length"] == pytest.approx(1 + steps.accepted.sum() / rounds)
    assert got["spec_decode_acceptance_rate"] == pytest.approx(
        100 * steps.accepted.sum() / steps.drafted.sum()
    )
    assert 1 <= got["max_concurrent_requests"] <= 26
    assert got["max_output_tokens_per_s"] >= got["output_throughput"]


def test_what_vllm_leaves_out_is_left_out() -> None:
    """No goodput without targets, no speculation without drafts."""
    got = bench_result(run(max_draft=0), Slo(), model="m")
    assert got["request_goodput"] is None
    assert not [name for name in got if name.startswith("spec_decode")]


def test_the_lanes_add_up_to_the_steps() -> None:
    """Time is conserved: the lanes of a step follow one another and fill it."""
    records = run()
    events, told = events_of(records)
    assert (told.steps_left_out, told.requests_left_out) == (0, 0)
    lanes: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            lanes[event["args"]["step"]].append((event["ts"], event["dur"]))
    assert len(lanes) == records.steps.start_s.size
    for index, parts in lanes.items():
        total_us = sum(duration for _, duration in parts)
        assert total_us == pytest.approx(1e6 * records.steps.duration_s[index], abs=0.01)
        ends = [start + duration for start, duration in parts]
        assert [start for start, _ in parts[1:]] == pytest.approx(ends[:-1], abs=0.01)


def test_events_are_of_the_format() -> None:
    """What the Chrome trace format asks of each kind of event, spans closed and nested."""
    records = run(max_simulated_s=0.6)
    events, _ = events_of(records)
    json.dumps(events, allow_nan=False)
    open_spans: dict[str, list[str]] = defaultdict(list)
    for event in events:
        assert {"ph", "name", "pid", "tid", "ts"} <= event.keys()
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        elif event["ph"] == "C":
            assert event["args"].keys() == {COUNTERS[event["name"]]}
        elif event["ph"] == "b":
            assert event["cat"]
            open_spans[event["id"]].append(event["name"])
        elif event["ph"] == "e":
            assert open_spans[event["id"]].pop() == event["name"]
        else:
            assert event["ph"] == "M"
    assert len(open_spans) == records.requests.request_id.size
    assert not any(open_spans.values())


def test_a_lifeline_shows_what_the_table_says() -> None:
    """Queue, prefill and decode of a finished request, in microseconds."""
    records = run()
    events, _ = events_of(records)
    row = int(np.flatnonzero(records.requests.queue_s > 0)[0])
    mine = [e for e in events if e.get("id") == f"0.{row}"]
    begin = {e["name"]: e["ts"] for e in mine if e["ph"] == "b"}
    end = {e["name"]: e["ts"] for e in mine if e["ph"] == "e"}
    requests = records.requests
    assert begin["queue"] == pytest.approx(1e6 * requests.arrival_s[row], abs=0.01)
    assert begin["prefill"] == pytest.approx(1e6 * requests.admission_s[row], abs=0.01)
    assert begin["decode"] == pytest.approx(1e6 * requests.first_token_s[row], abs=0.01)
    assert end["decode"] == pytest.approx(1e6 * requests.last_token_s[row], abs=0.01)


def test_a_cut_and_a_bound_hold() -> None:
    """Only the time asked for, never more events than asked for, and it says what is missing."""
    records = run()
    events, told = events_of(records, Cut(from_s=0.1, to_s=0.3))
    assert all(0.1e6 - 1e6 <= e["ts"] <= 0.3e6 + 1e6 for e in events if e["ph"] in "XC")
    assert all(0.1e6 <= e["ts"] <= 0.3e6 for e in events if e["ph"] in "be")
    assert (told.from_s, told.to_s) == (0.1, 0.3)
    events, told = events_of(records, Cut(max_events=100))
    assert sum(e["ph"] != "M" for e in events) <= 100
    assert told.steps_left_out > 0
    assert told.to_s < records.end_s


def test_idle_is_seen_in_the_counters() -> None:
    """After the last step of a busy stretch the batch is zero."""
    events, _ = events_of(run())
    batch = sorted((e["ts"], e["args"]["sequences"]) for e in events if e["name"] == "batch")
    before_last_arrival = [count for at, count in batch if at < 90e6]
    assert before_last_arrival[-1] == 0
    assert batch[-1][1] == 0
    assert records_fates(run()) == {Fate.FINISHED}


def records_fates(records: RunRecords) -> set[int]:
    return set(records.requests.fate.tolist())


@pytest.mark.parametrize("max_rows", [6, 100_000])
def test_a_fleet_has_rows_and_lanes_per_replica(max_rows: int) -> None:
    """Sums hold replica by replica, and so do the lanes of the trace."""
    router = ROUTERS.parse("round_robin")
    records = simulate(replace(chosen(num_blocks=30), num_replicas=2, router=router))
    steps = records.steps
    series = time_series(records, ROOFS, max_rows)
    events, _ = events_of(records)
    for replica in range(2):
        mine = series["replica"] == replica
        theirs = steps.replica == replica
        assert theirs.any()
        assert series["output_tokens"][mine].sum() == steps.emitted[theirs].sum()
        assert series["kv_used_share"][mine].max() <= 1.0
        lanes_us = sum(e["dur"] for e in events if e["ph"] == "X" and e["pid"] == replica)
        assert lanes_us == pytest.approx(1e6 * steps.duration_s[theirs].sum())
        spans = {e["id"] for e in events if e["ph"] == "b" and e["pid"] == replica}
        assert len(spans) == (records.requests.replica == replica).sum()


@given(setups(), st.integers(1, 3), st.sampled_from([3, 100_000]))
def test_time_and_tokens_are_conserved(
    drawn: ServingSetup, num_replicas: int, max_rows: int
) -> None:
    """Under random load, policies, preemption and fleets: lanes, series and rows add up."""
    router = ROUTERS.parse("round_robin")
    records = simulate(replace(drawn, num_replicas=num_replicas, router=router))
    steps = records.steps
    events, told = events_of(records)
    assert (told.steps_left_out, told.requests_left_out) == (0, 0)
    lanes_us = sum(e["dur"] for e in events if e["ph"] == "X")
    # Each duration is rounded to a nanosecond.
    assert lanes_us == pytest.approx(1e6 * steps.duration_s.sum(), abs=0.01 * (len(events) + 1))
    series = time_series(records, ROOFS, max_rows)
    assert series["busy_ms"].sum() == pytest.approx(1e3 * steps.duration_s.sum())
    assert series["output_tokens"].sum() == steps.emitted.sum()
    assert np.all(series["kv_used_share"] <= 1.0 + 1e-12)
    table = table_of(records)
    assert table["emitted_tokens"].sum() == steps.emitted.sum()
    got = bench_result(records, Slo(), model="m")
    assert got["completed"] + got["failed"] == records.requests.request_id.size
