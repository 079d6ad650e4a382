"""The paged KV pool: how many blocks each request holds, and how many are free.

A block holds the keys and values of ``block_size_tokens`` tokens in every layer (vLLM's paged
attention, arXiv:2309.06180, section 4.1). Which physical block a request gets changes nothing
in time or capacity, so only counts are kept: every operation is a dictionary look-up and one
addition. Left out: sharing of blocks between requests (prefix caching).

Law: after every operation the blocks held by all requests plus the free ones are the pool.
Blocks may be reserved for several requests at once and assigned to each of them later.
"""

from __future__ import annotations


class BlockPool:
    """The KV blocks of one replica. Ask first (``can_allocate``), then act (``allocate``).

    Parameters
    ----------
    num_blocks : int
        Blocks in the pool.
    block_size_tokens : int, tokens
        Tokens in one block.

    Attributes
    ----------
    num_blocks, block_size_tokens : int
        As given.
    num_free_blocks : int
        Blocks no request holds. Read it, never set it.
    """

    __slots__ = ("_held", "_unassigned", "block_size_tokens", "num_blocks", "num_free_blocks")

    def __init__(self, num_blocks: int, block_size_tokens: int) -> None:
        assert num_blocks >= 0, num_blocks
        assert block_size_tokens >= 1, block_size_tokens
        self.num_blocks = num_blocks
        self.block_size_tokens = block_size_tokens
        self.num_free_blocks = num_blocks
        self._held: dict[int, int] = {}
        self._unassigned = 0

    @property
    def num_used_blocks(self) -> int:
        """Blocks that requests hold."""
        return self.num_blocks - self.num_free_blocks

    @property
    def num_requests(self) -> int:
        """Requests that hold blocks."""
        return len(self._held)

    def blocks_for(self, num_tokens: int) -> int:
        """Return the blocks that ``num_tokens`` tokens of one request take."""
        return -(-num_tokens // self.block_size_tokens)

    def held_blocks(self, request_id: int) -> int:
        """Return the blocks the request holds, 0 if none."""
        return self._held.get(request_id, 0)

    def can_allocate(self, num_blocks: int) -> bool:
        """Return whether ``num_blocks`` more blocks are free. Changes nothing."""
        return num_blocks <= self.num_free_blocks

    def allocate(self, request_id: int, num_blocks: int) -> None:
        """Give the request ``num_blocks`` more blocks; only after ``can_allocate`` said yes."""
        assert 0 <= num_blocks <= self.num_free_blocks, (request_id, num_blocks)
        self.num_free_blocks -= num_blocks
        self._held[request_id] = self._held.get(request_id, 0) + num_blocks

    def reserve(self, num_blocks: int) -> None:
        """Take ``num_blocks`` blocks for requests to be named later; a negative number returns."""
        assert num_blocks <= self.num_free_blocks, (num_blocks, self.num_free_blocks)
        self.num_free_blocks -= num_blocks
        self._unassigned += num_blocks

    def assign(self, request_id: int, num_blocks: int) -> None:
        """Name the request that holds ``num_blocks`` of the reserved blocks."""
        self._unassigned -= num_blocks
        self._held[request_id] = self._held.get(request_id, 0) + num_blocks

    def shrink(self, request_id: int, num_blocks: int) -> None:
        """Take ``num_blocks`` blocks back, for example those of rejected drafts."""
        held = self._held[request_id]
        assert 0 <= num_blocks <= held, (request_id, num_blocks, held)
        self._held[request_id] = held - num_blocks
        self.num_free_blocks += num_blocks

    def free(self, request_id: int) -> int:
        """Take all blocks of the request back and return how many they were."""
        held = self._held.pop(request_id)
        self.num_free_blocks += held
        return held

    def check(self) -> None:
        """Assert conservation: held + free = pool, and nothing is negative."""
        assert self._unassigned == 0, self._unassigned
        held = sum(self._held.values())
        assert held + self.num_free_blocks == self.num_blocks, (held, self.num_free_blocks)
        assert self.num_free_blocks >= 0, self.num_free_blocks
        assert all(blocks >= 0 for blocks in self._held.values()), self._held
