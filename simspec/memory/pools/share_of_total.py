"""vLLM's ``gpu_memory_utilization``: a share of the *total* memory for everything together.

``pool = φ M - weights - activation peak - memory outside PyTorch``. What other processes hold is
not asked for, and captured graphs come after the pool and live in the remaining ``1 - φ``
(vllm/v1/worker/gpu_worker.py, determine_available_memory; a start-up log adds up to the last
hundredth of a GiB: 0.9 · 79.19 - 14.08 - 1.97 - 0.07 = 55.15).
"""

from __future__ import annotations

from simspec.memory.pools._base import Account, Step

KNOB = "gpu_memory_utilization"
SHARE_OF = "the total memory"
STEPS: tuple[Step, ...] = ("share", "weights", "activations", "reserve")


def usable_bytes(account: Account) -> float:
    """Return the fraction of the total memory."""
    return account.fraction * account.capacity_bytes


def left_bytes(account: Account) -> float:
    """Return the share less weights, activations and reserve."""
    taken = account.weights_bytes + account.activation_bytes + account.reserve_bytes
    return usable_bytes(account) - taken


def longest_request(pool_tokens: int, max_num_seqs: int) -> int:
    """Return the whole pool: blocks belong to nobody."""
    del max_num_seqs
    return pool_tokens
