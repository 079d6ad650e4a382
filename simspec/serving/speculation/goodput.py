"""The draft length that makes the most of each second, from the cost model itself.

Before a step of B sequences at a mean context c, mode k (a draft length K, a threshold, or none)
is expected to take

    C_k = ((1 - f_k) T_k + f_k (T_k + D_k)) / (B E_k),  f_k = phi B E_k / P     seconds per token

with T_k(B, c) the expected time of a round in this very cost model (the closed form of
``simspec estimate``, docs/theory/rounds.md), E_k the tokens a round yields, and the prompts that
come with them: phi prompt tokens for each output token, in chunks of P tokens that make a share
f_k of the steps longer by D_k. That is where a drafter pays for reading prompts, and where drafts
compete with them for the compute roof. The mode with the least C_k is taken once it is better
than the one in force by ``min_gain``; to stop drafting, which costs nothing, as soon as it is.

E_k and the law of m behind T_k are what rounds have shown so far
(``simspec.serving.speculation._estimate``), not what the tapes hold: the first rounds draft as
deep as the method can. Two standard errors are added to E_k, because a mode that chance has made
look bad would show nothing more: a shorter draft says nothing about longer ones, and no draft
nothing at all (optimism under uncertainty, as in upper-confidence bandits).

Costs are kept for classes of batch and context and forgotten when the estimate has moved.

Left out: a text that changes while nothing is drafted; that a step made longer also makes other
prompts wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import inf
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import ConfigDict, Field

from simspec.core.errors import ConfigError
from simspec.cost.work import Stack
from simspec.decoding._base import MethodConfig
from simspec.serving.speculation._base import (
    Load,
    Mode,
    ObservedRounds,
    RoundPrices,
    SpeculationConfig,
    SpeculationPolicy,
)
from simspec.serving.speculation._estimate import RoundEstimate
from simspec.serving.speculation._modes import given_mode, off_mode, shorter_modes

_FIRST_ROUNDS = 32
"""Rounds that are drafted as deep as possible before anything is decided."""
_SIGMAS = 2.0
"""Standard errors that the tokens of a round are given the benefit of."""
_MOVED = 0.01
"""Relative change of what is believed that makes costs be worked out anew."""
_CHUNK_MOVED = 0.1
"""The same of the length of a prompt chunk, on which little depends."""


class Config(SpeculationConfig):
    """Fields of ``speculation: {name: goodput, ...}``."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "goodput"}, {"name": "goodput", "thresholds": [0.4, 0.8]}]
        }
    )

    name: Literal["goodput"] = "goodput"
    thresholds: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    """Values of tau to choose from beside the method's own confidence_threshold."""
    min_gain: float = Field(default=0.01, ge=0, lt=1)
    """How much less time per token another mode must promise before it is switched to."""
    memory_rounds: int = Field(default=50_000, ge=10, le=10_000_000)
    """Verified rounds after which an observation has lost half of its weight."""

    def modes(self, method: MethodConfig, target: Stack) -> tuple[Mode, ...]:
        """Return the method, its shorter drafts at every threshold, and autoregression.

        Raises
        ------
        ConfigError
            A threshold for a method without one.
        """
        own = getattr(method, "confidence_threshold", None)
        if self.thresholds and own is None:
            raise ConfigError(
                f"thresholds: method {method.name} has no confidence_threshold, so there is no "
                "other to choose; remove thresholds",
                field="thresholds",
            )
        taus = sorted({*self.thresholds, own}) if own is not None else [None]
        return (*_at_thresholds(method, taus, target), off_mode(method, target))

    def build(self, modes: Sequence[Mode], prices: RoundPrices) -> Goodput:
        """Return the policy."""
        return Goodput(self, modes, prices)


def _at_thresholds(
    method: MethodConfig, taus: Sequence[float | None], target: Stack
) -> Iterator[Mode]:
    """Yield all draft lengths at every threshold, the one that shows most first."""
    for tau in taus:
        update = {} if tau is None else {"confidence_threshold": tau}
        variant = method.model_copy(update=update)
        for mode in (given_mode(variant, target), *shorter_modes(variant, target)):
            yield mode if len(taus) == 1 else replace(mode, name=f"{mode.name} tau={tau:g}")


