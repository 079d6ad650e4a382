"""Configuration to objects: the only place that wires the parts together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from simspec.core.errors import ConfigError, DoesNotFit, SimspecError
from simspec.core.resources import exists
from simspec.core.units import format_bytes, from_gib
from simspec.core.yamlio import Document, dotted
from simspec.cost.collectives._base import device_link
from simspec.cost.forward import CostModel
from simspec.cost.work import Stack
from simspec.decoding._base import (
    ACCEPTANCE_MODELS,
    AcceptanceProcess,
    Footprint,
    Method,
    MethodConfig,
)
from simspec.hardware.load import load_engine, load_hardware
from simspec.hardware.profile import EngineProfile, Hardware
from simspec.memory.capacity import Logged, MemoryBudget, memory_budget
from simspec.memory.pools._base import pool_rule
from simspec.models.arch import Architecture
from simspec.models.counts import check_expert_parallel
from simspec.models.dtypes import DTYPES, DType
from simspec.models.dtypes import dtype as find_dtype
from simspec.models.dtypes import kv_dtype as find_kv_dtype
from simspec.models.hf_config import load_model
from simspec.scenarios.schema import DeploymentConfig
from simspec.serving.admission import config_of
from simspec.serving.plan import HostMemory, SchedulerLimits
from simspec.serving.preemption._base import PREEMPTIONS, PreemptionConfig
from simspec.serving.scheduling._base import SCHEDULERS, check_round_fits
from simspec.serving.speculation._base import Speculation

_FILES = frozenset({".yaml", ".yml", ".json", ".jsonl", ".gz"})
"""Endings that only files have."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything about a scenario but its load, checked and wired."""

    config: DeploymentConfig
    hardware: Hardware
    engine: EngineProfile
    architecture: Architecture
    target: Stack
    method: Method
    acceptance: AcceptanceProcess | None
    cost: CostModel
    budget: MemoryBudget
    limits: SchedulerLimits
    """Of the whole deployment: those of one group of GPUs times the groups."""
    num_blocks: int
    """KV blocks of the whole deployment, all groups of GPUs together."""
    block_size_tokens: int
    host: HostMemory | None
    """Where preempted sequences' KV goes; None: it is computed again."""
    speculation: Speculation | None = None
    """None where nothing changes the method's drafts."""

    @property
    def peak_flop_per_s(self) -> float:
        """Dense peak of one GPU in the type the weights are multiplied in."""
        return self.cost.peak_flop_per_s()

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens the KV cache of one group of GPUs holds: each its share of every token."""
        return self.num_blocks // self.target.attention_dp * self.block_size_tokens

    def max_sequences(self, context_len: int) -> int:
        """Return how many sequences of ``context_len`` tokens can start a round together.

        Each holds whole blocks for its context and the slots that a round reserves.
        """
        slots = context_len + self.method.footprint().reserved_slots
        groups = self.target.attention_dp
        return groups * (self.num_blocks // groups // -(-slots // self.block_size_tokens))

    @property
    def fits(self) -> bool:
        """Whether weights and a KV cache of at least one block are in the memory together."""
        try:
            require_room(self)
        except DoesNotFit:
            return False
        return True


def memory_facts(deployment: Deployment) -> dict[str, object]:
    """Return the memory figures of one GPU under their common keys."""
    budget = deployment.budget
    return {
        "weights_bytes": budget.weights_bytes + budget.extra_weights_bytes,
        "kv_bytes_per_token": budget.kv_bytes_per_token,
        "kv_capacity_tokens": deployment.kv_capacity_tokens,
        "fits": deployment.fits,
    }


def require_room(deployment: Deployment, min_tokens: int = 1, place: Place | None = None) -> None:
    """Refuse a deployment whose KV cache does not hold ``min_tokens`` tokens on each GPU.

    A pool that the scenario gives in blocks is taken as it is, so long as the device could hold
    it beside the weights: engines differ in what else they keep there.

    Raises
    ------
    DoesNotFit
        With the numbers, and what would fit.
    """
    budget, given = deployment.budget, deployment.config.memory.num_kv_blocks
    if given is None:
        with blame(place, "model"):
            budget.require(min_tokens)
        return
    weights = budget.weights_bytes + budget.extra_weights_bytes + budget.buffer_bytes
    pool = deployment.kv_capacity_tokens * budget.kv_bytes_per_token
    with blame(place, "memory", "num_kv_blocks"):
        if weights + pool > budget.capacity_bytes:
            raise DoesNotFit(
                f"{format_bytes(weights)} weights and a pool of {given:,} blocks "
                f"({format_bytes(pool)}) do not fit in the {format_bytes(budget.capacity_bytes)} "
                f"of {deployment.hardware.name}; the engine itself would make "
                f"{budget.num_blocks:,} blocks"
            )
        if deployment.kv_capacity_tokens < min_tokens:
            raise DoesNotFit(
                f"{given:,} blocks of {deployment.block_size_tokens} tokens do not hold "
                f"{min_tokens:,} tokens; the engine itself would make {budget.num_blocks:,} blocks"
            )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a scenario was written: a document, and the field path it stands under."""

    document: Document
    base: tuple[str | int, ...] = ()

    @property
    def folder(self) -> Path | None:
        """Return the folder that relative file names start from."""
        return self.document.path.parent if self.document.path else None


