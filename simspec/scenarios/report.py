"""One scenario from its file to a result: metrics with intervals, beside autoregression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simspec.core.errors import ConfigError
from simspec.core.provenance import manifest, sha256_of
from simspec.core.resources import shown_name
from simspec.core.stats import Interval, mean_interval, ratio_interval
from simspec.core.yamlio import load_yaml, parse
from simspec.scenarios.assumptions import assumptions
from simspec.scenarios.build import Deployment, Place, build
from simspec.scenarios.calibrated import calibration_of, run_sentence
from simspec.scenarios.classes import class_lines
from simspec.scenarios.closed_form import describe_acceptance
from simspec.scenarios.control import control_lines
from simspec.scenarios.fleets import fleet_facts
from simspec.scenarios.result_folder import FolderOptions, ResultFolder
from simspec.scenarios.run import Observed, Outcome, draw_workload, simulate_scenario
from simspec.scenarios.schema import ScenarioConfig, as_plain
from simspec.serving._metric import definitions
from simspec.workloads.workload import WorkloadRun

SHOWN = (
    "ttft_ms", "ttft_queue_ms", "ttft_prefill_ms", "ttft_p95_ms", "tpot_ms", "tpot_p95_ms",
    "itl_ms", "burst_gap_ms", "burst_gap_p99_ms", "e2e_ms", "queue_ms",
    "throughput_tokens_per_s", "requests_per_s", "goodput_requests_per_s", "slo_attainment",
    "drafted_per_round", "tokens_per_round", "acceptance_rate", "round_time_ms",
    "time_draft_ms", "time_verify_ms", "time_prefill_ms", "time_host_ms", "mean_batch_size",
    "kv_utilisation", "compute_utilisation", "bandwidth_utilisation", "energy_per_token_j",
    "energy_per_request_j", "cost_per_million_tokens_usd", "rejected_energy_share",
    "rejected_cost_share", "preemptions", "num_measured", "num_censored", "num_not_arrived",
)  # fmt: skip

WHERE_IT_HAPPENS = ("recomputed_share", "swap_time_share", "prefix_cache_hit_rate")
"""Shown too where a run has any."""


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """What ``simspec simulate`` prints and writes."""

    document: dict[str, Any]
    header: list[str]
    rows: list[dict[str, Any]]


def simulate_file(
    path: Path,
    *,
    baseline: bool = True,
    check: bool = False,
    output: Path | None = None,
    options: FolderOptions | None = None,
) -> SimulationReport:
    """Simulate the scenario in ``path``, and plain autoregression on the same tapes.

    Parameters
    ----------
    baseline : bool
        Whether to run autoregression too and report the speedup.
    check : bool
        Assert the conservation laws after every step.
    output : Path, optional
        Folder for the result; it appears only once everything has succeeded.
    options : FolderOptions, optional
        How much of the runs goes there.
    """
    if options is not None and output is None:
        raise ConfigError("options of the result folder have no effect without --output")
    document = load_yaml(path)
    if "scenario" in document.data and "model" not in document.data:
        raise ConfigError(f"{path}: is a sweep, not one scenario; run 'simspec sweep {path}'")
    config = parse(document, ScenarioConfig)
    inputs = {shown_name(path): path.read_bytes()}
    place = Place(document)
    if output is None:
        return simulate_config(config, inputs, place, baseline=baseline, check=check)
    with ResultFolder(output, options) as folder:

        def write(run: Observed) -> None:
            folder.add(run, config.model)

        report = simulate_config(
            config, inputs, place, baseline=baseline, check=check, observe=write
        )
        folder.finish(report.document)
    return report


def simulate_config(
    config: ScenarioConfig,
    inputs: Mapping[str, bytes],
    place: Place | None = None,
    *,
    baseline: bool = True,
    check: bool = False,
    observe: Callable[[Observed], None] | None = None,
) -> SimulationReport:
    """Simulate a validated scenario; ``inputs`` are the texts it came from, for the manifest.

    ``observe`` is called with each run of the scenario itself, not with those of the baseline.
    """
    deployment = build(config, place)
    ours = simulate_scenario(config, deployment, place, check=check, observe=observe)
    plain, deployments = None, [deployment]
    if deployment.method.name == "autoregressive":
        plain = ours
    elif baseline:
        plain_config, plain_deployment = baseline_of(config.with_replications(ours.num_runs), place)
        plain = simulate_scenario(plain_config, plain_deployment, place, check=check)
        deployments.append(plain_deployment)
    workload = draw_workload(config, 0, place)
    calibration = _calibration(deployment, workload, ours, plain)
    result = {
        **_facts(config, deployment, workload.source),
        "workload_counts": workload.counts(),
        "replications": ours.num_runs,
        "assumptions": assumptions(deployments, [config])
        + _beyond_context(deployment, workload)
        + run_sentence(calibration),
        "status": ours.status,
        "reason": ours.reason,
        **metric_columns(ours),
        "by_replication": ours.replications,
        "definitions": definitions(),
        **ours.quantiles,
        **ours.facts,
        "speculation": ours.speculation,
        "stability": ours.stability,
        "precision": ours.precision,
        **comparison_columns(ours, plain),
        "calibration": calibration,
    }
    if plain is not None:
        result["baseline"] = {
            "method": "autoregressive",
            "status": plain.status,
            "reason": plain.reason,
            **metric_columns(plain),
            **plain.quantiles,
        }
    result["manifest"] = manifest(
        {**inputs, **{shown_name(p): p for p in workload.files}},
        config.simulation.seed,
        scenario=config.model_dump(mode="json"),
        workload_files=[sha256_of(p) for p in workload.files],
        profile_sources=dict(deployment.hardware.sources),
    )
    return SimulationReport(result, _header(result), _rows(ours, plain))


def baseline_of(config: ScenarioConfig, place: Place | None) -> tuple[ScenarioConfig, Deployment]:
    """Return the same scenario with plain decoding."""
    plain = as_plain(config)
    return plain, build(plain, place)


def metric_columns(outcome: Outcome) -> dict[str, float | None]:
    """Return every metric with its interval columns."""
    columns: dict[str, float | None] = {}
    for name, values in outcome.replications.items():
        columns.update(interval_columns(name, interval_of(values)))
    return columns


def interval_of(values: list[float | None]) -> Interval | None:
    """Return the mean over replications; None when some replication does not define it."""
    known = [v for v in values if v is not None]
    return mean_interval(known) if known and len(known) == len(values) else None


def interval_columns(metric: str, interval: Interval | None) -> dict[str, float | None]:
    """Return the three columns of a metric."""
    if interval is None:
        return {metric: None, f"{metric}_ci95_low": None, f"{metric}_ci95_high": None}
    return {
        metric: interval.mean,
        f"{metric}_ci95_low": interval.low,
        f"{metric}_ci95_high": interval.high,
    }


PAIRED: dict[str, str] = {"speedup": "tpot_ms", "e2e_speedup": "e2e_ms"}
"""Ratio: the metric whose baseline value is divided by the method's, replication by replication."""


