"""Prompts that are found in the cache: what is saved, and what is not."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest

from simspec.serving.plan import ServingSetup
from simspec.serving.records import RunRecords
from simspec.serving.simulate import simulate
from simspec.workloads.request import Request
from tests.helpers.shared import shared
from tests.serving.fakes import FakeCost, limits, setup

MOONCAKE = "traces/mooncake/conversation_trace.jsonl.gz"
HASHED = 512
ONE_SECOND = FakeCost(pass_s=1.0, token_s=0.0, kv_token_s=0.0)


def asking(*prompts: tuple[int, tuple[int, ...]], gap_s: float = 100.0) -> list[Request]:
    """Requests (prompt_len, ids of 16 tokens each), one after the other, two tokens each."""
    return [Request(i, i * gap_s, n, 2, ids, 16) for i, (n, ids) in enumerate(prompts)]


def caching(load: list[Request], **given: object) -> RunRecords:
    drawn: ServingSetup = setup(load, **given)  # type: ignore[arg-type]
    return simulate(replace(drawn, prefix_caching=True), check=True)


def test_a_prompt_computes_what_it_does_not_share():
    """Shared up to the first id that differs, in whole blocks."""
    run = caching(asking((70, (1, 2, 3, 4, 5)), (70, (1, 2, 8, 4, 9)), (64, (1, 2, 3, 4))))
    assert run.requests.cached_tokens.tolist() == [0, 32, 48]
    assert run.steps.prefill_tokens.tolist()[::2] == [70, 38, 16]
    # New tokens cost what they cost, and attend to the cached ones.
    took_s = [0.005 + 1e-5 * new + 1e-7 * seen for new, seen in ((70, 70), (38, 70), (16, 64))]
    assert (run.requests.first_token_s - run.requests.arrival_s).tolist() == pytest.approx(took_s)


def test_at_least_one_token_is_computed():
    """A prompt that is cached as a whole gives up its last block, for the logits of the next."""
    run = caching(asking((48, (1, 2, 3)), (48, (1, 2, 3))))
    assert run.requests.cached_tokens.tolist() == [0, 32]


def test_partial_blocks_are_not_shared():
    """The tail of a prompt fills no block, so equal ids of tails save nothing."""
    run = caching(asking((40, (1, 2, 3)), (40, (1, 2, 3))))
    assert run.requests.cached_tokens.tolist() == [0, 32]


def test_a_prompt_of_the_same_step_is_shared_already():
    """What is computed in this step is there for those behind in it."""
    run = caching(asking((40, (1, 2, 3)), (40, (1, 2, 9)), gap_s=0.0))
    assert run.requests.cached_tokens.tolist() == [0, 32]
    assert run.steps.prefill_tokens.tolist()[0] == 48
    # Two blocks together and one of each alone.
    assert run.steps.kv_blocks_used[0] == 4


def test_without_caching_the_hashes_change_nothing():
    """The same bytes with hashes and without, and with caching but without hashes."""
    told = asking((70, (1, 2, 3, 4, 5)), (70, (1, 2, 8, 4, 9)), gap_s=0.01)
    silent = [replace(request, block_hashes=(), hash_block_tokens=0) for request in told]
    plain = simulate(setup(silent)).digest()
    assert simulate(setup(told)).digest() == plain
    assert caching(silent).digest() == plain
    assert caching(told).digest() != plain


def test_blocks_of_the_cache_make_room():
    """Nobody waits for a block that only the cache holds; the least recently used ones go."""
    load = asking((32, (1, 2)), (32, (3, 4)), (33, (5, 6, 7)), (33, (3, 4, 8)), (33, (1, 2, 8)))
    run = caching(load, num_blocks=5)
    assert run.requests.queue_s.tolist() == [0.0] * 5
    assert run.requests.cached_tokens.tolist() == [0, 0, 0, 32, 0]


def test_a_preempted_request_finds_its_own_prompt():
    """What it threw away and finds again is not counted as recomputed, nor as cached."""
    load = [Request(0, 0.0, 32, 30, (1, 2), 16), Request(1, 0.0, 32, 30, (3, 4), 16)]
    plain = simulate(setup(load, num_blocks=6, cost=ONE_SECOND))
    run = caching(load, num_blocks=6, cost=ONE_SECOND)
    assert plain.requests.num_preemptions.tolist() == [0, 1]
    assert plain.requests.recomputed_tokens[1] == 48
    assert run.requests.recomputed_tokens[1] < 48
    assert run.requests.cached_tokens.tolist() == [0, 0]


def test_blocks_that_do_not_divide_are_shared_in_common_multiples():
    """Hashes of 24 tokens over blocks of 16: pieces of 48."""
    load = [Request(i, i * 9.0, 100, 2, (1, 2, 3, 4, 5), 24) for i in range(2)]
    run = caching(load)
    assert run.requests.cached_tokens.tolist() == [0, 96]


def mooncake(count: int) -> list[Request]:
    """The first requests of the trace, one output token each."""
    with gzip.open(shared(MOONCAKE), "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(count), strict=False)]
    return [
        Request(i, row["timestamp"] / 1e3, row["input_length"], 1, tuple(row["hash_ids"]), HASHED)
        for i, row in enumerate(rows)
    ]


def counted(load: list[Request]) -> list[int]:
    """Tokens of each prompt whose full blocks an earlier one had, leaving one to compute."""
    seen: set[int] = set()
    saved = []
    for request in load:
        full = request.block_hashes[: request.prompt_len // HASHED]
        most = (request.prompt_len - 1) // HASHED
        hits = next((i for i, each in enumerate(full) if each not in seen), len(full))
        saved.append(HASHED * min(hits, most))
        seen.update(full)
    return saved


def test_on_the_mooncake_trace_the_saved_tokens_are_those_that_a_count_of_its_hashes_gives():
    """Request by request with a pool that never runs out; fewer with a small one."""
    load = mooncake(3000)
    due = counted(load)
    wide = limits(max_num_seqs=64, max_num_batched_tokens=8192)
    cost = FakeCost(pass_s=0.001, token_s=0.0)
    drawn = replace(setup(load, num_blocks=10**7, scheduler=wide, cost=cost), prefix_caching=True)
    run = simulate(drawn)
    assert run.requests.cached_tokens.tolist() == due
    assert sum(due) > 0.2 * sum(request.prompt_len for request in load)
    saved = int(run.requests.prompt_len.sum()) - int(run.steps.prefill_tokens.sum())
    assert saved == sum(due)
    small = simulate(replace(drawn, num_blocks=20_000))
    assert 0 < small.requests.cached_tokens.sum() < 0.9 * sum(due)
