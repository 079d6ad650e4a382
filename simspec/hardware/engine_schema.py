"""The YAML form of an engine profile: ``hardware_profiles/engines/*.yaml``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from simspec.core.units import from_gb, from_us, gb, us
from simspec.hardware.kernel_schema import ProfileGroup, SourcedGroup
from simspec.hardware.profile import EngineProfile, KernelsInSteps
from simspec.hardware.uncertainty import Sigma, default_errors

HostMicroseconds = Annotated[float, Field(ge=0.0, le=1_000_000.0)]


class HostGroup(SourcedGroup):
    """Time the CPU adds to an engine step."""

    per_step_us: HostMicroseconds
    """Once per step and not overlapped with the device: scheduling, inputs, sampling."""
    per_sequence_us: HostMicroseconds
    """For each sequence in the step."""
    per_prompt_us: HostMicroseconds = 0.0
    """For each prompt computed in the step."""
    front_end_us: HostMicroseconds = 0.0
    """Between a client and the scheduler, both ways; part of the TTFT that a client measures."""
    per_draft_step_us: HostMicroseconds
    """For each sequential draft pass of a round."""
    per_round_us: HostMicroseconds = 0.0
    """Once per step that verifies drafts: rejection sampling, bookkeeping of what was accepted."""
    per_tree_us: HostMicroseconds = 0.0
    """On top of that where drafts branch: building the tree and its mask, choosing the path, moving
    its KV."""
    per_lookup_us: HostMicroseconds = 0.0
    """For each text searched for an earlier occurrence of its last tokens (prompt lookup)."""
    per_launch_us: HostMicroseconds
    """CPU time of launching one kernel; matters without captured graphs only."""
    graph_capture: bool
    """Whether steps replay captured graphs, which launch nothing."""


class EngineMemoryGroup(SourcedGroup):
    """How the engine divides the device memory."""

    memory_fraction: Annotated[float, Field(gt=0.0, le=1.0)]
    """The engine's knob; ``rule`` says what it is a share of."""
    reserve_gb: Annotated[float, Field(ge=0.0, le=1000.0)]
    """Outside the framework (context, libraries), per rank, in 10**9 bytes."""
    block_size_tokens: Annotated[int, Field(ge=1, le=65_536)]
    rule: Annotated[str, Field(min_length=1, max_length=100)] = "share_of_total"
    """What the fraction is a share of: a file name in ``simspec/memory/pools``."""
    collectives_gb: dict[str, Annotated[float, Field(ge=0.0, le=1000.0)]] = Field(
        default_factory=dict
    )
    """Communication buffers of each rank, in 10**9 bytes, where several ranks are joined by a link
    of that family (the first word of its name, for example NVLink)."""
    logit_rows: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Most rows of logits alive at once; absent: one for every sequence."""
    hybrid_kv_cache: bool = False
    """Whether layers with a sliding window free the tokens that have left it."""


class KernelsInStepsGroup(SourcedGroup):
    """What the engine makes of kernels that were timed alone."""

    overhead_share: Annotated[float, Field(ge=0.0, le=2.0)]
    """Share of the kernels' fixed overheads that is left in a step."""
    grouped_flop_share: Annotated[float, Field(gt=0.0, le=2.0)] = 1.0
    """Compute rate of products over experts, relative to plain ones."""
    grouped_bandwidth_share: Annotated[float, Field(gt=0.0, le=2.0)] = 1.0
    """Memory rate of products over experts, relative to plain ones."""
    grouped_overhead_us: HostMicroseconds = 0.0
    """Once per product over experts: sorting and moving its rows."""
    grouped_padding_rows: Annotated[float, Field(ge=0.0, le=1024.0)] = 0.0
    """Rows that fill the last tile of each expert, on average."""
    routing_shape: Annotated[float, Field(ge=0.05, le=1000.0)] | None = None
    """Shape of the gamma law of the experts' popularity; absent: all are equally popular."""
    collective_overhead_us: HostMicroseconds = 0.0
    """Once per all-reduce: ranks wait for the slowest, which a collective timed alone does not."""


