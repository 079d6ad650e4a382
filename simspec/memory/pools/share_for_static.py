"""SGLang's ``mem_fraction_static``: weights and KV pool are a share of what is available at start.

``pool = φ (M - reserve) - weights``: memory is measured once the process group exists, the pool is
what is free after loading less ``1 - φ`` of that (sglang/srt/model_executor/model_runner.py,
profile_max_num_token). Activations and captured graphs are not measured; they have to fit in the
rest. On four H100s with Qwen3-235B-A22B-FP8 and 0.93 the engine logged 367,404 tokens
(vllm-project/vllm#21348), which this rule meets within 1 %.
"""

from __future__ import annotations

from simspec.memory.pools._base import Account, Step

KNOB = "mem_fraction_static"
SHARE_OF = "what is available at start, for weights and KV cache"
STEPS: tuple[Step, ...] = ("reserve", "share", "weights")


def usable_bytes(account: Account) -> float:
    """Return the fraction of what is available once the process group exists."""
    return account.fraction * (account.capacity_bytes - account.reserve_bytes)


def left_bytes(account: Account) -> float:
    """Return the share less the weights."""
    return usable_bytes(account) - account.weights_bytes


def longest_request(pool_tokens: int, max_num_seqs: int) -> int:
    """Return the whole pool: pages belong to nobody."""
    del max_num_seqs
    return pool_tokens
