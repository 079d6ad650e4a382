"""What the decoding loops share: a batch of texts, its cache, the clock of a round.

Between rounds a sequence has ``context_len`` tokens in the cache and one token behind them that no
layer has seen: the last one that came out. A round yields a + 1 tokens for each sequence, of which
the last becomes that token. This is how the simulator counts, too.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from simspec.companion.decoding.sampling import Drafts, Sampler, Verdict, judge
from simspec.companion.model.cache import Place
from simspec.companion.model.decoder import Decoder


@dataclass(frozen=True, slots=True)
class Round:
    """One round of all sequences of a batch.

    Attributes
    ----------
    context_lens : tuple (B,) of int
        Tokens in the cache before the round.
    tokens : tuple (B,) of tuple of int
        What came out, a + 1 each.
    drafted, accepted : tuple (B,) of int
        m and a of each sequence.
    agreements : tuple (B,) of tuple of bool, or None
        The target's verdict on each draft; None where drafts are no chain.
    confidences : tuple (B,) of tuple of float, or None
        Of each draft, where the drafter has any.
    draft_s, verify_s : float, seconds
        On the wall clock, the device waited for.
    draft_cpu_s, verify_cpu_s : float, seconds
        Of the process: what others' programs on the machine do not count in.
    """

    context_lens: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]
    agreements: tuple[tuple[bool, ...], ...] | None
    confidences: tuple[tuple[float, ...], ...] | None
    draft_s: float
    verify_s: float
    draft_cpu_s: float
    verify_cpu_s: float


@dataclass(slots=True)
class Clock:
    """Laps on both clocks, the device waited for."""

    device: str
    _wall: float = field(default_factory=time.perf_counter)
    _cpu: float = field(default_factory=time.process_time)

    def lap(self) -> tuple[float, float]:
        """Return the wall and process seconds since the last lap."""
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()
        elif self.device.startswith("mps"):
            torch.mps.synchronize()
        wall, cpu = time.perf_counter(), time.process_time()
        laps = wall - self._wall, cpu - self._cpu
        self._wall, self._cpu = wall, cpu
        return laps


class Loop(ABC):
    """A method decoding a batch.

    Parameters
    ----------
    decoder : Decoder
        The target.
    sampler : Sampler
        How tokens are chosen.

    Attributes
    ----------
    texts : list (B,) of list of int
        Prompt and everything that came out, the newest token included.
    """

    name: ClassVar[str]
    max_draft: int = 0

    def __init__(self, decoder: Decoder, sampler: Sampler) -> None:
        self.decoder, self.sampler = decoder, sampler
        self.cache = decoder.cache(0, 0)
        self.texts: list[list[int]] = []

    @property
    def num_layers(self) -> int:
        """L."""
        return self.decoder.config.num_hidden_layers

    @property
    def round_slots(self) -> int:
        """Slots that a round writes behind the text: K + 1 for a chain."""
        return self.max_draft + 1

    @property
    def last(self) -> Tensor:
        """The newest token of each text, (B,)."""
        return torch.tensor([text[-1] for text in self.texts], device=self.decoder.device)

    @torch.inference_mode()
    def start(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> tuple[float, float]:
        """Prefill prompts and choose the first token of each; return wall and process seconds.

        Parameters
        ----------
        prompts : sequence (B,) of sequences of int
            At least one token each; they need not be of one length.
        num_tokens : int
            Most tokens that will come out of each.
        """
        clock = Clock(self.decoder.device)
        longest = max(map(len, prompts))
        slots = longest + num_tokens + 2 * self.round_slots
        self.texts = [list(prompt) for prompt in prompts]
        self.cache = self.decoder.cache(len(prompts), slots)
        padded = torch.zeros(len(prompts), longest, dtype=torch.long, device=self.decoder.device)
        for row, prompt in enumerate(prompts):
            padded[row, : len(prompt)] = torch.tensor(prompt)
        states = self.prefill(padded, self.cache.chain(longest), slots)
        lens = torch.tensor([len(prompt) for prompt in prompts], device=self.decoder.device)
        self.cache.lens += lens
        self.prefilled(padded, lens)
        ends = states[torch.arange(len(prompts)), lens - 1]
        self.see(ends)
        first = self.sampler.draw(self.sampler.probabilities(self.decoder.logits(ends)))
        for text, token in zip(self.texts, first.tolist(), strict=True):
            text.append(token)
        return clock.lap()

    def prefill(self, tokens: Tensor, place: Place, slots: int) -> Tensor:
        """Pass padded prompts through all layers; return the last states (B, n, d)."""
        x = self.decoder.embed(tokens)
        return self.decoder.layers(x, 0, self.num_layers, place, self.cache)

    def prefilled(self, tokens: Tensor, lens: Tensor) -> None:  # noqa: B027 (most need nothing)
        """Let a drafter of its own read the padded prompts."""

    def see(self, states: Tensor) -> None:  # noqa: B027 (most need nothing)
        """Take note of the last layer's state (B, d) behind the newest token."""

    @abstractmethod
    def round(self) -> Round:
        """Decode one round."""

    def select(self, rows: Tensor) -> None:
        """Go on with some of the sequences, in that order."""
        self.cache.select(rows)
        self.texts = [self.texts[row] for row in rows.tolist()]

    def put(self, tokens: Sequence[Sequence[int]]) -> None:
        """Write down what came out."""
        for text, new in zip(self.texts, tokens, strict=True):
            text.extend(new)


