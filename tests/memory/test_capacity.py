"""The budget against published KV pools, its laws, and the sentence when it does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import ConfigError, DoesNotFit
from simspec.models.arch import Architecture, Block, DraftHead
from simspec.models.hf_config import load_model
from tests.memory.factory import GIB, budget


def dense(
    name: str, d: int, f: int, layers: int, heads: int, kv: int, vocab: int, **more: Any
) -> Architecture:
    tied = more.pop("tied", False)
    block = Block(d, heads, kv, 128, f, **more)
    return Architecture(name, (block,) * layers, d, vocab, tied, 131072, "test")


MISTRAL = dense("mistral-7b", 4096, 14336, 32, 32, 8, 32064)
QWEN25_7B = dense("qwen2.5-7b", 3584, 18944, 28, 28, 4, 152064, qkv_bias=True)
QWEN25_14B = dense("qwen2.5-14b", 5120, 13824, 48, 40, 8, 152064, qkv_bias=True)


@pytest.mark.parametrize(
    ("model", "dtype", "kv", "tp", "visible_gib", "fraction", "tokens", "reported", "tolerance"),
    [
        # KV pools in tokens that vLLM logged: model, card, source. Weights of the vision tower
        # (0.6 GiB) are in the first report and not in ours.
        (MISTRAL, "fp16", "fp16", 1, 79.19, 0.90, 16384, 451744, 0.02),  # H100, vLLM 0.10.2
        (QWEN25_7B, "int4_g128", "fp16", 1, 15.99, 0.90, 2048, 149712, 0.02),  # RTX 4080, 0.26
        (QWEN25_14B, "bf16", "bf16", 2, 23.08, 0.98, 2048, 81536, 0.05),  # 4090, vllm#13061
        ("llama-3.1-8b", "bf16", "bf16", 1, 23.517, 0.90, 2048, 41408, 0.05),  # 4090, vLLM 0.19
        ("llama-2-7b", "fp16", "fp16", 1, 79.15, 0.90, 4096, 117616, 0.02),  # A100, vllm#2031
        ("qwen3-32b", "fp8", "fp8", 1, 79.19, 0.90, 8192, 306528, 0.02),  # H100, vLLM 0.26
    ],
)
def test_published_kv_pools(
    model: str | Architecture,
    dtype: str,
    kv: str,
    tp: int,
    visible_gib: float,
    fraction: float,
    tokens: int,
    reported: int,
    tolerance: float,
) -> None:
    """The KV capacity equals the pool vLLM logged, within 2 to 5 percent."""
    found = budget(
        model,
        dtype,
        kv,
        tp,
        capacity_bytes=visible_gib * GIB,
        memory_fraction=fraction,
        max_num_batched_tokens=tokens,
    )
    assert found.kv_capacity_tokens == pytest.approx(reported, rel=tolerance)


def test_the_budget_of_an_h100_adds_up() -> None:
    """0.9 of 79.19 GiB is 71.27; weights, activations, reserve and pool are all of it."""
    found = budget("llama-3.1-8b", max_num_batched_tokens=16384)
    assert found.usable_bytes / GIB == pytest.approx(71.27, abs=0.005)
    parts = found.weights_bytes + found.activation_bytes + found.reserve_bytes
    assert parts + found.kv_pool_bytes == pytest.approx(found.usable_bytes, rel=1e-12)
    assert found.left_bytes == pytest.approx(found.kv_pool_bytes, rel=1e-12)


def test_blocks_are_floored() -> None:
    """The pool holds whole blocks of 16 tokens: 55.15 GiB of 128 KiB tokens are 451,776 slots."""
    found = budget("llama-3.1-8b")
    per_block = 16 * 131072
    assert found.kv_bytes_per_token == 131072
    assert found.num_blocks * per_block <= found.kv_pool_bytes < (found.num_blocks + 1) * per_block
    assert found.kv_capacity_tokens == 16 * found.num_blocks


@given(
    fraction=st.floats(0.3, 0.95),
    more=st.floats(0.0, 0.05),
    dtypes=st.sampled_from([("bf16", "fp8"), ("fp8", "int4_g128"), ("bf16", "int4_g128")]),
    tp=st.sampled_from([1, 2, 4, 8, 16]),
)
def test_capacity_is_monotone(
    fraction: float, more: float, dtypes: tuple[str, str], tp: int
) -> None:
    """A larger share, more ranks, smaller weights or a smaller cache never hold fewer tokens."""

    def tokens(dtype: str, kv: str, ranks: int, share: float) -> int:
        return budget("llama-3.1-8b", dtype, kv, ranks, memory_fraction=share).kv_capacity_tokens

    large, small = dtypes
    base = tokens(large, "bf16", tp, fraction)
    assert tokens(large, "bf16", tp, fraction + more) >= base
    assert tokens(small, "bf16", tp, fraction) >= base
    assert tokens(large, "fp8", tp, fraction) >= base
    assert tokens(large, "bf16", 2 * tp, fraction) >= base


@given(st.floats(0, 60e9), st.floats(0, 1e6), st.integers(1, 200_000))
def test_nothing_is_ever_negative(extra: float, extra_kv: float, batched: int) -> None:
    """However much is asked for, pool and blocks stop at zero, and fits says so."""
    found = budget(
        extra_weights_bytes=extra,
        extra_kv_bytes_per_token=extra_kv,
        max_num_batched_tokens=batched,
    )
    assert found.kv_pool_bytes >= 0
    assert found.num_blocks >= 0
    assert found.fits == (found.num_blocks > 0)
    assert not (found.fits and found.left_bytes < 0)


def test_the_method_pays_for_itself() -> None:
    """An adapter takes its weights from the pool and its KV from every token of it."""
    plain = budget("vicuna-7b")
    adapter = budget("vicuna-7b", extra_weights_bytes=134e6, extra_kv_bytes_per_token=16384)
    assert plain.kv_pool_bytes - adapter.kv_pool_bytes == pytest.approx(134e6)
    assert adapter.kv_bytes_per_token == plain.kv_bytes_per_token + 16384
    expected = adapter.kv_pool_bytes / (plain.kv_bytes_per_token + 16384)
    assert adapter.kv_capacity_tokens == pytest.approx(expected, abs=16)


def test_a_longer_step_leaves_a_smaller_pool() -> None:
    """The activation reserve grows with max_num_batched_tokens, and the pool pays for it."""
    short, long = (budget(max_num_batched_tokens=n) for n in (2048, 32768))
    assert long.activation_bytes > short.activation_bytes
    taken = long.activation_bytes - short.activation_bytes
    assert short.kv_pool_bytes - long.kv_pool_bytes == pytest.approx(taken)


def test_replicated_kv_heads_stop_paying() -> None:
    """Beyond one KV head a rank, more ranks no longer shrink a token: 8 heads on 16 ranks."""
    assert budget(tp=16).kv_bytes_per_token == budget(tp=8).kv_bytes_per_token
    assert budget(tp=8).kv_bytes_per_token == budget(tp=4).kv_bytes_per_token / 2


def test_windows_are_set_aside_and_the_rest_counts_the_other_layers() -> None:
    """gpt-oss-20b: 12 sliding layers of 128 tokens, 256 sequences with a block each, one step."""
    plain = budget("gpt-oss-20b", "mxfp4")
    hybrid = budget("gpt-oss-20b", "mxfp4", hybrid_kv_cache=True)
    layer = 2 * 8 * 64 * 2
    assert plain.kv_bytes_per_token == 24 * layer
    assert hybrid.kv_bytes_per_token == 12 * layer
    tokens = 256 * (128 + 16) + hybrid.inputs.max_num_batched_tokens
    assert hybrid.window_bytes == 12 * layer * tokens
    left = hybrid.kv_pool_bytes - hybrid.window_bytes
    assert hybrid.kv_capacity_tokens == int(left / (12 * layer * 16)) * 16
    assert hybrid.kv_capacity_tokens > 1.8 * plain.kv_capacity_tokens
    assert any("of it sliding windows" in line for line in hybrid.lines())


def test_windows_that_cost_more_than_they_free_are_not_set_aside() -> None:
    """Windows of 8192 tokens for 256 sequences of Llama 4 hold more than a small pool."""
    plain = budget("llama-4-scout", "int4_g128", capacity_bytes=75 * GIB)
    hybrid = budget("llama-4-scout", "int4_g128", capacity_bytes=75 * GIB, hybrid_kv_cache=True)
    assert hybrid.kv_capacity_tokens == plain.kv_capacity_tokens > 0
    assert hybrid.window_bytes == 0.0


def test_a_model_without_windows_knows_no_difference() -> None:
    """One allocator or several: every layer keeps every token."""
    assert (
        budget("llama-3.1-8b", hybrid_kv_cache=True).num_blocks == budget("llama-3.1-8b").num_blocks
    )


def test_seventy_billion_on_two_h100() -> None:
    """65.7 GiB of weights a card leave tens of thousands of tokens (vllm-project/vllm#10517)."""
    found = budget("llama-3.1-70b", tp=2, max_num_batched_tokens=8192)
    assert found.weights_bytes / GIB == pytest.approx(65.7, abs=0.05)
    assert found.kv_bytes_per_token == 163840
    assert 10_000 < found.kv_capacity_tokens < 40_000
    found.require(20_000)


def test_a_refusal_names_every_number_and_what_would_fit() -> None:
    """One sentence: usable, weights, activations, reserve, what is short, and two ways out."""
    found = budget("llama-3.1-70b", capacity_bytes=85.03e9)
    with pytest.raises(DoesNotFit) as refused:
        found.require(2048)
    assert str(refused.value) == (
        "llama-3.1-70b (bf16, KV bf16, tp=1) does not fit on test_gpu: per GPU 76.5 GB usable "
        "(90% of 85.0 GB) - 141 GB weights - 986 MB activations - 75.2 MB reserve is 65.6 GB too "
        "little; needed: 2,048 tokens (671 MB); would fit: tp=2, or dtype fp8"
    )


def test_a_refusal_for_length_offers_the_longest_that_fits() -> None:
    """Weights fit, the request does not: the pool's size is among the ways out."""
    found = budget("llama-3.1-70b", tp=2)
    with pytest.raises(DoesNotFit) as refused:
        found.require(100_000)
    text = str(refused.value)
    assert f"at most {found.kv_capacity_tokens:,} tokens per request" in text
    assert "tp=4" in text
    assert "kv_dtype fp8" not in text  # twice 28,000 tokens are still too few
    assert "kv_dtype fp8" in str(
        pytest.raises(DoesNotFit, found.require, found.kv_capacity_tokens + 16).value
    )


def test_what_is_offered_does_fit() -> None:
    """The degree and the format a refusal names hold the tokens it was asked for."""
    with pytest.raises(DoesNotFit, match=r"would fit: tp=2, or dtype fp8"):
        budget("llama-3.1-70b").require(2048)
    budget("llama-3.1-70b", tp=2).require(2048)
    budget("llama-3.1-70b", "fp8").require(2048)


def test_both_at_once_when_neither_alone_is_enough() -> None:
    """On small cards the offer combines a larger tp with a smaller format."""
    found = budget("llama-3.1-70b", capacity_bytes=25.25e9, max_devices=4)
    with pytest.raises(DoesNotFit, match=r"would fit: tp=\d with dtype int4_g128$"):
        found.require(2048)


def test_nothing_fits() -> None:
    """Where no change of one node helps, the sentence says that instead of offering one."""
    found = budget("llama-3.1-70b", capacity_bytes=8e9, max_devices=None)
    with pytest.raises(DoesNotFit, match="no larger tp of one node and no smaller dtype"):
        found.require()


def test_files_are_offered_smaller_files() -> None:
    """A llama.cpp file is offered a smaller file, not a serving checkpoint."""
    found = budget("codellama-34b", "q8_0", capacity_bytes=34e9, max_devices=None)
    with pytest.raises(DoesNotFit, match=r"would fit: dtype q4_k_m"):
        found.require(2048)


def test_formats_the_device_cannot_run_are_not_offered() -> None:
    """A device without 8- and 16-bit rates is not offered formats that need them."""
    found = budget("llama-3.1-70b")
    slow = replace(found.inputs.hardware, peak_flop_per_s={"fp32": 1e13})
    with pytest.raises(DoesNotFit) as refused:
        replace(found, inputs=replace(found.inputs, hardware=slow)).require()
    assert "dtype fp8" not in str(refused.value)


def test_method_weights_are_named_in_a_refusal() -> None:
    """A draft model that tips the balance is one of the numbers."""
    found = budget("vicuna-13b", capacity_bytes=30e9, extra_weights_bytes=5e9)
    with pytest.raises(DoesNotFit, match=r"- 5.00 GB weights of the decoding method -"):
        found.require()


def test_a_draft_head_is_no_target() -> None:
    """A one-layer draft head given as the model is refused, not simulated."""
    head = replace(load_model("llama-3.2-1b"), draft_head=DraftHead(32000, 3))
    with pytest.raises(ConfigError, match="is a draft head") as refused:
        budget(head)
    assert refused.value.field == "model"


def test_degrees_that_cannot_shard_are_refused() -> None:
    """The budget of an impossible tp is an error, not a number."""
    with pytest.raises(ConfigError, match="tp=3 does not divide"):
        budget(tp=3)


def test_lines_print_every_part() -> None:
    """The printed budget is aligned and ends with the capacity in tokens and blocks."""
    found = budget(capacity_bytes=85.03e9, extra_weights_bytes=134e6)
    names, values = zip(*(line.rsplit("  ", 1) for line in found.lines()), strict=True)
    assert len({len(name) for name in names}) == 1
    assert values[:4] == ("85.0 GB", "76.5 GB", "16.1 GB", "134 MB")
    assert values[-1] == f"{found.kv_capacity_tokens:,} tokens ({found.num_blocks:,} blocks)"
