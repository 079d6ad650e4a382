"""llama.cpp and MLX: whole contexts are allocated up front, as many as there are slots.

``pool <= φ M - weights - activations - reserve``, where φ is what the system lets a process keep
(Metal's working set) and nothing is left free on purpose. llama-server divides its context among
its slots, so one request may hold ``context / slots`` tokens (``--ctx-size`` over ``--parallel``;
ggml-org/llama.cpp#11681), however few others run.
"""

from __future__ import annotations

from simspec.memory.pools._base import Account, Step

KNOB = "ctx-size"
SHARE_OF = "the memory a process may keep"
STEPS: tuple[Step, ...] = ("share", "weights", "activations", "reserve")


def usable_bytes(account: Account) -> float:
    """Return what the process may keep."""
    return account.fraction * account.capacity_bytes


def left_bytes(account: Account) -> float:
    """Return the largest cache that can be allocated beside the rest."""
    taken = account.weights_bytes + account.activation_bytes + account.reserve_bytes
    return usable_bytes(account) - taken


def longest_request(pool_tokens: int, max_num_seqs: int) -> int:
    """Return the share of one slot."""
    return pool_tokens // max_num_seqs
