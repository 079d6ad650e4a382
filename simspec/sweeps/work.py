"""One point of a sweep as a picklable job, and computing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simspec.core.errors import DoesNotFit, Infeasible
from simspec.scenarios.build import Place, build
from simspec.scenarios.schema import ScenarioConfig


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker needs to compute one point."""

    key: str
    config: ScenarioConfig
    place: Place


def compute(job: Job) -> dict[str, Any]:
    """Return the point's result: status, reason, and per metric one value per replication.

    A point that cannot work is a result; a mistake in the scenario raises before any worker
    starts (``simspec.sweeps.plan``).
    """
    from simspec.scenarios.run import simulate_scenario

    try:
        outcome = simulate_scenario(job.config, build(job.config, job.place), job.place)
    except DoesNotFit as error:
        return {"status": "does_not_fit", "reason": str(error)}
    except Infeasible as error:
        return {"status": "refused", "reason": str(error)}
    return outcome.as_dict()
