"""Time and memory agree about the size of every model."""

from __future__ import annotations

import pytest

from simspec.cost.segment import RowTable, Segment, head_table
from simspec.cost.work import Stack
from simspec.models.counts import embedding_params, weights_bytes
from simspec.models.dtypes import dtype
from simspec.models.hf_config import catalog_names, load_model
from tests.cost.factory import hardware, link
from tests.helpers.shared import shared

DEVICE = hardware(link=link(max_devices=64))
PUBLISHED = [
    "deepseek-v3",
    "gpt-oss-120b",
    "llama-4-scout-17b-16e-fp8",
    "minimax-m2.5",
    "mixtral-8x7b-v0.1",
    "qwen2.5-7b-instruct",
    "qwen3-235b-a22b",
]


def weight_bytes_read(table: RowTable) -> float:
    """What does not grow with the rows; a million tokens hit every expert."""
    once, twice = table.totals(1e6).num_bytes, table.totals(2e6).num_bytes
    return float(once - (twice - once))


def check(name: str, weight_dtype: str, tp: int) -> None:
    arch = load_model(name)
    stack = Stack(
        "target", arch.blocks, arch.hidden_size, arch.vocab_size, weight_dtype, "bf16", tp
    )
    layers = Segment(stack, DEVICE, 0, arch.num_layers, embeds=False)
    read = weight_bytes_read(layers.tokens) + weight_bytes_read(head_table(stack, DEVICE))
    stored = weights_bytes(arch, weight_dtype, tp)
    if not arch.tied_embeddings:
        # Rows of it are gathered; a tied one is read in full as the head.
        stored -= embedding_params(arch, tp) * dtype(weight_dtype).bits("embedding") / 8
    # Attention sinks have no kernel of their own: 1e-7 of gpt-oss. Rounding of 1e6 rows: 1e-8.
    assert read == pytest.approx(stored, rel=1e-6)


@pytest.mark.parametrize("weight_dtype", ["bf16", "fp8", "int4_g128", "q4_0"])
@pytest.mark.parametrize("name", catalog_names())
def test_a_full_pass_reads_what_memory_stores(name, weight_dtype):
    """Layers and head of every packaged model, in formats of each kind."""
    check(name, weight_dtype, 1)


@pytest.mark.parametrize(("weight_dtype", "tp"), [("bf16", 1), ("fp8", 2), ("mxfp4", 4)])
@pytest.mark.parametrize("name", PUBLISHED)
def test_mixtures_and_latent_attention_agree_per_rank(name, weight_dtype, tp):
    """Experts, shared experts, routers, latents, biases: the same bytes on each rank."""
    check(str(shared(f"hf_configs/{name}.json")), weight_dtype, tp)