def comparison_columns(ours: Outcome, plain: Outcome | None) -> dict[str, float | None]:
    """Return the ratios to plain decoding and the time of its step.

    Both runs share requests, arrivals and tapes, so the interval is that of paired ratios: far
    narrower than two separate intervals would say.

    Parameters
    ----------
    plain : Outcome or None
        Autoregression on the same load; ``ours`` itself when that is what it is; None when it
        was not run.
    """
    columns: dict[str, float | None] = {}
    for name, interval in _compared(ours, plain).items():
        columns.update(interval_columns(name, interval))
    return columns


def _compared(ours: Outcome, plain: Outcome | None) -> dict[str, Interval | None]:
    found: dict[str, Interval | None] = {}
    for name, metric in PAIRED.items():
        top = plain.replications.get(metric, []) if plain is not None else []
        bottom = ours.replications.get(metric, [])
        # A stopping rule may have ended one of them earlier: pairs are of the replications of both.
        both = min(len(top), len(bottom))
        top, bottom = top[:both], bottom[:both]
        defined = bool(top) and bool(bottom) and None not in top and None not in bottom
        if not defined:
            found[name] = None
        elif plain is ours:
            found[name] = Interval(1.0, 1.0, 1.0, len(top))
        else:
            found[name] = ratio_interval(_floats(top), _floats(bottom))
    steps = plain.replications.get("round_time_ms", []) if plain is not None else []
    return {**found, "step_time_ms": interval_of(steps)}


def _beyond_context(deployment: Deployment, workload: WorkloadRun) -> list[str]:
    """Return a sentence on requests that the model itself could not take, if there are any."""
    limit = deployment.architecture.max_context_len
    total = len(workload.requests)
    beyond = sum(r.prompt_len + r.output_len > limit for r in workload.requests) if limit else 0
    if not beyond:
        return []
    return [
        f"{beyond:,} of {total:,} requests are longer than the {limit:,} tokens of "
        f"{deployment.architecture.name} and are served all the same; "
        "workload.over_context: clip or drop keeps to them"
    ]


def _calibration(
    deployment: Deployment, workload: WorkloadRun, ours: Outcome, plain: Outcome | None
) -> dict[str, Any] | None:
    batch = interval_of(ours.replications.get("mean_batch_size", []))
    metrics = {name: interval_of(values) for name, values in ours.replications.items()}
    return calibration_of(
        deployment, workload, batch.mean if batch else None, metrics | _compared(ours, plain)
    )


def _floats(values: list[float | None]) -> list[float]:
    return [v for v in values if v is not None]


