"""What a user report is compared on: one figure of a setup, by name.

``memory`` figures are of one GPU and take the memory its log shows. ``decode`` figures are a batch
that decodes at one context; ``users`` figures a closed loop; ``load`` figures a simulation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field

from simspec.core.units import from_gib, gib, ms
from simspec.memory.capacity import MemoryBudget, budget_of
from simspec.memory.context import largest_context
from simspec.scenarios.build import Deployment, build
from simspec.scenarios.closed_form import estimate_round, prefill_time_s
from simspec.scenarios.closed_loop import ClosedLoop, ClosedLoopEstimate, closed_loop
from simspec.scenarios.report import metric_columns
from simspec.scenarios.run import simulate_scenario
from simspec.scenarios.schema import DeploymentConfig, ScenarioConfig


class SetupConfig(DeploymentConfig):
    """A deployment of a report, and the load its figure is of."""

    visible_gib: float | None = Field(default=None, gt=0, le=10_000)
    """Memory that the log shows, instead of the profile's; GiB."""
    pool_gib: float | None = Field(default=None, gt=0, le=10_000)
    """The KV pool that the log states; GiB."""
    batch: int = Field(default=1, ge=1, le=1_000_000)
    context: int = Field(default=1024, ge=1, le=10_000_000)
    """Tokens of each sequence of the batch."""
    users: int = Field(default=1, ge=1, le=1_000_000)
    prompt: int = Field(default=512, ge=1, le=10_000_000)
    output: int = Field(default=128, ge=1, le=1_000_000)
    rate_per_s: float = Field(default=1.0, gt=0)
    """Of evenly spaced requests in a simulation."""
    num_requests: int = Field(default=1000, ge=1, le=100_000)
    drafts: tuple[int, ...] = ()
    """Draft lengths that ``best_k`` chooses from."""

    def deployment(self, **method: Any) -> Deployment:
        """Return the built deployment, with fields of the method replaced."""
        fields = {name: getattr(self, name) for name in DeploymentConfig.model_fields}
        if method:
            fields["method"] = self.method.model_copy(update=method)
        return build(DeploymentConfig.model_construct(**fields))


def _budget(setup: SetupConfig) -> MemoryBudget:
    deployment = setup.deployment()
    asked = deployment.budget.inputs
    if setup.visible_gib is not None:
        visible = from_gib(setup.visible_gib)
        asked = replace(asked, hardware=replace(asked.hardware, memory_capacity_bytes=visible))
    if not deployment.limits.chunked_prefill:
        step = max(asked.max_num_batched_tokens, setup.context)
        asked = replace(asked, max_num_batched_tokens=step)
    return budget_of(asked)


def _of_budget(figure: Callable[[MemoryBudget], float]) -> Callable[[SetupConfig], float]:
    return lambda setup: float(figure(_budget(setup)))


def _tokens_of_pool(setup: SetupConfig) -> float:
    budget = _budget(setup)
    assert setup.pool_gib is not None
    block = budget.block_size_tokens
    blocks = from_gib(setup.pool_gib) // (block * budget.kv_bytes_per_token)
    return float(block * blocks)


def _max_sequences(setup: SetupConfig) -> float:
    return float(_budget(setup).num_blocks // math.ceil(setup.context / _block(setup)))


def _block(setup: SetupConfig) -> int:
    return _budget(setup).block_size_tokens


def _largest(setup: SetupConfig) -> float:
    limits = setup.deployment().limits
    return float(
        largest_context(_budget(setup), reserved_slots=1, chunked_prefill=limits.chunked_prefill)
    )


def _tokens_per_s(setup: SetupConfig, deployment: Deployment) -> float:
    return float(setup.batch / estimate_round(deployment, setup.batch, setup.context).tpot_s)


def _speedup(setup: SetupConfig) -> float:
    return float(estimate_round(setup.deployment(), setup.batch, setup.context).speedup)


def _best_k(setup: SetupConfig) -> float:
    speeds = {
        drafts: _tokens_per_s(setup, setup.deployment(num_speculative_tokens=drafts))
        for drafts in setup.drafts
    }
    return float(max(speeds, key=lambda drafts: speeds[drafts]))


def _prefill_tokens_per_s(setup: SetupConfig) -> float:
    return setup.prompt / prefill_time_s(setup.deployment(), setup.prompt, tabulated=False)


def _loop(setup: SetupConfig) -> ClosedLoopEstimate:
    load = ClosedLoop(setup.users, setup.prompt, setup.output, out_of_step=True)
    return closed_loop(setup.deployment(), load)


def _of_users(figure: Callable[[ClosedLoopEstimate], Any]) -> Callable[[SetupConfig], float]:
    return lambda setup: float(np.asarray(figure(_loop(setup))))


def _simulated(metric: str) -> Callable[[SetupConfig], float]:
    def figure(setup: SetupConfig) -> float:
        fields = {name: getattr(setup, name) for name in DeploymentConfig.model_fields}
        scenario = ScenarioConfig.model_validate(
            {
                **DeploymentConfig.model_construct(**fields).model_dump(),
                "workload": {
                    "arrivals": {"name": "constant", "rate_per_s": setup.rate_per_s},
                    "lengths": {
                        "name": "fixed",
                        "prompt_len": setup.prompt,
                        "output_len": setup.output,
                    },
                    "num_requests": setup.num_requests,
                },
                # The report's means are over a whole stage.
                "simulation": {"replications": 1, "warmup": 0.0},
            }
        )
        value = metric_columns(simulate_scenario(scenario, setup.deployment(), None))[metric]
        return math.nan if value is None else value

    return figure


QUANTITIES: Mapping[str, Callable[[SetupConfig], float]] = {
    "kv_bytes_per_token": _of_budget(lambda budget: budget.kv_bytes_per_token),
    "kv_capacity_tokens": _of_budget(lambda budget: budget.kv_capacity_tokens),
    "kv_pool_gib": _of_budget(lambda budget: gib(budget.kv_pool_bytes)),
    "num_blocks": _of_budget(lambda budget: budget.num_blocks),
    "usable_gib": _of_budget(lambda budget: gib(budget.usable_bytes)),
    "weights_gib": _of_budget(lambda budget: gib(budget.weights_bytes)),
    "activation_gib": _of_budget(lambda budget: gib(budget.activation_bytes)),
    "reserve_gib": _of_budget(lambda budget: gib(budget.reserve_bytes)),
    "tokens_of_pool": _tokens_of_pool,
    "max_sequences": _max_sequences,
    "largest_context": _largest,
    "tokens_per_s": lambda setup: _tokens_per_s(setup, setup.deployment()),
    "tokens_per_s_per_user": lambda setup: _tokens_per_s(setup, setup.deployment()) / setup.batch,
    "speedup": _speedup,
    "best_k": _best_k,
    "prefill_tokens_per_s": _prefill_tokens_per_s,
    "users_requests_per_s": _of_users(lambda loop: loop.throughput_requests_per_s),
    "users_tpot_ms": _of_users(lambda loop: ms(loop.tpot_s)),
    "load_ttft_ms": _simulated("ttft_ms"),
    "load_tpot_ms": _simulated("tpot_ms"),
}
"""Figures by name: of the memory of one GPU, of a decoding batch, of users, and of a load."""
SLOW = frozenset({"load_ttft_ms", "load_tpot_ms"})
"""Those that simulate."""
