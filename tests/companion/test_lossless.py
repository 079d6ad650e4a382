"""Whatever drafts, the text is the target's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the companion needs torch")

from simspec.companion.decoding import _base, sampling  # noqa: E402
from simspec.companion.decoding.autoregressive import Autoregressive  # noqa: E402
from simspec.companion.decoding.generate import generate, going_on  # noqa: E402
from simspec.companion.decoding.sampling import Sampler  # noqa: E402
from simspec.companion.decoding.unverified_exit import UnverifiedExit  # noqa: E402
from simspec.companion.model.decoder import Decoder  # noqa: E402
from tests.companion.small import LOOPS, loop_of, prompts, small_decoder  # noqa: E402

NUM_TOKENS = 128


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return small_decoder()


@pytest.fixture(scope="module")
def plain(decoder: Decoder) -> list[list[int]]:
    return generate(Autoregressive(decoder, Sampler()), prompts(64), NUM_TOKENS)[0]


@pytest.mark.parametrize("name", LOOPS)
def test_greedy_text_is_that_of_plain_decoding(
    decoder: Decoder, plain: list[list[int]], name: str
) -> None:
    """64 prompts x 128 tokens in one batch, token for token."""
    answers, rounds = generate(loop_of(name, decoder, Sampler()), prompts(64), NUM_TOKENS)
    assert answers == plain
    assert sum(sum(r.accepted) for r in rounds) > 0


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", ["layerskip-2-5-0.3", "kangaroo-3-3-0", "eagle-4-0", "dual-3-4-0"])
def test_the_batch_does_not_matter(
    decoder: Decoder, plain: list[list[int]], name: str, batch: int
) -> None:
    """In smaller batches the same texts come out."""
    some = prompts(64)[:6]
    answers = []
    for first in range(0, len(some), batch):
        group = some[first : first + batch]
        answers += generate(loop_of(name, decoder, Sampler()), group, NUM_TOKENS)[0]
    assert answers == plain[:6]


def test_a_draft_of_the_first_layers_accepts_what_their_exit_does(decoder: Decoder) -> None:
    """A separate model of layers 1..3 drafts what exit 3 drafts: two caches, one law."""
    shared = generate(loop_of("layerskip-3-4-0", decoder, Sampler()), prompts(32), 64)[1]
    apart = generate(loop_of("dual-3-4-0", decoder, Sampler()), prompts(32), 64)[1]
    assert [r.accepted for r in shared] == [r.accepted for r in apart]
    assert [r.agreements for r in shared] == [r.agreements for r in apart]


@pytest.mark.parametrize("name", ["layerskip-2-5-0", "kangaroo-2-5-0", "dual-1-5-0", "eagle-5-0"])
def test_rounds_are_counted_as_the_simulator_counts(decoder: Decoder, name: str) -> None:
    """a + 1 tokens a round; the cache grows by as many; agreements begin with a times True."""
    loop = loop_of(name, decoder, Sampler())
    asked = prompts(6)
    loop.start(asked, 64)
    lengths = [len(text) for text in loop.texts]
    for _, done in going_on(loop, [n + 40 for n in lengths]):
        assert done.agreements is not None
        assert done.confidences is not None
        rows = zip(done.tokens, done.drafted, done.accepted, done.agreements, strict=True)
        for tokens, m, a, agreements in rows:
            assert len(tokens) == a + 1
            assert 1 <= m <= 5
            assert len(agreements) == m
            assert agreements[:a] == (True,) * a
            assert a == m or not agreements[a]
        assert loop.cache.lens.tolist() == [len(text) - 1 for text in loop.texts]


def test_a_threshold_stops_drafting_after_the_unsure_token(decoder: Decoder) -> None:
    """Every draft but a round's last is at least tau sure; the last is kept and verified."""
    _, rounds = generate(loop_of("layerskip-2-5-0.3", decoder, Sampler()), prompts(16), 64)
    seen = set()
    for done in rounds:
        for m, sure in zip(done.drafted, done.confidences or (), strict=True):
            assert all(c >= 0.3 for c in sure[:-1])
            assert m == 5 or sure[-1] < 0.3
            seen.add(m)
    assert len(seen) > 2


def test_owed_layers_are_paid_in_full(decoder: Decoder) -> None:
    """After repayment the cache is that of verified decoding over the same text."""
    loop = UnverifiedExit(decoder, Sampler(), exit_layer=2)
    loop.start(prompts(5), 40)
    for _ in range(9):
        loop.round()
    stale = loop.cache.keys.clone()
    loop.repay()
    assert loop.num_owed == 0
    again = Autoregressive(decoder, Sampler())
    again.start([text[:-1] for text in loop.texts], 40)
    for row, length in enumerate(loop.cache.lens.tolist()):
        ours, theirs = loop.cache.keys[:, row, :length], again.cache.keys[:, row, :length]
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    assert not torch.equal(stale[2:], loop.cache.keys[2:])
    assert torch.equal(stale[:2], loop.cache.keys[:2])


def test_a_broken_rollback_is_noticed(
    decoder: Decoder, plain: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rejected drafts left in the cache the text is another one."""

    def keeps_all(sampler: Sampler, drafts: sampling.Drafts, logits: torch.Tensor) -> object:
        verdict = sampling.judge(sampler, drafts, logits)
        loop.cache.lens += drafts.counts - verdict.accepted
        return verdict

    monkeypatch.setattr(_base, "judge", keeps_all)
    loop = loop_of("layerskip-3-4-0", decoder, Sampler())
    loop.start(prompts(64)[:8], 4 * NUM_TOKENS)
    for _ in range(12):
        loop.round()
    kept = [text[len(p) :] for text, p in zip(loop.texts, prompts(64)[:8], strict=True)]
    assert any(ours != right[: len(ours)] for ours, right in zip(kept, plain, strict=False))
