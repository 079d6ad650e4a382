"""The YAML form of a scenario: one experiment on one deployment.

Every field that is not given has the default shown here or the engine profile's; reports print
the values in force. Files named in a scenario are looked up beside the scenario first.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from simspec.core.errors import nearest
from simspec.decoding._base import METHODS, AcceptanceConfig, MethodConfig
from simspec.decoding.acceptance._shorthand import parse_acceptance
from simspec.serving.metrics import METRICS
from simspec.serving.preemption._base import PREEMPTIONS, PreemptionConfig
from simspec.serving.routing._base import ROUTERS, RouterConfig
from simspec.serving.scheduling._base import SCHEDULERS
from simspec.serving.scheduling._base import SchedulerConfig as SchedulingPolicyConfig
from simspec.serving.speculation._base import SPECULATIONS, SpeculationConfig
from simspec.serving.speculation.fixed import Config as FixedSpeculation
from simspec.workloads.workload import WorkloadConfig


class StrictModel(BaseModel):
    """Frozen, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SchedulerConfig(StrictModel):
    """Limits of one engine step; ``None`` means the engine profile's default."""

    policy: Annotated[
        str | SerializeAsAny[SchedulingPolicyConfig] | None,
        BeforeValidator(SCHEDULERS.parse_mapping),
    ] = None
    """File name in ``simspec/serving/scheduling``, or a mapping with a name and its settings."""
    max_num_seqs: int | None = Field(default=None, ge=1, le=100_000)
    """Sequences that may run at once."""
    max_num_batched_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    """Tokens one engine step may process, drafts included."""
    chunked_prefill: bool | None = None
    """Whether a prompt may be split over several steps."""
    preemption: Annotated[
        str | SerializeAsAny[PreemptionConfig], BeforeValidator(PREEMPTIONS.parse_mapping)
    ] = "recompute"
    """File name in ``simspec/serving/preemption``, or a mapping with a name and its settings."""
    prefix_caching: bool | None = None
    """Whether the KV of prompts is kept for requests that begin alike; matters only where the
    workload says what prompts contain."""


class MemoryConfig(StrictModel):
    """Overrides of the engine profile's memory rules."""

    memory_fraction: float | None = Field(default=None, gt=0, le=1)
    """Share of the device memory for weights, activations and KV together."""
    num_kv_blocks: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Size of the KV pool in blocks, instead of what the budget leaves."""
    block_size_tokens: int | None = Field(default=None, ge=1, le=4096)
    """Tokens per KV block."""
    weights_gib: float | None = Field(default=None, gt=0, le=100_000)
    """Weights of the model on one GPU as the engine's start-up log states them, GiB."""
    activation_gib: float | None = Field(default=None, ge=0, le=100_000)
    """Peak of activations on one GPU as the log states it, GiB."""
    non_torch_gib: float | None = Field(default=None, ge=0, le=100_000)
    """Memory outside the framework's allocator on one GPU as the log states it, GiB."""

    @model_validator(mode="after")
    def _one_size_of_the_pool(self) -> Self:
        for name in ("memory_fraction", "activation_gib", "non_torch_gib"):
            if getattr(self, name) is not None and self.num_kv_blocks is not None:
                raise PydanticCustomError(
                    "memory_twice",
                    "num_kv_blocks says how large the pool is, so {name} has no effect; "
                    "remove one of them",
                    {"name": name},
                )
        return self


class SloConfig(StrictModel):
    """Latency targets; a request counts as good when it meets every target given."""

    ttft_ms: float | None = Field(default=None, gt=0)
    """Time to first token, milliseconds."""
    tpot_ms: float | None = Field(default=None, gt=0)
    """Time per output token over the decode window, milliseconds."""
    e2e_ms: float | None = Field(default=None, gt=0)
    """Whole request, milliseconds."""


