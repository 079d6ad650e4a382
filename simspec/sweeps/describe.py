"""The manifest of a sweep: what a reader needs to trust, repeat and plot it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from simspec.core.provenance import manifest
from simspec.hardware.profile import Hardware
from simspec.scenarios.assumptions import assumptions
from simspec.scenarios.calibrated import sweep_sentence
from simspec.scenarios.closed_form import describe_acceptance
from simspec.scenarios.report import PAIRED
from simspec.sweeps.axes import LOAD_FIELDS, touches_only
from simspec.sweeps.grid import Point
from simspec.sweeps.plan import SweepPlan


def sweep_manifest(plan: SweepPlan, command: str) -> dict[str, object]:
    """Return the manifest; nothing in it depends on the clock or on who computed what."""
    points = [p for p in plan.points if plan.deployments[p.point_id].fits] or list(plan.points)
    speculative = [p for p in points if not p.is_baseline] or points
    first = speculative[0]
    deployments = [plan.deployments[p.point_id] for p in speculative]
    document = manifest(
        {},
        first.config.simulation.seed,
        kind="sweep",
        name=plan.config.name,
        description=plan.config.description,
        command=command,
        axes=_axes(plan),
        metrics=list(PAIRED),
        num_points=len(plan.points),
        replications=first.config.simulation.replications,
        model=_distinct(d.architecture.name for d in deployments),
        hardware=_distinct(d.hardware.name for d in deployments),
        calibrated=all(d.hardware.calibrated for d in deployments),
        uncalibrated_hardware=list(
            dict.fromkeys(_named(d.hardware) for d in deployments if not d.hardware.calibrated)
        ),
        engine=_distinct(d.engine.name for d in deployments),
        tp=_distinct(str(d.target.tp) for d in deployments),
        dtype=_distinct(d.target.weight_dtype for d in deployments),
        kv_dtype=_distinct(d.target.kv_dtype for d in deployments),
        acceptance=list(dict.fromkeys(describe_acceptance(d) for d in deployments)),
        workload=_workload_sentences(plan),
        slo=_shared_targets(points),
        profile_sources={d.hardware.name: dict(d.hardware.sources) for d in deployments},
        curve_context=plan.config.sweep.curve_context,
        assumptions=[
            *assumptions(
                [plan.deployments[p.point_id] for p in points], [p.config for p in points]
            ),
            *sweep_sentence(deployments, plan.config.sweep.curve_context),
        ],
    )
    # Taken when the sweep was planned: files edited since then are not what was computed.
    document["inputs"] = {name: {"sha256": plan.digests[name]} for name in sorted(plan.digests)}
    return document


def _axes(plan: SweepPlan) -> list[dict[str, Any]]:
    described = []
    for axis in plan.axes:
        for column in axis.columns:
            values = list(dict.fromkeys(choice.columns[column] for choice in axis.choices))
            described.append({"field": column, "label": None, "values": values})
    return described


def _workload_sentences(plan: SweepPlan) -> dict[str, str] | list[str]:
    """Return the sentence on each distinct load, by the labels of its axes."""
    labels: dict[str, str] = {}
    for point in plan.points:
        labels.setdefault(plan.workloads[point.point_id], _load_label(plan, point))
    if len(set(labels.values())) < max(len(labels), 2):
        return list(labels)
    return {label: sentence for sentence, label in labels.items()}


def _load_label(plan: SweepPlan, point: Point) -> str:
    cells = [
        str(cell)
        for column, cell in point.columns.items()
        if touches_only(plan.axes, column, LOAD_FIELDS)
    ]
    return ", ".join(cells) or "load"


def _shared_targets(points: Sequence[Point]) -> dict[str, float]:
    """Return the latency targets that all points share: no sentence may state another one's."""
    first, *others = [point.config.slo.model_dump(exclude_none=True) for point in points]
    return {key: value for key, value in first.items() if all(o.get(key) == value for o in others)}


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _named(hardware: Hardware) -> str:
    """Return an uncalibrated profile with the one whose efficiencies it has."""
    relative = hardware.efficiencies_of
    return f"{hardware.name}: efficiencies of {relative}" if relative else hardware.name
