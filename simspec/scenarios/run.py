"""Scenario to result by simulation: replications of one replica, measured and packed.

Replication ``r`` draws its own workload and tapes from streams keyed by (seed, r). They depend on
nothing else, so two scenarios with the same seed meet the same requests, arrivals and tapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from simspec.core.errors import ConfigError, DoesNotFit, Infeasible
from simspec.core.rng import stream
from simspec.models.hf_config import load_model
from simspec.scenarios.build import (
    Deployment,
    Place,
    blame,
    memory_facts,
    require_room,
    resolve_reference,
)
from simspec.scenarios.classes import ClassLog
from simspec.scenarios.control import ControlLog
from simspec.scenarios.fleets import decode_replicas, devices_by_replica, prefill_side
from simspec.scenarios.offered_load import load_sentence, offered_load
from simspec.scenarios.samples import Samples
from simspec.scenarios.schema import ScenarioConfig
from simspec.serving import invariants
from simspec.serving.admission import config_of
from simspec.serving.measured import Roofs, Slo
from simspec.serving.plan import PrefillSide, ServingSetup
from simspec.serving.records import Fate, RunRecords
from simspec.serving.scheduling._base import SCHEDULERS
from simspec.serving.scheduling._base import SchedulerConfig as SchedulingPolicyConfig
from simspec.serving.simulate import simulate
from simspec.serving.window import Window
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
    stability: dict[str, Any] | None = None
    """The drift test and the offered load in closed form."""
    precision: dict[str, Any] | None = None
    """What intervals are made of, and what the stopping rule reached."""

    @property
    def num_runs(self) -> int:
        """Replications there were."""
        return int(self.precision["replications"]) if self.precision else 0

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for the store."""
        return {
            "status": self.status,
            "reason": self.reason,
            "replications": self.replications,
            "quantiles": self.quantiles,
            "facts": self.facts,
        }


@dataclass(frozen=True, slots=True)
class Observed:
    """A replication that has ended, for whoever writes it down."""

    replication: int
    records: RunRecords
    window: Window
    slo: Slo
    roofs: Roofs


def draw_workload(config: ScenarioConfig, replication: int, place: Place | None) -> WorkloadRun:
    """Return the requests of one replication; errors carry the place of the workload."""
    base = place.folder if place is not None else None
    limit = context_limit(config, place)
    with (
        blame(place, "workload", "arrivals")
        if config.workload.arrivals.brings_lengths
        else blame(place, "workload")
    ):
        return config.workload.build(
            config.simulation.seed,
            replication=replication,
            base=base,
            model_context_tokens=limit,
        )


def context_limit(config: ScenarioConfig, place: Place | None) -> int | None:
    """Return the model's context in tokens where the workload leaves the limit to it.

    Raises
    ------
    ConfigError
        The model does not say its context.
    """
    workload = config.workload
    if workload.over_context is None or workload.max_context_tokens is not None:
        return None
    base = place.folder if place is not None else None
    with blame(place, "model"):
        limit = load_model(resolve_reference(config.model, base)).max_context_len
    if not limit:
        with blame(place, "workload", "over_context"):
            raise ConfigError("the model does not say its context; give max_context_tokens")
    return limit


def simulate_scenario(
    config: ScenarioConfig,
    deployment: Deployment,
    place: Place | None = None,
    *,
    check: bool = False,
    observe: Callable[[Observed], None] | None = None,
) -> Outcome:
    """Run every replication and return its metrics.

    Parameters
    ----------
    check : bool
        Assert the conservation laws after every step.
    observe : callable, optional
        Called with each run when it has ended; its records are not kept.

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
    slo, roofs = slo_of(config), _fleet_roofs(config, deployment)
    samples = Samples(config.simulation, slo, roofs)
    control, classes = ControlLog(deployment), ClassLog(slo, _class_targets_ms(deployment))
    load, prefill = None, prefill_side(config, deployment, place)
    while not samples.num_runs or not samples.is_enough():
        replication = samples.num_runs
        workload = draw_workload(config, replication, place)
        _refuse_what_has_no_effect(config, deployment, workload, place)
        records = simulate(_setup(config, deployment, workload, replication, prefill), check=check)
        if check:
            _check_roofs(records, deployment)
        _refuse_if_nothing_ran(records, deployment, place)
        control.add(records)
        with blame(place, "simulation"):
            window = samples.add(records)
        classes.add(records, window)
        if replication == 0 and prefill is None:
            load = offered_load(deployment, workload, config.replicas)
        if observe is not None:
            observe(Observed(replication, records, window, slo, roofs))
    reason = samples.unstable_because
    hidden = _meaningless_when_unstable if reason is not None else _never
    values, quantiles = samples.values(), samples.quantiles()
    return Outcome(
        status="ok" if reason is None else "unstable",
        reason=None if reason is None else _both(reason, load),
        replications={n: [None] * len(v) if hidden(n) else v for n, v in values.items()},
        quantiles={n: [None] * len(q) if hidden(n) else q for n, q in quantiles.items()},
        facts={**memory_facts(deployment), **classes.facts()},
        speculation=control.summary(),
        stability={"drift": samples.drift(), "offered_load": load},
        precision=samples.precision(),
    )


def _class_targets_ms(deployment: Deployment) -> dict[int, float]:
    policy = config_of(SCHEDULERS, deployment.limits.policy)
    assert isinstance(policy, SchedulingPolicyConfig)
    return policy.class_targets_ms


def _both(reason: str, load: dict[str, Any] | None) -> str:
    sentence = load_sentence(load)
    return f"{reason} ({sentence})" if sentence else reason


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


def _fleet_roofs(config: ScenarioConfig, deployment: Deployment) -> Roofs:
    return replace(roofs_of(deployment), devices_by_replica=devices_by_replica(config))


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
    config: ScenarioConfig,
    deployment: Deployment,
    workload: WorkloadRun,
    replication: int,
    prefill: PrefillSide | None = None,
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
        num_replicas=decode_replicas(config),
        router=config.router_in_force,
        prefill=prefill,
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
