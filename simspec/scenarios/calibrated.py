"""What the errors of the profiles mean for a simulated run: intervals in parts and together.

A simulation has two kinds of error that have nothing to do with each other. Chance between
replications has the interval of :mod:`simspec.core.stats`. The profiles may be off as
:mod:`simspec.scenarios.uncertainty` says; how far is asked of the closed form at the run's mean
batch and mean context, since a run at every altered profile would cost a simulation each. On
logarithms the half-widths of both add in squares.

Metrics without a counterpart in the closed form get none: queueing amplifies an error of the step
time near saturation, and the throughput of an open loop is the load itself. TTFT is a prompt's own
computation in the closed form, so its part leaves the wait before it out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from simspec.core.stats import Interval
from simspec.cost.work import Quantity
from simspec.scenarios.build import Deployment
from simspec.scenarios.closed_form import calibration_sigma
from simspec.scenarios.uncertainty import Z_95, interval_95
from simspec.workloads.request import Request
from simspec.workloads.workload import WorkloadRun

_COUNTERPARTS = {
    "ttft_ms": "ttft",
    "tpot_ms": "tpot",
    "itl_ms": "tpot",
    "round_time_ms": "round_time",
    "step_time_ms": "step_time",
    "speedup": "speedup",
}
"""Metrics of a run and what the closed form calls them."""


def calibration_of(
    deployment: Deployment,
    workload: WorkloadRun,
    batch_size: float | None,
    intervals: Mapping[str, Interval | None],
) -> dict[str, Any] | None:
    """Return what calibration allows a run's metrics, beside and together with chance.

    Parameters
    ----------
    workload : WorkloadRun
        Of a replication; its lengths give the mean context.
    batch_size : float or None
        Mean sequences of a step; None where nothing ran.
    intervals : mapping
        Of replications, by metric; None where a metric is undefined.

    Returns
    -------
    dict or None
        ``batch``, ``context``, ``prompt``, ``sigma`` by quantity, ``intervals`` by metric with
        ``replications``, ``calibration`` and ``together``; None without a batch.
    """
    if not batch_size:
        return None
    context, prompt = _mean_context(workload.requests), _mean_prompt(workload.requests)
    batch = max(batch_size, 1.0)
    sigma = {
        name: float(value)
        for name, value in calibration_sigma(deployment, batch, context, prompt).items()
    }
    counterparts = dict(_COUNTERPARTS)
    if workload.concurrency is not None:
        counterparts["throughput_tokens_per_s"] = "throughput"
    found = {
        metric: _parts(interval, sigma[counterparts[metric]])
        for metric in counterparts
        if (interval := intervals.get(metric)) is not None
    }
    return {
        "batch": batch,
        "context": context,
        "prompt": prompt,
        "sigma": sigma,
        "intervals": found,
    }


def _parts(interval: Interval, sigma: float) -> dict[str, list[float] | None]:
    mean, low, high = interval.mean, interval.low, interval.high
    by_calibration = interval_95(mean, sigma)
    if low is None or high is None:
        return {"replications": None, "calibration": by_calibration, "together": by_calibration}
    by_chance = (high - low) / (2.0 * mean) if mean else 0.0
    both = math.hypot(by_chance, Z_95 * sigma)
    return {
        "replications": [low, high],
        "calibration": by_calibration,
        "together": [mean * math.exp(-both), mean * math.exp(both)],
    }


def _mean_context(requests: Sequence[Request]) -> float:
    """Return the tokens in front of an output token, averaged over all of them."""
    tokens = sum(request.output_len for request in requests)
    before = sum(r.output_len * (r.prompt_len + r.output_len / 2.0) for r in requests)
    return before / tokens


def _mean_prompt(requests: Sequence[Request]) -> int:
    return max(round(sum(request.prompt_len for request in requests) / len(requests)), 1)


def run_sentence(calibration: Mapping[str, Any] | None) -> list[str]:
    """Return the sentence on a run for its report; nothing without a result."""
    if calibration is None:
        return []
    where = f"batch {calibration['batch']:.3g} and {calibration['context']:,.0f} tokens of context"
    told = _told([calibration["sigma"]])
    return [
        f"Calibration: at {where}, the means of the run, the errors of the profiles allow {told} "
        "(95%, closed form); intervals of metrics are of replications alone unless they say so."
    ]


def sweep_sentence(deployments: Iterable[Deployment], context: int) -> list[str]:
    """Return the sentence on several deployments, at batch 1; each kind of them is asked once."""
    kinds: dict[tuple[object, ...], Deployment] = {}
    for deployment in deployments:
        target = deployment.target
        kind = (
            deployment.hardware.name, deployment.engine.name, deployment.architecture.name,
            target.tp, target.weight_dtype, target.kv_dtype, deployment.method.name,
        )  # fmt: skip
        kinds.setdefault(kind, deployment)
    sigmas = [calibration_sigma(deployment, 1, context) for deployment in kinds.values()]
    if not sigmas:
        return []
    return [
        f"Calibration: at batch 1 and {context:,} tokens of context the errors of the profiles "
        f"allow {_told(sigmas)} (95%, closed form); intervals are of replications alone."
    ]


def _told(sigmas: Sequence[Mapping[str, Quantity]]) -> str:
    names = {"tpot": "in time per output token", "speedup": "in speedup"}
    widest = {name: max(float(sigma[name]) for sigma in sigmas) for name in names}
    return (
        " and ".join(
            f"{_percent(widest[name])} {words}" for name, words in names.items() if widest[name]
        )
        or "nothing: they state none"
    )


def _percent(sigma: float) -> str:
    low, high = interval_95(100.0, sigma)
    return f"{low - 100.0:+.0f}% to {high - 100.0:+.0f}%".replace("-", "−")
