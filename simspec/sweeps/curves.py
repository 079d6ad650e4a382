"""Closed-form curves beside the simulated grid: how a round's cost grows with the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from simspec.scenarios.build import Deployment
from simspec.scenarios.closed_form import RoundEstimate, estimate_round
from simspec.sweeps.axes import LOAD_FIELDS, touches_only
from simspec.sweeps.plan import SweepPlan

_AXES = ("method.exit_layer", "method.num_speculative_tokens", "method.confidence_threshold")


def closed_form_curves(plan: SweepPlan) -> list[dict[str, Any]]:
    """Return one row per distinct speculative deployment and batch size that fits the KV cache."""
    options = plan.config.sweep
    rows: list[dict[str, Any]] = []
    seen: set[int] = set()
    for point in plan.points:
        deployment = plan.deployments[point.point_id]
        if deployment.method.max_draft == 0 or id(deployment) in seen or not deployment.fits:
            continue
        seen.add(id(deployment))
        columns = {
            name: cell
            for name, cell in point.columns.items()
            if not touches_only(plan.axes, name, LOAD_FIELDS)
        }
        columns["method.name"] = point.config.method.name
        for name in _AXES:
            columns.setdefault(name, getattr(point.config.method, name.split(".")[1], None))
        rows += [
            {**columns, **row}
            for row in _curve(deployment, options.curve_batches, options.curve_context)
        ]
    return rows


def _curve(
    deployment: Deployment, batches: Sequence[int], context: int
) -> Iterator[dict[str, Any]]:
    largest = min(deployment.max_sequences(context), deployment.limits.max_num_seqs)
    possible = [batch for batch in batches if batch <= largest]
    if not possible:
        return
    columns = _columns(estimate_round(deployment, np.array(possible, dtype=np.float64), context))
    spread = {name: np.broadcast_to(values, len(possible)) for name, values in columns.items()}
    for index, batch in enumerate(possible):
        row = {name: float(values[index]) for name, values in spread.items()}
        yield {"batch": batch, "context": context, **row}


def _columns(result: RoundEstimate) -> dict[str, Any]:
    return {
        "round_time_ms": result.round_time_s * 1e3,
        "step_time_ms": result.step_time_s * 1e3,
        "tpot_ms": result.tpot_s * 1e3,
        "tokens_per_round": result.statistics.tokens_per_round,
        "speedup": result.speedup,
        "time_draft_ms": result.draft_s * 1e3,
        "time_verify_ms": result.verify_s * 1e3,
        "time_host_ms": result.host_s * 1e3,
    }
