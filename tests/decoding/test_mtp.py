"""Multi-token prediction: modules, their reuse, DeepSeek-V3's 11.5 B parameters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simspec.core.errors import ConfigError
from simspec.cost.work import Rows, Stack
from simspec.decoding._base import ACCEPTANCE_MODELS
from simspec.decoding.eagle import Config as EagleConfig
from simspec.decoding.mtp import Config
from simspec.models.counts import block_params
from simspec.models.hf_config import load_model
from tests.decoding.factories import target


def deepseek(tp: int = 1, dtype: str = "bf16") -> Stack:
    arch = load_model("deepseek-v3")
    return Stack("target", arch.blocks, arch.hidden_size, arch.vocab_size, dtype, "bf16", tp)


def test_one_module_and_one_draft_in_order() -> None:
    """Two tokens verified at context 100, then the module reads both of them."""
    passes = Config().build(target()).round_passes([100], [1], [1], None)
    assert [(p.stack, p.first_layer, p.last_layer, p.phase, *p.rows) for p in passes] == [
        ("target", 0, 32, "verify", Rows("decode", 1, 2, 102, 101 + 102, 2)),
        ("mtp", 0, 1, "draft", Rows("decode", 1, 2, 102, 101 + 102, 1)),
    ]


def test_the_last_module_is_used_again_beyond_those_there_are() -> None:
    """Two modules, four drafts: both read the round's three tokens, the last drafts two more."""
    method = Config(num_modules=2, num_speculative_tokens=4).build(target())
    passes = method.round_passes([100], [4], [2], None)
    assert [(p.stack, p.first_layer, p.rows[0].num_tokens) for p in passes] == [
        ("mtp", 1, 1), ("mtp", 1, 1), ("target", 0, 5), ("mtp", 0, 3), ("mtp", 1, 3)
    ]  # fmt: skip
    assert [p.phase for p in passes].count("draft") == 4


def test_one_module_drafting_on_is_an_eagle_chain() -> None:
    """The rows of every pass are the same."""
    ours = Config(num_speculative_tokens=5).build(target())
    eagle = EagleConfig(version=1, num_speculative_tokens=5).build(target())
    batch = ([100, 7, 900], [5, 0, 5], [2, 0, 5])
    assert [p.rows for p in ours.round_passes(*batch, None)] == [
        p.rows for p in eagle.round_passes(*batch, None)
    ]


def test_deepseeks_module_has_its_published_parameters() -> None:
    """11.5 B beside the shared embedding and head (DeepSeek-V3's README_WEIGHTS.md), to 1 %."""
    extra = Config().build(deepseek()).footprint()
    assert extra.extra_weights_bytes / 2 == pytest.approx(11.5e9, rel=0.01)
    # One layer of latents: (512 + 64) values.
    assert extra.extra_kv_bytes_per_token == 2 * 576
    assert extra.reserved_slots == 2


def test_a_module_is_the_targets_last_layer_with_a_projection_and_two_norms() -> None:
    """Experts and latent attention included; dense targets get dense modules."""
    whole = deepseek()
    for stack in (whole, target()):
        layer = Config().build(stack).modules.blocks[0]
        ours, last = block_params(layer), block_params(stack.blocks[-1])
        assert layer.moe == stack.blocks[-1].moe
        d = stack.hidden_size
        assert ours.total - last.total == 2 * d * d + 2 * d


def test_modules_come_in_the_targets_format() -> None:
    """fp8 stays fp8, unless it is given."""
    quantised = deepseek(dtype="fp8")
    assert Config().build(quantised).modules.weight_dtype == "fp8"
    assert Config(draft_dtype="bf16").build(quantised).modules.weight_dtype == "bf16"


def test_a_prompt_passes_every_module() -> None:
    """Each has KV of its own; its last row gets logits."""
    chunk = Rows("prefill", 1, 64, 64, 64 * 32.5, 1)
    method = Config(num_modules=2, num_speculative_tokens=2).build(target())
    whole, *modules = method.round_passes([], [], [], chunk)
    assert whole.stack == "target"
    assert [(p.first_layer, p.phase, p.rows) for p in modules] == [
        (0, "prefill", (chunk,)), (1, "prefill", (chunk,))
    ]  # fmt: skip
    *_, verify, first, second = method.round_passes([10], [2], [0], chunk)
    assert all(work.rows[1] is chunk for work in (verify, first, second))


def test_draft_tp_puts_the_module_on_fewer_ranks() -> None:
    """vLLM's MTP at draft tp 1: the whole module on one rank."""
    eight = replace(deepseek(), tp=8)
    whole = Config(draft_tp=1).build(eight).footprint().extra_weights_bytes
    shared = Config().build(eight).footprint().extra_weights_bytes
    assert 7 < whole / shared < 8


def test_tokens_of_one_draft_are_its_rate() -> None:
    """R22 of the field's reports: acceptance 0.81 is 1.81 tokens per round."""
    acceptance = ACCEPTANCE_MODELS.parse({"name": "constant", "alpha": 0.81}).at(None)
    statistics = Config().build(target()).statistics(acceptance)
    assert statistics.tokens_per_round == pytest.approx(1.81)
    assert statistics.all_accepted == pytest.approx(0.81)


def test_more_modules_than_drafts_are_refused() -> None:
    """They would be loaded for nothing."""
    with pytest.raises(ConfigError, match="at most as many") as error:
        Config(num_modules=2).build(target())
    assert error.value.field == "num_modules"
