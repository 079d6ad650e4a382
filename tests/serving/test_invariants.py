"""The checks of the laws notice when a law is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simspec.memory.blocks import BlockPool
from simspec.serving import invariants
from simspec.serving.plan import EngineState, SequenceState, StepPlan
from simspec.serving.records import RunRecords
from simspec.serving.simulate import simulate
from tests.serving.fakes import limits, poisson, setup


def run() -> RunRecords:
    return simulate(setup(poisson(20, 20.0, prompt_len=10, output_len=9), max_draft=3))


def steps(column: str, change: int | float) -> Callable[[RunRecords], RunRecords]:
    return lambda r: replace(
        r, steps=replace(r.steps, **{column: _bumped(getattr(r.steps, column), change)})
    )


def requests(column: str, change: int | float) -> Callable[[RunRecords], RunRecords]:
    return lambda r: replace(
        r, requests=replace(r.requests, **{column: _bumped(getattr(r.requests, column), change)})
    )


def _bumped(values: np.ndarray, change: int | float) -> np.ndarray:
    values = values.copy()
    values[5] += change
    return values


@pytest.mark.parametrize(
    ("law", "spoil"),
    [
        (1, requests("request_id", 1)),
        (1, requests("fate", 7)),
        (1, requests("fate", 1)),
        (2, requests("emitted", -1)),
        (2, steps("emitted", 1)),
        (2, steps("num_prefilled", 1)),
        (3, steps("drafted", -100)),
        (3, requests("drafted", 1)),
        (4, steps("kv_blocks_used", 10**6)),
        (5, steps("start_s", -1e-3)),
        (5, steps("duration_s", -1.0)),
        (6, requests("admission_s", 1e3)),
        (6, requests("first_token_s", -1e3)),
        (8, requests("arrival_s", -1e-6)),
        (17, steps("prefill_tokens", 1)),
        (17, requests("recomputed_tokens", 1)),
        (17, requests("recomputed_tokens", -1)),
        (17, requests("cached_tokens", 10)),
    ],
)
def test_records_that_break_a_law_are_noticed(law: int, spoil: Callable[[RunRecords], RunRecords]):
    """One wrong number in one row fails the check, which names the law."""
    records = run()
    invariants.at_end(records)
    with pytest.raises(AssertionError, match=f"law {law}: "):
        invariants.at_end(spoil(records))


def state() -> EngineState:
    engine = EngineState(BlockPool(10, 16))
    engine.blocks.allocate(0, 2)
    engine.running.append(
        SequenceState(0, 16, 9, 0.0, 16, 0.0, context_len=18, capacity_tokens=32, emitted=3)
    )
    engine.waiting.append(SequenceState(1, 5, 9, 0.0, 5, 0.0))
    away = SequenceState(2, 16, 9, 0.0, 16, 0.0, swapped_tokens=18, emitted=3)
    engine.host = BlockPool(4, 16)
    engine.host.allocate(2, 2)
    engine.waiting.append(away)
    return engine


@pytest.mark.parametrize(
    ("law", "spoil"),
    [
        (4, lambda e: e.blocks.allocate(0, 1)),
        (4, lambda e: e.blocks.allocate(7, 1)),
        (12, lambda e: setattr(e.running[0], "context_len", 19)),
        (12, lambda e: setattr(e.running[0], "context_len", 33)),
        (12, lambda e: (e.blocks.allocate(0, 1), setattr(e.running[0], "capacity_tokens", 48))),
        (13, lambda e: setattr(e, "running", e.running * 9)),
        (14, lambda e: setattr(e.waiting[0], "context_len", 1)),
        (14, lambda e: setattr(e.waiting[0], "prefill_target", 4)),
        (16, lambda e: setattr(e.waiting[0], "swapped_tokens", 3)),
        (16, lambda e: setattr(e.waiting[0], "swapped_tokens", 6)),
        (16, lambda e: setattr(e, "host", None)),
        (16, lambda e: e.host.allocate(0, 1)),
    ],
)
def test_states_that_break_a_law_are_noticed(law: int, spoil: Callable[[EngineState], None]):
    """Between two steps blocks, KV and limits are checked."""
    engine, plan = state(), StepPlan()
    invariants.after_step(engine, plan, limits(), 4)
    if law == 13:
        # Nine copies of one sequence own nine times its blocks.
        engine.blocks.free(0)
        engine.blocks = BlockPool(10**3, 16)
        engine.running[0].capacity_tokens = 0
        engine.running[0].context_len = 0
        engine.running[0].prefill_target = 19
    spoil(engine)
    with pytest.raises(AssertionError, match=f"law {law}: "):
        invariants.after_step(engine, plan, limits(), 4)


def test_a_step_above_the_budget_is_noticed():
    """Rounds count K + 1 tokens each against the budget."""
    engine = state()
    plan = StepPlan(decoding=list(engine.running), chunks=[253], prefilling=list(engine.running))
    with pytest.raises(AssertionError, match="law 13: 257 tokens"):
        invariants.after_step(engine, plan, limits(), 4)


def test_a_lost_request_is_noticed():
    """Law 1: fates and those still to come add up to the workload."""
    records = run()
    invariants.nobody_is_lost(records, 20)
    with pytest.raises(AssertionError, match="law 1: 21 requests, 20 are accounted for"):
        invariants.nobody_is_lost(records, 21)


def test_an_idle_engine_with_work_is_noticed():
    """Law 11."""
    with pytest.raises(AssertionError, match="law 11"):
        invariants.when_idle(state())


def test_a_step_faster_than_the_roofs_is_noticed():
    """Law 9: FLOP at peak and bytes at full bandwidth bound the duration from below."""
    records = run()
    invariants.within_roofs(records, 1e12, 1e12)
    fastest = float((records.steps.bytes / records.steps.duration_s).max())
    with pytest.raises(AssertionError, match="law 9: bytes"):
        invariants.within_roofs(records, 1e12, 0.999 * fastest)
    with pytest.raises(AssertionError, match="law 9: FLOP"):
        invariants.within_roofs(records, 1.0, 1e12)


def test_every_law_is_on_its_page():
    """``docs/invariants.md`` numbers the laws 1 to 17."""
    page = (Path(__file__).parents[2] / "docs" / "invariants.md").read_text()
    for law in range(1, 18):
        assert f"| {law} |" in page, law
