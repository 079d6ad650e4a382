"""What engines mean by their memory knob, against logs and by law."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import ConfigError
from simspec.memory.capacity import Logged, MemoryBudget, memory_budget
from simspec.memory.pools._base import POOL_RULES, Account, pool_rule
from simspec.models.hf_config import load_model
from tests.memory.factory import GIB, H100_VISIBLE, budget, engine, hardware, target

RULES = st.sampled_from(POOL_RULES.names())
SIZES = st.floats(0, 90e9)


def account(**changes: Any) -> Account:
    fields: dict[str, Any] = {
        "capacity_bytes": 80e9, "fraction": 0.9, "weights_bytes": 20e9, "activation_bytes": 2e9,
        "reserve_bytes": 1e9,
    }  # fmt: skip
    return Account(**{**fields, **changes})


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        ("share_of_total", 0.9 * 80e9 - 20e9 - 2e9 - 1e9),
        ("share_for_static", 0.9 * (80e9 - 1e9) - 20e9),
        ("share_of_free", 0.9 * (80e9 - 20e9 - 2e9 - 1e9)),
        ("up_front", 0.9 * 80e9 - 20e9 - 2e9 - 1e9),
    ],
)
def test_each_rule_by_hand(rule: str, left: float) -> None:
    """80 GB, 20 of weights, 2 of activations and 1 outside, at 0.9."""
    assert pool_rule(rule).left_bytes(account()) == pytest.approx(left, rel=1e-12)


def test_two_engines_on_one_box_differ_by_what_they_leave_out() -> None:
    """vllm-project/vllm#21348: SGLang at 0.93 logged 367,404 tokens of Qwen3-235B on 4 H100s."""

    def pool(rule: str, fraction: float) -> MemoryBudget:
        return memory_budget(
            hardware(H100_VISIBLE),
            engine(
                memory_rule=rule, memory_fraction=fraction, reserve_bytes=0.29e9,
                collectives_bytes={"nvlink": 1.95e9}, block_size_tokens=1,
            ),
            arch=load_model("qwen3-235b-a22b"),
            target=target(load_model("qwen3-235b-a22b"), "fp8", tp=4),
            max_num_batched_tokens=8192,
        )  # fmt: skip

    sglang, vllm = pool("share_for_static", 0.93), pool("share_of_total", 0.9)
    assert sglang.kv_bytes_per_token == vllm.kv_bytes_per_token == 48128
    assert sglang.kv_capacity_tokens == pytest.approx(367404, rel=0.01)
    assert vllm.kv_capacity_tokens < 0.8 * sglang.kv_capacity_tokens
    assert any("outside the budget" in line for line in sglang.lines())


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_linked_ranks_hold_communication_buffers(tp: int) -> None:
    """The reserve of a rank grows once tensors are exchanged, and by the link's family alone."""
    found = budget(tp=tp, collectives_bytes={"nvlink": 2e9, "PCIe": 7e9})
    assert found.reserve_bytes == pytest.approx(0.07 * GIB + (2e9 if tp > 1 else 0.0))


def test_a_log_replaces_what_would_be_worked_out() -> None:
    """0.9 of 79.19 GiB less 14.08, 1.97 and 0.07 GiB is the 55.15 GiB of the log: 451,792 slots."""
    logged = Logged(14.08 * GIB, 1.97 * GIB, 0.07 * GIB)
    arch = load_model("mistral-7b")
    found = memory_budget(
        hardware(), engine(), arch=arch, target=target(arch, "fp16", "fp16"), logged=logged
    )
    assert found.kv_capacity_tokens == pytest.approx(451744, rel=0.005)
    assert found.weights_bytes == 14.08 * GIB


def test_rows_of_logits_can_be_capped() -> None:
    """Engines that sample in slices keep fewer rows alive than sequences."""
    capped, whole = budget(logit_rows=64), budget()
    assert capped.activation_bytes < whole.activation_bytes
    assert budget(logit_rows=10_000).activation_bytes == whole.activation_bytes


@given(RULES, SIZES, SIZES, SIZES, st.floats(0, 20e9))
def test_capacity_never_rises_with_what_is_taken(
    rule: str, weights: float, activations: float, reserve: float, more: float
) -> None:
    """More weights, activations or reserve never leave more; a larger fraction never less."""
    left = pool_rule(rule).left_bytes
    parts = {
        "weights_bytes": weights, "activation_bytes": activations, "reserve_bytes": reserve
    }  # fmt: skip
    base = left(account(**parts))
    for name, value in parts.items():
        assert left(account(**{**parts, name: value + more})) <= base + 1e-3
    if base > 0:
        assert left(account(**parts, fraction=0.95)) >= base


@given(RULES, st.floats(0.5, 1.0), st.sampled_from([1, 2, 4, 8, 16]))
def test_a_pool_and_what_is_beside_it_are_the_memory(rule: str, fraction: float, tp: int) -> None:
    """Pool, weights, reserve and what is outside add up to the card; blocks fit in the pool."""
    found = budget("llama-3.1-8b", tp=tp, memory_rule=rule, memory_fraction=fraction)
    inside = found.weights_bytes + found.reserve_bytes + found.kv_pool_bytes
    if "activations" in found.inputs.rule.STEPS:
        inside += found.activation_bytes
    assert inside + found.outside_bytes == pytest.approx(found.capacity_bytes)
    assert found.num_blocks * 16 * found.kv_bytes_per_token <= found.kv_pool_bytes + 1


def test_slots_divide_a_cache_that_is_allocated_up_front() -> None:
    """llama-server gives each of its slots the same share of the context."""
    found = budget(memory_rule="up_front", max_num_seqs=4)
    assert found.longest_request_tokens == found.kv_capacity_tokens // 4
    assert budget().longest_request_tokens == budget().kv_capacity_tokens


def test_an_unknown_rule_offers_the_nearest() -> None:
    with pytest.raises(ConfigError, match="share_of_totl.*share_of_total"):
        budget(memory_rule="share_of_totl")
