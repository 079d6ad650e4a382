"""What a scenario says about its replicas, for results and reports."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from simspec.scenarios.schema import ScenarioConfig
from simspec.serving.routing._base import RouterConfig


def fleet_facts(config: ScenarioConfig) -> dict[str, Any]:
    """Return the keys a result has more when several replicas serve; none for one."""
    router = config.router_in_force
    if router is None:
        return {}
    return {
        "replicas": config.replicas,
        "num_gpus": config.replicas * config.tp * config.attention_data_parallel,
        "router": router.name,
        "router_options": router.model_dump(mode="json", exclude={"name"}),
    }


def fleet_sentences(scenarios: Collection[ScenarioConfig]) -> list[str]:
    """Return one sentence on each fleet: how many replicas, and who gets a request."""
    said = []
    for config in scenarios:
        router = config.router_in_force
        if router is not None:
            gpus = config.tp * config.attention_data_parallel
            said.append(
                f"Fleet: {config.replicas} replicas of {gpus} GPU{'s' if gpus > 1 else ''} behind "
                f"router {_described(router)}; load and results are those of all replicas, "
                "limits and KV cache those of each."
            )
    return list(dict.fromkeys(said))


def _described(router: RouterConfig) -> str:
    options = router.model_dump(mode="json", exclude={"name"})
    words = ", ".join(f"{key} {value}" for key, value in options.items())
    return f"{router.name} ({words})" if words else router.name
