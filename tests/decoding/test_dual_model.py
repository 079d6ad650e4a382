"""A draft model beside its target: who reads what, what it holds, which pairs are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from simspec.core.errors import ConfigError
from simspec.cost.work import Pass, Rows, Stack
from simspec.decoding._drafter import StackDrafter
from simspec.decoding.dual_model import Config
from simspec.models.hf_config import load_model
from tests.decoding.factories import target


def stack_of(name: str, tp: int = 1, **changes: Any) -> Stack:
    """Return a catalog model as a target."""
    model = load_model(name)
    plain = Stack("target", model.blocks, model.hidden_size, model.vocab_size, "bf16", "bf16", tp)
    return replace(plain, **changes)


def pair(tp: int = 1, **fields: Any) -> StackDrafter:
    """Return Llama-3.1-70B drafted for by Llama-3.2-1B, K = 3."""
    values = {"draft_model": "llama-3.2-1b", "num_speculative_tokens": 3, **fields}
    return Config(**values).build(stack_of("llama-3.1-70b", tp))


def summary(passes: list[Pass]) -> list[tuple[object, ...]]:
    return [(p.stack, p.last_layer, p.phase, p.embeds, *p.rows) for p in passes]


def test_a_rejected_round_in_order() -> None:
    """m = 2, a = 1 at context 100: two draft steps with head, then all layers on 3 tokens."""
    assert summary(pair().round_passes([100], [2], [1], None)) == [
        ("draft", 16, "draft", True, Rows("decode", 1, 1, 101, 101, 1)),
        ("draft", 16, "draft", True, Rows("decode", 1, 1, 102, 102, 1)),
        ("target", 80, "verify", True, Rows("decode", 1, 3, 103, 306.0, 3)),
    ]


def test_a_fully_accepted_round_ends_with_a_catch_up_without_head() -> None:
    """a = m = 2: the draft reads its own last token at context 102."""
    passes = pair().round_passes([100], [2], [2], None)
    assert summary(passes[3:]) == [
        ("draft", 16, "catch_up", True, Rows("decode", 1, 1, 103, 103, 0))
    ]


def test_only_fully_accepted_sequences_catch_up() -> None:
    """Of three sequences two accepted all: their last drafts at c + m, in one pass."""
    passes = pair().round_passes([100, 200, 300], [2, 1, 2], [2, 1, 0], None)
    assert [p.phase for p in passes] == ["draft", "draft", "verify", "catch_up"]
    assert passes[-1].rows == (Rows("decode", 2, 2, 103 + 202, 103 + 202, 0),)


def test_the_first_step_can_read_the_missing_token() -> None:
    """``first_step``: no pass of its own, two tokens of one sequence in the first draft step."""
    passes = pair(catch_up="first_step").round_passes([100], [2], [2], None)
    assert [p.phase for p in passes] == ["draft", "draft", "verify"]
    # One head row: only the newest token's logits are needed.
    assert passes[0].rows == (Rows("decode", 1, 2, 101, 101 + 103, 1),)
    assert passes[1].rows == (Rows("decode", 1, 1, 102, 102, 1),)


def test_a_prompt_passes_both_models() -> None:
    """With verification through the target, then through the draft without a head."""
    chunk = Rows("prefill", 1, 512, 512, 512 * 256.5, 1)
    *_, verify, draft = pair().round_passes([100], [2], [0], chunk)
    assert verify.rows[1] == chunk
    assert (draft.stack, draft.phase, draft.rows) == (
        "draft",
        "prefill",
        (replace(chunk, logit_rows=0),),
    )
    alone = pair().round_passes([], [], [], chunk)
    assert [(p.stack, p.phase) for p in alone] == [("target", "prefill"), ("draft", "prefill")]


def test_the_footprint_is_a_whole_model_and_its_kv() -> None:
    """Llama-3.2-1B: 1,235,814,400 parameters, the head tied; KV 2 x 16 x 8 x 64 values a token."""
    footprint = pair().footprint()
    assert footprint.extra_weights_bytes == 2 * 1_235_814_400
    assert footprint.extra_kv_bytes_per_token == 2 * 2 * 16 * 8 * 64
    assert footprint.reserved_slots == 4


def test_data_types_of_the_draft_are_its_own() -> None:
    """fp8 KV halves its bytes; int4 weights leave embedding and norms in 16 bit."""
    small = pair(draft_dtype="int4_g128", draft_kv_dtype="fp8")
    assert small.footprint().extra_kv_bytes_per_token == 2 * 16 * 8 * 64
    layers = 1_235_814_400 - 128_256 * 2048 - 33 * 2048
    expected = layers * 4.25 / 8 + 2 * (128_256 * 2048 + 33 * 2048)
    assert small.footprint().extra_weights_bytes == pytest.approx(expected)
    assert small.drafter.activation_dtype == "bf16"


def test_a_draft_on_one_rank_is_held_there_whole() -> None:
    """draft_tp 1 of 8: the rank that holds the draft holds all of it; at 8 each holds a share.

    8 KV heads: at TP 8 one on each rank.
    """
    one, shared = pair(8, draft_tp=1).footprint(), pair(8).footprint()
    assert one.extra_weights_bytes == 2 * 1_235_814_400
    assert shared.extra_weights_bytes < one.extra_weights_bytes / 7
    assert shared.extra_kv_bytes_per_token == one.extra_kv_bytes_per_token / 8
    assert pair(8).drafter.tp == 8


@pytest.mark.parametrize(
    ("fields", "tp", "field", "says"),
    [
        ({"draft_model": "qwen3-8b"}, 1, "draft_model", "151,936 .* one of 128,256"),
        ({"draft_model": "llama-3.2-2b"}, 1, "draft_model", "llama-3.2-1b"),
        ({"draft_tp": 2}, 1, "draft_tp", "2 is more than the target's tp 1"),
        ({"draft_tp": 3}, 8, "draft_tp", "3 does not divide the 32 attention heads"),
        ({"draft_dtype": "int3"}, 1, "draft_dtype", "unknown dtype 'int3'"),
        ({"draft_kv_dtype": "int4_g128"}, 1, "draft_kv_dtype", "no engine keeps its KV cache"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(fields: dict[str, Any], tp: int, field: str, says: str) -> None:
    """One sentence that names the field, the value and what would work."""
    with pytest.raises(ConfigError, match=says) as refused:
        pair(tp, **fields)
    assert refused.value.field == field
    assert str(refused.value).startswith(f"{field}: ")
    assert "\n" not in str(refused.value)


def test_paddings_of_one_vocabulary_go_together() -> None:
    """CodeLlama-7B has 16 infilling tokens more than the 34B (llama.cpp allows 128)."""
    method = Config(draft_model="codellama-7b").build(stack_of("codellama-34b"))
    assert method.stacks()["draft"].vocab_size == method.stacks()["target"].vocab_size + 16


def test_a_draft_head_is_no_draft_model(tmp_path: Path) -> None:
    """An EAGLE-3 head cannot generate on its own."""
    head = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 4096,
        "num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "vocab_size": 128256, "draft_vocab_size": 32000,
        "max_position_embeddings": 2048, "tie_word_embeddings": False,
    }  # fmt: skip
    path = tmp_path / "head.json"
    path.write_text(json.dumps(head))
    with pytest.raises(ConfigError, match="is a draft head"):
        Config(draft_model=str(path)).build(stack_of("llama-3.1-8b"))


def test_the_draft_model_is_required() -> None:
    """simspec assumes no draft."""
    with pytest.raises(ValidationError, match="draft_model"):
        Config.model_validate({})


def test_files_of_the_scenario_are_resolved() -> None:
    """The draft's file name goes through the scenario's lookup, everything else stays."""
    config = Config(draft_model="drafts/small.json", num_speculative_tokens=2)
    found = config.resolved(lambda name: f"/elsewhere/{name}")
    assert found == Config(draft_model="/elsewhere/drafts/small.json", num_speculative_tokens=2)


def test_a_smaller_vocabulary_than_the_targets_pays_its_own_head() -> None:
    """Each draft step makes logits over the draft's own vocabulary."""
    assert target().vocab_size == 32000
    method = Config(draft_model="codellama-7b").build(target())
    assert method.stacks()["draft"].vocab_size == 32016