@contextmanager
def blame(place: Place | None, *field: str | int) -> Iterator[None]:
    """Put the file, line and field in front of an error raised inside.

    An error that names its own ``field`` is placed there.
    """
    try:
        yield
    except SimspecError as error:
        if place is None:
            raise
        inner = tuple(error.field.split(".")) if error.field else ()
        path = (*place.base, *field, *(part for part in inner if (part,) != field[-1:]))
        where = dotted(path)
        text = str(error)
        for name in (error.field, dotted(field)):
            text = text.removeprefix(f"{name}: ")
        raise type(error)(f"{place.document.locate(path)}: {where}: {text}") from error


def resolve_reference(reference: str, base: Path | None) -> str:
    """Return a file named beside the scenario as its path, anything else unchanged."""
    if base is not None and not Path(reference).is_absolute():
        candidate = base / reference
        looks_like_path = "/" in reference or candidate.suffix in _FILES
        if looks_like_path and exists(candidate):
            return str(candidate)
    return reference


def build_without_acceptance(config: DeploymentConfig) -> Deployment:
    """Wire a deployment for questions that no acceptance can change, such as memory."""
    return _build(config, None, needs_acceptance=False)


def build_for_lengths(config: DeploymentConfig, context_len: int) -> Deployment:
    """Wire a deployment for questions of memory about sequences of ``context_len`` tokens.

    Where prompts are not computed in chunks the largest step holds one of that length.
    """
    deployment = build_without_acceptance(config)
    limits = deployment.limits
    if limits.chunked_prefill or context_len <= deployment.budget.inputs.max_num_batched_tokens:
        return deployment
    scheduler = config.scheduler.model_copy(update={"max_num_batched_tokens": context_len})
    return build_without_acceptance(config.model_copy(update={"scheduler": scheduler}))


def build(config: DeploymentConfig, place: Place | None = None) -> Deployment:
    """Load the profiles, bind the method and work out the memory.

    Parameters
    ----------
    config : DeploymentConfig
        Validated form.
    place : Place, optional
        The YAML it came from: errors then carry its file and line, and relative paths are
        looked up beside it.

    Raises
    ------
    ConfigError
        A field contradicts another or the model. Memory is not judged here: :func:`require_room`.
    """
    return _build(config, place, needs_acceptance=True)


