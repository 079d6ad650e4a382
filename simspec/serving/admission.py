"""Who is taken in: the scheduling policy of a setup, and the requests that can never be served."""

from __future__ import annotations

from simspec.serving.plan import ServingSetup
from simspec.serving.preemption._base import PREEMPTIONS, PreemptionConfig
from simspec.serving.scheduling._base import (
    SCHEDULERS,
    Scheduler,
    SchedulerConfig,
    check_round_fits,
)
from simspec.workloads.request import Request


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
    preemption = PREEMPTIONS.config_class(limits.preemption)()
    scheduler = SCHEDULERS.config_class(limits.policy)()
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
