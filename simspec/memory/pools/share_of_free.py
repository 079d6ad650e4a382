"""TensorRT-LLM's ``free_gpu_memory_fraction``: a share of what weights and activations leave free.

``pool = φ (M - weights - activations - reserve)``, 0.9 by default (KvCacheConfig of the LLM API,
nvidia.github.io/TensorRT-LLM; *Memory Usage of TensorRT-LLM*). The rest stays free for buffers
that nobody counted.
"""

from __future__ import annotations

from simspec.memory.pools._base import Account, Step

KNOB = "free_gpu_memory_fraction"
SHARE_OF = "what is free after weights and activations"
STEPS: tuple[Step, ...] = ("weights", "activations", "reserve", "share")


def left_bytes(account: Account) -> float:
    """Return the fraction of what is free; all of it where that is negative."""
    taken = account.weights_bytes + account.activation_bytes + account.reserve_bytes
    free = account.capacity_bytes - taken
    return account.fraction * free if free > 0 else free


def usable_bytes(account: Account) -> float:
    """Return what is left: nothing is subtracted after the fraction."""
    return left_bytes(account)


def longest_request(pool_tokens: int, max_num_seqs: int) -> int:
    """Return the whole pool: blocks belong to nobody."""
    del max_num_seqs
    return pool_tokens
