"""EAGLE: one round in order, chains and trees, head sizes, its layer of KV."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simspec.core.errors import ConfigError
from simspec.cost.work import Rows, Stack
from simspec.decoding._base import ACCEPTANCE_MODELS
from simspec.decoding.acceptance.tree_ranks import VICUNA_7B
from simspec.decoding.eagle import Config
from simspec.models.arch import Block, MoE
from simspec.models.counts import kv_bytes_per_token, model_params, weights_bytes
from simspec.models.hf_config import load_model
from tests.decoding.factories import target
from tests.helpers.shared import shared


def stack_of(name: str, **changes: object) -> Stack:
    arch = load_model(name)
    stack = Stack("target", arch.blocks, arch.hidden_size, arch.vocab_size, "bf16", "bf16", 1)
    return replace(stack, **changes)  # type: ignore[arg-type]


def test_a_chain_of_three_in_order() -> None:
    """Context 100, a = 2: two levels of one node, four tokens verified, three rows caught up."""
    method = Config(version=1, num_speculative_tokens=3).build(target())
    passes = method.round_passes([100], [3], [2], None)
    assert [(p.stack, p.first_layer, p.last_layer, p.phase, *p.rows) for p in passes] == [
        ("eagle", 0, 1, "draft", Rows("decode", 1, 1, 101, 101, 1)),
        ("eagle", 0, 1, "draft", Rows("decode", 1, 1, 102, 102, 1)),
        ("target", 0, 32, "verify", Rows("decode", 1, 4, 104, 101 + 102 + 103 + 104, 4)),
        ("eagle", 0, 1, "draft", Rows("decode", 1, 3, 103, 101 + 102 + 103, 1)),
    ]
    assert all(work.embeds for work in passes)


def test_a_dynamic_tree_reads_k_nodes_a_level() -> None:
    """D = 3, k = 4, N = 8: levels of 4 rows that see 4, then 8 entries of the tree."""
    method = Config(num_speculative_tokens=3, top_k=4, num_nodes=8).build(target())
    second, third, verify, first = method.round_passes([100], [8], [0], None)
    assert second.rows == (Rows("decode", 1, 4, 104, 4 * 101, 4),)
    assert third.rows == (Rows("decode", 1, 4, 108, 4 * 102, 4),)
    # Depths of eight nodes spread evenly over three levels: 2 on average.
    assert verify.rows == (Rows("decode", 1, 9, 109, 9 * 101 + 8 * 2, 9),)
    assert first.rows == (Rows("decode", 1, 1, 101, 101, 1),)


def test_the_static_tree_reads_the_nodes_that_have_children() -> None:
    """EAGLE-1: 25 nodes in five levels, of which 4, 4, 1 and 1 are continued."""
    passes = Config(version=1).build(target()).round_passes([100], [25], [1], None)
    assert [p.rows[0].num_tokens for p in passes] == [4, 4, 1, 1, 26, 2]
    assert [p.phase for p in passes].count("draft") == 5


@given(
    st.lists(
        st.tuples(st.integers(1, 4000), st.sampled_from([0, 20]), st.integers(0, 4)), min_size=1
    ).filter(lambda batch: any(m for _, m, _ in batch))
)
def test_rows_are_sums_over_the_sequences(batch: list[tuple[int, int, int]]) -> None:
    """The target sees m + 1 tokens of each, the head k (D - 1) + a + 1 of those that draft."""
    contexts, drafted, accepted = (list(column) for column in zip(*batch, strict=True))
    method = Config(num_speculative_tokens=4, top_k=3, num_nodes=20).build(target())
    passes = method.round_passes(contexts, drafted, accepted, None)
    alone = [method.round_passes([c], [m], [a], None) for c, m, a in batch if m]
    for index, work in enumerate(passes):
        rows = work.rows[0]
        if work.stack == "target":
            assert rows.num_tokens == sum(m + 1 for m in drafted)
            continue
        for field in ("num_tokens", "kv_tokens", "attended_tokens", "logit_rows"):
            expected = sum(getattr(single[index].rows[0], field) for single in alone)
            assert getattr(rows, field) == pytest.approx(expected)


def test_a_prompt_passes_the_head_too() -> None:
    """In the pass that reads the round's tokens, or alone; its last row gets logits."""
    chunk = Rows("prefill", 1, 512, 512, 512 * 256.5, 1)
    method = Config().build(target())
    *_, verify, reading = method.round_passes([100], [59], [0], chunk)
    assert verify.rows[1] is chunk
    assert reading.rows[1] is chunk
    whole, head = method.round_passes([], [], [], chunk)
    assert (whole.stack, head.stack, head.phase) == ("target", "eagle", "prefill")
    assert head.rows == (chunk,)


