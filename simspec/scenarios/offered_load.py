"""Offered load against capacity in closed form: the second way to see that a run is unstable.

The capacity is that of a replica which always decodes with the best batch that fits and prefills
steps of such a batch of prompts in between: a request then takes its share of those steps, and of
``output - 1`` tokens' worth of rounds. Left out: that prompt chunks share steps with decoding,
which makes the true capacity a little larger, and that contexts and batches vary, which makes it
smaller. The drift test of the simulation decides; this says whether theory agrees.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from simspec.cost.work import Rows
from simspec.scenarios.build import Deployment
from simspec.scenarios.closed_form import estimate_round
from simspec.workloads.workload import WorkloadRun

Array = npt.NDArray[np.float64]


def offered_load(
    deployment: Deployment, workload: WorkloadRun, replicas: int = 1
) -> dict[str, Any] | None:
    """Return the rate offered to ``replicas`` replicas, their capacity, and the ratio.

    Returns
    -------
    dict or None
        ``offered_requests_per_s``, ``capacity_requests_per_s``, ``at_batch`` (where it is
        reached), ``load`` and ``exceeds_capacity``; None in a closed loop, which offers what is
        completed, and where no batch fits.
    """
    rate = workload.offered_rate_per_s
    if rate is None or not workload.requests:
        return None
    prompts = np.array([request.prompt_len for request in workload.requests], dtype=np.float64)
    outputs = np.array([request.output_len for request in workload.requests], dtype=np.float64)
    context = float((outputs * (prompts + outputs / 2.0)).sum() / outputs.sum())
    most = _most_sequences(deployment, context)
    if most < 1:
        return None
    batches = np.unique(np.append(2.0 ** np.arange(int(np.log2(most)) + 1), most))
    estimate = estimate_round(deployment, batches, context)
    per_token_s = np.asarray(estimate.tpot_s, dtype=np.float64)
    if deployment.speculation is not None:
        # What can be switched off costs no more than plain decoding.
        per_token_s = np.minimum(per_token_s, np.asarray(estimate.step_time_s))
    per_request_s = _prefill_s(deployment, float(prompts.mean()), batches) + (
        (float(outputs.mean()) - 1.0) * per_token_s / batches
    )
    best = int(np.argmin(per_request_s))
    capacity = replicas / float(per_request_s[best])
    return {
        "offered_requests_per_s": rate,
        "capacity_requests_per_s": capacity,
        "at_batch": float(batches[best]),
        "load": rate / capacity,
        "exceeds_capacity": rate > capacity,
    }


def load_sentence(load: Mapping[str, Any] | None) -> str:
    """Return the comparison in words; empty without one."""
    if load is None:
        return ""
    return (
        f"closed form: {load['offered_requests_per_s']:.3g} requests/s offered, "
        f"{load['capacity_requests_per_s']:.3g} at capacity (batch {load['at_batch']:.0f}), "
        f"load {load['load']:.2f}"
    )


def _most_sequences(deployment: Deployment, context: float) -> int:
    limits = deployment.limits
    return min(
        limits.max_num_seqs,
        limits.max_num_batched_tokens // (deployment.method.max_draft + 1),
        deployment.max_sequences(max(1, round(context))),
    )


def _prefill_s(deployment: Deployment, prompt: float, batches: Array) -> Array:
    """Return the seconds of a prompt in a step of as many prompts as its budget and batch hold."""
    fitting = max(float(deployment.limits.max_num_batched_tokens) / prompt, 1.0)
    count = np.minimum(batches, fitting)
    tokens = count * prompt
    rows = Rows(
        kind="prefill",
        num_sequences=count,
        num_tokens=tokens,
        kv_tokens=tokens,
        attended_tokens=tokens * (prompt + 1.0) / 2.0,
        logit_rows=count,
    )
    step = deployment.cost.step(deployment.method.round_passes([], [], [], rows), count)
    return np.asarray(step.total_s / count, dtype=np.float64)
