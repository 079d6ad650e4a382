"""What prompts share, against a cache simulated block by block."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.workloads.detect import detect
from simspec.workloads.linked import Prefixes
from simspec.workloads.prefix_reuse import cache_for, cache_sizes, prefix_reuse
from simspec.workloads.request_log import read_log
from tests.helpers.shared import shared

PROMPTS = st.lists(st.lists(st.integers(0, 9), max_size=6, unique=True), min_size=1, max_size=25)


def by_hand(prompts: list[list[int]]) -> list[int]:
    """Return the reuse distance of each hit, from a stack of blocks by last use."""
    stack: list[int] = []
    seen: set[int] = set()
    found = []
    for own in prompts:
        num_hits = 0
        while num_hits < len(own) and own[num_hits] in seen:
            num_hits += 1
        seen.update(own)
        for index, block in reversed(list(enumerate(own))):
            if block in stack:
                if index < num_hits:
                    found.append(len(stack) - 1 - stack.index(block))
                stack.remove(block)
            stack.append(block)
    return sorted(found)


@given(prompts=PROMPTS)
def test_distances_are_those_of_a_stack_of_blocks(prompts: list[list[int]]) -> None:
    """Distances, counts and shares agree with the stack, whatever repeats."""
    prefixes = Prefixes(tuple(map(tuple, prompts)), 16)
    reuse = prefix_reuse(prefixes, np.arange(len(prompts), dtype=np.float64))
    total = sum(map(len, prompts))
    if reuse is None:
        assert total == 0
        return
    expected = by_hand(prompts)
    assert reuse.distances.tolist() == expected
    assert reuse.num_blocks == total
    assert reuse.num_distinct == len({b for own in prompts for b in own})
    assert reuse.hit_share == len(expected) / total
    for size in cache_sizes(reuse):
        assert reuse.hit_share_of(size) == sum(d < size for d in expected) / total
    assert reuse.hit_share_of(cache_sizes(reuse)[-1]) == reuse.hit_share


def test_a_second_visit_is_as_old_as_the_time_between() -> None:
    """Two equal prompts of three blocks, ten seconds apart: three hits at distance two."""
    reuse = prefix_reuse(Prefixes(((1, 2, 3), (1, 2, 3)), 512), np.array([5.0, 15.0]))
    assert reuse is not None
    assert reuse.distances.tolist() == [2, 2, 2]
    assert reuse.ages_s.tolist() == [10.0] * 3
    assert cache_for(reuse, 0.9) == 3


def test_the_mooncake_trace_repeats_as_published() -> None:
    """36.6 % of the blocks; a cache of 16 million tokens has nine tenths of those hits."""
    path = shared("traces/mooncake/conversation_trace.jsonl.gz")
    log = read_log(detect(path), path)
    assert log.prefixes is not None
    reuse = prefix_reuse(log.prefixes, log.times_s)
    assert reuse is not None
    assert reuse.hit_share == pytest.approx(0.366, abs=0.0005)
    assert reuse.num_distinct == 182_790
    assert reuse.hit_share_of(cache_for(reuse, 0.9) or 0) == pytest.approx(
        0.9 * reuse.hit_share, rel=1e-3
    )
