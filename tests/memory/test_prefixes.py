"""The pool that finds prompts again conserves its blocks, and forgets the least recently used."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from simspec.memory.prefixes import PrefixPool

NUM_BLOCKS, PER_PIECE = 30, 2


class Prompts(RuleBasedStateMachine):
    """Prompts over a small alphabet come, publish, grow and go; a list of texts knows the cache."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PrefixPool(NUM_BLOCKS, 16)
        self.texts: dict[int, tuple[int, ...]] = {}
        self.published: dict[int, int] = {}
        self.gone: list[tuple[int, ...]] = []

    @rule(request=st.integers(0, 4), text=st.lists(st.integers(0, 1), max_size=5).map(tuple))
    def come(self, request: int, text: tuple[int, ...]) -> None:
        if request in self.texts:
            return
        found = self.pool.find(text, len(text))
        assert [piece.key for piece in found] == list(text[: len(found)])
        known = [self.texts[r][:n] for r, n in self.published.items()] + self.gone
        assert any(text[: len(found)] == other[: len(found)] for other in [*known, ()])
        mine = PER_PIECE * (len(text) - len(found)) + 1
        free = self.pool.num_free_blocks
        idle = PER_PIECE * sum(not piece.num_users for piece in found)
        assert self.pool.can_take(found, mine) == (mine + idle <= free)
        if not self.pool.can_take(found, mine):
            return
        self.pool.take(request, found)
        self.pool.allocate(request, mine)
        self.texts[request], self.published[request] = text, len(found)
        assert self.pool.num_free_blocks == free - mine - idle

    @rule(request=st.integers(0, 4), count=st.integers(0, 5))
    def publish(self, request: int, count: int) -> None:
        if request in self.texts and count >= self.published[request]:
            text = self.texts[request]
            self.published[request] = count = min(count, len(text))
            self.pool.publish(request, text, count, PER_PIECE)
            assert len(self.pool.find(text, count)) == count

    @rule(request=st.integers(0, 4), blocks=st.integers(1, 9))
    def grow(self, request: int, blocks: int) -> None:
        if request in self.texts and self.pool.can_allocate(blocks):
            self.pool.allocate(request, blocks)
            self.pool.shrink(request, blocks // 2)

    @rule(request=st.integers(0, 4))
    def leave(self, request: int) -> None:
        if request in self.texts:
            held = self.pool.held_blocks(request)
            assert self.pool.free(request) == held
            self.gone.append(self.texts.pop(request)[: self.published.pop(request)])

    @invariant()
    def blocks_are_conserved(self) -> None:
        """Alone, shared and free blocks are the pool; what is in use can be found."""
        self.pool.check()
        assert self.pool.num_requests == len(self.texts)
        for request, text in self.texts.items():
            assert len(self.pool.find(text, 9)) >= self.published[request]


TestPrompts = Prompts.TestCase
TestPrompts.settings = settings(max_examples=60, stateful_step_count=30)


def cached(pool: PrefixPool, request: int, text: tuple[int, ...]) -> None:
    found = pool.find(text, len(text))
    pool.take(request, found)
    pool.allocate(request, PER_PIECE * (len(text) - len(found)))
    pool.publish(request, text, len(text), PER_PIECE)
    pool.free(request)


def test_the_least_recently_used_piece_goes_first_and_of_one_prompt_the_last():
    """Room is made from the ends of the prompts nobody has asked for the longest."""
    pool = PrefixPool(10, 16)
    cached(pool, 0, (1, 2))
    cached(pool, 1, (3, 4))
    cached(pool, 2, (1, 2))
    assert pool.num_free_blocks == 10
    assert pool.num_idle_blocks == 8
    pool.allocate(9, 3)
    assert [len(pool.find(text, 2)) for text in ((1, 2), (3, 4))] == [2, 1]
    pool.allocate(9, 3)
    assert [len(pool.find(text, 2)) for text in ((1, 2), (3, 4))] == [2, 0]
    pool.allocate(9, 2)
    assert [len(pool.find(text, 2)) for text in ((1, 2), (3, 4))] == [1, 0]
    pool.allocate(9, 2)
    assert pool.num_idle_blocks == pool.num_free_blocks == 0


def test_what_two_compute_at_once_is_held_once_as_soon_as_it_is_complete():
    """The second copy is given back, and the piece has two users."""
    pool = PrefixPool(10, 16)
    for request in (0, 1):
        pool.take(request, [])
        pool.allocate(request, 3)
    pool.publish(0, (7,), 1, PER_PIECE)
    assert pool.num_free_blocks == 4
    pool.publish(1, (7,), 1, PER_PIECE)
    assert pool.num_free_blocks == 6
    assert [pool.held_blocks(request) for request in (0, 1)] == [3, 3]
    (piece,) = pool.find((7,), 1)
    assert piece.num_users == 2
    pool.free(0)
    assert pool.num_idle_blocks == 0
    pool.free(1)
    assert pool.num_idle_blocks == 2
    pool.check()
