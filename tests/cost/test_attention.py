"""Attention: query-key pairs, KV reads and sliding windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import ProfileError
from simspec.cost.operators._base import Place
from simspec.cost.operators._pairs import windowed
from simspec.cost.operators.attention import kernels
from tests.cost.factory import DENSE, IDEAL, SLIDING, hardware, rows, stack


def kernel(kind="decode", block=DENSE, *, reads="once_per_pass", kv_dtype="bf16", tp=1):
    owner = stack((block,), kv_dtype=kv_dtype, tp=tp)
    found = kernels(Place("block", block, owner, hardware(kv_reads=reads)))
    return next(entry for entry in found if entry.row_kind == kind)


def test_decode_counts_every_pair_and_reads_every_entry_once():
    """16 heads of 64 over contexts 99 and 199: 4 h d_h (100 + 200) FLOP, 2 h_kv d_h 2 bytes each.

    Queries and outputs add 2 tokens * 2 * 1024 values * 2 bytes.
    """
    flop, num_bytes = kernel().work(rows([99, 199]))
    assert flop == 4 * 16 * 64 * 300
    assert num_bytes == 2 * 4 * 64 * 2 * 300 + 2 * 2 * 1024 * 2


def test_a_prompt_without_context_has_half_the_square_of_pairs():
    """n (n + 1) / 2 pairs under the causal mask."""
    flop, _ = kernel("prefill").work(rows(0, 100, kind="prefill"))
    assert flop == 4 * 1024 * 100 * 101 / 2


def test_verification_reads_the_cache_once_per_pass_or_once_per_token():
    """5 tokens on a context of 1000: 1005 entries, or 5 * 1003 where kernels do not reuse."""
    block_bytes, queries = 2 * 4 * 64 * 2, 5 * 2 * 1024 * 2
    verify = rows(1000, 5)
    assert kernel().work(verify).num_bytes == 1005 * block_bytes + queries
    per_token = kernel(reads="once_per_token").work(verify).num_bytes
    assert per_token == 5 * 1003 * block_bytes + queries


def test_prompts_read_the_cache_once_whatever_the_decode_kernel_does():
    """Prefill kernels tile the queries on every device."""
    prompt = rows(1000, 500, kind="prefill")
    tiled = kernel("prefill", reads="once_per_token").work(prompt)
    assert tiled == kernel("prefill").work(prompt)


@pytest.mark.parametrize(("tp", "kv_heads"), [(1, 4), (2, 2), (4, 1), (8, 1), (16, 1)])
def test_kv_heads_are_divided_until_each_rank_holds_one(tp, kv_heads):
    """4 KV heads over 8 ranks: every rank reads one whole head, FLOP still fall."""
    flop, _ = kernel(tp=tp).work(rows(1000))
    assert flop == 4 * 1024 * 1001 / tp
    assert kernel(tp=tp).bytes_per_kv_token == 2 * kv_heads * 64 * 2


def test_a_narrow_cache_halves_the_reads():
    """fp8 entries take half the bytes; the 16-bit efficiencies stand in for missing ones."""
    assert kernel(kv_dtype="fp8").bytes_per_kv_token * 2 == kernel().bytes_per_kv_token


def test_a_device_without_attention_efficiencies_is_refused():
    """No efficiencies at all: one sentence with the device and the kind of kernel."""
    device = hardware(IDEAL)
    object.__setattr__(device, "decode_attention", {})
    with pytest.raises(ProfileError, match=r"'ideal': no decode attention efficiencies.*'bf16'"):
        kernels(Place("block", DENSE, stack((DENSE,)), device))


@given(
    context=st.integers(0, 400),
    new=st.integers(1, 300),
    batch=st.integers(1, 9),
    window=st.integers(1, 200),
)
def test_windows_of_equal_sequences_are_counted_exactly(context, new, batch, window):
    """The formula equals counting, token by token, which entries each query sees."""
    positions = range(context + 1, context + new + 1)
    pairs = sum(min(position, window) for position in positions)
    seen = {entry for p in positions for entry in range(max(1, p - window + 1), p + 1)}
    visible, attended = windowed(rows(context, new, batch=batch), window)
    assert visible == pytest.approx(batch * len(seen))
    assert attended == pytest.approx(batch * pairs)


@given(contexts=st.lists(st.integers(0, 400), min_size=2, max_size=8), window=st.integers(1, 200))
def test_windows_of_unequal_sequences_are_never_counted_too_low(contexts, window):
    """min(c + 1, window) is concave, so the mean context gives an upper bound."""
    exact = sum(min(context + 1, window) for context in contexts)
    visible, attended = windowed(rows(contexts), window)
    assert visible >= exact * (1 - 1e-12)
    assert attended >= exact * (1 - 1e-12)
    assert visible <= sum(contexts) + len(contexts) + 1e-9


def test_a_window_caps_the_cost_of_a_long_context():
    """Beyond the window a decode step costs the same at any context."""
    sliding = kernel(block=SLIDING)
    assert sliding.seconds(rows(1000)) == pytest.approx(sliding.seconds(rows(100_000)), rel=1e-9)
    assert sliding.work(rows(50)).num_bytes == kernel().work(rows(50)).num_bytes


def test_an_empty_group_costs_nothing_under_a_window():
    """No sequences and no tokens: no pairs, and no division by zero."""
    empty = rows(np.zeros(2), np.zeros(2), batch=np.zeros(2))
    visible, pairs = windowed(empty, 64)
    np.testing.assert_allclose(pairs, 0.0, atol=1e-9)
    np.testing.assert_allclose(visible, 0.0, atol=1e-9)