@pytest.mark.parametrize("batch_size", [1, 16])
def test_expected_work_is_the_mean_over_simulated_rounds(batch_size: int) -> None:
    """Tokens, KV and pairs per round, and passes squared, of rounds with drawn a.

    2,000 rounds; 4 standard errors, false alarm 6e-5 each.
    """
    method = Config(num_speculative_tokens=5).build(target())
    acceptance = ACCEPTANCE_MODELS.parse({"name": "tree_ranks", "hit_rates": VICUNA_7B}).at(None)
    statistics = method.statistics(acceptance)
    rng = np.random.default_rng(batch_size)
    law = statistics.accepted_pmf
    drawn = rng.choice(law.size, size=(2000, batch_size), p=law)
    contexts, drafted = [300] * batch_size, [59] * batch_size

    def totals(passes: list[tuple[float, object]]) -> list[float]:
        rows = [(weight, work.rows[0]) for weight, work in passes]  # type: ignore[attr-defined]
        return [
            sum(w * r.num_tokens for w, r in rows),
            sum(w * r.kv_tokens for w, r in rows),
            sum(w * r.attended_tokens for w, r in rows),
            sum(w * r.num_tokens**2 for w, r in rows),
            sum(w for w, _ in rows),
        ]

    seen = np.array(
        [
            totals([(1.0, p) for p in method.round_passes(contexts, drafted, a, None)])
            for a in drawn.tolist()
        ]
    )
    weighted = method.expected_passes(batch_size, 300, statistics)
    expected = totals([(float(entry.weight), entry.work) for entry in weighted])
    errors = seen.std(axis=0, ddof=1) / np.sqrt(2000)
    for mean, error, value in zip(seen.mean(axis=0), errors, expected, strict=True):
        assert mean == pytest.approx(value, abs=4 * error + 1e-9 * value)


def test_a_tree_of_ranks_beats_its_own_chain() -> None:
    """Ten candidates a level and 59 nodes accept more than the first candidate alone."""
    acceptance = ACCEPTANCE_MODELS.parse({"name": "tree_ranks", "hit_rates": VICUNA_7B}).at(None)
    tree = Config(num_speculative_tokens=5).build(target()).statistics(acceptance)
    chain = Config(num_speculative_tokens=5, top_k=1).build(target()).statistics(acceptance)
    assert chain.tokens_per_round == pytest.approx(1 + 0.5604 * (1 + 0.3164 * (1 + 0.2010 * (
        1 + 0.1474 * (1 + 0.1175)))))  # fmt: skip
    assert tree.tokens_per_round > chain.tokens_per_round + 0.5
    assert chain.all_accepted == pytest.approx(chain.accepted_pmf[5])
    assert tree.drafted_per_round == 59


@pytest.mark.parametrize(
    ("name", "published", "fields"),
    [
        ("vicuna-7b", 0.24e9, {}),
        ("vicuna-13b", 0.37e9, {}),
        ("llama-2-70b", 0.99e9, {}),
        ("llama-3.1-8b", 0.25e9, {}),
        ("llama-3.1-70b", 0.99e9, {}),
        ("mixtral-8x7b", 0.28e9, {"intermediate_size": 14336, "num_kv_heads": 32}),
    ],
)
def test_heads_have_the_published_sizes(
    name: str, published: float, fields: dict[str, int]
) -> None:
    """Parameters that EAGLE's README lists, to its two digits (SafeAILab/EAGLE).

    Mixtral's head has as many KV heads as heads. Left out: Vicuna-33B, listed with 0.56 B where
    this layer has 0.62 B, and Qwen2-72B, 1.05 B and 1.01 B.
    """
    extra = Config.model_validate(fields).build(stack_of(name)).footprint()
    assert round(extra.extra_weights_bytes / 2 / 1e9, 2) == published / 1e9


def test_an_eagle_head_adds_one_layer_of_kv() -> None:
    """Llama-3.1-8B: 135,168 bytes per token instead of 131,072."""
    eight_b = stack_of("llama-3.1-8b")
    own = kv_bytes_per_token(eight_b.blocks)
    extra = Config().build(eight_b).footprint().extra_kv_bytes_per_token
    assert (own, own + extra) == (131_072, 135_168)