class ChainLoop(Loop):
    """A method that drafts a chain for each sequence and verifies it in one pass."""

    @abstractmethod
    def draft(self) -> Drafts:
        """Propose m tokens for each sequence; the cache's ``lens`` stay."""

    @abstractmethod
    def verify(self, drafts: Drafts) -> Tensor:
        """Return the target's logits (B, m + 1, V) after the last token and each draft."""

    def settle(self, drafts: Drafts, accepted: Tensor) -> None:
        """Bring a drafter's own state up to date, before ``lens`` moves on."""

    @torch.inference_mode()
    def round(self) -> Round:
        """Draft, verify, take back what was rejected."""
        contexts = tuple(self.cache.lens.tolist())
        clock = Clock(self.decoder.device)
        drafts = self.draft()
        draft_s = clock.lap()
        verdict = judge(self.sampler, drafts, self.verify(drafts))
        self.settle(drafts, verdict.accepted)
        # The rollback: what lies behind lens never counts again.
        self.cache.lens += verdict.accepted + 1
        tokens = _emitted(drafts, verdict)
        self.put(tokens)
        verify_s = clock.lap()
        counts = drafts.counts.tolist()
        return Round(
            contexts,
            tokens,
            tuple(counts),
            tuple(verdict.accepted.tolist()),
            tuple(
                tuple(row[:m]) for row, m in zip(verdict.agreements.tolist(), counts, strict=True)
            ),
            None if drafts.confidences is None else _ragged(drafts.confidences, counts),
            draft_s[0],
            verify_s[0],
            draft_s[1],
            verify_s[1],
        )

    def verified(self, drafts: Drafts) -> Tensor:
        """Return the logits of a pass of all layers over the last token and the drafts."""
        tokens = torch.cat((self.last[:, None], drafts.tokens), dim=1)
        place = self.cache.chain(tokens.shape[1])
        x = self.decoder.layers(self.decoder.embed(tokens), 0, self.num_layers, place, self.cache)
        return self.decoder.logits(x)


class SequentialLoop(ChainLoop):
    """A chain method whose drafts come one after the other, in lock-step.

    Step j runs for the sequences that still draft; one stops after a draft that is less sure than
    ``threshold``, and that draft is verified like the others.
    """

    threshold: float = 0.0

    @abstractmethod
    def draft_step(self, tokens: Tensor, step: int, rows: Tensor | None) -> Tensor:
        """Return the drafter's logits (B_j, V) after one token (B_j,) of each sequence.

        Parameters
        ----------
        step : int
            Drafts that each of them has already.
        rows : Tensor (B_j,) or None
            Which sequences these are; None: all.
        """

    def draft(self) -> Drafts:
        """Draft until K, or until nobody is sure."""
        batch, most, vocab = len(self.texts), self.max_draft, self.decoder.config.vocab_size
        tokens = torch.zeros(batch, most, dtype=torch.long)
        probabilities = torch.zeros(batch, most, vocab)
        confidences = torch.zeros(batch, most)
        counts = torch.zeros(batch, dtype=torch.long)
        rows, newest = torch.arange(batch), self.last
        for step in range(most):
            logits = self.draft_step(newest, step, None if len(rows) == batch else rows)
            q = self.sampler.probabilities(logits)
            newest = self.sampler.draw(q)
            sure = logits.softmax(-1).amax(-1)
            tokens[rows, step], probabilities[rows, step] = newest, q
            confidences[rows, step] = sure
            counts[rows] += 1
            going_on = sure >= self.threshold
            if not going_on.all():
                rows, newest = rows[going_on], newest[going_on]
            if not len(rows):
                break
        longest = int(counts.max())
        return Drafts(
            tokens[:, :longest], counts, probabilities[:, :longest], confidences[:, :longest]
        )


def _emitted(drafts: Drafts, verdict: Verdict) -> tuple[tuple[int, ...], ...]:
    rows = zip(
        drafts.tokens.tolist(), verdict.accepted.tolist(), verdict.token.tolist(), strict=True
    )
    return tuple((*tokens[:a], token) for tokens, a, token in rows)


def _ragged(values: Tensor, counts: Sequence[int]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row[:m]) for row, m in zip(values.tolist(), counts, strict=True))
