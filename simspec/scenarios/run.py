"""Scenario to result by simulation: replications of one replica, measured and packed.

Replication ``r`` draws its own workload and tapes from streams keyed by (seed, r). They depend on
nothing else, so two scenarios with the same seed meet the same requests, arrivals and tapes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from simspec.core.errors import ConfigError, DoesNotFit, Infeasible
from simspec.core.rng import stream
from simspec.scenarios.build import Deployment, Place, blame, memory_facts, require_room
from simspec.scenarios.control import ControlLog
from simspec.scenarios.schema import ScenarioConfig
from simspec.serving import invariants
from simspec.serving.admission import config_of
from simspec.serving.measured import Roofs, Slo
from simspec.serving.metrics import latency_quantiles_ms, summarise
from simspec.serving.plan import ServingSetup
from simspec.serving.records import Fate, RunRecords
from simspec.serving.scheduling._base import SCHEDULERS
from simspec.serving.scheduling._base import SchedulerConfig as SchedulingPolicyConfig
from simspec.serving.simulate import simulate
from simspec.serving.stability import assess
from simspec.workloads.workload import WorkloadRun


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the replications of one scenario gave.

    ``replications`` holds one value per replication and metric, None where a run does not
    define it; ``quantiles`` are averaged over replications.
    """

    status: str
    reason: str | None
    replications: dict[str, list[float | None]]
    quantiles: dict[str, list[float | None]]
    facts: dict[str, Any] = field(default_factory=dict)
    speculation: dict[str, Any] | None = None
    """What speculation control did; None where nothing changes the method's drafts."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for the store."""
        return {
            "status": self.status,
            "reason": self.reason,
            "replications": self.replications,
            "quantiles": self.quantiles,
            "facts": self.facts,
        }


def draw_workload(config: ScenarioConfig, replication: int, place: Place | None) -> WorkloadRun:
    """Return the requests of one replication; errors carry the place of the workload."""
    base = place.folder if place is not None else None
    with (
        blame(place, "workload", "arrivals")
        if config.workload.arrivals.brings_lengths
        else blame(place, "workload")
    ):
        return config.workload.build(config.simulation.seed, replication=replication, base=base)


def simulate_scenario(
    config: ScenarioConfig,
    deployment: Deployment,
    place: Place | None = None,
    *,
    check: bool = False,
) -> Outcome:
    """Run every replication and return its metrics.

    Raises
    ------
    DoesNotFit
        The weights leave no room, or no request of the workload can ever fit.
    Infeasible
        The clock stops before a request has finished.
    ConfigError
        The workload is wrong.
    """
    require_room(deployment, 1, place)
    metrics: list[dict[str, float]] = []
    quantiles: list[dict[str, Any]] = []
    reasons: list[str] = []
    control = ControlLog(deployment)
    for replication in range(config.simulation.replications):
        workload = draw_workload(config, replication, place)
        _refuse_what_has_no_effect(config, deployment, workload, place)
        records = simulate(_setup(config, deployment, workload, replication), check=check)
        if check:
            _check_roofs(records, deployment)
        _refuse_if_nothing_ran(records, deployment, place)
        control.add(records)
        verdict = assess(records)
        if not verdict.is_stable:
            reasons.append(verdict.reason)
        warmup = config.simulation.warmup
        metrics.append(
            summarise(records, slo_of(config), roofs=roofs_of(deployment), warmup=warmup)
        )
        quantiles.append(latency_quantiles_ms(records, warmup=warmup))
    unstable = bool(reasons) and 2 * len(reasons) >= config.simulation.replications
    hidden = _meaningless_when_unstable if unstable else _never
    return Outcome(
        status="unstable" if unstable else "ok",
        reason=reasons[0] if unstable else None,
        replications={
            name: [None if hidden(name) else _known(m[name]) for m in metrics]
            for name in metrics[0]
        },
        quantiles={
            name: [None] * len(q) if hidden(name) else q
            for name in quantiles[0]
            for q in [_averaged([sample[name] for sample in quantiles])]
        },
        facts=memory_facts(deployment),
        speculation=control.summary(),
    )


