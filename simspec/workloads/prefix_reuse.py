"""How much of the prompts a prefix cache could save, and how large it would have to be.

A prompt's blocks are looked up from its first on; those up to the first that no earlier prompt
had are hits of a cache that forgets nothing. The reuse distance of a hit is the number of distinct
blocks touched since that block was last (Mattson et al., *Evaluation techniques for storage
hierarchies*, IBM Systems Journal 9(2), 1970): a cache of C blocks that drops the least recently
used has those hits whose distance is below C. The blocks of one prompt count as touched from the
last to the first, as engines drop the end of a prompt before its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simspec.workloads.linked import Prefixes

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PrefixReuse:
    """What repeats among the prefix blocks of a workload.

    Attributes
    ----------
    block_tokens : int, tokens
        Tokens of a whole block.
    num_blocks : int
        Blocks of all prompts, repeats included.
    num_distinct : int
        Different ones among them.
    distances : array (hits,), blocks
        Reuse distance of every hit, rising.
    ages_s : array (hits,), seconds
        Time since the block's last use, rising.
    """

    block_tokens: int
    num_blocks: int
    num_distinct: int
    distances: IntArray
    ages_s: FloatArray

    @property
    def hit_share(self) -> float:
        """Share of the blocks that an infinite cache has."""
        return self.distances.size / self.num_blocks

    def hit_share_of(self, cache_blocks: int) -> float:
        """Share of the blocks that a cache of so many blocks has (least recently used out)."""
        hits = int(np.searchsorted(self.distances, cache_blocks, side="left"))
        return hits / self.num_blocks


def prefix_reuse(prefixes: Prefixes, times_s: FloatArray) -> PrefixReuse | None:
    """Return what repeats among prompts that come at ``times_s`` (n,); None without a block."""
    touched: list[int] = []
    at_s: list[float] = []
    is_hit: list[bool] = []
    seen: set[int] = set()
    for own, time_s in zip(prefixes.hashes, times_s.tolist(), strict=True):
        num_hits = 0
        while num_hits < len(own) and own[num_hits] in seen:
            num_hits += 1
        seen.update(own)
        touched.extend(reversed(own))
        at_s.extend([time_s] * len(own))
        is_hit.extend([False] * (len(own) - num_hits) + [True] * num_hits)
    if not touched:
        return None
    before = _previous_use(np.array(touched, dtype=np.int64))
    hits = np.array(is_hit) & (before >= 0)
    clock = np.array(at_s)
    # Of the positions up to here, those whose block was last used no later than ``before`` are
    # the first touch in between of their block, but for the ``before + 1`` that come before it.
    distances = (_num_smaller_before(before) - before - 1)[hits]
    ages_s = (clock - clock[np.maximum(before, 0)])[hits]
    return PrefixReuse(
        block_tokens=prefixes.block_tokens,
        num_blocks=len(touched),
        num_distinct=len(seen),
        distances=np.sort(distances),
        ages_s=np.sort(ages_s),
    )


def _previous_use(blocks: IntArray) -> IntArray:
    """Return the position (n,) at which each block was touched last; -1: never."""
    order = np.argsort(blocks, kind="stable")
    before = np.full(blocks.size, -1, dtype=np.int64)
    again = blocks[order[1:]] == blocks[order[:-1]]
    before[order[1:][again]] = order[:-1][again]
    return before


def _num_smaller_before(values: IntArray) -> IntArray:
    """Return for each position (n,) how many earlier ones hold a smaller or an equal value.

    Counted level by level of a merge sort: at width w, every position in a right half counts the
    left half's that sort before it.
    """
    size = values.size
    rank = np.empty(size, dtype=np.int64)
    rank[np.argsort(values, kind="stable")] = np.arange(size)
    counts = np.zeros(size, dtype=np.int64)
    position = np.arange(size)
    width = 1
    while width < size:
        pair = position // (2 * width)
        order = np.argsort(pair * size + rank)
        is_left = (position[order] // width) % 2 == 0
        # Pairs before this one are whole: each has ``width`` positions in its left half.
        in_left = np.cumsum(is_left) - pair[order] * width
        right = order[~is_left]
        counts[right] += in_left[~is_left]
        width *= 2
    return counts


def cache_sizes(reuse: PrefixReuse) -> list[int]:
    """Return sizes in blocks, two per octave, from one to what an infinite cache would hold."""
    top = max(1, reuse.num_distinct)
    steps = int(2 * np.log2(top)) + 1
    sizes = [round(2 ** (step / 2)) for step in range(steps + 1)] + [top]
    return sorted({size for size in sizes if size <= top})


def cache_for(reuse: PrefixReuse, share: float) -> int | None:
    """Return the blocks of a cache with ``share`` of the hits of an infinite one."""
    if reuse.distances.size == 0:
        return None
    index = max(0, int(np.ceil(share * reuse.distances.size)) - 1)
    return int(reuse.distances[index]) + 1
