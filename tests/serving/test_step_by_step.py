"""Sequences kept together and a clock that runs ahead give the records of looking at each step.

Equal to the last bit: both take every sum in the same order, and the clock's own additions are
repeated one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simspec.cost.forward import CostModel
from simspec.serving.plan import (
    EngineState,
    HostMemory,
    SchedulerLimits,
    ServingSetup,
    StepPlan,
)
from simspec.serving.preemption._base import PREEMPTIONS
from simspec.serving.scheduling._base import SCHEDULERS
from simspec.serving.scheduling.continuous import Continuous
from simspec.serving.simulate import simulate
from simspec.workloads.request import Request
from tests.serving.fakes import FakeCost, limits, poisson, setup, together
from tests.serving.test_laws import crowded, setups
from tests.serving.test_with_real_parts import METHOD_OF, deployment, mixed, serving

DEPLOYMENTS = {name: deployment(method) for name, method in METHOD_OF.items()}


def same(drawn: ServingSetup, *, check: bool = False) -> None:
    by_step = simulate(replace(drawn, step_by_step=True), check=check)
    together = simulate(drawn, check=check)
    for table in ("requests", "steps"):
        one, other = getattr(together, table), getattr(by_step, table)
        for column in one.__slots__:
            assert np.array_equal(getattr(one, column), getattr(other, column), equal_nan=True), (
                table, column,
            )  # fmt: skip
    assert together.digest() == by_step.digest()


@settings(max_examples=300)
@given(setups())
def test_any_scenario_gives_the_same_records(drawn: ServingSetup):
    """Every policy, small pools and budgets, open and closed loop, a clock that is stopped."""
    same(drawn)


@given(crowded())
def test_where_room_is_short_the_records_are_the_same(drawn: ServingSetup):
    """Preemption, copies to the host and prompts that are found in most runs."""
    same(drawn)


@pytest.mark.parametrize("name", DEPLOYMENTS)
@given(data=st.data())
@settings(max_examples=12)
def test_every_method_gives_the_same_records(name: str, data: st.DataObject):
    """Real methods and prices, with prompts that ride along, preemption and caching; laws hold."""
    of = DEPLOYMENTS[name]
    policy = data.draw(st.sampled_from(SCHEDULERS.names()))
    host = HostMemory(500, of.budget.kv_bytes_per_token, 32e9)
    drawn = serving(
        of,
        mixed(25, data.draw(st.sampled_from([3.0, 30.0, 300.0]))),
        seed=data.draw(st.integers(0, 99)),
        num_blocks=data.draw(st.sampled_from([80, 200, 10_000])),
        concurrency=data.draw(st.none() | st.integers(1, 12)),
        max_simulated_s=data.draw(st.none() | st.floats(0.01, 2.0)),
        prefix_caching=data.draw(st.booleans()),
        host=data.draw(st.sampled_from([None, host])),
        limits=replace(
            of.limits,
            policy=policy,
            preemption=data.draw(st.sampled_from(PREEMPTIONS.names())),
            max_num_seqs=data.draw(st.sampled_from([2, 8, 256])),
            max_num_batched_tokens=data.draw(st.sampled_from([512, 8192])),
            chunked_prefill=True,
        ),
    )
    same(drawn, check=True)


def test_steps_that_take_no_time_are_the_same():
    """An arrival at the end of a step, and steps that end where they began."""
    free = FakeCost(pass_s=0.0, token_s=0.0, kv_token_s=0.0)
    even = FakeCost(pass_s=0.5, token_s=0.0, kv_token_s=0.0)
    load = [Request(i, 0.5 * i, 20, 7) for i in range(9)]
    for cost in (free, even):
        for policy in SCHEDULERS.names():
            for max_draft in (0, 3):
                same(setup(load, cost=cost, max_draft=max_draft, scheduler=limits(policy)))


def test_a_clock_that_starts_late_meets_every_time_exactly():
    """Times of very different size: delays are rounded, the times of steps are not."""
    load = [Request(i, arrival, 9, 5) for i, arrival in enumerate([1e-9, 0.3, 1.7, 3e5])]
    for pass_s in (0.1, 1 / 3, 777.7):
        cost = FakeCost(pass_s=pass_s)
        same(setup(load, cost=cost))
        same(setup(load, cost=cost, max_draft=2, max_simulated_s=1e4))


def test_long_stays_are_the_same():
    """More steps than the durations that are remembered."""
    same(setup(together((10, 10_000), (40, 9_000), (5, 30))))
    same(setup(together((10, 10_000), (40, 9_000)), max_draft=1, alpha=0.1))


def test_an_unknown_policy_is_followed_step_by_step():
    """A policy that makes no promise sees every sequence up to date in every step."""
    seen: list[bool] = []

    class Own:
        def __init__(self, limits: SchedulerLimits, slots: int) -> None:
            self.inner = Continuous(limits, slots, PREEMPTIONS.config_class("recompute")().build())  # type: ignore[attr-defined]

        def schedule(self, state: EngineState) -> StepPlan:
            ready = [s for s in state.running if s.context_len >= s.prefill_target]
            seen.extend(s.context_len == s.prompt_len + s.emitted - 1 for s in ready)
            return self.inner.schedule(state)

    def build(given: ServingSetup) -> Own:
        return Own(given.limits, 1)

    load = poisson(20, 50.0, prompt_len=20, output_len=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simspec.serving.replica.build_scheduler", build)
        own = simulate(setup(load))
    assert all(seen)
    assert len(seen) > 100
    assert own.digest() == simulate(setup(load)).digest()


def test_a_plain_step_looks_at_nobody():
    """With nobody waiting nothing is written out for a decode step but its numbers."""
    of = DEPLOYMENTS["autoregressive"]
    asked = 0

    class Watched(CostModel):
        def step(self, passes: Sequence[object], num_sequences: object) -> object:  # type: ignore[override]
            nonlocal asked
            asked += 1
            return super().step(passes, num_sequences)  # type: ignore[arg-type]

    cost = Watched(of.cost.stacks, of.cost.hardware, of.cost.engine)
    run = simulate(serving(of, mixed(20, 5.0), cost=cost))
    assert asked <= (run.steps.num_prefilling > 0).sum()
    assert run.steps.start_s.size > 5 * asked
