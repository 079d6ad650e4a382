"""Sampled text is distributed as the target's: chi-square over a small vocabulary."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the companion needs torch")

from scipy import stats  # noqa: E402

from simspec.companion.decoding import _base  # noqa: E402
from simspec.companion.decoding.sampling import Drafts, Sampler, Verdict, certain, judge  # noqa: E402
from tests.companion.small import loop_of, small_decoder  # noqa: E402

VOCAB = 6
NUM_TEXTS = 20_000
PROMPT = [1, 4, 2]
FALSE_ALARM = 1e-4
"""Of each test; the seeds are fixed, so a test that passes does so every time."""


def _exact(temperature: float, top_p: float) -> torch.Tensor:
    """Return the probability of every three tokens after the prompt, (V, V, V)."""
    decoder = small_decoder(VOCAB, scale=5.0)
    sampler = Sampler(temperature, top_p)

    def after(texts: torch.Tensor) -> torch.Tensor:
        states = decoder.train_layers(decoder.embed(texts))[-1][:, -1]
        return sampler.probabilities(decoder.logits(states))

    first = after(torch.tensor([PROMPT]))[0]
    grid = torch.cartesian_prod(torch.arange(VOCAB), torch.arange(VOCAB))
    head = torch.tensor(PROMPT)
    second = after(torch.stack([torch.cat((head, torch.tensor([i]))) for i in range(VOCAB)]))
    third = after(torch.cat((head.expand(len(grid), -1), grid), dim=1)).view(VOCAB, VOCAB, VOCAB)
    return first[:, None, None] * second[:, :, None] * third


def _p_value(name: str, temperature: float = 1.0, top_p: float = 1.0) -> float:
    decoder = small_decoder(VOCAB, scale=5.0)
    loop = loop_of(name, decoder, Sampler(temperature, top_p, seed=11))
    loop.start([PROMPT] * NUM_TEXTS, 8)
    # Two rounds give at least two tokens more than the first.
    loop.round()
    loop.round()
    three = torch.tensor([text[3:6] for text in loop.texts])
    cells = three[:, 0] * VOCAB * VOCAB + three[:, 1] * VOCAB + three[:, 2]
    observed = torch.bincount(cells, minlength=VOCAB**3).double()
    expected = NUM_TEXTS * _exact(temperature, top_p).flatten().double()
    assert observed[expected == 0].sum() == 0
    rare = expected < 5
    o = [*observed[~rare].tolist(), float(observed[rare].sum())]
    e = [*expected[~rare].tolist(), float(expected[rare].sum())]
    if e[-1] < 1:
        o, e = o[:-1], e[:-1]
    assert len(o) > 8
    scale = sum(o) / sum(e)
    return float(stats.chisquare(o, [scale * x for x in e]).pvalue)


@pytest.mark.parametrize(
    "name",
    [
        "layerskip-2-3-0",
        "layerskip-2-3-0.5",
        "kangaroo-3-2-0",
        "dual-2-3-0",
        "eagle-3-0.4",
        "medusa-chain",
        "lookup-3",
    ],
)
def test_three_tokens_are_distributed_as_the_targets(name: str) -> None:
    """20,000 texts, 60,000 tokens, each three of them a cell."""
    assert _p_value(name) > FALSE_ALARM


def test_a_nucleus_is_kept() -> None:
    """Tokens outside the target's nucleus never come out, those inside as often as they should."""
    assert _p_value("layerskip-2-3-0", temperature=0.9, top_p=0.8) > FALSE_ALARM


def test_a_broken_correction_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replacing a rejected draft by a draw from p, not from max(0, p - q), shifts the text."""

    def uncorrected(sampler: Sampler, drafts: Drafts, logits: torch.Tensor) -> Verdict:
        verdict = judge(sampler, drafts, logits)
        p = sampler.probabilities(logits)
        token = sampler.draw(p[torch.arange(len(p)), verdict.accepted])
        return Verdict(verdict.agreements, verdict.accepted, token)

    monkeypatch.setattr(_base, "judge", uncorrected)
    assert _p_value("layerskip-2-3-0") < 1e-12


def test_acceptance_is_one_minus_the_distance() -> None:
    """A draft x ~ q is kept with probability sum min(p, q), over 120,000 draws."""
    stream = torch.Generator().manual_seed(3)
    p, q = (torch.rand(8, generator=stream).softmax(0) ** 3 for _ in range(2))
    p, q = p / p.sum(), q / q.sum()
    draws = 120_000
    sampler = Sampler(temperature=1.0, seed=5)
    drafts = Drafts(
        sampler.draw(q.expand(draws, 1, 8)), torch.ones(draws, dtype=torch.long),
        q.expand(draws, 1, 8),
    )  # fmt: skip
    verdict = judge(sampler, drafts, p.log().expand(draws, 2, 8))
    wanted = float(torch.minimum(p, q).sum())
    spread = (wanted * (1 - wanted) / draws) ** 0.5
    assert abs(float(verdict.accepted.double().mean()) - wanted) < 4 * spread
    assert float(certain(torch.tensor([2]), 4)[0, 2]) == 1.0
