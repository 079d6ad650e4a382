"""Parameters and KV values: hand formulas, published totals, and conservation over ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import ConfigError
from simspec.models.arch import MLA, Architecture, Block, MoE
from simspec.models.counts import (
    active_params,
    block_params,
    check_tensor_parallel,
    embedding_params,
    head_params,
    kv_bytes,
    kv_bytes_per_token,
    kv_heads_per_rank,
    kv_values_per_token,
    model_params,
    weights_bytes,
)
from simspec.models.hf_config import load_model

DENSE = Block(1024, 16, 4, 64, 2048)
MIXTURE = replace(
    DENSE,
    intermediate_size=0,
    moe=MoE(16, 2, 512, 1, 512, router_bias=True, shared_expert_gate=True),
)
LATENT = replace(DENSE, num_kv_heads=16, head_dim=96, mla=MLA(128, 384, 64, 32, 64))
BIASED = replace(
    DENSE,
    gated_ffn=False,
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
    qk_norm=True,
    attention_sinks=True,
    num_norms=4,
)
SHAPES = [DENSE, MIXTURE, LATENT, BIASED]


def arch(block: Block, layers: int = 2, *, tied: bool = False, vocab: int = 32000) -> Architecture:
    return Architecture("test", (block,) * layers, block.hidden_size, vocab, tied, 4096, "made up")


def test_dense_layer_by_hand() -> None:
    """q and o are d h d_h, k and v are d h_kv d_h each, the gated FFN 3 d f."""
    params = block_params(DENSE)
    assert params.attention == 2 * 1024 * 1024 + 2 * 1024 * 256
    assert params.ffn == 3 * 1024 * 2048
    assert params.norms == 2 * 1024
    assert (params.experts, params.router) == (0, 0)
    assert params.total == params.attention + params.ffn + params.norms


def test_biases_norms_and_sinks_by_hand() -> None:
    """Each bias has the width of its output, each q/k norm d_h, each head one sink."""
    params = block_params(BIASED)
    plain = block_params(replace(DENSE, gated_ffn=False))
    assert params.attention - plain.attention == (16 + 2 * 4) * 64 + 1024 + 16
    assert plain.ffn == 2 * 1024 * 2048
    assert params.ffn - plain.ffn == 2048 + 1024
    assert params.norms == 4 * 1024 + 2 * 64
    per_channel = block_params(replace(BIASED, qk_norm_weights="per_layer"))
    assert per_channel.norms == 4 * 1024 + (16 + 4) * 64
    assert block_params(replace(BIASED, qk_norm_weights="none")).norms == 4 * 1024


def test_experts_by_hand() -> None:
    """E_r experts of 3 d f_e, a router of d E_r with bias, a shared expert with its gate."""
    params = block_params(MIXTURE)
    assert params.experts == 16 * 3 * 1024 * 512
    assert params.ffn == 3 * 1024 * 512
    assert params.router == 1024 * 16 + 16 + 1024


def test_latent_attention_by_hand() -> None:
    """MLA: down- and up-projections of queries and of the latent, and the output."""
    heads, nope, rope, v = 16, 64, 32, 64
    query = 1024 * 384 + 384 * heads * (nope + rope)
    latent = 1024 * (128 + rope) + 128 * heads * (nope + v)
    assert block_params(LATENT).attention == query + latent + heads * v * 1024
    assert block_params(LATENT).norms == 2 * 1024 + 384 + 128
    full = replace(LATENT, mla=replace(LATENT.mla, q_lora_rank=None))
    assert block_params(full).attention == 1024 * heads * (nope + rope) + latent + heads * v * 1024


def test_an_attention_only_adapter_is_four_square_matrices() -> None:
    """Kangaroo's adapter for a 7B model has about 67 M parameters (arXiv:2404.18911)."""
    adapter = Block(4096, 32, 32, 128, 0)
    assert block_params(adapter).attention == 4 * 4096**2
    assert block_params(adapter).total == pytest.approx(67e6, rel=0.01)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        # Parameter counts of the safetensors on the Hugging Face hub.
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("vicuna-7b", 6_738_415_616),
        ("vicuna-13b", 13_015_864_320),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.2-1b", 1_235_814_400),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-32b", 32_762_123_264),
        ("codellama-7b", 6_738_546_688),
        ("codellama-34b", 33_743_970_304),
    ],
)
def test_catalog_models_have_their_published_parameters(name: str, published: int) -> None:
    """Every architecture of the catalog counts to the published total, exactly."""
    assert model_params(load_model(name)) == published


@pytest.mark.parametrize(
    ("name", "kib_per_token"),
    [
        ("llama-2-7b", 512),  # 2 * 32 layers * 4096 * 2 bytes
        ("llama-3.1-8b", 128),
        ("llama-3.1-70b", 320),
        ("qwen3-8b", 144),
    ],
)
def test_kv_bytes_per_token_of_known_models(name: str, kib_per_token: int) -> None:
    """2 L h_kv d_h 2 bytes in 16 bit, the figures engines log."""
    assert kv_bytes_per_token(load_model(name), "fp16") == kib_per_token * 1024


