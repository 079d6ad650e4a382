"""The paged KV pool with prefix caching: blocks that prompts with the same beginning share.

A *piece* is a run of prompt tokens that is known by content and fills whole KV blocks; a prompt
says its pieces as keys, and two prompts share their text up to the first key that differs. So the
cached pieces form a tree, and a prompt finds the longest path from the root that agrees with it.
Pieces are counted by user. One that nobody uses stays in the cache until its blocks are needed,
and goes in the order of last use, of one request's pieces the last first: the rules of vLLM's
``v1/core/block_pool.py`` and ``kv_cache_utils.py``.

Unlike there, a request that computed what somebody else computed meanwhile gives its copy back
(as SGLang's radix tree does), so that pieces in use have users all the way up to the root; and the
blocks of a piece that several KV blocks make up are cached and given up together (decision:
docs/decisions/0007-shared-prompts-and-swapped-kv.md). Left out:
sharing of what was generated, since nothing says what a client sends back.

Law: blocks of requests alone + blocks of pieces in use + free ones are the pool, and pieces that
nobody uses are within the free ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from simspec.memory.blocks import BlockPool


class Piece:
    """One cached run of prompt tokens, below those in front of it.

    Attributes
    ----------
    key : hashable
        What tells it apart from its siblings.
    parent : Piece or None
        The piece in front of it; None for the root.
    num_blocks : int
        KV blocks that it fills.
    num_users : int
        Requests that hold it.
    children : dict
        The pieces that follow it, by key.
    """

    __slots__ = ("children", "key", "num_blocks", "num_users", "parent")

    def __init__(self, key: Hashable, parent: Piece | None, num_blocks: int) -> None:
        self.key = key
        self.parent = parent
        self.num_blocks = num_blocks
        self.num_users = 0
        self.children: dict[Hashable, Piece] = {}


class PrefixPool(BlockPool):
    """A block pool whose prompt blocks can be found again.

    ``num_free_blocks`` counts the blocks of cached pieces that nobody uses: they are given up as
    soon as they are needed.

    Parameters
    ----------
    num_blocks : int
        Blocks in the pool.
    block_size_tokens : int, tokens
        Tokens in one block.
    """

    __slots__ = ("_idle", "_num_idle_blocks", "_paths", "_root", "_shared")

    def __init__(self, num_blocks: int, block_size_tokens: int) -> None:
        super().__init__(num_blocks, block_size_tokens)
        self._root = Piece(None, None, 0)
        self._idle: OrderedDict[Piece, None] = OrderedDict()
        self._num_idle_blocks = 0
        self._paths: dict[int, list[Piece]] = {}
        self._shared: dict[int, int] = {}

    @property
    def num_idle_blocks(self) -> int:
        """Free blocks whose content can still be found."""
        return self._num_idle_blocks

    @property
    def num_requests(self) -> int:
        """Requests that hold blocks."""
        return len(self._held.keys() | self._paths.keys())

    def held_blocks(self, request_id: int) -> int:
        """Return the blocks the request holds, alone or with others."""
        return super().held_blocks(request_id) + self._shared.get(request_id, 0)

    # -- looking -----------------------------------------------------------------------------

    def find(self, keys: Sequence[Hashable], most: int) -> list[Piece]:
        """Return the cached pieces a prompt begins with, at most ``most``. Changes nothing."""
        found: list[Piece] = []
        piece = self._root
        for key in keys[:most]:
            child = piece.children.get(key)
            if child is None:
                break
            found.append(child)
            piece = child
        return found

    def can_take(self, found: Sequence[Piece], num_blocks: int) -> bool:
        """Return whether those pieces and ``num_blocks`` blocks beside them can be had at once."""
        idle = sum(piece.num_blocks for piece in found if not piece.num_users)
        return idle + num_blocks <= self.num_free_blocks

    # -- holding -----------------------------------------------------------------------------

    def take(self, request_id: int, found: Sequence[Piece]) -> None:
        """Give a request that holds nothing yet the pieces found; after ``can_take`` said yes."""
        assert request_id not in self._paths, request_id
        self._paths[request_id] = list(found)
        self._shared[request_id] = sum(piece.num_blocks for piece in found)
        for piece in found:
            self._use(piece)

    def allocate(self, request_id: int, num_blocks: int) -> None:
        """Give the request ``num_blocks`` more blocks; only after ``can_allocate`` said yes."""
        super().allocate(request_id, num_blocks)
        if self._num_idle_blocks > self.num_free_blocks:
            self._forget()

    def reserve(self, num_blocks: int) -> None:
        """Take ``num_blocks`` blocks for requests to be named later; a negative number returns."""
        super().reserve(num_blocks)
        if self._num_idle_blocks > self.num_free_blocks:
            self._forget()

    def publish(
        self, request_id: int, keys: Sequence[Hashable], num_pieces: int, blocks_per_piece: int
    ) -> None:
        """Let others find the first ``num_pieces`` pieces of a request, which holds their blocks.

        What is cached already is used together from now on, and the request's own copy is free.
        """
        path = self._paths[request_id]
        for key in keys[len(path) : num_pieces]:
            parent = path[-1] if path else self._root
            piece = parent.children.get(key)
            self._held[request_id] -= blocks_per_piece
            assert self._held[request_id] >= 0, request_id
            if piece is None:
                piece = Piece(key, parent, blocks_per_piece)
                piece.num_users = 1
                parent.children[key] = piece
            else:
                self.num_free_blocks += blocks_per_piece
                self._use(piece)
            self._shared[request_id] += blocks_per_piece
            path.append(piece)

    def free(self, request_id: int) -> int:
        """Take all blocks of the request back and return how many it held."""
        held = super().free(request_id) if request_id in self._held else 0
        # The last piece is given up first, so it goes into the queue first.
        for piece in reversed(self._paths.pop(request_id, ())):
            piece.num_users -= 1
            held += piece.num_blocks
            if not piece.num_users:
                self._idle[piece] = None
                self._num_idle_blocks += piece.num_blocks
                self.num_free_blocks += piece.num_blocks
        self._shared.pop(request_id, None)
        return held

    def _use(self, piece: Piece) -> None:
        if not piece.num_users:
            del self._idle[piece]
            self._num_idle_blocks -= piece.num_blocks
            self.num_free_blocks -= piece.num_blocks
        piece.num_users += 1

    def _forget(self) -> None:
        while self._num_idle_blocks > self.num_free_blocks:
            piece, _ = self._idle.popitem(last=False)
            self._num_idle_blocks -= piece.num_blocks
            assert not piece.children, piece.key
            assert piece.parent is not None
            del piece.parent.children[piece.key]

    def check(self) -> None:
        """Assert conservation, and that counts of users are those of the requests' paths."""
        assert self._unassigned == 0, self._unassigned
        users: dict[Piece, int] = {}
        for request_id, path in self._paths.items():
            assert self._shared[request_id] == sum(p.num_blocks for p in path), request_id
            parent = self._root
            for piece in path:
                assert piece.parent is parent, request_id
                assert parent.children.get(piece.key) is piece, request_id
                users[piece] = users.get(piece, 0) + 1
                parent = piece
        assert all(piece.num_users == count for piece, count in users.items())
        idle = sum(piece.num_blocks for piece in self._idle)
        assert idle == self._num_idle_blocks <= self.num_free_blocks, (idle, self.num_free_blocks)
        assert not any(piece.num_users for piece in self._idle)
        assert all(blocks >= 0 for blocks in self._held.values()), self._held
        used = sum(self._held.values()) + sum(piece.num_blocks for piece in users)
        assert used + self.num_free_blocks == self.num_blocks, (used, self.num_free_blocks)
