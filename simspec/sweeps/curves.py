"""Closed-form curves beside the simulated grid: how a round's cost grows with the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simspec.scenarios.build import Deployment
from simspec.scenarios.closed_form import estimate_round
from simspec.sweeps.plan import SweepPlan

_AXES = ("method.exit_layer", "method.num_speculative_tokens", "method.confidence_threshold")


def closed_form_curves(plan: SweepPlan) -> list[dict[str, Any]]:
    """Return one row per distinct speculative deployment and batch size that fits the KV cache."""
    options = plan.config.sweep
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    for point in plan.points:
        deployment = plan.deployments.get(point.point_id)
        distinct = point.config.model_dump_json(exclude={"workload", "slo", "simulation", "name"})
        if deployment is None or deployment.method.max_draft == 0 or distinct in seen:
            continue
        seen.add(distinct)
        columns = {k: v for k, v in point.columns.items() if not _is_load(plan, k)}
        columns["method.name"] = point.config.method.name
        for name in _AXES:
            columns.setdefault(name, getattr(point.config.method, name.split(".")[1], None))
        rows += [
            {**columns, **row}
            for row in _curve(deployment, options.curve_batches, options.curve_context)
        ]
    return rows


def _curve(deployment: Deployment, batches: Sequence[int], context: int) -> list[dict[str, Any]]:
    capacity = deployment.num_blocks * deployment.block_size_tokens
    slots = context + deployment.method.footprint().reserved_slots
    rows = []
    for batch in batches:
        if batch * slots > capacity or batch > deployment.limits.max_num_seqs:
            continue
        result = estimate_round(deployment, batch, context)
        rows.append(
            {
                "batch": batch,
                "context": context,
                "round_time_ms": float(result.round_time_s) * 1e3,
                "step_time_ms": float(result.step_time_s) * 1e3,
                "tpot_ms": float(result.tpot_s) * 1e3,
                "tokens_per_round": result.statistics.tokens_per_round,
                "speedup": float(result.speedup),
                "time_draft_ms": float(result.draft_s) * 1e3,
                "time_verify_ms": float(result.verify_s) * 1e3,
                "time_host_ms": float(result.host_s) * 1e3,
            }
        )
    return rows


def _is_load(plan: SweepPlan, column: str) -> bool:
    """Whether a column's axis changes nothing but the load."""
    for axis in plan.axes:
        if column in axis.choices[0][0]:
            fields = {name.split(".")[0] for _, fields in axis.choices for name in fields}
            return fields <= {"workload", "slo", "simulation"}
    return False
