"""The paged pool conserves its blocks under every order of operations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from simspec.memory.blocks import BlockPool


class Requests(RuleBasedStateMachine):
    """Requests come, grow, shrink and go; a plain dictionary keeps the same books."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(num_blocks=50, block_size_tokens=16)
        self.books: dict[int, int] = {}

    @rule(request=st.integers(0, 5), blocks=st.integers(0, 60))
    def grow(self, request: int, blocks: int) -> None:
        free_before = self.pool.num_free_blocks
        allowed = self.pool.can_allocate(blocks)
        assert self.pool.num_free_blocks == free_before
        assert allowed == (blocks + sum(self.books.values()) <= 50)
        if allowed:
            self.pool.allocate(request, blocks)
            self.books[request] = self.books.get(request, 0) + blocks

    @rule(request=st.integers(0, 5), blocks=st.integers(0, 60))
    def shrink(self, request: int, blocks: int) -> None:
        if blocks <= self.books.get(request, -1):
            self.pool.shrink(request, blocks)
            self.books[request] -= blocks

    @rule(request=st.integers(0, 5))
    def leave(self, request: int) -> None:
        if request in self.books:
            assert self.pool.free(request) == self.books.pop(request)

    @invariant()
    def blocks_are_conserved(self) -> None:
        """Held plus free is the pool, after every operation, and nothing is negative."""
        self.pool.check()
        assert self.pool.num_used_blocks == sum(self.books.values())
        assert self.pool.num_requests == len(self.books)
        for request, held in self.books.items():
            assert self.pool.held_blocks(request) == held


TestRequests = Requests.TestCase


@given(st.integers(0, 100_000), st.integers(1, 256))
def test_blocks_for_tokens_round_up(num_tokens: int, block_size: int) -> None:
    """A request takes the fewest blocks that hold its tokens."""
    blocks = BlockPool(1, block_size).blocks_for(num_tokens)
    assert blocks * block_size >= num_tokens
    assert (blocks - 1) * block_size < num_tokens


def test_a_request_that_holds_nothing() -> None:
    """Asking about an unknown request says zero."""
    assert BlockPool(4, 16).held_blocks(7) == 0


def test_acting_without_asking_is_a_bug() -> None:
    """Taking more than is free, or giving back more than is held, fails at once."""
    pool = BlockPool(4, 16)
    pool.allocate(1, 3)
    with pytest.raises(AssertionError):
        pool.allocate(2, 2)
    with pytest.raises(AssertionError):
        pool.shrink(1, 4)
    with pytest.raises(KeyError):
        pool.free(2)
    pool.check()


def test_blocks_reserved_for_several_are_assigned_to_each() -> None:
    """Reserved blocks are not free, and until all are assigned the books do not close."""
    pool = BlockPool(num_blocks=10, block_size_tokens=16)
    pool.reserve(5)
    assert pool.num_free_blocks == 5
    assert not pool.can_allocate(6)
    pool.assign(1, 3)
    with pytest.raises(AssertionError):
        pool.check()
    pool.reserve(-1)
    pool.assign(2, 1)
    pool.check()
    assert (pool.held_blocks(1), pool.held_blocks(2), pool.num_used_blocks) == (3, 1, 4)
    with pytest.raises(AssertionError):
        pool.reserve(7)
