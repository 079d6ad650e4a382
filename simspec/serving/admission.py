"""Who is taken in: the scheduling policy of a setup, and the requests that can never be served."""

from __future__ import annotations

from collections.abc import Hashable
from math import lcm

from simspec.core.registry import PluginConfig, Registry
from simspec.serving.plan import ServingSetup
from simspec.serving.preemption._base import PREEMPTIONS, PreemptionConfig
from simspec.serving.scheduling._base import (
    SCHEDULERS,
    Scheduler,
    SchedulerConfig,
    check_round_fits,
)
from simspec.workloads.request import Request


def config_of(registry: Registry, policy: str | PluginConfig) -> PluginConfig:
    """Return the settings of a policy; those of a bare name are its defaults.

    Raises
    ------
    ConfigError
        The name is unknown; the message offers the nearest one.
    """
    return registry.config_class(policy)() if isinstance(policy, str) else policy


def pieces(request: Request, block_size_tokens: int) -> tuple[tuple[Hashable, ...], int]:
    """Return the keys of the pieces a prompt can share, and the tokens of one.

    A piece fills whole KV blocks and whole hashed blocks; the partial one at a prompt's end is
    not shared, as no engine shares a KV block that is not full.
    """
    hashed = request.hash_block_tokens
    if not request.block_hashes or hashed <= 0:
        return (), 0
    tokens = lcm(hashed, block_size_tokens)
    each = tokens // hashed
    count = request.prompt_len // tokens
    if each == 1:
        return request.block_hashes[:count], tokens
    ids = request.block_hashes
    return tuple(ids[i * each : (i + 1) * each] for i in range(count)), tokens


def build_scheduler(setup: ServingSetup) -> Scheduler:
    """Return the scheduling policy the limits name, with its preemption policy.

    Raises
    ------
    ConfigError
        A policy is unknown, or no round of K + 1 tokens fits into a step.
    """
    limits = setup.limits
    round_slots = setup.method.max_draft + 1
    check_round_fits(limits, round_slots, setup.method.name)
    preemption = config_of(PREEMPTIONS, limits.preemption)
    scheduler = config_of(SCHEDULERS, limits.policy)
    assert isinstance(preemption, PreemptionConfig), limits.preemption
    assert isinstance(scheduler, SchedulerConfig), limits.policy
    return scheduler.build(limits, round_slots, preemption.build())


def refusal(request: Request, setup: ServingSetup) -> str | None:
    """Return why the request can never be served, even alone; None if it can.

    The largest need is that of the last round: it can start when one token is missing, with
    ``prompt_len + output_len - 2`` tokens in the KV, and reserves K + 1 more.
    """
    total = request.prompt_len + request.output_len - 1
    needed = total + setup.method.max_draft if request.output_len > 1 else total
    size = setup.block_size_tokens
    if -(-needed // size) > setup.num_blocks:
        return (
            f"needs {needed} KV slots ({request.prompt_len} prompt + {request.output_len} output "
            f"tokens with the slots of a round), the pool holds {setup.num_blocks * size}"
        )
    limits = setup.limits
    if not limits.chunked_prefill and total > limits.max_num_batched_tokens:
        return (
            f"may have to prefill {total} tokens in one step without chunked prefill, "
            f"max_num_batched_tokens is {limits.max_num_batched_tokens}"
        )
    return None
