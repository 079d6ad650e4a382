"""Urgency: who goes first, whose place is taken, and who starves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.rng import stream
from simspec.serving.plan import EngineState, SchedulerLimits, SequenceState
from simspec.serving.preemption.recompute import Recompute
from simspec.serving.records import RunRecords
from simspec.serving.scheduling._base import SCHEDULERS
from simspec.serving.scheduling.priority import Config, Priority
from simspec.serving.simulate import simulate
from simspec.workloads.request import Request
from tests.serving.fakes import FakeCost, limits, poisson, setup
from tests.serving.test_scheduling import contents, state

ONE_SECOND = FakeCost(pass_s=1.0, token_s=0.0, kv_token_s=0.0)


def policy(
    round_slots: int = 1, ttft_target_s: float | None = None, **settings: object
) -> Priority:
    config = Config.model_validate(settings)
    some = replace(limits(max_num_seqs=3, max_num_batched_tokens=100), ttft_target_s=ttft_target_s)
    return config.build(some, round_slots, Recompute())


def queued(of: Priority, *waiting: tuple[int, float, int], **given: int) -> EngineState:
    """An engine where requests (class, arrival, prompt) wait."""
    engine = state(**given)
    engine.waiting = of.new_queue()
    for i, (priority, arrival_s, prompt) in enumerate(waiting):
        engine.waiting.append(
            SequenceState(i, prompt, 50, arrival_s, prompt, arrival_s, priority=priority)
        )
    return engine


def run(load: list[Request], **settings: object) -> RunRecords:
    given = SCHEDULERS.parse({"name": "priority", **settings})
    some = SchedulerLimits(given, 1, 256, chunked_prefill=True)
    return simulate(setup(load, scheduler=some, cost=ONE_SECOND), check=True)


def test_the_more_urgent_class_is_admitted_first_and_of_one_class_the_earlier():
    """Smaller is more urgent."""
    of = policy()
    plan = of.schedule(queued(of, (1, 0.0, 10), (0, 2.0, 10), (0, 1.0, 10)))
    assert contents(plan) == ([], [(2, 10), (1, 10), (0, 10)])


def test_chunks_go_to_the_most_urgent_prompt():
    """A prompt that came later and is more urgent gets the budget first."""
    of = policy()
    engine = queued(of, (1, 0.0, 150))
    of.schedule(engine)
    engine.running[0].context_len = 100
    engine.waiting.append(SequenceState(7, 80, 50, 1.0, 80, 1.0, priority=0))
    assert contents(of.schedule(engine)) == ([], [(0, 50), (7, 50)])
    engine.running[0].context_len, engine.running[1].context_len = 120, 50
    assert contents(of.schedule(engine)) == ([], [(7, 30), (0, 30)])


def test_deadlines_count_across_classes_where_they_are_the_order():
    """A loose target that began long ago is due before a tight one that has just begun."""
    targets = {0: 100.0, 1: 5000.0}
    of = policy(order="deadline", class_ttft_ms=targets)
    # Due at 5.0 s, 4.9 s and 5.2 s.
    plan = of.schedule(queued(of, (1, 0.0, 10), (0, 4.8, 10), (0, 5.1, 10)))
    assert contents(plan) == ([], [(1, 10), (0, 10), (2, 10)])
    of = policy(order="class", class_ttft_ms=targets)
    plan = of.schedule(queued(of, (1, 0.0, 10), (0, 4.8, 10), (0, 5.1, 10)))
    assert contents(plan) == ([], [(1, 10), (2, 10), (0, 10)])


def test_the_scenario_s_target_is_that_of_classes_without_one():
    """Class 1 has 50 ms of its own, class 0 the 2 s of everybody."""
    of = policy(order="deadline", class_ttft_ms={1: 50.0}, ttft_target_s=2.0)
    plan = of.schedule(queued(of, (0, 0.0, 10), (1, 1.0, 10)))
    assert contents(plan) == ([], [(1, 10), (0, 10)])


def test_a_running_request_of_a_lower_class_makes_room_for_a_seat():
    """The least urgent one goes, and comes back when a seat is free."""
    load = [Request(0, 0.0, 10, 9, priority=1), Request(1, 2.5, 10, 2, priority=0)]
    got = run(load)
    assert got.requests.num_preemptions.tolist() == [1, 0]
    assert got.requests.admission_s.tolist() == [0.0, 3.0]
    assert got.requests.last_token_s.tolist() == [11.0, 5.0]
    kept = run(load, preempts=False)
    assert kept.requests.num_preemptions.tolist() == [0, 0]
    assert kept.requests.last_token_s.tolist() == [9.0, 11.0]


def test_nobody_makes_room_for_the_own_class():
    """Equal classes wait in order of arrival, as without priorities."""
    load = [Request(0, 0.0, 10, 9, priority=3), Request(1, 2.5, 10, 2, priority=3)]
    assert run(load).requests.num_preemptions.tolist() == [0, 0]


def test_room_is_made_for_blocks_and_only_if_it_is_enough():
    """Two victims of two blocks each do not make room for ten, so they stay."""
    of = policy()
    engine = queued(of, (0, 1.0, 16 * 10), decoding=2, num_blocks=9)
    for sequence in engine.running:
        sequence.priority = 1
    plan = of.schedule(engine)
    assert plan.preempted == []
    assert len(plan.decoding) == 2
    engine = queued(of, (0, 1.0, 16 * 6), decoding=2, num_blocks=9)
    for sequence in engine.running:
        sequence.priority = 1
    plan = of.schedule(engine)
    assert [s.request_id for s in plan.preempted] == [101]
    assert contents(plan) == ([100], [(0, 96)])


def test_the_least_urgent_is_preempted_for_the_blocks_of_a_round():
    """Whoever was admitted last, a more urgent request keeps its blocks."""
    of = policy()
    engine = queued(of, decoding=3, num_blocks=7)
    for sequence, priority in zip(engine.running, (0, 2, 1), strict=True):
        sequence.priority, sequence.context_len = priority, 32
    plan = of.schedule(engine)
    assert [s.request_id for s in plan.preempted] == [101]
    assert [s.request_id for s in plan.decoding] == [100, 102]


@given(st.integers(0, 1000), st.floats(1.0, 40.0))
def test_with_one_class_it_is_continuous_batching(seed: int, rate_per_s: float):
    """Without classes and targets urgency is the order of arrival: the same bytes."""
    load = poisson(30, rate_per_s, prompt_len=40, output_len=12, seed=seed)
    plain, urgent = (
        simulate(setup(load, scheduler=limits(name, max_num_seqs=4), max_draft=2))
        for name in ("continuous", "priority")
    )
    assert plain.digest() == urgent.digest()


def mixed_classes(num_requests: int = 400) -> list[Request]:
    """Class 0 asks for 70 % of a server of one second per request, class 1 for 50 % more."""
    rng = stream(3, "classes")
    arrivals = np.cumsum(rng.exponential(1 / 1.2, num_requests)).tolist()
    classes = (rng.random(num_requests) > 0.7 / 1.2).astype(int).tolist()
    return [
        Request(i, t, 10, 1, priority=c)
        for i, (t, c) in enumerate(zip(arrivals, classes, strict=True))
    ]


def test_a_class_starves_under_more_urgent_load_unless_deadlines_count():
    """Above capacity the urgent class waits as if alone; by deadline both wait."""
    load = mixed_classes()
    urgent = np.array([request.priority == 0 for request in load])
    by_class, by_deadline = run(load), run(load, order="deadline", class_ttft_ms={0: 1e3, 1: 5e3})
    alone = run([request for request in load if request.priority == 0])
    assert by_class.requests.queue_s[urgent].mean() == pytest.approx(
        alone.requests.queue_s.mean(), abs=0.6
    )
    late = by_class.requests.queue_s[~urgent]
    assert late.mean() > 10 * by_class.requests.queue_s[urgent].mean()
    gap = by_deadline.requests.queue_s[~urgent].mean() - by_deadline.requests.queue_s[urgent].mean()
    # Overtaken by those that came up to four seconds later.
    assert 2.0 < gap < 5.0
    assert by_deadline.requests.queue_s[urgent].mean() > by_class.requests.queue_s[urgent].mean()


def test_urgent_requests_meet_their_target_more_often_than_first_come_first_served():
    """What the policy is for, at 90 % load and one seat."""
    load = [replace(r, arrival_s=r.arrival_s * 1.3) for r in mixed_classes()]
    urgent = np.array([request.priority == 0 for request in load])
    first_come = simulate(setup(load, scheduler=limits(max_num_seqs=1), cost=ONE_SECOND))
    within = [
        float(np.mean((r.requests.first_token_s - r.requests.arrival_s)[urgent] <= 3.0))
        for r in (run(load), first_come)
    ]
    assert within[0] > within[1] + 0.2