def _warmup(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value == "auto" or (is_number and 0 <= value < 1):
        return value
    raise PydanticCustomError(
        "warmup",
        "{value} is neither 'auto' nor a share of the requests, from 0 to below 1",
        {"value": repr(value)},
    )


class SimulationConfig(StrictModel):
    """How the experiment is run."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    """Same seed, same bytes."""
    replications: int = Field(default=5, ge=1, le=10_000)
    """Independent repetitions; intervals need at least two."""
    warmup: Annotated[
        Literal["auto"] | Annotated[float, Field(ge=0, lt=1)], BeforeValidator(_warmup)
    ] = "auto"
    """Share of the requests left out at the start, or ``auto``: MSER-5 on the latencies, and in a
    closed loop at least the requests it starts with, whose prompts all queue at once."""
    max_simulated_s: float | None = Field(default=None, gt=0)
    """Stop the simulated clock here."""
    intervals: Literal["replications", "batch_means"] = "replications"
    """What intervals are made of: one value per replication, or one per batch of consecutive
    requests of each run, for one long run."""
    num_batches: int | None = Field(default=None, ge=2, le=1000)
    """Batches per run with ``batch_means``; 20 if not given."""
    target_half_width: float | None = Field(default=None, gt=0, lt=1)
    """Replicate until the half-width of the interval of ``metric`` is this share of its mean."""
    metric: str | None = None
    """What ``target_half_width`` is about; ``tpot_ms`` if not given."""
    max_replications: int | None = Field(default=None, ge=1, le=10_000)
    """Where replicating stops short of ``target_half_width``; 100 if not given."""

    @property
    def stopping_metric(self) -> str:
        """The metric that ``target_half_width`` is about."""
        return self.metric or "tpot_ms"

    @property
    def most_replications(self) -> int:
        """Where replicating stops at the latest."""
        return max(self.replications, self.max_replications or 100)

    @field_validator("metric")
    @classmethod
    def _metric_exists(cls, value: str | None) -> str | None:
        if value is not None and value not in METRICS:
            raise PydanticCustomError(
                "metric",
                "unknown metric {value}; {nearest}",
                {"value": repr(value), "nearest": nearest(value, METRICS)},
            )
        return value

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if self.num_batches is not None and self.intervals != "batch_means":
            raise PydanticCustomError(
                "no_batches",
                "num_batches has no effect without intervals: batch_means; remove it",
            )
        given = [name for name in ("metric", "max_replications") if getattr(self, name) is not None]
        if given and self.target_half_width is None:
            raise PydanticCustomError(
                "no_target",
                "{name} has no effect without target_half_width; remove it",
                {"name": given[0]},
            )
        if self.max_replications is not None and self.max_replications < self.replications:
            raise PydanticCustomError(
                "too_few_replications",
                "max_replications is below replications, the least there are; raise it",
            )
        return self


class DeploymentConfig(StrictModel):
    """A model on hardware under an engine, decoding by one method."""

    model: str = Field(min_length=1)
    """Catalog name, ``config.json`` or a directory that holds one."""
    hardware: str = Field(min_length=1)
    """Profile name or YAML path."""
    engine: str = Field(default="vllm", min_length=1)
    """Engine profile name or YAML path."""
    tp: int = Field(default=1, ge=1, le=1024)
    """Tensor-parallel degree."""
    expert_parallel: int = Field(default=1, ge=1, le=1024)
    """Ranks that the experts are divided over whole, out of ``tp * attention_data_parallel``; the
    rest of the ranks split each expert (vLLM's ``--enable-expert-parallel``: all of them)."""
    attention_data_parallel: int = Field(default=1, ge=1, le=1024)
    """Groups of ``tp`` GPUs that each hold the whole attention and serve a share of the requests,
    while the experts are held once by all of them. Load and limits are those of the whole
    deployment; ``scheduler`` and ``memory`` are per group, as engines take them."""
    dtype: str = "bf16"
    """Weight data type."""
    kv_dtype: str = "bf16"
    """KV-cache data type."""
    method: Annotated[SerializeAsAny[MethodConfig], BeforeValidator(METHODS.parse)]
    """Decoding method and its fields."""
    acceptance: Annotated[
        SerializeAsAny[AcceptanceConfig] | None, BeforeValidator(parse_acceptance)
    ] = None
    """What drafts are accepted; required by every speculative method, never defaulted."""
    speculation: Annotated[
        SerializeAsAny[SpeculationConfig], BeforeValidator(SPECULATIONS.parse)
    ] = FixedSpeculation()
    """How much is drafted while the load changes; a simulation follows it."""
    scheduler: SchedulerConfig = SchedulerConfig()
    memory: MemoryConfig = MemoryConfig()


_Deployment = TypeVar("_Deployment", bound=DeploymentConfig)


def as_plain(config: _Deployment) -> _Deployment:
    """Return the same deployment with plain decoding, what methods are compared with."""
    plain = {"method": METHODS.parse("autoregressive"), "acceptance": None}
    return config.model_copy(update={**plain, "speculation": FixedSpeculation()})


def _router(value: Any) -> Any:
    return None if value is None else ROUTERS.parse(value)


class KvLinkConfig(StrictModel):
    """A connection between prefill and decode replicas, as one GPU sees it."""

    bandwidth_gb_s: float = Field(gt=0, le=100_000)
    """One direction, per GPU."""
    latency_us: float = Field(default=0.0, ge=0, le=1e6)
    """Of one copy, whatever its size."""


class DisaggregationConfig(StrictModel):
    """Replicas for prompts and others for decoding, which is what the deployment then describes."""

    prefill_replicas: int = Field(ge=1, le=4096)
    """Engines that compute prompts and first tokens."""
    decode_replicas: int = Field(ge=1, le=4096)
    """Engines that take in the KV of prompts and decode."""
    prefill_tp: int | None = Field(default=None, ge=1, le=1024)
    """Tensor-parallel degree of the prefill replicas; ``tp`` when not given."""
    link: KvLinkConfig | None = None
    """What the KV goes over; the hardware's ``inter_node_link`` when not given."""


class ScenarioConfig(DeploymentConfig):
    """One deployment under one load."""

    name: str = Field(default="scenario", min_length=1, max_length=200)
    description: str = ""
    replicas: int = Field(default=1, ge=1, le=4096)
    """Engines like the one above, each with its own GPUs, behind a router; the workload and every
    result are those of all together."""
    router: Annotated[SerializeAsAny[RouterConfig] | None, BeforeValidator(_router)] = None
    """File name in ``simspec/serving/routing``, and its fields; ``least_loaded`` when not given."""
    disaggregation: DisaggregationConfig | None = None
    """Prefill and decode on replicas of their own, instead of ``replicas``; the router serves the
    prefill replicas."""
    workload: WorkloadConfig
    slo: SloConfig = SloConfig()
    simulation: SimulationConfig = SimulationConfig()

    @model_validator(mode="after")
    def _router_has_a_choice(self) -> Self:
        if self.disaggregation is not None and self.replicas > 1:
            raise PydanticCustomError(
                "replicas_twice",
                "disaggregation says how many replicas there are, so replicas has no effect; "
                "remove it",
            )
        if self.router is not None and self.num_entries == 1:
            raise PydanticCustomError(
                "router_alone",
                "one replica gets every request, so router has no effect; remove it or raise "
                "replicas",
            )
        return self

    @property
    def num_entries(self) -> int:
        """Replicas that a new request can go to."""
        return self.disaggregation.prefill_replicas if self.disaggregation else self.replicas

    @property
    def router_in_force(self) -> RouterConfig | None:
        """The router of a fleet; None where one replica is alone."""
        if self.replicas == 1 and self.disaggregation is None:
            return None
        router: RouterConfig = self.router or ROUTERS.parse("least_loaded")
        return router

    def with_replications(self, replications: int) -> Self:
        """Return the scenario with exactly so many replications, whatever was to be reached."""
        exactly = {
            "replications": replications,
            "target_half_width": None,
            "metric": None,
            "max_replications": None,
        }
        return self.model_copy(update={"simulation": self.simulation.model_copy(update=exactly)})