def _build(config: DeploymentConfig, place: Place | None, *, needs_acceptance: bool) -> Deployment:
    base = place.folder if place is not None else None
    with blame(place, "hardware"):
        hardware = load_hardware(resolve_reference(config.hardware, base))
    with blame(place, "engine"):
        engine = load_engine(resolve_reference(config.engine, base))
        pool_rule(engine.memory_rule)
    hardware = hardware.with_kernels(engine.kernels)
    with blame(place, "model"):
        architecture = load_model(resolve_reference(config.model, base))
    with blame(place, "dtype"):
        weights = find_dtype(config.dtype)
        _check_covers(architecture, weights)
    with blame(place, "kv_dtype"):
        find_kv_dtype(config.kv_dtype)
    target = _target(config, architecture, weights)
    with blame(place, "method"):
        own = config.method.resolved(lambda reference: resolve_reference(reference, base))
        method = own.build(target)
    acceptance = _acceptance(config, method, place) if needs_acceptance else None
    with blame(place):
        check_expert_parallel(target, target.tp, ep=target.ep, attention_dp=target.attention_dp)
        if target.attention_dp > 1:
            device_link(hardware, target.tp, attention_dp=target.attention_dp)
    with blame(place, "tp"):
        cost = CostModel(stacks=method.stacks(), hardware=hardware, engine=engine)
    limits = _limits(config, engine)
    engine = _with_overrides(engine, config)
    _check_scheduler(limits, method, place)
    footprint = _footprint(config, method)
    with blame(place, "model"):
        budget = memory_budget(
            hardware=hardware,
            engine=engine,
            arch=architecture,
            target=target,
            extra_weights_bytes=footprint.extra_weights_bytes,
            extra_kv_bytes_per_token=footprint.extra_kv_bytes_per_token,
            extra_kv_bytes_per_sequence=footprint.extra_kv_bytes_per_sequence,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            max_num_seqs=limits.max_num_seqs,
            logged=_logged(config),
        )
    return Deployment(
        config=config,
        hardware=hardware,
        engine=engine,
        architecture=architecture,
        target=target,
        method=method,
        acceptance=acceptance,
        cost=cost,
        budget=budget,
        limits=_of_all_groups(limits, target.attention_dp),
        num_blocks=(config.memory.num_kv_blocks or budget.num_blocks) * target.attention_dp,
        block_size_tokens=engine.block_size_tokens,
        speculation=_speculation(config, own, target, place),
        host=_host_memory(config, hardware, budget, engine.block_size_tokens, place),
    )


