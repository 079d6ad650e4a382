"""Whether it fits, and how many KV blocks remain, on one rank.

::

    pool = rule(memory_fraction, visible memory, weights, activations, reserve)
    blocks = floor(pool / (block size * KV bytes per token))

What the fraction is a share of is the engine's rule (:mod:`simspec.memory.pools`). The reserve is
what lives outside the framework's allocator, and grows by the communication buffers where several
ranks are linked. The engine takes the smallest pool of all ranks. Every rank holds the same share
of the target; a draft model that runs on some of them is counted on those, which are the tightest,
so one rank speaks for all. With
attention data parallelism each group of ranks has a pool of its own for its own sequences, and
the budget is that of one group. The extra weights and KV bytes are those of the decoding method
(draft model, adapter, heads); draft and target share one pool by bytes per token, so both reach
the same number of tokens. Buffers are KV of fixed size that the method sets aside for each of
``max_num_seqs`` sequences.

Layers with a sliding window ``W`` keep every token where the engine has one allocator for all
layers. With one that frees what has left the window (``hybrid_kv_cache``) the windows of all
``max_num_seqs`` sequences, ``W`` and a block each, and of the largest step are set aside, and the
pool is counted in tokens of the other layers; or in tokens of all, where that holds more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from simspec.core.errors import ConfigError, DoesNotFit
from simspec.core.units import format_bytes
from simspec.hardware.profile import EngineProfile, Hardware
from simspec.memory.footprint import activation_bytes
from simspec.memory.pools._base import Account, PoolRule, Step, pool_rule
from simspec.models.arch import Architecture
from simspec.models.counts import check_tensor_parallel, kv_bytes_per_token, weights_bytes
from simspec.models.dtypes import DTYPES, dtype, kv_dtype
from simspec.models.stack import Stack

_MAX_TP = 1024
_SMALLER_SERVING = ("fp8", "int4_g128")
_SMALLER_FILES = ("q8_0", "q4_k_m")


@dataclass(frozen=True, slots=True)
class Logged:
    """What a start-up log states of one rank, in bytes; None where it says nothing."""

    weights_bytes: float | None = None
    """Of the target, and of nothing else."""
    activation_bytes: float | None = None
    """Peak of the framework's allocator while the largest step runs."""
    reserve_bytes: float | None = None
    """Outside the framework's allocator."""