def _facts(config: ScenarioConfig, deployment: Deployment, workload: str) -> dict[str, Any]:
    price = deployment.hardware.price
    return {
        "name": config.name,
        "hardware": deployment.hardware.name,
        **deployment.hardware.calibration,
        "engine": deployment.engine.name,
        "model": deployment.architecture.name,
        "tp": deployment.target.tp,
        **fleet_facts(config),
        "dtype": deployment.target.weight_dtype,
        "kv_dtype": deployment.target.kv_dtype,
        "method": config.method.name,
        "method_options": config.method.model_dump(mode="json", exclude={"name"}),
        "acceptance": describe_acceptance(deployment),
        "workload": workload,
        "price": None if price is None else asdict(price),
    }


def _header(result: Mapping[str, Any]) -> list[str]:
    relative = result.get("efficiencies_of")
    borrowed = f"uncalibrated: efficiencies of {relative}" if relative else "uncalibrated profile"
    note = "" if result["calibrated"] else f" ({borrowed})"
    fleet = f" x {result['replicas']} ({result['router']})" if "replicas" in result else ""
    if apart := result.get("disaggregation"):
        fleet += f", {apart['prefill_replicas']} of them for prompts"
    lines = [
        f"{result['model']} on {result['hardware']}{note}, {result['engine']}, "
        f"tp={result['tp']}{fleet}, {result['dtype']} (KV {result['kv_dtype']}), "
        f"method {result['method']}",
        f"workload    {result['workload']}",
        f"acceptance  {result['acceptance']}",
        *control_lines(result["speculation"]),
        *class_lines(result.get("classes")),
    ]
    if price := result["price"]:
        lines.append(
            f"price       {price['usd_per_hour']:g} $ per GPU and hour as of {price['as_of']}"
        )
    lines += _precision_lines(result["precision"])
    if result["status"] != "ok":
        lines.append(str(result["reason"]))
    plain = result.get("baseline")
    if plain is None or result["method"] == plain["method"]:
        return [*lines, *_calibrated_line(result)]
    if plain["status"] != "ok":
        lines.append(f"autoregression is {plain['reason']}")
    if result["speedup"] is not None:
        lines.append(
            f"speedup     {result['speedup']:.3f} {_span(result, 'speedup')} in time per output "
            f"token: {result['tpot_ms']:.3f} ms against {plain['tpot_ms']:.3f} ms"
        )
    return [*lines, *_calibrated_line(result)]


def _precision_lines(precision: Mapping[str, Any]) -> list[str]:
    """Return what the stopping rule reached, and what is wrong with batches."""
    lines = []
    if "target_half_width" in precision:
        half = precision["half_width"]
        width = "no interval" if half is None else f"± {100 * half:.3g} % of its mean"
        reached = "reached" if precision["reached"] else "not reached"
        lines.append(
            f"precision   {precision['metric']} {width} after {precision['replications']} "
            f"replications; target ± {100 * precision['target_half_width']:.3g} % {reached}"
        )
    if correlated := precision.get("correlated_batches"):
        lines.append(
            f"precision   batches are too short: those of {', '.join(correlated)} are correlated, "
            "so intervals are too narrow; make the run longer or lower simulation.num_batches"
        )
    return lines


def _calibrated_line(result: Mapping[str, Any]) -> list[str]:
    """Return what calibration and replications together allow the speedup and the time."""
    intervals = (result["calibration"] or {"intervals": {}})["intervals"]
    told = [
        f"{words} [{low:.3f}, {high:.3f}]{unit}"
        for metric, words, unit in (
            ("speedup", "speedup", ""),
            ("tpot_ms", "time per output token", " ms"),
        )
        if metric in intervals
        for low, high in [intervals[metric]["together"]]
        if low < high
    ]
    return [f"calibration {', '.join(told)} (95 %, with replications)"] if told else []


def _span(result: Mapping[str, Any], metric: str) -> str:
    low, high = result[f"{metric}_ci95_low"], result[f"{metric}_ci95_high"]
    return "" if low is None else f"[{low:.3f}, {high:.3f}]"


def _rows(ours: Outcome, plain: Outcome | None) -> list[dict[str, Any]]:
    rows = []
    happened = [
        metric
        for metric in WHERE_IT_HAPPENS
        if any(each for run in (ours, plain) if run for each in run.replications.get(metric, ()))
    ]
    for metric in (*SHOWN, *happened):
        row: dict[str, Any] = {"metric": metric}
        row.update(_cells("", ours, metric))
        if plain is not None and plain is not ours:
            row.update(_cells("autoregressive ", plain, metric))
        rows.append(row)
    return rows


def _cells(prefix: str, outcome: Outcome, metric: str) -> dict[str, Any]:
    interval = interval_of(outcome.replications.get(metric, []))
    half = interval.half_width if interval else None
    return {f"{prefix}mean": interval.mean if interval else None, f"{prefix}± (95 %)": half}