def _host_memory(
    config: DeploymentConfig,
    hardware: Hardware,
    budget: MemoryBudget,
    block_size_tokens: int,
    place: Place | None,
) -> HostMemory | None:
    preemption = config_of(PREEMPTIONS, config.scheduler.preemption)
    assert isinstance(preemption, PreemptionConfig), preemption
    size = preemption.host_bytes
    if not size:
        return None
    with blame(place, "scheduler", "preemption"):
        if hardware.host_link is None:
            raise ConfigError(
                f"{preemption.name} needs memory beyond a host link, and the profile of "
                f"{hardware.name} has none (host_link); use recompute"
            )
        per_token = budget.kv_bytes_per_token
        num_blocks = int(size // (per_token * block_size_tokens))
        if not num_blocks:
            raise ConfigError(
                f"{format_bytes(size)} of host memory do not hold one KV block of "
                f"{format_bytes(per_token * block_size_tokens)}"
            )
    return HostMemory(
        num_blocks * config.attention_data_parallel,
        per_token,
        hardware.host_link.bandwidth_bytes_per_s,
    )


def _footprint(config: DeploymentConfig, method: Method) -> Footprint:
    """Return what the method and the control of its drafts keep beside the target's own."""
    own, target = method.footprint(), method.stacks()["target"]
    kept = own.extra_kv_bytes_per_token + config.speculation.extra_kv_bytes_per_token(target)
    return replace(own, extra_kv_bytes_per_token=kept)


def _speculation(
    config: DeploymentConfig, method: MethodConfig, target: Stack, place: Place | None
) -> Speculation | None:
    policy = config.speculation
    if policy.is_fixed:
        return None
    with blame(place, "speculation"):
        if method.build(target).max_draft == 0:
            raise ConfigError(
                f"method {method.name} drafts nothing, so speculation has no effect; remove it"
            )
        return Speculation(policy, policy.modes(method, target))


def _target(config: DeploymentConfig, architecture: Architecture, weights: DType) -> Stack:
    return Stack(
        name="target",
        blocks=architecture.blocks,
        hidden_size=architecture.hidden_size,
        vocab_size=architecture.vocab_size,
        weight_dtype=config.dtype,
        kv_dtype=config.kv_dtype,
        tp=config.tp,
        ep=config.expert_parallel,
        attention_dp=config.attention_data_parallel,
        # Layers pass on what unquantised weights are in; quantised ones are used in 16 bit.
        activation_dtype=weights.name if weights.bits_per_weight >= 16.0 else "bf16",
    )


def _check_covers(architecture: Architecture, weights: DType) -> None:
    if weights.covers == "experts" and all(block.moe is None for block in architecture.blocks):
        whole = next(
            (other.name for other in DTYPES.values() if _is_whole(other, weights)), "another dtype"
        )
        raise ConfigError(
            f"{weights.name!r} quantises experts and {architecture.name} has none; use {whole!r}"
        )


def _is_whole(other: DType, weights: DType) -> bool:
    same = other.bits_per_weight == weights.bits_per_weight
    return same and other.covers == "layers" and other.name.startswith(weights.name[:4])


def _acceptance(
    config: DeploymentConfig, method: Method, place: Place | None
) -> AcceptanceProcess | None:
    if method.max_draft == 0 and config.method.lossless:
        if config.acceptance is not None:
            with blame(place, "acceptance"):
                raise ConfigError(
                    f"method {method.name} drafts nothing, so acceptance has no effect; remove it"
                )
        return None
    if config.acceptance is None:
        with blame(place, "method"):
            raise ConfigError(
                f"method {method.name} needs an acceptance model and simspec assumes none; "
                "add 'acceptance', for example a number between 0 and 1, a list of per-position "
                "rates, or a mapping with a name: " + ", ".join(ACCEPTANCE_MODELS.names())
            )
    with blame(place, "acceptance"):
        own = config.acceptance.resolved(
            lambda reference: resolve_reference(reference, place.folder if place else None)
        )
        process = own.at(config.method.acceptance_exit_layer)
        tape = process.tape(0, 0, 1)
        if tape.matched is not None and not config.method.searches:
            raise ConfigError(
                f"this acceptance says when a search finds something to copy, and method "
                f"{method.name} searches for nothing and drafts in every round; use method "
                "prompt_lookup, or an acceptance without searches"
            )
        # A threshold without a confidence distribution is refused here, not at the first round.
        method.outcomes(tape)
    return process


def _check_scheduler(limits: SchedulerLimits, method: Method, place: Place | None) -> None:
    with blame(place, "scheduler", "policy"):
        config_of(SCHEDULERS, limits.policy)
    with blame(place, "scheduler", "preemption"):
        config_of(PREEMPTIONS, limits.preemption)
    with blame(place):
        check_round_fits(limits, method.max_draft + 1, method.name)


def _limits(config: DeploymentConfig, engine: EngineProfile) -> SchedulerLimits:
    scheduler = config.scheduler
    return SchedulerLimits(
        policy=scheduler.policy or engine.policy,
        max_num_seqs=scheduler.max_num_seqs or engine.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens or engine.max_num_batched_tokens,
        chunked_prefill=(
            engine.chunked_prefill
            if scheduler.chunked_prefill is None
            else scheduler.chunked_prefill
        ),
        preemption=scheduler.preemption,
    )


def _of_all_groups(limits: SchedulerLimits, groups: int) -> SchedulerLimits:
    return replace(
        limits,
        max_num_seqs=limits.max_num_seqs * groups,
        max_num_batched_tokens=limits.max_num_batched_tokens * groups,
    )


def _logged(config: DeploymentConfig) -> Logged:
    memory = config.memory
    sizes = (memory.weights_gib, memory.activation_gib, memory.non_torch_gib)
    return Logged(*(None if size is None else from_gib(size) for size in sizes))


def _with_overrides(engine: EngineProfile, config: DeploymentConfig) -> EngineProfile:
    memory, caching = config.memory, config.scheduler.prefix_caching
    return replace(
        engine,
        prefix_caching=engine.prefix_caching if caching is None else caching,
        memory_fraction=memory.memory_fraction or engine.memory_fraction,
        block_size_tokens=memory.block_size_tokens or engine.block_size_tokens,
    )