class SchedulerGroup(SourcedGroup):
    """Defaults of the scheduler; a scenario may override each."""

    max_num_seqs: Annotated[int, Field(ge=1, le=1_000_000)]
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=100_000_000)]
    chunked_prefill: bool
    policy: Annotated[str, Field(min_length=1, max_length=100)] = "continuous"
    """File name in ``simspec/serving/scheduling``."""
    prefix_caching: bool = False
    """Whether the KV of prompts is kept for requests that begin alike."""
    reserves_output: bool = False
    """Whether a request waits until the KV of its whole answer has room; closed form of closed
    loops alone, the simulation admits by the prompt."""


class UncertaintyGroup(SourcedGroup):
    """How far predictions of this engine's steps are from measurements that nothing was fitted on.

    A median of ``|predicted / measured - 1|`` over held-out rows is read as
    ``ln(1 + median) / 0.6745``.
    """

    model_error: Sigma
    """1 sigma of the logarithm of whole steps, beyond the errors of the kernels."""
    mixture_error: Sigma | None = None
    """The same where the model has experts; absent: ``model_error``."""
    first_token_error: Sigma | None = None
    """The same of the time to first token in a closed loop, the habits of whoever measures it
    included; absent: as of steps."""
    mixture_first_token_error: Sigma | None = None
    """The same where the model has experts; absent: ``first_token_error``."""
    host_error: Sigma = 0.0
    """1 sigma of the logarithm of the host times, where ``model_error`` does not hold theirs."""


class EngineConfig(ProfileGroup):
    """A whole engine profile."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    description: Annotated[str, Field(min_length=1, max_length=500)]
    kernels: Annotated[str, Field(max_length=100)] = ""
    """Kernel set of the hardware profiles that it runs; absent: each device's own kernels."""
    host: HostGroup
    kernels_in_steps: KernelsInStepsGroup | None = None
    """Absent: kernels in a step are as kernels timed alone, grouped products as plain ones."""
    memory: EngineMemoryGroup
    scheduler: SchedulerGroup
    uncertainty: UncertaintyGroup | None = None
    """Absent: the error of engines that nobody judged."""


def to_engine(config: EngineConfig) -> EngineProfile:
    """Return an engine profile in SI units."""
    host, memory, scheduler = config.host, config.memory, config.scheduler
    error = config.uncertainty or _unjudged()
    return EngineProfile(
        name=config.name,
        description=config.description,
        kernels=config.kernels,
        host_time_per_step_s=from_us(host.per_step_us),
        host_time_per_sequence_s=from_us(host.per_sequence_us),
        host_time_per_draft_step_s=from_us(host.per_draft_step_us),
        host_time_per_round_s=from_us(host.per_round_us),
        host_time_per_tree_s=from_us(host.per_tree_us),
        host_time_per_lookup_s=from_us(host.per_lookup_us),
        host_time_per_prompt_s=from_us(host.per_prompt_us),
        front_end_s=from_us(host.front_end_us),
        launch_time_s=from_us(host.per_launch_us),
        graph_capture=host.graph_capture,
        kernels_in_steps=_in_steps(config.kernels_in_steps),
        block_size_tokens=memory.block_size_tokens,
        memory_fraction=memory.memory_fraction,
        reserve_bytes=from_gb(memory.reserve_gb),
        memory_rule=memory.rule,
        collectives_bytes={name: from_gb(size) for name, size in memory.collectives_gb.items()},
        logit_rows=memory.logit_rows,
        hybrid_kv_cache=memory.hybrid_kv_cache,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        chunked_prefill=scheduler.chunked_prefill,
        policy=scheduler.policy,
        prefix_caching=scheduler.prefix_caching,
        reserves_output=scheduler.reserves_output,
        sources={
            "host": host.source,
            "memory": memory.source,
            "scheduler": scheduler.source,
            "uncertainty": error.source,
        },
        model_error=error.model_error,
        mixture_error=error.mixture_error,
        first_token_error=error.first_token_error,
        mixture_first_token_error=error.mixture_first_token_error,
        host_error=error.host_error,
    )


def _unjudged() -> UncertaintyGroup:
    defaults = default_errors()
    return UncertaintyGroup(
        model_error=defaults.engine.model_error,
        source=f"No error stated, so that of engines nobody judged. {defaults.source}",
    )


