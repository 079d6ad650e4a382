"""Greedy and sampled choices, and the verdict of a target over drafted tokens.

Leviathan et al., arXiv 2211.17192, algorithm 1: a draft x ~ q is kept with probability
min(1, p(x) / q(x)); the first one that is not is replaced by a draw from max(0, p - q), normed;
when all are kept one more is drawn from p. Whatever q, the result is distributed as p. Greedy
decoding is the case in which p and q are certain, so one code decides both; drafts that are chosen
and not drawn (prompt lookup, trees) have a certain q.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(slots=True)
class Sampler:
    """How tokens are chosen from logits.

    Attributes
    ----------
    temperature : float
        0: the best token.
    top_p : float
        Nucleus: the smallest set of best tokens with at least this probability, others never.
    seed : int
        Of all draws.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    _generator: torch.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start the stream of draws."""
        self._generator = torch.Generator().manual_seed(self.seed)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return what is drawn from: (..., V), certain when greedy."""
        if self.temperature == 0.0:
            return certain(logits.argmax(-1), logits.shape[-1])
        p = (logits / self.temperature).softmax(-1)
        if self.top_p < 1.0:
            ordered, order = p.sort(-1, descending=True)
            # A token stays while those before it hold less than top_p.
            before = ordered.cumsum(-1) - ordered
            ordered = torch.where(before < self.top_p, ordered, 0.0)
            p = torch.zeros_like(p).scatter(-1, order, ordered)
            p = p / p.sum(-1, keepdim=True)
        return p

    def draw(self, probabilities: Tensor) -> Tensor:
        """Return one token (...) from each distribution (..., V)."""
        if self.temperature == 0.0:
            return probabilities.argmax(-1)
        flat = probabilities.flatten(0, -2)
        drawn = torch.multinomial(flat, 1, generator=self._generator)
        return drawn.view(probabilities.shape[:-1])

    def uniform(self, *shape: int) -> Tensor:
        """Return numbers in [0, 1)."""
        return torch.rand(shape, generator=self._generator)


def certain(tokens: Tensor, vocab_size: int) -> Tensor:
    """Return distributions (..., V) that hold nothing but the tokens (...)."""
    return torch.zeros((*tokens.shape, vocab_size), device=tokens.device).scatter_(
        -1, tokens[..., None], 1.0
    )


@dataclass(frozen=True, slots=True)
class Drafts:
    """What a method proposes, a chain for each sequence.

    Attributes
    ----------
    tokens : Tensor (B, m)
        Padded at the end where a sequence has fewer.
    counts : Tensor (B,)
        m of each sequence.
    probabilities : Tensor (B, m, V)
        q, what each was drawn from.
    confidences : Tensor (B, m) or None
        Top-1 probability of the drafter at each position, before temperature.
    """

    tokens: Tensor
    counts: Tensor
    probabilities: Tensor
    confidences: Tensor | None = None

    @property
    def inside(self) -> Tensor:
        """Which entries are drafts: (B, m) of bool."""
        return torch.arange(self.tokens.shape[1]) < self.counts[:, None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the target makes of drafts.

    Attributes
    ----------
    agreements : Tensor (B, m) of bool
        Whether it keeps each draft, given the ones before it.
    accepted : Tensor (B,)
        a: how many come before the first it does not keep.
    token : Tensor (B,)
        The token of its own that follows them.
    """

    agreements: Tensor
    accepted: Tensor
    token: Tensor


def judge(sampler: Sampler, drafts: Drafts, logits: Tensor) -> Verdict:
    """Return the verdict.

    Parameters
    ----------
    sampler : Sampler
        Of the target.
    drafts : Drafts
        m for each sequence.
    logits : Tensor (B, m + 1, V)
        The target's, after the last token of the text and after each draft.
    """
    p, q = sampler.probabilities(logits), drafts.probabilities
    batch, num_drafts = drafts.tokens.shape
    chosen = drafts.tokens[..., None]
    p_kept = p[:, :num_drafts].gather(-1, chosen)[..., 0]
    q_kept = q.gather(-1, chosen)[..., 0]
    agreements = (sampler.uniform(batch, num_drafts) * q_kept < p_kept) & drafts.inside
    accepted = agreements.long().cumprod(1).sum(1)
    rows = torch.arange(batch)
    after = p[rows, accepted]
    if num_drafts:
        rejected = accepted < drafts.counts
        at = accepted.clamp(max=num_drafts - 1)
        rest = (after - q[rows, at]).clamp(min=0.0)
        rest = rest / rest.sum(-1, keepdim=True).clamp(min=1e-30)
        after = torch.where(rejected[:, None], rest, after)
    return Verdict(agreements, accepted, sampler.draw(after))