def test_a_third_version_is_the_head_of_its_config_file() -> None:
    """Fused states, an attention 2 d wide, an LM head of 32,000 tokens: the same bytes."""
    path = str(shared("hf_configs/eagle3-head-llama3-8b.json"))
    eight_b = stack_of("llama-3.1-8b")
    from_file = Config(version=3, draft_model=path).build(eight_b)
    from_fields = Config(version=3, draft_vocab_size=32000).build(eight_b)
    assert from_file == from_fields
    arch = load_model(path)
    assert from_file.head.blocks[1] == arch.blocks[0]
    # Engines share the embedding; the last norm is priced with the head and not stored here.
    shared_weights = arch.vocab_size * 4096 + 4096
    assert from_file.footprint().extra_weights_bytes == 2 * (model_params(arch) - shared_weights)


def test_only_rows_from_the_target_fuse_its_states() -> None:
    """EAGLE-3: the pass that reads the round's tokens runs the projection, the levels do not."""
    method = Config(version=3, num_speculative_tokens=3).build(target())
    *level_passes, _, reading = method.round_passes([100], [59], [0], None)
    assert [(p.first_layer, p.last_layer) for p in level_passes] == [(1, 2), (1, 2)]
    assert (reading.first_layer, reading.last_layer) == (0, 2)


def test_a_head_beside_experts_is_dense() -> None:
    """As wide as the experts a token goes through, unless it is given."""
    block = Block(4096, 32, 8, 128, 0, moe=MoE(8, 2, 14336))
    mixture = Stack("target", (block,) * 4, 4096, 32000, "bf16", "bf16", 1)
    head = Config().build(mixture).head
    assert (head.blocks[0].moe, head.blocks[0].intermediate_size) == (None, 2 * 14336)
    assert Config(intermediate_size=14336).build(mixture).head.blocks[0].intermediate_size == 14336


def test_a_head_keeps_16_bit_and_its_projection_on_every_rank() -> None:
    """A quantised target has a 16-bit head; the [2 d x d] projection is not divided."""
    quantised = replace(target(tp=4), weight_dtype="int4_g128")
    head = Config().build(quantised).head
    assert head.weight_dtype == "bf16"
    whole, quarter = (
        weights_bytes(Config().build(target(tp=tp)).head, "bf16", tp) for tp in (1, 4)
    )
    fusion, norms = 2 * 2 * 4096**2, 2 * 4096
    assert quarter - fusion - norms == (whole - fusion - norms) / 4
    alone = Config(draft_tp=1).build(quantised)
    assert alone.head.tp == 1
    assert alone.footprint().extra_weights_bytes == whole


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"version": 3, "tree": [[0]], "top_k": 2}, "top_k has no effect"),
        ({"version": 1, "top_k": 1}, "top_k needs version 2 or 3"),
        ({"version": 1, "num_nodes": 9}, "num_nodes needs version 2 or 3"),
        ({"tree": [[0]]}, "tree needs version 1 or 3"),
        ({"draft_vocab_size": 100}, "needs version 3"),
        ({"draft_model": "x.json"}, "needs version 3"),
        ({"version": 3, "draft_model": "x.json", "num_kv_heads": 2}, "num_kv_heads already"),
        ({"version": 4}, "version"),
        ({"num_speculative_tokens": 17}, "num_speculative_tokens"),
    ],
)
def test_fields_that_contradict_are_refused(fields: dict[str, object], message: str) -> None:
    """Each field has an effect, or the message says which one to remove."""
    with pytest.raises(ValidationError, match=message):
        Config.model_validate(fields)


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"num_speculative_tokens": 2, "top_k": 3, "num_nodes": 13}, "num_nodes", "from 2 to 12"),
        ({"num_speculative_tokens": 6, "num_nodes": 5}, "num_nodes", "from 6"),
        ({"top_k": 1, "num_nodes": 9}, "num_nodes", "from 6 to 6"),
        ({"version": 3, "draft_vocab_size": 32001}, "draft_vocab_size", "more than the target's"),
        ({"version": 3, "draft_model": "llama-3.2-1b"}, "draft_model", "use method dual_model"),
        ({"version": 3, "draft_model": "no-such"}, "draft_model", "no-such"),
        ({"draft_tp": 2}, "draft_tp", "does not divide"),
        ({"draft_dtype": "bf17"}, "draft_dtype", "bf17"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, object], field: str, message: str) -> None:
    """With the field's name and what would be possible."""
    with pytest.raises(ConfigError, match=message) as error:
        Config.model_validate(fields).build(target())
    assert error.value.field == field


def test_the_sentence_says_what_a_bare_rate_means_to_a_tree() -> None:
    """Chains read rates as they are."""
    bare = ACCEPTANCE_MODELS.parse({"name": "constant", "alpha": 0.6}).at(None)
    assert "among the nodes of depth i" in Config().acceptance_sentence(bare)
    for chain in (Config(top_k=1), Config(version=1, num_speculative_tokens=4)):
        assert chain.acceptance_sentence(bare) == bare.describe()
