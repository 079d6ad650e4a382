"""Windowed self-speculation: a whole target that sees a window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simspec.cost.forward import CostModel
from simspec.cost.work import Rows
from simspec.decoding._drafter import StackDrafter
from simspec.decoding.windowed import Config
from tests.cost.factory import engine, hardware
from tests.decoding.factories import target


def windowed(**fields: Any) -> StackDrafter:
    return Config(num_speculative_tokens=2, **fields).build(target())


def test_one_round_in_order() -> None:
    """All layers and the head draft behind the window, all layers verify over everything."""
    passes = windowed().round_passes([5000], [2], [1], None)
    assert [(p.stack, p.last_layer, p.phase, *p.rows) for p in passes] == [
        ("window", 32, "draft", Rows("decode", 1, 1, 5001, 5001, 1)),
        ("window", 32, "draft", Rows("decode", 1, 1, 5002, 5002, 1)),
        ("target", 32, "verify", Rows("decode", 1, 3, 5003, 3 * 5002.0, 3)),
    ]


def test_a_draft_step_reads_all_weights_and_w_tokens_of_kv() -> None:
    """From 5,000 to 50,000 tokens a draft step reads not a byte more; a plain step does."""
    method = windowed()
    cost = CostModel(method.stacks(), hardware(), engine())
    draft, _, verify = method.round_passes([5000], [2], [0], None)
    far, _, far_verify = method.round_passes([50_000], [2], [0], None)
    assert cost.step([far], 1).bytes == cost.step([draft], 1).bytes
    per_token = 2 * 2 * 4096 * 32
    grown = cost.step([far_verify], 1).bytes - cost.step([verify], 1).bytes
    assert grown == pytest.approx(45_000 * per_token)
    saved = cost.step([verify], 1).bytes - cost.step([draft], 1).bytes
    # The two further rows of verification cost a little on top of the KV outside the window.
    assert saved == pytest.approx((5003 - 512) * per_token, rel=0.02)


def test_short_texts_lie_inside_the_window() -> None:
    """Below W tokens a draft step reads what a plain step reads."""
    method = windowed()
    cost = CostModel(method.stacks(), hardware(), engine())
    draft, *_ = method.round_passes([300], [2], [0], None)
    (plain,) = method.round_passes([300], [0], [0], None)
    assert cost.step([draft], 1).bytes == cost.step([plain], 1).bytes


def test_its_kv_is_bounded_for_each_sequence() -> None:
    """4 + 508 tokens and the three of a round, whatever the context; no weights."""
    footprint = windowed().footprint()
    assert footprint.extra_weights_bytes == footprint.extra_kv_bytes_per_token == 0
    assert footprint.extra_kv_bytes_per_sequence == 515 * 2 * 2 * 4096 * 32
    assert footprint.reserved_slots == 3


def test_layers_that_slide_keep_the_smaller_window() -> None:
    """A layer of window 128 stays at 128; others get W."""
    stack = target()
    sliding = replace(stack.blocks[0], sliding_window=128)
    mixed = replace(stack, blocks=(sliding, *stack.blocks[1:]))
    blocks = Config(window_tokens=200, sink_tokens=0).build(mixed).drafter.blocks
    assert [block.sliding_window for block in blocks[:2]] == [128, 200]


def test_prompts_pass_the_target_alone() -> None:
    """The window takes its part of the prompt from the target's cache."""
    chunk = Rows("prefill", 1, 512, 512, 512 * 256.5, 1)
    assert [p.stack for p in windowed().round_passes([], [], [], chunk)] == ["target"]
