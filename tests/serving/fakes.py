"""The smallest method, acceptance process and prices that satisfy the contracts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from simspec.core.rng import stream
from simspec.cost.work import Pass, Quantity, Rows, Stack
from simspec.decoding._base import AcceptanceProcess, Footprint, WeightedPass
from simspec.decoding.tape import Outcomes, RoundStatistics, Tape
from simspec.serving.plan import SchedulerLimits, ServingSetup
from simspec.serving.speculation._base import (
    Load,
    Mode,
    ObservedRounds,
    RoundPrices,
    Speculation,
    SpeculationConfig,
    SpeculationPolicy,
)
from simspec.workloads.request import Request


@dataclass
class FakeMethod:
    """Drafts K tokens one after the other and verifies them in one target pass; K may be 0."""

    max_draft: int = 0
    name: str = "fake"

    def stacks(self) -> Mapping[str, Stack]:
        return {}

    def footprint(self) -> Footprint:
        return Footprint(0.0, 0.0, self.max_draft + 1)

    def outcomes(self, tape: Tape) -> Outcomes:
        """m = K; a = accepted positions in a row from each text position, at most K."""
        accept = tape.accept[0]
        run = np.zeros(accept.size + 1, dtype=np.int64)
        for t in range(accept.size - 1, -1, -1):
            run[t] = run[t + 1] + 1 if accept[t] else 0
        drafted = np.full(accept.size, self.max_draft, dtype=np.int64)
        return Outcomes(drafted=drafted, accepted=np.minimum(run[:-1], drafted))

    def statistics(self, acceptance: AcceptanceProcess | None) -> RoundStatistics:
        raise AssertionError("the simulation asks for no closed form")

    def round_passes(
        self,
        context_lens: Sequence[int],
        drafted: Sequence[int],
        accepted: Sequence[int],
        prefill: Rows | None,
    ) -> list[Pass]:
        draft = [
            Pass("draft", 0, 1, "draft", (decode_rows(context_lens, [1] * len(drafted)),))
            for _ in range(max(drafted, default=0))
        ]
        rows = [] if prefill is None else [prefill]
        if context_lens:
            rows.insert(0, decode_rows(context_lens, [m + 1 for m in drafted]))
        phase = "prefill" if not context_lens else "verify" if self.max_draft else "decode"
        return [*draft, Pass("target", 0, 1, phase, tuple(rows), embeds=True)]

    def expected_passes(
        self, batch_size: Quantity, context_len: Quantity, statistics: RoundStatistics
    ) -> list[WeightedPass]:
        raise AssertionError("the simulation asks for no closed form")


def decode_rows(context_lens: Sequence[int], new: Sequence[int]) -> Rows:
    pairs = list(zip(context_lens, new, strict=True))
    return Rows(
        "decode",
        len(pairs),
        sum(n for _, n in pairs),
        sum(c + n for c, n in pairs),
        sum(n * (c + (n + 1) / 2) for c, n in pairs),
        sum(n for _, n in pairs),
    )


@dataclass
class FakeAcceptance:
    """Every text position is accepted with probability ``alpha``, whatever its draft position."""

    alpha: float = 0.6

    def tape(self, seed: int, request_id: int, num_tokens: int) -> Tape:
        draws = stream(seed, "acceptance", request_id).random(num_tokens)
        confidence = np.full(num_tokens, 1.0)
        return Tape(confidence, confidence, (draws < self.alpha)[None, :])

    def statistics(self, max_draft: int, threshold: float) -> RoundStatistics:
        raise AssertionError("the simulation asks for no closed form")

    def describe(self) -> str:
        return f"constant acceptance {self.alpha}"


@dataclass
class FakePrice:
    total_s: float
    host_s: float
    network_s: float
    flop: float
    bytes: float
    by_phase: Mapping[str, float]


@dataclass
class FakeCost:
    """Seconds per pass, per token and per KV token; one FLOP per token, one byte per KV token."""

    pass_s: float = 0.005
    token_s: float = 1e-5
    kv_token_s: float = 1e-7
    host_s: float = 0.0

    def step(self, passes: Sequence[Pass], num_sequences: int) -> FakePrice:
        by_phase: dict[str, float] = {}
        tokens = kv_tokens = 0.0
        for work in passes:
            these = sum(float(rows.num_tokens) for rows in work.rows)
            kv = sum(float(rows.kv_tokens) for rows in work.rows)
            seconds = self.pass_s + self.token_s * these + self.kv_token_s * kv
            by_phase[work.phase] = by_phase.get(work.phase, 0.0) + seconds
            tokens += these
            kv_tokens += kv
        total_s = sum(by_phase.values()) + self.host_s
        return FakePrice(total_s, self.host_s, 0.0, tokens, kv_tokens, by_phase)


@dataclass
class ServiceTime:
    """Every step takes what ``draw`` returns: with one-token requests, their service time."""

    draw: Callable[[], float]
    none: Mapping[str, float] = field(default_factory=dict)

    def step(self, passes: Sequence[Pass], num_sequences: int) -> FakePrice:
        return FakePrice(self.draw(), 0.0, 0.0, 0.0, 0.0, self.none)


def limits(
    policy: str = "continuous",
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 256,
    chunked_prefill: bool = True,
) -> SchedulerLimits:
    return SchedulerLimits(policy, max_num_seqs, max_num_batched_tokens, chunked_prefill)


def setup(
    requests: Sequence[Request],
    *,
    max_draft: int = 0,
    alpha: float = 0.6,
    concurrency: int | None = None,
    num_blocks: int = 10_000,
    block_size_tokens: int = 16,
    cost: object | None = None,
    scheduler: SchedulerLimits | None = None,
    seed: int = 0,
    max_simulated_s: float | None = None,
    speculation: Speculation | None = None,
) -> ServingSetup:
    return ServingSetup(
        requests=requests,
        concurrency=concurrency,
        method=FakeMethod(max_draft),
        acceptance=FakeAcceptance(alpha) if max_draft else None,
        seed=seed,
        cost=cost or FakeCost(),  # type: ignore[arg-type]
        num_blocks=num_blocks,
        block_size_tokens=block_size_tokens,
        limits=scheduler or limits(),
        max_simulated_s=max_simulated_s,
        speculation=speculation,
    )


class WanderingConfig(SpeculationConfig):
    """Goes from mode to mode without any sense, some steps in each."""

    seed: int = 0

    def build(self, modes: Sequence[Mode], prices: RoundPrices) -> SpeculationPolicy:
        return Wandering(len(modes), self.seed)


class Wandering(SpeculationPolicy):
    observes = True

    def __init__(self, num_modes: int, seed: int) -> None:
        self.num_modes = num_modes
        self.draws = stream(seed, "wandering")

    def choose(self, in_force: int, load: Load) -> int:
        if self.draws.random() < 0.6:
            return in_force
        return int(self.draws.integers(self.num_modes))

    def see_rounds(self, rounds: ObservedRounds) -> None:
        drafted, accepted = rounds.of(rounds.in_force)
        assert len(drafted) == len(accepted) == rounds.size > 0
        assert all(0 <= a <= m for m, a in zip(drafted, accepted, strict=True))


class StayingConfig(SpeculationConfig):
    """Keeps the first mode."""

    def build(self, modes: Sequence[Mode], prices: RoundPrices) -> SpeculationPolicy:
        return Wandering(1, 0)


def only(mode: Mode) -> Speculation:
    """Return a policy that has but one mode."""
    return Speculation(StayingConfig(), (mode,))


def wandering(max_draft: int, seed: int) -> Speculation:
    """Return all draft lengths up to K, no drafts, and a policy that takes any of them."""
    lengths = range(max_draft, -1, -1)
    modes = [Mode(f"K={k}", FakeMethod(k), k, leaves_debt=k == 0) for k in lengths]
    return Speculation(WanderingConfig(seed=seed), tuple(modes))


def together(*lengths: tuple[int, int]) -> list[Request]:
    """Requests (prompt_len, output_len) that all arrive at time 0."""
    return [Request(i, 0.0, prompt, output) for i, (prompt, output) in enumerate(lengths)]


def poisson(
    num_requests: int, rate_per_s: float, prompt_len: int, output_len: int, seed: int = 0
) -> list[Request]:
    arrivals = np.cumsum(stream(seed, "arrivals").exponential(1 / rate_per_s, num_requests))
    return [Request(i, float(t), prompt_len, output_len) for i, t in enumerate(arrivals)]
