"""One point of a sweep as a picklable job, and computing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simspec.core.errors import DoesNotFit, Infeasible
from simspec.scenarios.build import Deployment, Place, memory_facts
from simspec.scenarios.schema import ScenarioConfig


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker needs to compute one point.

    The deployment travels with it: a profile edited while the sweep runs changes no point of it.
    """

    key: str
    config: ScenarioConfig
    deployment: Deployment
    place: Place


def compute(job: Job) -> dict[str, Any]:
    """Return the point's result: status, reason, and per metric one value per replication.

    A point that cannot work is a result; a mistake in the scenario raises before any worker
    starts (``simspec.sweeps.plan``).
    """
    from simspec.scenarios.run import simulate_scenario

    try:
        return simulate_scenario(job.config, job.deployment, job.place).as_dict()
    except Infeasible as error:
        is_memory = isinstance(error, DoesNotFit)
        facts = memory_facts(job.deployment)
        if is_memory:
            facts["fits"] = False
        status = "does_not_fit" if is_memory else "refused"
        return {"status": status, "reason": str(error), "facts": facts}
