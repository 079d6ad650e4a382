"""The replicas of a scenario: what the simulation, results and reports need to know of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from simspec.core.errors import ConfigError
from simspec.core.units import from_gb_s, from_us
from simspec.hardware.profile import InterNodeLink
from simspec.scenarios.build import Deployment, Place, blame, build, require_room
from simspec.scenarios.schema import ScenarioConfig
from simspec.serving.plan import PrefillSide
from simspec.serving.routing._base import RouterConfig
from simspec.serving.speculation.fixed import Config as FixedSpeculation


def decode_replicas(config: ScenarioConfig) -> int:
    """Return how many replicas decode."""
    apart = config.disaggregation
    return apart.decode_replicas if apart is not None else config.replicas


def devices_by_replica(config: ScenarioConfig) -> tuple[int, ...]:
    """Return the GPUs of each replica, those for prompts alone first."""
    apart, groups = config.disaggregation, config.attention_data_parallel
    own = (config.tp * groups,) * decode_replicas(config)
    if apart is None:
        return own
    return (*((apart.prefill_tp or config.tp) * groups,) * apart.prefill_replicas, *own)


def prefill_side(
    config: ScenarioConfig, deployment: Deployment, place: Place | None = None
) -> PrefillSide | None:
    """Return the replicas that compute prompts alone; None where every replica does both.

    Raises
    ------
    ConfigError
        There is no link for the KV, or the policy forms batches that nobody may join.
    DoesNotFit
        The model does not fit on a prefill replica.
    """
    apart = config.disaggregation
    if apart is None:
        return None
    with blame(place, "disaggregation"):
        if deployment.limits.policy_name == "static":
            raise ConfigError(
                "policy static lets nobody join a batch, and with disaggregation sequences come "
                "one by one; use policy continuous"
            )
    side = deployment
    if apart.prefill_tp is not None:
        with blame(place, "disaggregation", "prefill_tp"):
            changes = {"tp": apart.prefill_tp, "speculation": FixedSpeculation()}
            side = build(config.model_copy(update=changes))
            require_room(side)
    return PrefillSide(
        num_replicas=apart.prefill_replicas,
        method=side.method,
        cost=side.cost,
        num_blocks=side.num_blocks,
        limits=side.limits,
        kv_link=kv_link(config, deployment, place),
        # A rank sends its share to its peers: the larger share is what the copy takes.
        kv_bytes_per_token=max(
            side.budget.kv_bytes_per_token, deployment.budget.kv_bytes_per_token
        ),
    )


def kv_link(
    config: ScenarioConfig, deployment: Deployment, place: Place | None = None
) -> InterNodeLink:
    """Return what the KV of prompts goes over.

    Raises
    ------
    ConfigError
        Neither the scenario nor the hardware profile says.
    """
    given = config.disaggregation.link if config.disaggregation is not None else None
    if given is not None:
        bandwidth = from_gb_s(given.bandwidth_gb_s)
        return InterNodeLink("as given", bandwidth, from_us(given.latency_us))
    found = deployment.hardware.inter_node_link
    if found is None:
        with blame(place, "disaggregation"):
            raise ConfigError(
                f"the profile of {deployment.hardware.name} has no inter_node_link for the KV to "
                "go over; give link: {bandwidth_gb_s: …, latency_us: …}"
            )
    return found


def fleet_facts(config: ScenarioConfig) -> dict[str, Any]:
    """Return the keys a result has more when several replicas serve; none for one."""
    router, apart = config.router_in_force, config.disaggregation
    if router is None:
        return {}
    facts: dict[str, Any] = {
        "replicas": len(devices_by_replica(config)),
        "num_gpus": sum(devices_by_replica(config)),
        "router": router.name,
        "router_options": router.model_dump(mode="json", exclude={"name"}),
    }
    if apart is not None:
        facts["disaggregation"] = apart.model_dump(mode="json")
    return facts


def fleet_sentences(scenarios: Collection[ScenarioConfig]) -> list[str]:
    """Return one sentence on each fleet: how many replicas, and who gets a request."""
    said = []
    for config in scenarios:
        router, apart = config.router_in_force, config.disaggregation
        if router is None:
            continue
        devices = devices_by_replica(config)
        if apart is None:
            who = f"{config.replicas} replicas of {_gpus(devices[0])}"
        else:
            given = apart.link
            link = (
                f"{given.bandwidth_gb_s:g} GB/s and {given.latency_us:g} µs as given"
                if given is not None
                else "the inter-node link of the hardware profile"
            )
            who = (
                f"{apart.prefill_replicas} replicas of {_gpus(devices[0])} for prompts and "
                f"{apart.decode_replicas} of {_gpus(devices[-1])} for decoding, KV over {link},"
            )
        said.append(
            f"Fleet: {who} behind router {_described(router)}; load and results are those of all "
            "replicas, limits and KV cache those of each."
        )
    return list(dict.fromkeys(said))


def _gpus(number: int) -> str:
    return f"{number} GPU{'s' if number > 1 else ''}"


def _described(router: RouterConfig) -> str:
    options = router.model_dump(mode="json", exclude={"name"})
    words = ", ".join(f"{key} {value}" for key, value in options.items())
    return f"{router.name} ({words})" if words else router.name