class Goodput(SpeculationPolicy):
    """Weighs all modes against each other."""

    observes: ClassVar[bool] = True

    def __init__(self, config: Config, modes: Sequence[Mode], prices: RoundPrices) -> None:
        self._modes = modes
        self._prices = prices
        self._keep = 1.0 - config.min_gain
        deepest: dict[float, int] = {}
        for mode in modes:
            if mode.depth:
                deepest[mode.threshold] = max(mode.depth, deepest.get(mode.threshold, 0))
        self._estimates = {
            tau: RoundEstimate(depth, config.memory_rounds) for tau, depth in deepest.items()
        }
        self._views = [_View(mode, prices) for mode in modes]
        self._costs: dict[tuple[int, int], list[float]] = {}
        self._prompt_tokens = self._emitted = self._kv_tokens = 0
        self._num_chunks = 0
        self._prompts = _Prompts(0.0, 0)
        self._num_rounds = 0
        self._next_look = 0
        self._look_interval = config.memory_rounds // 4
        self._has_looked = False

    def choose(self, in_force: int, load: Load) -> int:
        """Return the mode of the next step."""
        size, self._kv_tokens = load.num_running, load.kv_tokens
        if not size or not self._has_looked:
            return in_force
        context_len = load.kv_tokens // size
        key = _class_of(size), _class_of(context_len)
        costs = self._costs.get(key)
        if costs is None:
            costs = self._costs[key] = [
                view.cost_s(key, self._prompts, size, context_len) for view in self._views
            ]
        best = min(costs)
        chosen = costs.index(best)
        # To stop drafting costs nothing; what follows is paid on return.
        keep = self._keep if self._modes[chosen].depth else 1.0
        return chosen if best < costs[in_force] * keep else in_force

    def see_rounds(self, rounds: ObservedRounds) -> None:
        """Count what was drafted and accepted, at every threshold that the rounds show."""
        in_force = self._modes[rounds.in_force]
        for tau, estimate in self._estimates.items():
            shown = self._shown(rounds.in_force, tau) if in_force.threshold <= tau else None
            if shown is not None:
                estimate.add(self._modes[shown].depth, *rounds.of(shown))
        self._num_rounds += rounds.size

    def see_step(self, prompt_tokens: int, emitted: int) -> None:
        """Count prompt tokens and output tokens, and now and then look at what they say."""
        self._prompt_tokens += prompt_tokens
        self._num_chunks += prompt_tokens > 0
        self._emitted += emitted
        if self._emitted >= self._next_look and self._num_rounds >= _FIRST_ROUNDS:
            wait = min(self._emitted // 4, self._look_interval)
            self._next_look = self._emitted + max(1, wait)
            self._look_again()

    def _shown(self, in_force: int, tau: float) -> int | None:
        """Return the deepest mode at a threshold that rounds of ``in_force`` show."""
        if self._modes[in_force].threshold == tau:
            return in_force
        for index, mode in enumerate(self._modes):
            if mode.threshold == tau and self._modes[in_force].shows(mode):
                return index
        return None

    def _look_again(self) -> None:
        for estimate in self._estimates.values():
            estimate.refresh()
        # Prompts in the pool have output tokens still to come.
        per_token = max(0, self._prompt_tokens - self._kv_tokens) / max(self._emitted, 1)
        prompts = _Prompts(per_token, self._prompt_tokens // max(self._num_chunks, 1))
        moved = not self._has_looked or prompts.differ_from(self._prompts)
        for view in self._views:
            moved |= view.update(self._estimates.get(view.mode.threshold))
        if moved:
            self._prompts = prompts
            self._costs.clear()
        self._has_looked = True


class _Prompts(NamedTuple):
    """What prompts do to steps."""

    per_token: float
    """phi: prompt tokens for each output token."""
    chunk_tokens: int
    """P: prompt tokens of a step that has some."""

    def differ_from(self, other: _Prompts) -> bool:
        """Whether costs have to be worked out anew."""
        moved = abs(self.per_token - other.per_token) > _MOVED * (1.0 + other.per_token)
        longer = abs(self.chunk_tokens - other.chunk_tokens)
        return moved or longer > _CHUNK_MOVED * other.chunk_tokens


class _View:
    """What is believed of one mode, and what its rounds then cost."""

    def __init__(self, mode: Mode, prices: RoundPrices) -> None:
        self.mode = mode
        self._prices = prices
        self._tokens = 1.0
        self._drafted: list[float] = []
        self._estimate: RoundEstimate | None = None
        self._statistics = mode.method.statistics(None) if not mode.depth else None
        self._round_s: dict[tuple[int, int], float] = {}

    def update(self, estimate: RoundEstimate | None) -> bool:
        """Take over an estimate if it has moved; return whether it has."""
        mode = self.mode
        if estimate is None or not mode.depth or not estimate.num_rounds:
            return False
        tokens = estimate.tokens(mode.depth) + _SIGMAS * estimate.tokens_sigma(mode.depth)
        drafted = estimate.drafted_survival(mode.depth)
        drifts = mode.depth == mode.max_draft and any(
            abs(new - old) > _MOVED for new, old in zip_longest(drafted, self._drafted, fillvalue=0)
        )
        is_new = self._statistics is None
        if not is_new and not drifts and abs(tokens - self._tokens) <= _MOVED * self._tokens:
            return False
        self._tokens = tokens
        if is_new or drifts:
            self._drafted, self._estimate = drafted, estimate
            self._round_s.clear()
            self._statistics = estimate.statistics(mode.depth, mode.max_draft)
        return True

    def cost_s(self, key: tuple[int, int], prompts: _Prompts, size: int, context_len: int) -> float:
        """Return the seconds an output token is expected to take."""
        if self._statistics is None:
            return inf
        if key not in self._round_s:
            self._round_s[key] = self._prices.round_s(
                self.mode, size, context_len, self._statistics
            )
        tokens = size * self._tokens
        if not prompts.per_token or not prompts.chunk_tokens:
            return self._round_s[key] / tokens
        share = prompts.per_token * tokens / prompts.chunk_tokens
        rounds = [(0, 0)] * size
        if self._estimate is not None:
            rounds = self._estimate.typical_rounds(self.mode.depth, self.mode.max_draft, size)
        chunk_s = self._prices.chunk_s(self.mode, context_len, rounds, prompts.chunk_tokens)
        # More prompt tokens than rounds can carry: every step has its chunk, and they rule.
        return (max(1.0, share) * self._round_s[key] + share * chunk_s) / tokens


def _class_of(number: int) -> int:
    """Return the class of a count: each one up to 8, then eight to the octave."""
    if number < 8:
        return number
    shift = number.bit_length() - 4
    return (shift << 3) + (number >> shift)
