"""LayerSkip's two rounds: one cache, and the two of Hugging Face."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import ConfigError
from simspec.cost.forward import CostModel
from simspec.cost.work import Pass, Rows
from simspec.decoding._base import METHODS, Method
from simspec.decoding.layerskip import Config
from tests.cost.factory import engine, hardware
from tests.decoding.factories import target

E, L = 8, 32


def layerskip(**fields: Any) -> Method:
    return Config(exit_layer=E, **fields).build(target(L))


def summary(passes: list[Pass]) -> list[tuple[object, ...]]:
    return [(p.stack, p.first_layer, p.last_layer, p.phase, p.embeds, *p.rows) for p in passes]


def test_one_shared_round_in_order() -> None:
    """m = 2 at context 100: two shallow passes with head, the closing one, the deep layers."""
    assert summary(layerskip().round_passes([100], [2], [2], None)) == [
        ("target", 0, E, "draft", True, Rows("decode", 1, 1, 101, 101, 1)),
        ("target", 0, E, "draft", True, Rows("decode", 1, 1, 102, 102, 1)),
        ("target", 0, E, "verify", True, Rows("decode", 1, 1, 103, 103, 0)),
        ("target", E, L, "verify", False, Rows("decode", 1, 3, 103, 306.0, 3)),
    ]


def test_one_round_with_two_caches_in_order() -> None:
    """All layers verify; the last draft of a fully accepted round is read with the first step."""
    method = layerskip(share_kv=False)
    assert summary(method.round_passes([100], [2], [1], None)) == [
        ("shallow", 0, E, "draft", True, Rows("decode", 1, 1, 101, 101, 1)),
        ("shallow", 0, E, "draft", True, Rows("decode", 1, 1, 102, 102, 1)),
        ("target", 0, L, "verify", True, Rows("decode", 1, 3, 103, 306.0, 3)),
    ]
    first, *others = method.round_passes([100], [2], [2], None)
    assert [work.phase for work in others] == ["draft", "verify"]
    assert first.rows == (Rows("decode", 1, 2, 101, 101 + 103, 1),)


@given(
    st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 6)), min_size=1, max_size=30).filter(
        lambda batch: any(m for _, m in batch)
    )
)
def test_shared_states_are_computed_once(batch: list[tuple[int, int]]) -> None:
    """Every layer sees m + 1 tokens of each sequence, no more."""
    contexts, drafted = [c for c, _ in batch], [m for _, m in batch]
    tokens = [0.0] * L
    for work in layerskip().round_passes(contexts, drafted, drafted, None):
        for layer in range(work.first_layer, work.last_layer):
            tokens[layer] += sum(rows.num_tokens for rows in work.rows)
    assert tokens == [sum(m + 1 for m in drafted)] * L


@pytest.mark.parametrize("exit_layer", [4, 8, 16])
@pytest.mark.parametrize("drafted", [1, 6])
def test_the_papers_cost_formulas(exit_layer: int, drafted: int) -> None:
    """In weights read, without a head: m E/L + E/L + (L - E)/L steps shared, m E/L + 1 not shared.

    E/L is the closing pass, which the paper's m E/L + (L - E)/L leaves out; with it both read the
    same weights, and sharing saves arithmetic. A vocabulary of one token leaves the head out.
    """
    stack = replace(target(L), vocab_size=1)
    share = exit_layer / L
    shared = drafted * share + share + (L - exit_layer) / L
    for share_kv, expected in ((True, shared), (False, drafted * share + 1.0)):
        method = Config(exit_layer=exit_layer, share_kv=share_kv).build(stack)
        cost = CostModel(method.stacks(), hardware(), engine())
        passes = method.round_passes([1], [drafted], [0], None)
        plain = method.round_passes([1], [0], [0], None)
        read = cost.step(passes, 1).bytes / cost.step(plain, 1).bytes
        assert read == pytest.approx(expected, rel=0.01)


def test_sharing_saves_the_shallow_layers_of_verification() -> None:
    """Not shared: m shallow tokens to draft and m + 1 to verify; shared: m + 1 in all."""
    costs = []
    for share_kv in (True, False):
        method = layerskip(share_kv=share_kv)
        cost = CostModel(method.stacks(), hardware(), engine())
        costs.append(cost.step(method.round_passes([500], [5], [0], None), 1).flop)
    per_token = 2 * (4 * 4096**2 + 3 * 4096 * 11008) + 4 * 4096 * 503  # contexts 501 to 505
    assert costs[1] - costs[0] == pytest.approx(5 * E * per_token)


def test_prompts_pass_once_or_twice() -> None:
    """With a cache of its own the shallow part reads the prompt as well."""
    chunk = Rows("prefill", 1, 512, 512, 512 * 256.5, 1)
    assert len(layerskip().round_passes([], [], [], chunk)) == 1
    whole, shallow = layerskip(share_kv=False).round_passes([], [], [], chunk)
    assert whole.rows == (chunk,)
    assert (shallow.stack, shallow.last_layer, shallow.rows[0].logit_rows) == ("shallow", E, 0)


def test_memory_is_nothing_or_the_kv_of_the_shallow_layers() -> None:
    """Shared: nothing. Not shared: 2 d values for each of E layers, 16 bit; weights never."""
    shared, own = layerskip().footprint(), layerskip(share_kv=False).footprint()
    assert (shared.extra_weights_bytes, shared.extra_kv_bytes_per_token) == (0, 0)
    assert (own.extra_weights_bytes, own.extra_kv_bytes_per_token) == (0, 2 * 2 * 4096 * E)
    assert shared.reserved_slots == own.reserved_slots == 7


@pytest.mark.parametrize("share_kv", [True, False])
def test_an_exit_at_the_last_layer_is_refused(share_kv: bool) -> None:
    """The message names the deepest exit."""
    with pytest.raises(ConfigError, match=r"exit_layer: 32 .* deepest exit is 31") as refused:
        Config(exit_layer=32, share_kv=share_kv).build(target(L))
    assert refused.value.field == "exit_layer"


def test_a_bare_name_has_the_published_settings() -> None:
    """Exit layer 8 and six drafts: the authors' command line for layerskip-llama2-7B."""
    config = METHODS.parse("layerskip")
    assert (config.exit_layer, config.num_speculative_tokens) == (8, 6)
    assert config.confidence_threshold == 0
    assert config.acceptance_exit_layer == 8