@dataclass(frozen=True, slots=True)
class BudgetInputs:
    """What a budget is the budget of; kept so that a refusal can try what would fit."""

    hardware: Hardware
    engine: EngineProfile
    arch: Architecture
    target: Stack
    extra_weights_bytes: float
    extra_kv_bytes_per_token: float
    max_num_batched_tokens: int
    max_num_seqs: int
    extra_kv_bytes_per_sequence: float = 0.0
    logged: Logged = Logged()

    @property
    def rule(self) -> PoolRule:
        """What the engine's fraction is a share of."""
        return pool_rule(self.engine.memory_rule)


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The memory of one rank, in bytes, and what is left of it for the KV cache."""

    inputs: BudgetInputs
    capacity_bytes: float
    """Visible to the framework."""
    usable_bytes: float
    """The engine's memory fraction of what its rule says."""
    weights_bytes: float
    """Of the target."""
    extra_weights_bytes: float
    """Of the decoding method."""
    activation_bytes: float
    """Peak of the largest step."""
    reserve_bytes: float
    """The engine's, outside its allocator."""
    kv_bytes_per_token: float
    """Target and decoding method together."""
    left_bytes: float
    """What the engine's rule leaves for the KV cache; negative by what is missing."""
    kv_pool_bytes: float
    """The same; 0 when nothing is left."""
    num_blocks: int
    block_size_tokens: int
    window_bytes: float = 0.0
    """Of ``kv_pool_bytes``, what sliding windows take apart from ``kv_bytes_per_token``."""
    buffer_bytes: float = 0.0
    """KV of fixed size that the decoding method sets aside for the sequences of a full engine."""

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens the KV pool holds."""
        return self.num_blocks * self.block_size_tokens

    @property
    def fits(self) -> bool:
        """Whether at least one KV block is left."""
        return self.num_blocks > 0

    @property
    def longest_request_tokens(self) -> int:
        """Tokens that one request may hold at most."""
        return self.inputs.rule.longest_request(self.kv_capacity_tokens, self.inputs.max_num_seqs)

    @property
    def outside_bytes(self) -> float:
        """What is left of the memory beside the budget: captured graphs live there.

        Under a rule that does not subtract them the activations do too.
        """
        outside = self.capacity_bytes - self.weights_bytes - self.extra_weights_bytes
        return (
            outside
            - self.buffer_bytes
            - self.reserve_bytes
            - self.kv_pool_bytes
            - (self.activation_bytes if "activations" in self.inputs.rule.STEPS else 0.0)
        )

    def lines(self) -> list[str]:
        """Return the budget as aligned lines for people, per GPU, in the order of its rule."""
        asked = self.inputs
        target = asked.target
        each = f", each of {target.num_ranks}" if target.num_ranks > 1 else ""
        rows = [(f"memory of {asked.hardware.name}{each}", self.capacity_bytes)]
        for step in asked.rule.STEPS:
            rows += self._rows_of(step)
        rows.append(("left for the KV cache", self.left_bytes))
        if self.window_bytes:
            label = f"of it sliding windows ({asked.max_num_seqs:,} sequences)"
            rows.append((label, self.window_bytes))
        rows.append((f"KV per token ({target.kv_dtype})", self.kv_bytes_per_token))
        lines = [(label, format_bytes(value)) for label, value in rows]
        tokens = f"{self.kv_capacity_tokens:,} tokens ({self.num_blocks:,} blocks)"
        lines.append(("KV capacity", tokens))
        if "activations" not in asked.rule.STEPS:
            needed = f"{format_bytes(self.activation_bytes)} of {format_bytes(self.outside_bytes)}"
            lines.append(("activations, from what is outside the budget", needed))
        width = max(len(name) for name, _ in lines)
        return [f"{name.ljust(width)}  {value}" for name, value in lines]

    def _rows_of(self, step: Step) -> list[tuple[str, float]]:
        asked = self.inputs
        target = asked.target
        if step == "share":
            label = f"share of {asked.rule.SHARE_OF} ({asked.engine.memory_fraction:.0%})"
            return [(label, self.usable_bytes)]
        if step == "reserve":
            return [("reserve outside the allocator", self.reserve_bytes)]
        if step == "activations":
            # Logits of every sequence at once often need more than the tokens' states.
            label = (
                f"activations ({asked.max_num_batched_tokens:,} tokens, "
                f"{_logit_rows(asked):,} rows of logits)"
            )
            return [(label, self.activation_bytes)]
        weights = [
            (f"weights ({target.weight_dtype}, {target.layout})", self.weights_bytes),
            ("weights of the decoding method", self.extra_weights_bytes),
        ]
        if self.buffer_bytes:
            label = f"KV buffers of the decoding method ({asked.max_num_seqs:,} sequences)"
            weights.append((label, self.buffer_bytes))
        return weights

    def require(self, min_tokens: int = 1) -> None:
        """Refuse a pool that cannot hold ``min_tokens`` tokens.

        Parameters
        ----------
        min_tokens : int, tokens
            KV slots that must be there at least: one whole request, K + 1 slots included.

        Raises
        ------
        DoesNotFit
            With every number of the budget and what would fit instead.
        """
        if self.kv_capacity_tokens < max(min_tokens, 1):
            raise DoesNotFit(_refusal(self, max(min_tokens, 1)))


def memory_budget(
    hardware: Hardware,
    engine: EngineProfile,
    *,
    arch: Architecture,
    target: Stack,
    extra_weights_bytes: float = 0.0,
    extra_kv_bytes_per_token: float = 0.0,
    extra_kv_bytes_per_sequence: float = 0.0,
    max_num_batched_tokens: int | None = None,
    max_num_seqs: int | None = None,
    logged: Logged = Logged(),
) -> MemoryBudget:
    """Return the memory budget of one rank.

    Parameters
    ----------
    hardware, engine : Hardware, EngineProfile
        Visible memory; memory fraction, reserve and block size.
    arch, target : Architecture, Stack
        The model, and the formats and tensor-parallel degree it runs at.
    extra_weights_bytes, extra_kv_bytes_per_token, extra_kv_bytes_per_sequence : float, bytes
        What the decoding method adds on this rank: weights, KV of each cached token, and buffers
        of fixed size for each of ``max_num_seqs`` sequences.
    max_num_batched_tokens, max_num_seqs : int, optional
        The largest step; the engine's where not given. Without chunked prefill a step is at
        least one whole prompt, so the caller passes that.
    logged : Logged
        What a start-up log states, which then stands instead of what is worked out here.

    Raises
    ------
    ConfigError
        A draft head given as the model, an unknown format or memory rule, or a ``tp`` that cannot
        shard the model.
    """
    if arch.draft_head is not None:
        raise ConfigError(
            f"{arch.name} is a draft head of {arch.num_layers} layer and cannot generate on its "
            "own; give the language model it drafts for",
            field="model",
        )
    return budget_of(
        BudgetInputs(
            hardware=hardware,
            engine=engine,
            arch=arch,
            target=target,
            extra_weights_bytes=extra_weights_bytes,
            extra_kv_bytes_per_token=extra_kv_bytes_per_token,
            max_num_batched_tokens=max_num_batched_tokens or engine.max_num_batched_tokens,
            max_num_seqs=max_num_seqs or engine.max_num_seqs,
            extra_kv_bytes_per_sequence=extra_kv_bytes_per_sequence,
            logged=logged,
        )
    )


def budget_of(asked: BudgetInputs) -> MemoryBudget:
    """Return the budget of checked inputs."""
    engine, rule = asked.engine, asked.rule
    capacity = asked.hardware.memory_capacity_bytes
    weights, activations, reserve = _parts(asked)
    buffers = asked.max_num_seqs * asked.extra_kv_bytes_per_sequence
    account = Account(
        capacity_bytes=capacity,
        fraction=engine.memory_fraction,
        weights_bytes=weights + asked.extra_weights_bytes + buffers,
        activation_bytes=activations,
        reserve_bytes=reserve,
    )
    left = rule.left_bytes(account)
    pool = max(0.0, left)
    windows, per_token = max(
        _kv_accounts(asked), key=lambda account: (pool - account[0]) / account[1]
    )
    return MemoryBudget(
        inputs=asked,
        capacity_bytes=capacity,
        usable_bytes=rule.usable_bytes(account),
        weights_bytes=weights,
        extra_weights_bytes=asked.extra_weights_bytes,
        activation_bytes=activations,
        reserve_bytes=reserve,
        kv_bytes_per_token=per_token,
        left_bytes=left,
        kv_pool_bytes=pool,
        num_blocks=math.floor(max(0.0, pool - windows) / (per_token * engine.block_size_tokens)),
        block_size_tokens=engine.block_size_tokens,
        window_bytes=windows,
        buffer_bytes=buffers,
    )


def _parts(asked: BudgetInputs) -> tuple[float, float, float]:
    """Return weights, activation peak and reserve: of the log where it states them."""
    target, engine, logged = asked.target, asked.engine, asked.logged
    layout = {"tp": target.tp, "ep": target.ep, "attention_dp": target.attention_dp}
    weights, activations, reserve = (
        logged.weights_bytes,
        logged.activation_bytes,
        logged.reserve_bytes,
    )
    if weights is None:
        weights = weights_bytes(asked.arch, target.weight_dtype, **layout)
    if activations is None:
        activations = activation_bytes(
            target.blocks,
            asked.arch.hidden_size,
            asked.arch.vocab_size,
            asked.max_num_batched_tokens,
            _logit_rows(asked),
            activation_dtype=target.activation_dtype,
            **layout,
        )
    if reserve is None:
        reserve = engine.reserve_bytes
        link = asked.hardware.link
        if target.num_ranks > 1 and link is not None:
            family = link.name.split()[0].casefold()
            sizes = engine.collectives_bytes.items()
            reserve += sum(size for name, size in sizes if name.casefold() == family)
    return weights, activations, reserve


def _logit_rows(asked: BudgetInputs) -> int:
    most = asked.engine.logit_rows
    return asked.max_num_seqs if most is None else min(asked.max_num_seqs, most)


def _kv_accounts(asked: BudgetInputs) -> list[tuple[float, float]]:
    """Return the ways to divide the pool: bytes set aside for windows, and bytes per token."""
    target, engine = asked.target, asked.engine
    extra = asked.extra_kv_bytes_per_token
    every = kv_bytes_per_token(target.blocks, target.kv_dtype, target.tp) + extra
    whole = [block for block in target.blocks if block.sliding_window is None]
    if not engine.hybrid_kv_cache or not whole or len(whole) == len(target.blocks):
        return [(0.0, every)]
    windows = 0.0
    for block in target.blocks:
        if block.sliding_window is not None:
            kept = asked.max_num_seqs * (block.sliding_window + engine.block_size_tokens)
            tokens = kept + asked.max_num_batched_tokens
            windows += tokens * kv_bytes_per_token([block], target.kv_dtype, target.tp)
    beyond = kv_bytes_per_token(whole, target.kv_dtype, target.tp) + extra
    return [(0.0, every), (windows, beyond)]


def _refusal(budget: MemoryBudget, min_tokens: int) -> str:
    asked = budget.inputs
    target = asked.target
    left = (
        f"leaves {format_bytes(budget.left_bytes)}, room for {budget.kv_capacity_tokens:,} tokens"
        if budget.left_bytes >= 0
        else f"is {format_bytes(-budget.left_bytes)} too little"
    )
    needed = min_tokens * budget.kv_bytes_per_token
    choices = list(_what_fits(budget, min_tokens))
    would_fit = f"would fit: {', or '.join(choices)}"
    if not choices:
        would_fit = "no larger tp of one node and no smaller dtype makes it fit"
    return (
        f"{asked.arch.name} ({target.weight_dtype}, KV {target.kv_dtype}, {target.layout}) does "
        f"not fit on {asked.hardware.name}: per GPU {_sum(budget)} {left}; "
        f"needed: {min_tokens:,} tokens ({format_bytes(needed)}); {would_fit}"
    )


def _sum(budget: MemoryBudget) -> str:
    """Return the budget as one sum, in the order of its rule."""
    fraction, steps = budget.inputs.engine.memory_fraction, budget.inputs.rule.STEPS
    capacity = format_bytes(budget.capacity_bytes)
    text = capacity
    for step in steps:
        if step == "share" and step == steps[0]:
            text = f"{format_bytes(budget.usable_bytes)} usable ({fraction:.0%} of {capacity})"
        elif step == "share":
            text = f"{fraction:.0%} of ({text})"
        elif step == "weights":
            text += f" - {format_bytes(budget.weights_bytes)} weights"
            if budget.extra_weights_bytes:
                extra = format_bytes(budget.extra_weights_bytes)
                text += f" - {extra} weights of the decoding method"
            if budget.buffer_bytes:
                buffers = format_bytes(budget.buffer_bytes)
                text += f" - {buffers} KV buffers of the decoding method"
        elif step == "activations":
            text += f" - {format_bytes(budget.activation_bytes)} activations"
        else:
            text += f" - {format_bytes(budget.reserve_bytes)} reserve"
    return text


def _what_fits(budget: MemoryBudget, min_tokens: int) -> Iterator[str]:
    """Yield the smallest change of each kind after which ``min_tokens`` fit."""
    asked = budget.inputs
    found = False
    for tp in _larger_tp(asked):
        if _holds(asked, replace(asked.target, tp=tp), min_tokens):
            yield f"tp={tp}"
            found = True
            break
    for name in _smaller_dtypes(asked):
        if _holds(asked, replace(asked.target, weight_dtype=name), min_tokens):
            yield f"dtype {name}"
            found = True
            break
    if not found:
        yield from _both(asked, min_tokens)
    if kv_dtype(asked.target.kv_dtype).bits_per_weight > DTYPES["fp8"].bits_per_weight and _holds(
        asked, replace(asked.target, kv_dtype="fp8"), min_tokens
    ):
        yield "kv_dtype fp8"
    if 0 < budget.kv_capacity_tokens < min_tokens:
        yield f"at most {budget.kv_capacity_tokens:,} tokens per request"
    alone = replace(
        asked,
        extra_weights_bytes=0.0,
        extra_kv_bytes_per_token=0.0,
        extra_kv_bytes_per_sequence=0.0,
    )
    if alone != asked and _holds(alone, asked.target, min_tokens):
        yield "a decoding method without memory of its own"


def _both(asked: BudgetInputs, min_tokens: int) -> Iterator[str]:
    for tp in _larger_tp(asked):
        for name in _smaller_dtypes(asked):
            if _holds(asked, replace(asked.target, tp=tp, weight_dtype=name), min_tokens):
                yield f"tp={tp} with dtype {name}"
                return


def _holds(asked: BudgetInputs, target: Stack, min_tokens: int) -> bool:
    """Return whether another target would fit; the method's extra bytes are kept as they are."""
    if target != asked.target:
        # A log speaks of the layout it was written under.
        asked = replace(asked, target=target, logged=Logged())
    return budget_of(asked).kv_capacity_tokens >= min_tokens


def _larger_tp(asked: BudgetInputs) -> Iterator[int]:
    link = asked.hardware.link
    most = min(link.max_devices, _MAX_TP) // asked.target.attention_dp if link is not None else 1
    for tp in range(asked.target.tp + 1, most + 1):
        # Powers of two only: degrees between them exist on paper, not in engines' defaults.
        if tp & (tp - 1) == 0 and _shards(asked.target, tp):
            yield tp


def _shards(target: Stack, tp: int) -> bool:
    try:
        check_tensor_parallel(target, tp, ep=target.ep, attention_dp=target.attention_dp)
    except ConfigError:
        return False
    return True


def _smaller_dtypes(asked: BudgetInputs) -> Iterator[str]:
    """Yield smaller weight formats the device can run, of the same world (serving or files)."""
    current = dtype(asked.target.weight_dtype)
    names = _SMALLER_FILES if current.covers == "matrices" else _SMALLER_SERVING
    for name in names:
        smaller = DTYPES[name].bits_per_weight < current.bits_per_weight
        if smaller and DTYPES[name].runs_on(asked.hardware.peak_flop_per_s):
            yield name