def _in_steps(group: KernelsInStepsGroup | None) -> KernelsInSteps:
    if group is None:
        return KernelsInSteps()
    return KernelsInSteps(
        overhead_share=group.overhead_share,
        grouped_flop_share=group.grouped_flop_share,
        grouped_bandwidth_share=group.grouped_bandwidth_share,
        grouped_overhead_s=from_us(group.grouped_overhead_us),
        grouped_padding_rows=group.grouped_padding_rows,
        routing_shape=math.inf if group.routing_shape is None else group.routing_shape,
        collective_overhead_s=from_us(group.collective_overhead_us),
    )


def _stated(values: Mapping[str, float | None]) -> dict[str, float | str | bool]:
    return {name: value for name, value in values.items() if value is not None}


def describe_engine(
    engine: EngineProfile,
) -> tuple[dict[str, float | str | bool], dict[str, str]]:
    """Return the numbers of an engine profile in edge units, and the source of each group."""
    values: dict[str, float | str | bool] = {
        "description": engine.description,
        **({"kernels": engine.kernels} if engine.kernels else {}),
        "host.per_step_us": us(engine.host_time_per_step_s),
        "host.per_sequence_us": us(engine.host_time_per_sequence_s),
        "host.per_draft_step_us": us(engine.host_time_per_draft_step_s),
        "host.per_round_us": us(engine.host_time_per_round_s),
        "host.per_tree_us": us(engine.host_time_per_tree_s),
        "host.per_lookup_us": us(engine.host_time_per_lookup_s),
        "host.per_prompt_us": us(engine.host_time_per_prompt_s),
        "host.front_end_us": us(engine.front_end_s),
        "host.per_launch_us": us(engine.launch_time_s),
        "host.graph_capture": engine.graph_capture,
        "kernels_in_steps.overhead_share": engine.kernels_in_steps.overhead_share,
        "kernels_in_steps.grouped_flop_share": engine.kernels_in_steps.grouped_flop_share,
        "kernels_in_steps.grouped_bandwidth_share": engine.kernels_in_steps.grouped_bandwidth_share,
        "kernels_in_steps.grouped_overhead_us": us(engine.kernels_in_steps.grouped_overhead_s),
        "kernels_in_steps.grouped_padding_rows": engine.kernels_in_steps.grouped_padding_rows,
        **(
            {"kernels_in_steps.routing_shape": engine.kernels_in_steps.routing_shape}
            if math.isfinite(engine.kernels_in_steps.routing_shape)
            else {}
        ),
        "kernels_in_steps.collective_overhead_us": us(
            engine.kernels_in_steps.collective_overhead_s
        ),
        "memory.memory_fraction": engine.memory_fraction,
        "memory.rule": engine.memory_rule,
        "memory.reserve_gb": gb(engine.reserve_bytes),
        **{
            f"memory.collectives_gb.{name}": gb(size)
            for name, size in engine.collectives_bytes.items()
        },
        **({} if engine.logit_rows is None else {"memory.logit_rows": engine.logit_rows}),
        "memory.block_size_tokens": engine.block_size_tokens,
        "memory.hybrid_kv_cache": engine.hybrid_kv_cache,
        "scheduler.max_num_seqs": engine.max_num_seqs,
        "scheduler.max_num_batched_tokens": engine.max_num_batched_tokens,
        "scheduler.chunked_prefill": engine.chunked_prefill,
        "scheduler.policy": engine.policy,
        "scheduler.prefix_caching": engine.prefix_caching,
        "scheduler.reserves_output": engine.reserves_output,
        "uncertainty.model_error": engine.model_error,
        **_stated(
            {
                "uncertainty.mixture_error": engine.mixture_error,
                "uncertainty.first_token_error": engine.first_token_error,
                "uncertainty.mixture_first_token_error": engine.mixture_first_token_error,
            }
        ),
        "uncertainty.host_error": engine.host_error,
    }
    rounded = {k: float(f"{v:.10g}") if type(v) is float else v for k, v in values.items()}
    return rounded, dict(engine.sources)
