"""Plain data between the scenario, the engine and the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simspec.cost.forward import CostModel
from simspec.decoding._base import AcceptanceProcess, Method
from simspec.workloads.request import Request


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """What one engine step may hold."""

    policy: str
    """File name in ``simspec/serving/scheduling``."""
    max_num_seqs: int
    max_num_batched_tokens: int
    chunked_prefill: bool


@dataclass(frozen=True, slots=True)
class ServingSetup:
    """Everything one replication of one replica needs; built by ``simspec.scenarios.build``."""

    requests: Sequence[Request]
    concurrency: int | None
    """Closed loop: requests in flight; None: open loop, each request at its ``arrival_s``."""
    method: Method
    acceptance: AcceptanceProcess | None
    seed: int
    cost: CostModel
    num_blocks: int
    block_size_tokens: int
    limits: SchedulerLimits
    max_simulated_s: float | None = None
    """Stop the clock here; what still runs is recorded as ``running`` or ``waiting``."""
