"""What each scheduling policy puts into a step, without a clock."""

from __future__ import annotations

import importlib
from collections import deque
from pathlib import Path

import pytest

from simspec.memory.blocks import BlockPool
from simspec.serving.plan import EngineState, SequenceState, StepPlan
from simspec.serving.preemption.recompute import Recompute
from simspec.serving.scheduling._base import SCHEDULERS, Scheduler, SchedulerConfig
from simspec.serving.simulate import simulate
from tests.serving.fakes import FakeCost, limits, setup, together


def scheduler(policy: str, *, round_slots: int = 1, **given: int | bool) -> Scheduler:
    config = SCHEDULERS.config_class(policy)()
    assert isinstance(config, SchedulerConfig)
    return config.build(limits(policy, **given), round_slots, Recompute())  # type: ignore[arg-type]


def state(*prompts: int, decoding: int = 0, num_blocks: int = 100) -> EngineState:
    """``decoding`` sequences with 16 KV tokens each, and waiting prompts."""
    engine = EngineState(BlockPool(num_blocks, 16))
    for i in range(decoding):
        engine.blocks.allocate(100 + i, 2)
        engine.running.append(
            SequenceState(
                100 + i, 16, 50, 0.0, 16, 0.0, context_len=16, capacity_tokens=32, emitted=1
            )
        )
    engine.waiting = deque(SequenceState(i, n, 50, 0.0, n, 0.0) for i, n in enumerate(prompts))
    return engine


def contents(plan: StepPlan) -> tuple[list[int], list[tuple[int, int]]]:
    decoding = [s.request_id for s in plan.decoding]
    chunks = [(s.request_id, n) for s, n in zip(plan.prefilling, plan.chunks, strict=True)]
    return decoding, chunks


def test_continuous_mixes_rounds_and_prompts_in_one_budget():
    """Rounds take K + 1 tokens each, prompts the rest, the last one a chunk."""
    plan = scheduler("continuous", round_slots=6, max_num_batched_tokens=100).schedule(
        state(50, 70, 20, decoding=2)
    )
    assert contents(plan) == ([100, 101], [(0, 50), (1, 38)])


def test_continuous_finishes_a_started_prompt_before_the_next():
    """A chunked prompt continues before anybody is admitted."""
    engine = state(150, 20)
    policy = scheduler("continuous", max_num_batched_tokens=100)
    first = policy.schedule(engine)
    assert contents(first) == ([], [(0, 100)])
    engine.running[0].context_len = 100
    assert contents(policy.schedule(engine)) == ([], [(0, 50), (1, 20)])


def test_continuous_without_chunks_admits_whole_prompts_in_order():
    """The first prompt that does not fit holds back the smaller ones behind it."""
    policy = scheduler("continuous", max_num_batched_tokens=100, chunked_prefill=False)
    assert contents(policy.schedule(state(60, 60, 10))) == ([], [(0, 60)])


def test_continuous_admits_up_to_max_num_seqs():
    """Running and admitted sequences together stay within the limit."""
    plan = scheduler("continuous", max_num_seqs=3).schedule(state(10, 10, 10, decoding=2))
    assert contents(plan) == ([100, 101], [(0, 10)])


def test_continuous_admits_while_blocks_last():
    """The blocks of the whole prompt must be free, even if the budget splits it."""
    plan = scheduler("continuous").schedule(state(40, 40, num_blocks=5))
    assert contents(plan) == ([], [(0, 40)])


def test_a_sequence_without_budget_sits_out_and_nobody_is_admitted():
    """The budget covers two rounds of six; the third sequence waits, and so does the prompt."""
    plan = scheduler("continuous", round_slots=6, max_num_batched_tokens=16).schedule(
        state(10, decoding=3)
    )
    assert contents(plan) == ([100, 101], [])


class ToTheBack:
    """Preemption that sends the latest sequence to the end of the queue."""

    def evict(self, engine: EngineState, victim: SequenceState) -> SequenceState:
        engine.running.remove(victim)
        engine.blocks.free(victim.request_id)
        engine.waiting.append(victim)
        return victim


def test_nobody_is_admitted_in_a_step_that_preempts():
    """The blocks just taken from a victim are for the rounds, even if one is left over."""
    engine = state(10, decoding=3, num_blocks=7)
    for sequence in engine.running:
        sequence.context_len = 32
    config = SCHEDULERS.config_class("continuous")()
    assert isinstance(config, SchedulerConfig)
    plan = config.build(limits(), 1, ToTheBack()).schedule(engine)
    assert [s.request_id for s in plan.preempted] == [102]
    assert contents(plan) == ([100, 101], [])
    assert [s.request_id for s in engine.waiting] == [0, 102]
    assert engine.blocks.num_free_blocks == 1


def test_prefill_first_stops_the_rounds_for_prompts():
    """As long as somebody can be admitted, the step holds prompts only."""
    engine = state(10, decoding=2)
    policy = scheduler("prefill_first")
    assert contents(policy.schedule(engine)) == ([], [(0, 10)])
    engine.running[-1].context_len = 10
    assert contents(policy.schedule(engine)) == ([100, 101, 0], [])


def test_static_lets_nobody_join():
    """A batch decodes to its end while others wait, then the next batch starts."""
    one_second = FakeCost(pass_s=1.0, token_s=0.0, kv_token_s=0.0)
    run = simulate(
        setup(together((10, 2), (10, 5), (10, 2)), cost=one_second,
              scheduler=limits("static", max_num_seqs=2)),
        check=True,
    )  # fmt: skip
    assert run.requests.admission_s.tolist() == [0.0, 0.0, 5.0]
    assert run.steps.num_decoding.tolist() == [0, 2, 1, 1, 1, 0, 1]


def test_static_prefills_the_whole_batch_before_decoding():
    """The budget spreads the prompts over steps; nobody decodes meanwhile."""
    run = simulate(
        setup(together((10, 3), (10, 3)), scheduler=limits("static", max_num_batched_tokens=12)),
        check=True,
    )
    assert run.steps.prefill_tokens.tolist() == [12, 8, 0, 0]
    assert run.steps.num_decoding.tolist() == [0, 0, 2, 2]


def test_the_policy_of_the_guide_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The example of ``docs/extending/policy.md`` admits the shortest prompt first."""
    page = (Path(__file__).parents[2] / "docs" / "extending" / "policy.md").read_text()
    (tmp_path / "shortest_prompt.py").write_text(page.split("```python\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    config = importlib.import_module("shortest_prompt").Config()
    policy = config.build(limits(max_num_seqs=2), 1, Recompute())
    assert contents(policy.schedule(state(40, 20, 30))) == ([], [(1, 20), (2, 30)])
