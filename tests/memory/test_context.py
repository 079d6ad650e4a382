"""The longest request of a budget, chunked or not, and figures that contradict the model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simspec.core.errors import ConfigError
from simspec.memory.capacity import MemoryBudget, budget_of
from simspec.memory.context import (
    check_kv_bytes_per_token,
    fixed_kv_bytes_per_sequence,
    largest_context,
)
from simspec.models.hf_config import load_model
from tests.memory.factory import GIB, budget, target


def rtx_3090(**engine: int) -> MemoryBudget:
    """Report vllm-project/vllm#10517."""
    return budget("llama-3.1-8b", capacity_bytes=23.58 * GIB, **engine)


def at_step(found: MemoryBudget, tokens: int) -> int:
    asked = found.inputs
    step = max(asked.max_num_batched_tokens, tokens)
    return budget_of(replace(asked, max_num_batched_tokens=step)).kv_capacity_tokens


def test_chunked_prompts_leave_the_whole_pool() -> None:
    found = rtx_3090()
    whole = found.kv_capacity_tokens
    assert largest_context(found, reserved_slots=5, chunked_prefill=True) == whole - 5


@given(st.integers(0, 8), st.sampled_from([512, 2048, 8192]))
@settings(max_examples=10)
def test_a_prompt_in_one_step_is_as_long_as_its_own_activations_leave(
    slots: int, step: int
) -> None:
    """The longest fits, one token more does not, and it is shorter than with chunks."""
    found = rtx_3090(max_num_batched_tokens=step)
    longest = largest_context(found, reserved_slots=slots, chunked_prefill=False)
    assert at_step(found, longest) >= longest + slots
    assert at_step(found, longest + 1) < longest + 1 + slots
    assert longest < largest_context(found, reserved_slots=slots, chunked_prefill=True)


def test_nothing_is_the_longest_where_nothing_fits() -> None:
    found = budget("llama-3.1-70b", capacity_bytes=23.58 * GIB)
    for chunked in (True, False):
        assert largest_context(found, reserved_slots=1, chunked_prefill=chunked) == 0


def test_two_parts_of_a_sequence() -> None:
    """gpt-oss-20b: 12 windows of 128 tokens and a block are fixed, 12 whole layers grow."""
    hybrid = budget("gpt-oss-20b", "mxfp4", hybrid_kv_cache=True)
    layer = 2 * 8 * 64 * 2
    assert fixed_kv_bytes_per_sequence(hybrid) == 12 * layer * (128 + 16)
    assert hybrid.kv_bytes_per_token == 12 * layer
    assert fixed_kv_bytes_per_sequence(budget("gpt-oss-20b", "mxfp4")) == 0.0


def test_a_figure_from_the_hidden_size_is_refused() -> None:
    """h2oai/h2ogpt#997 and others: 1.53 MiB from hidden size and 8-byte values; it is 56 KiB."""
    model = load_model("qwen2.5-7b")
    check_kv_bytes_per_token(57344.0, target(model))
    with pytest.raises(
        ConfigError, match=r"57,344 \(2 x 28 layers x 4 KV heads x 128 values, bf16"
    ):
        check_kv_bytes_per_token(2.0 * 28 * 3584 * 8, target(model))
    with pytest.raises(ConfigError, match="576 values of the latent"):
        check_kv_bytes_per_token(1.0, target(load_model("deepseek-v3"), tp=8))
