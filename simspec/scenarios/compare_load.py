"""The lines of a comparison under a load: simulated on the same requests and the same tapes.

What a request will accept is keyed by seed and request, so every line with the same acceptance
meets the same text, and every line meets the same arrivals and lengths. Plain decoding runs once
for each model, card and engine of the comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simspec.core.errors import Infeasible
from simspec.scenarios.build import Place, build
from simspec.scenarios.report import comparison_columns, metric_columns
from simspec.scenarios.run import Outcome, simulate_scenario
from simspec.scenarios.schema import ScenarioConfig, as_plain

if TYPE_CHECKING:
    from simspec.scenarios.compare import ComparisonConfig

METRICS = (
    "ttft_ms",
    "tpot_ms",
    "throughput_tokens_per_s",
    "goodput_requests_per_s",
    "mean_batch_size",
    "tokens_per_round",
    "round_time_ms",
)
"""What a row has of each line, with both ends of its 95 % interval."""
_PLAIN = "autoregressive"


def simulated(config: ComparisonConfig, place: Place | None = None) -> list[dict[str, Any]]:
    """Return one row per line: its metrics, those of plain decoding, and the speedup.

    Raises
    ------
    ConfigError
        The workload is wrong.
    """
    plain: dict[str, Outcome] = {}
    rows = []
    for index, entry in enumerate(config.methods):
        here = None if place is None else Place(place.document, (*place.base, "methods", index))
        scenario = _scenario(config, index)
        baseline = as_plain(scenario)
        key = baseline.model_dump_json()
        row: dict[str, Any] = {"label": entry.name}
        try:
            if key not in plain:
                plain[key] = simulate_scenario(baseline, build(baseline, here), place)
            ours = simulate_scenario(scenario, build(scenario, here), place)
        except Infeasible as error:
            rows.append({**row, "status": "does_not_fit", "reason": str(error)})
            continue
        compared = comparison_columns(ours, plain[key])
        rows.append(
            {
                **row,
                "status": ours.status,
                "reason": ours.reason,
                **_chosen(ours, METRICS),
                **{k: v for k, v in compared.items() if k.startswith("speedup")},
                **{f"{_PLAIN}_{k}": v for k, v in _chosen(plain[key], METRICS[:2]).items()},
            }
        )
    return rows


def _chosen(outcome: Outcome, metrics: Sequence[str]) -> dict[str, float | None]:
    columns = metric_columns(outcome)
    wanted = [f"{m}{end}" for m in metrics for end in ("", "_ci95_low", "_ci95_high")]
    return {key: columns.get(key) for key in wanted}


def _scenario(config: ComparisonConfig, index: int) -> ScenarioConfig:
    assert config.workload is not None
    deployment = config.deployment(config.methods[index])
    fields = {name: getattr(deployment, name) for name in type(deployment).model_fields}
    return ScenarioConfig(
        **fields,
        name=config.name,
        workload=config.workload,
        slo=config.slo,
        simulation=config.simulation,
    )