def test_active_parameters_skip_idle_experts() -> None:
    """One token goes through k of E_r experts and through everything else."""
    model = arch(MIXTURE)
    idle = 2 * 14 * 3 * 1024 * 512
    assert active_params(model) == model_params(model) - idle
    assert active_params(arch(DENSE)) == model_params(arch(DENSE))


def test_tied_embeddings_are_stored_once() -> None:
    """A tied LM head adds neither parameters nor bytes."""
    untied, tied = arch(DENSE), arch(DENSE, tied=True)
    table = 32000 * 1024
    assert head_params(tied) == 0
    assert model_params(untied) - model_params(tied) == table
    assert weights_bytes(untied, "bf16") - weights_bytes(tied, "bf16") == 2 * table


@pytest.mark.parametrize("block", SHAPES)
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_ranks_together_hold_the_layer_and_copies_of_the_replicated_parts(
    block: Block, tp: int
) -> None:
    """tp shares minus (tp - 1) copies of norms, routers, down-projections and output biases
    are the whole layer, as long as KV heads are not replicated."""
    whole, share = block_params(block), block_params(block, tp)
    copied = block.num_norms * 1024 + whole.router
    copied += 2 * block.head_dim if block.qk_norm else 0
    copied += 2 * 1024 if block.mlp_bias else 0  # output biases of attention and FFN
    if block.mla is not None:
        copied += 384 + 128 + 1024 * 384 + 1024 * (128 + 32)
    assert tp * share.total - (tp - 1) * copied == whole.total


@given(st.sampled_from([1, 2, 4, 8, 16]))
def test_kv_heads_are_divided_then_replicated(tp: int) -> None:
    """Each rank holds max(1, h_kv / tp) KV heads: below that a token never shrinks further."""
    assert kv_heads_per_rank(DENSE, tp) == max(1, 4 // tp)
    assert kv_values_per_token(DENSE, tp) == 2 * max(1, 4 // tp) * 64
    assert kv_values_per_token(LATENT, tp) == 128 + 32


@given(
    st.sampled_from(SHAPES),
    st.sampled_from(["bf16", "fp8", "int4_g128", "q8_0", "mxfp4"]),
    st.sampled_from([(1, 2), (2, 4), (4, 8), (8, 16)]),
)
def test_more_ranks_never_need_more_bytes_each(
    block: Block, name: str, degrees: tuple[int, int]
) -> None:
    """Weights per rank fall with tp, but by no more than its share."""
    few, many = degrees
    model = arch(block)
    assert weights_bytes(model, name, many) < weights_bytes(model, name, few)
    assert weights_bytes(model, name, many) >= weights_bytes(model, name, few) * few / many


@given(st.sampled_from(SHAPES))
def test_bytes_follow_the_parameters_in_sixteen_bit(block: Block) -> None:
    """Two bytes a parameter when nothing is quantised."""
    assert weights_bytes(arch(block), "bf16") == 2 * model_params(arch(block))


def test_a_bare_stack_counts_its_layers_only() -> None:
    """Layers without an architecture around them share the target's embedding and head."""

    class Layers:
        blocks = (DENSE, DENSE)

    assert weights_bytes(Layers(), "bf16") == 2 * 2 * block_params(DENSE).total


def test_vocabulary_is_sharded_with_the_odd_rows_rounded_up() -> None:
    """Embedding and LM head hold ceil(V / tp) rows a rank."""
    model = arch(DENSE, vocab=32003)
    assert embedding_params(model, 2) == 16002 * 1024
    assert head_params(model, 2) == 16002 * 1024


def test_sliding_layers_hold_at_most_their_window() -> None:
    """KV of a sequence grows in full layers only once the window is full."""
    half = (replace(DENSE, sliding_window=128), DENSE)
    per_layer = 2 * 4 * 64 * 2
    assert kv_bytes_per_token(half, "bf16") == 2 * per_layer
    assert kv_bytes(half, "bf16", 100) == 100 * 2 * per_layer
    assert kv_bytes(half, "bf16", 1000) == (1000 + 128) * per_layer


@pytest.mark.parametrize(
    ("block", "tp", "message"),
    [
        (DENSE, 3, "tp=3 does not divide the 16 attention heads"),
        (DENSE, 0, "tp=0 is not a number of ranks"),
        (
            replace(DENSE, num_heads=12, num_kv_heads=6),
            4,
            "tp=4 neither divides the 6 KV heads nor is a multiple of them",
        ),
        (replace(DENSE, intermediate_size=2050), 4, "tp=4 does not divide the FFN width 2050"),
        (
            replace(MIXTURE, moe=MoE(16, 2, 510)),
            4,
            "tp=4 does not divide the expert width 510",
        ),
    ],
)
def test_degrees_that_cannot_shard_are_refused(block: Block, tp: int, message: str) -> None:
    """The message says what does not divide, and lists the degrees that work."""
    with pytest.raises(ConfigError, match=message) as refused:
        check_tensor_parallel((block,), tp)
    assert "degrees that work: 1" in str(refused.value)
    assert refused.value.field == "tp"
