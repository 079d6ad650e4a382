"""Laws every operator file obeys; a new file is tested here without being named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.cost.operators._base import OPERATORS, Place, kernels_of
from simspec.cost.operators._pairs import PairKernel
from simspec.cost.work import Rows
from simspec.models.counts import block_params
from tests.cost.factory import BLOCKS, DENSE, PEAK, REAL, hardware, rows, stack

SITES = [("embedding", None), ("head", None), *(("block", name) for name in BLOCKS)]


def place(site: str, block: str | None, **changes: object) -> Place:
    layer = BLOCKS[block or "dense"]
    owner = stack((layer,), **changes)
    return Place(site, layer if site == "block" else None, owner, hardware(REAL))


def kernels(site: str, block: str | None, *, pairs: bool, **changes: object):
    found = kernels_of(place(site, block, **changes))
    return [kernel for kernel in found if isinstance(kernel, PairKernel) == pairs]


def test_every_operator_file_is_found():
    """The registry lists the files of the package, helpers left out."""
    assert set(OPERATORS.names()) == {
        "attention", "elementwise", "embedding", "fusion", "head", "linear", "mla", "moe"
    }  # fmt: skip


@pytest.mark.parametrize(("site", "block"), SITES)
@given(num_rows=st.integers(1, 5000))
def test_no_row_kernel_beats_the_roofline(site, block, num_rows):
    """seconds >= FLOP / peak and >= bytes / bandwidth, with efficiencies at most 1."""
    for kernel in kernels(site, block, pairs=False):
        flop, num_bytes = kernel.work(num_rows)
        assert kernel.seconds(num_rows) >= max(flop / PEAK, num_bytes / 1e11)


@pytest.mark.parametrize(("site", "block"), SITES)
@given(num_rows=st.integers(1, 5000), more=st.integers(1, 1000))
def test_more_rows_never_take_less(site, block, num_rows, more):
    """Work and time grow with the rows."""
    for kernel in kernels(site, block, pairs=False):
        few, many = kernel.work(num_rows), kernel.work(num_rows + more)
        assert few.flop <= many.flop
        assert few.num_bytes <= many.num_bytes
        assert kernel.seconds(num_rows) <= kernel.seconds(num_rows + more)


@pytest.mark.parametrize(("site", "block"), SITES)
def test_row_kernels_over_arrays_equal_loops(site, block):
    """One call over an array is the same as a call for each entry."""
    span = np.array([1.0, 2.0, 7.5, 64.0, 4096.0])
    for kernel in kernels(site, block, pairs=False):
        looped = [kernel.seconds(float(entry)) for entry in span]
        np.testing.assert_allclose(kernel.seconds(span), looped, rtol=1e-12)
        for column, name in enumerate(("flop", "num_bytes")):
            entries = [kernel.work(float(entry))[column] for entry in span]
            np.testing.assert_allclose(
                np.broadcast_to(kernel.work(span)[column], span.shape), entries, rtol=1e-12,
                err_msg=f"{kernel.name} {name}",
            )  # fmt: skip


@pytest.mark.parametrize("block", BLOCKS)
@given(context=st.integers(0, 5000), new=st.integers(1, 64), batch=st.integers(1, 64))
def test_attention_obeys_the_same_laws(block, context, new, batch):
    """Never below the roofline, and never less for a longer context or one more sequence."""
    for kernel in kernels("block", block, pairs=True):
        here = rows(context, new, batch=batch, kind=kernel.row_kind)
        flop, num_bytes = kernel.work(here)
        assert kernel.seconds(here) >= max(flop / PEAK, num_bytes / 1e11)
        longer = rows(context + 100, new, batch=batch, kind=kernel.row_kind)
        wider = rows(context, new, batch=batch + 1, kind=kernel.row_kind)
        # Rounding only: under a window a longer context changes nothing.
        assert kernel.seconds(longer) >= kernel.seconds(here) * (1 - 1e-12)
        assert kernel.seconds(wider) >= kernel.seconds(here) * (1 - 1e-12)


@pytest.mark.parametrize("block", BLOCKS)
def test_attention_over_arrays_equals_loops(block):
    """Sums given as arrays are priced entry by entry."""
    contexts, new = np.array([0.0, 5.0, 100.0, 4000.0]), np.array([1.0, 4.0, 200.0, 2.0])
    for kernel in kernels("block", block, pairs=True):
        vector = rows(contexts, new, batch=3, kind=kernel.row_kind)
        vector = Rows(vector.kind, 3.0, *(np.asarray(q) for q in (
            vector.num_tokens, vector.kv_tokens, vector.attended_tokens, vector.logit_rows
        )))  # fmt: skip
        looped = [
            kernel.seconds(rows(float(c), float(n), batch=3, kind=kernel.row_kind))
            for c, n in zip(contexts, new, strict=True)
        ]
        np.testing.assert_allclose(kernel.seconds(vector), looped, rtol=1e-12)


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("block", BLOCKS)
def test_weight_bytes_are_the_parameters_counted_for_memory(block, tp):
    """What a full pass reads is what ``models.counts`` stores, per rank.

    2 bytes a parameter; 10^6 tokens hit all 16 experts.
    """
    read = sum(
        kernel.work(1e6).num_bytes - (kernel.work(2e6).num_bytes - kernel.work(1e6).num_bytes)
        for kernel in kernels("block", block, pairs=False, tp=tp)
    )
    assert read == pytest.approx(2 * block_params(BLOCKS[block], tp).total, rel=1e-7)


@pytest.mark.parametrize("block", ["dense", "adapter", "sliding"])
def test_dense_flop_are_two_per_parameter_and_token(block):
    """The matrices of a layer do 2 FLOP per parameter for each token."""
    params = block_params(BLOCKS[block])
    flop = sum(kernel.work(7).flop for kernel in kernels("block", block, pairs=False))
    assert flop == pytest.approx(2 * 7 * (params.attention + params.ffn), rel=1e-12)


def test_a_dense_layer_launches_the_fused_kernels_of_real_engines():
    """QKV, O, gate+up and down are one product each; two norms, rotary, activation, attention."""
    names = sorted(kernel.name for kernel in kernels("block", "dense", pairs=False))
    assert names == [
        "activation", "down", "gate_up", "norm", "norm", "o", "qkv", "rope_kv_write"
    ]  # fmt: skip
    pairs = [kernel.name for kernel in kernels("block", "dense", pairs=True)]
    assert pairs == ["decode_attention", "prefill_attention"]


def test_an_attention_only_layer_has_no_feed_forward():
    """An adapter of attention and two norms launches nothing else."""
    names = sorted(kernel.name for kernel in kernels("block", "adapter", pairs=False))
    assert names == ["norm", "norm", "o", "qkv", "rope_kv_write"]


def test_the_fusion_of_a_draft_head_is_whole_on_every_rank():
    """``[2 d x d]`` at any tp, after its two inputs are laid side by side; a square one alone."""
    for tp in (1, 4):
        concatenation, product = (
            next(k for k in kernels("block", "fused", pairs=False, tp=tp) if k.name == name)
            for name in ("concatenation", "fusion")
        )
        assert product.work(3) == (3 * 2 * 2048 * 1024, 2 * (2048 * 1024 + 3 * (2048 + 1024)))
        assert concatenation.work(3) == (0, 2 * 3 * (2048 + 2048))
    square = replace(DENSE, fused_size=1024)
    owner = stack((square,))
    names = [k.name for k in kernels_of(Place("block", square, owner, hardware(REAL)))]
    assert "fusion" in names
    assert "concatenation" not in names


def test_every_new_token_is_written_to_the_cache():
    """The rotary kernel writes 2 h_kv d_h values per token at the width of the cache."""
    narrow, wide = (
        next(
            kernel.work(10).num_bytes
            for kernel in kernels("block", "dense", pairs=False, kv_dtype=name)
            if kernel.name == "rope_kv_write"
        )
        for name in ("fp8", "bf16")
    )
    assert wide - narrow == 10 * 2 * 4 * 64


@pytest.mark.parametrize(("weight_dtype", "bits"), [("fp8", 8.0), ("int4_g128", 4.25)])
def test_quantised_weights_shrink_the_matrices_and_leave_the_head(weight_dtype, bits):
    """Serving formats store layer matrices in their own bits and the head in 16."""
    layer = kernels("block", "dense", pairs=False, weight_dtype=weight_dtype)
    quantised = {kernel.name: kernel for kernel in layer}
    assert quantised["down"].fixed_bytes == pytest.approx(2048 * 1024 * bits / 8)
    head = {k.name: k for k in kernels("head", None, pairs=False, weight_dtype=weight_dtype)}
    assert head["lm_head"].fixed_bytes == 1024 * 32000 * 2


def test_fp8_computes_at_its_own_peak_and_weight_only_formats_at_sixteen_bit():
    """W8A8 doubles the rate of the ideal device, int4 weights do not."""
    rate = {
        name: next(
            k.rate.flop_per_s
            for k in kernels("block", "dense", pairs=False, weight_dtype=name)
            if k.name == "down"
        )
        for name in ("bf16", "fp8", "int4_g128")
    }
    assert rate["fp8"] == pytest.approx(2 * rate["bf16"])
    assert rate["int4_g128"] == rate["bf16"]
