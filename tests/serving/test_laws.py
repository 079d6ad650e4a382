"""The numbered laws under random load, for every scheduling and preemption policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.registry import PluginConfig
from simspec.serving.plan import HostMemory, SchedulerLimits, ServingSetup
from simspec.serving.preemption._base import PREEMPTIONS
from simspec.serving.records import Fate
from simspec.serving.scheduling._base import SCHEDULERS
from simspec.serving.simulate import simulate
from simspec.workloads.request import Request
from tests.serving.fakes import setup, wandering


@st.composite
def setups(draw: st.DrawFn) -> ServingSetup:
    """Small pools and budgets, so that refusal, preemption and sitting out all happen."""
    sizes = draw(
        st.lists(
            st.tuples(st.sampled_from([0.0, 0.001, 0.1]), st.integers(1, 60), st.integers(1, 40)),
            max_size=12,
        )
    )
    arrivals = np.cumsum([gap for gap, _, _ in sizes])
    hashed = draw(st.sampled_from([0, 3, 4, 16]))
    contents = [draw(contents_of(i, prompt, hashed)) for i, (_, prompt, _) in enumerate(sizes)]
    classes = st.integers(0, 2)
    max_draft = draw(st.integers(0, 5))
    limits = SchedulerLimits(
        policy=draw(policies()),
        max_num_seqs=draw(st.integers(1, 6)),
        max_num_batched_tokens=draw(st.integers(max_draft + 1, 80)),
        chunked_prefill=draw(st.booleans()),
        preemption=draw(st.sampled_from(PREEMPTIONS.names())),
        ttft_target_s=draw(st.sampled_from([None, 0.05])),
    )
    drawn = setup(
        [
            Request(i, float(arrival), prompt, output, contents[i], hashed, draw(classes))
            for i, (arrival, (_, prompt, output)) in enumerate(zip(arrivals, sizes, strict=True))
        ],
        max_draft=max_draft,
        alpha=draw(st.sampled_from([0.0, 0.5, 0.9, 1.0])),
        concurrency=draw(st.none() | st.integers(1, 6)),
        num_blocks=draw(st.integers(1, 40)),
        block_size_tokens=draw(st.sampled_from([1, 4, 16])),
        scheduler=limits,
        seed=draw(st.integers(0, 5)),
        max_simulated_s=draw(st.none() | st.floats(0.001, 1.0)),
        speculation=wandering(max_draft, draw(st.integers(0, 5))) if draw(st.booleans()) else None,
    )
    host = draw(st.none() | st.integers(0, 40))
    return replace(
        drawn,
        prefix_caching=draw(st.booleans()),
        host=None if host is None else HostMemory(host, 1.0, draw(st.sampled_from([1e3, 1e6]))),
    )


@st.composite
def contents_of(draw: st.DrawFn, request: int, prompt_len: int, hashed: int) -> tuple[int, ...]:
    """Ids of a prompt's hashed blocks: one of two texts so far, then the request's own."""
    if not hashed:
        return ()
    count = -(-prompt_len // hashed)
    text, common = draw(st.integers(0, 1)), draw(st.integers(0, count))
    own = 1000 * (request + 1)
    return tuple(100 * text + i if i < common else own + i for i in range(count))


def policies() -> st.SearchStrategy[str | PluginConfig]:
    """Every policy by its name, and the priorities with other settings."""
    settings = [
        {"order": "deadline", "class_ttft_ms": {1: 10.0, 2: 500.0}},
        {"order": "deadline", "preempts": False},
        {"preempts": False},
    ]
    others = [SCHEDULERS.parse({"name": "priority", **given}) for given in settings]
    return st.sampled_from([*SCHEDULERS.names(), *others])


@st.composite
def crowded(draw: st.DrawFn) -> ServingSetup:
    """Many that come together in a pool of one or two: preemption and eviction all the time."""
    drawn = draw(setups())
    count, size = draw(st.integers(3, 9)), draw(st.sampled_from([1, 4]))
    prompts = draw(st.lists(st.integers(8, 40), min_size=count, max_size=count))
    load = [
        Request(i, 0.02 * draw(st.integers(0, 3)), prompt, draw(st.integers(5, 40)),
                draw(contents_of(i, prompt, 4)), 4, draw(st.integers(0, 2)))
        for i, prompt in enumerate(prompts)
    ]  # fmt: skip
    longest = max(r.prompt_len + r.output_len for r in load) + drawn.method.max_draft
    return replace(
        drawn,
        requests=load,
        concurrency=None,
        num_blocks=-(-longest * draw(st.integers(10, 20)) // (10 * size)),
        block_size_tokens=size,
        limits=replace(drawn.limits, max_num_seqs=6, max_num_batched_tokens=120),
    )


@given(crowded())
def test_every_law_holds_where_room_is_short(drawn: ServingSetup):
    """The same where most runs preempt, by every policy, with and without host memory."""
    simulate(drawn, check=True)


@given(
    st.integers(2, 6), st.integers(6, 30), st.integers(2, 30), st.integers(1, 5),
    st.sampled_from(["continuous", "priority", "prefill_first"]),
    st.sampled_from(PREEMPTIONS.names()),
)  # fmt: skip
def test_a_pool_just_large_enough_without_drafts_preempts_with_them(
    count: int, prompt: int, output: int, size: int, policy: str, preemption: str
):
    """K + 1 slots are reserved at the start of a round, whatever becomes of the drafts."""
    load = [Request(i, 0.0, prompt, output) for i in range(count)]
    limits = SchedulerLimits(policy, 8, 256, chunked_prefill=True, preemption=preemption)
    given = {"alpha": 0.0, "block_size_tokens": size, "scheduler": limits}
    peak = int(simulate(setup(load, **given)).steps.kv_blocks_used.max())  # type: ignore[arg-type]
    for max_draft in (0, 5):
        run = simulate(
            setup(load, max_draft=max_draft, num_blocks=peak, **given),  # type: ignore[arg-type]
            check=True,
        )
        assert set(run.requests.fate.tolist()) == {Fate.FINISHED}
        assert (run.requests.num_preemptions.sum() > 0) == (max_draft > 0)


@given(setups())
def test_every_law_holds_after_every_step(drawn: ServingSetup):
    """Tokens and blocks are conserved, times in order, KV matches text, nobody is lost."""
    run = simulate(drawn, check=True)
    assert run.requests.request_id.size + run.num_not_arrived == len(drawn.requests)
    if drawn.max_simulated_s is None:
        assert set(run.requests.fate.tolist()) <= {Fate.FINISHED, Fate.REFUSED}
        assert run.num_not_arrived == 0


@given(setups())
def test_the_same_setup_gives_the_same_bytes(drawn: ServingSetup):
    """Law 7, under every policy."""
    assert simulate(drawn).digest() == simulate(drawn).digest()


@pytest.mark.parametrize("policy", SCHEDULERS.names())
@given(data=st.data())
def test_rounds_depend_on_the_tape_alone(policy: str, data: st.DataObject):
    """Without preemption every policy needs the same rounds for the same requests."""
    lengths = data.draw(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=8))
    load = [Request(i, 0.0, prompt, output) for i, (prompt, output) in enumerate(lengths)]
    limits = SchedulerLimits(policy, data.draw(st.integers(1, 8)), 100, chunked_prefill=True)
    run = simulate(setup(load, max_draft=3, scheduler=limits))
    alone = simulate(setup(load, max_draft=3, concurrency=1))
    assert run.requests.num_rounds.tolist() == alone.requests.num_rounds.tolist()