def _meaningless_when_unstable(metric: str) -> bool:
    """Whether a metric holds waiting time, which then grows for as long as the run lasts."""
    return metric.startswith(("ttft", "e2e", "queue")) or metric in {
        "goodput_requests_per_s",
        "slo_attainment",
    }


def _never(metric: str) -> bool:
    return False


def slo_of(config: ScenarioConfig) -> Slo:
    """Return the targets in seconds."""
    slo = config.slo
    return Slo.from_milliseconds(ttft_ms=slo.ttft_ms, tpot_ms=slo.tpot_ms, e2e_ms=slo.e2e_ms)


def roofs_of(deployment: Deployment) -> Roofs:
    """Return what one GPU could do at best in the weights' compute type, its power and price."""
    hardware = deployment.hardware
    return Roofs(
        deployment.peak_flop_per_s,
        hardware.memory_bandwidth_bytes_per_s,
        num_devices=deployment.target.num_ranks,
        power=hardware.power,
        price=hardware.price,
    )


def _setup(
    config: ScenarioConfig, deployment: Deployment, workload: WorkloadRun, replication: int
) -> ServingSetup:
    seed = int(stream(config.simulation.seed, "replication", replication).integers(2**62))
    return ServingSetup(
        requests=workload.requests,
        concurrency=workload.concurrency,
        method=deployment.method,
        acceptance=deployment.acceptance,
        seed=seed,
        cost=deployment.cost,
        num_blocks=deployment.num_blocks,
        block_size_tokens=deployment.block_size_tokens,
        limits=replace(deployment.limits, ttft_target_s=slo_of(config).ttft_s),
        prefix_caching=deployment.engine.prefix_caching,
        host=deployment.host,
        speculation=deployment.speculation,
        max_simulated_s=config.simulation.max_simulated_s,
        num_replicas=config.replicas,
        router=config.router_in_force,
    )


def _check_roofs(records: RunRecords, deployment: Deployment) -> None:
    # Drafts may be computed in another type than the target, so the fastest one counts.
    hardware = deployment.hardware
    peak = max(hardware.peak_flop_per_s.values())
    invariants.within_roofs(records, peak, hardware.memory_bandwidth_bytes_per_s)


def _refuse_what_has_no_effect(
    config: ScenarioConfig, deployment: Deployment, workload: WorkloadRun, place: Place | None
) -> None:
    scheduler, requests = config.scheduler, workload.requests
    if scheduler.prefix_caching is not None and not any(r.block_hashes for r in requests):
        with blame(place, "scheduler", "prefix_caching"):
            raise ConfigError(
                "no request of the workload says what its prompt contains, so prefix_caching has "
                "no effect; remove it, or replay a log with block hashes"
            )
    chosen = config_of(SCHEDULERS, deployment.limits.policy)
    assert isinstance(chosen, SchedulingPolicyConfig)
    if config.workload.priority_classes is not None and not chosen.looks_at_classes:
        with blame(place, "workload", "priority_classes"):
            raise ConfigError(
                "the scheduler serves all classes alike, so priority_classes has no effect; "
                "set scheduler.policy: priority"
            )
    policy = scheduler.policy
    fields = policy.for_classes if isinstance(policy, SchedulingPolicyConfig) else ()
    if fields and len({request.priority for request in requests}) == 1:
        with blame(place, "scheduler", "policy", fields[0]):
            raise ConfigError(
                f"every request of the workload has the same class, so {fields[0]} has no effect; "
                "remove it, or give the requests classes"
            )


def _refuse_if_nothing_ran(
    records: RunRecords, deployment: Deployment, place: Place | None
) -> None:
    with blame(place, "workload"):
        if len(records.refusals) < records.requests.request_id.size:
            if np.any(records.requests.fate == Fate.FINISHED):
                return
            raise Infeasible(
                "no request finishes before the clock stops; raise simulation.max_simulated_s"
            )
        if not records.refusals:
            raise Infeasible(
                "no request arrives before the clock stops; raise simulation.max_simulated_s "
                "or the arrival rate"
            )
        reason = next(iter(records.refusals.values()))
        raise DoesNotFit(f"none of the {len(records.refusals)} requests can ever fit: {reason}")


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _averaged(samples: Sequence[Any]) -> list[float | None]:
    return [_known(v) for v in np.mean(np.stack(samples), axis=0)]
