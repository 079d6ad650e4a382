"""Configs of every supported family, and the sentences for those that cannot be trusted."""

from __future__ import annotations

import contextlib
import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import ProfileError
from simspec.models.config_json import parse_config
from simspec.models.counts import (
    active_params,
    kv_bytes_per_token,
    model_params,
    weights_bytes,
)
from simspec.models.hf_config import architecture, load_model
from simspec.models.hf_families import COMMON_KEYS, FAMILIES, IGNORED_KEYS
from tests.helpers.shared import shared
from tests.models.configs import LLAMA, PUBLISHED, Config, config, write


def read(fields: Config) -> Any:
    return architecture(parse_config(json.dumps(fields, indent=2), "config.json"), "test", "test")


def refusal(fields: Config) -> str:
    with pytest.raises(ProfileError) as refused:
        read(fields)
    text = str(refused.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameter_totals(name: str, tmp_path: Path) -> None:
    """The parameters of each family's models equal the total its makers publish, exactly."""
    fields, published = PUBLISHED[name]
    assert model_params(load_model(write(tmp_path, fields))) == published


def test_shared_configs_have_their_expected_figures() -> None:
    """Parameters and KV bytes of the public configs equal the derived table, where it has them."""
    folder = shared("hf_configs")
    with (folder / "EXPECTED.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) >= 13
    for row in rows:
        arch = load_model(str(folder / row["config"]))
        if row["params_total"]:
            assert model_params(arch) == int(row["params_total"]), row["config"]
        if row["kv_bytes_per_token_tp1_2byte"]:
            expected = int(row["kv_bytes_per_token_tp1_2byte"])
            assert kv_bytes_per_token(arch, "bf16") == expected, row["config"]


@pytest.mark.parametrize(
    ("name", "total_billion", "active_billion", "digits"),
    [
        ("deepseek-v3", 671, 37, 0),  # arXiv:2412.19437, abstract
        ("gpt-oss-120b", 116.83, None, 2),  # model card; its active figure leaves embeddings out
        ("qwen3-235b-a22b", 235, 22, 0),  # arXiv:2505.09388
        ("qwen3-30b-a3b", 30.5, 3.3, 1),
        ("mixtral-8x7b-v0.1", 46.7, 12.9, 1),  # arXiv:2401.04088
        ("minimax-m2.5", None, None, 0),
    ],
)
def test_shared_mixtures_have_the_totals_their_makers_state(
    name: str, total_billion: float | None, active_billion: float | None, digits: int
) -> None:
    """Total and active parameters round to the figures of the reports."""
    arch = load_model(str(shared(f"hf_configs/{name}.json")))
    if total_billion is not None:
        assert abs(model_params(arch) / 1e9 - total_billion) <= 0.51 * 10.0**-digits
    if active_billion is not None:
        assert abs(active_params(arch) / 1e9 - active_billion) <= 1.0 * 10.0**-digits
    assert arch.num_layers == len(arch.blocks)


def test_gpt_oss_checkpoints_have_their_published_size() -> None:
    """Experts in MXFP4 and the rest in bf16 give the 12.8 and 60.8 GiB of the model card."""
    for name, gib in (("20b", 12.8), ("120b", 60.8)):
        arch = load_model(str(shared(f"hf_configs/gpt-oss-{name}.json")))
        assert arch.checkpoint_dtype == "mxfp4"
        assert weights_bytes(arch, "mxfp4") / 2**30 == pytest.approx(gib, abs=0.1)


def test_a_family_may_use_words_of_its_own() -> None:
    """n_embd is the hidden size of a GPT-J; given twice, both must agree."""
    fields = {
        "model_type": "gptj", "n_embd": 256, "n_head": 4, "n_layer": 2, "n_positions": 64,
        "vocab_size": 100,
    }  # fmt: skip
    arch = read(fields)
    assert (arch.hidden_size, arch.num_layers, arch.blocks[0].head_dim) == (256, 2, 64)
    assert refusal({**fields, "hidden_size": 128}).startswith("config.json:")
    assert "contradicts hidden_size = 128" in refusal({**fields, "hidden_size": 128})
    with pytest.raises(ProfileError, match="new_decoder_architecture"):
        read({"model_type": "falcon", "hidden_size": 64, "num_attention_heads": 2,
              "num_hidden_layers": 1, "vocab_size": 10, "max_position_embeddings": 8})  # fmt: skip


def test_a_model_is_read_from_a_file_or_a_directory(tmp_path: Path) -> None:
    """A path to config.json and the directory that holds it mean the same model."""
    folder = tmp_path / "my-model"
    folder.mkdir()
    path = write(folder, LLAMA, "config.json")
    assert load_model(path) == load_model(str(folder))
    assert load_model(path).name == "my-model"
    assert load_model(path).source == "file config.json"


def test_a_byte_order_mark_is_not_an_error(tmp_path: Path) -> None:
    """Some editors begin a UTF-8 file with a byte-order mark."""
    path = tmp_path / "bom.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())
    assert load_model(str(path)).hidden_size == 4096


# What the keys mean.


def test_missing_kv_heads_mean_one_per_head() -> None:
    """Without num_key_value_heads a Llama is multi-head attention."""
    assert read(LLAMA).blocks[0].num_kv_heads == 32
    assert read({**LLAMA, "num_key_value_heads": 1}).blocks[0].num_kv_heads == 1


def test_missing_kv_heads_are_refused_where_the_class_would_assume_a_number() -> None:
    """transformers gives a Mistral without the key 8 KV heads; a silent 32 would be wrong."""
    text = refusal(config("mistral", 4096, 14336, 32, 32, 32000))
    assert "num_key_value_heads" in text
    assert "assume 8" in text
    given = config("mistral", 4096, 14336, 32, 32, 32000, num_key_value_heads=None)
    assert read(given).blocks[0].num_kv_heads == 32


def test_head_dim_is_read_not_derived() -> None:
    """hidden_size / heads is only the default: Mistral-Nemo has 128, not 160."""
    assert read({**LLAMA, "head_dim": 160}).blocks[0].head_dim == 160
    assert read(LLAMA).blocks[0].head_dim == 128


@pytest.mark.parametrize(
    ("model_type", "tied"),
    [("qwen2", False), ("mistral", False), ("gemma", True), ("gemma2", True)],
)
def test_embedding_tie_defaults_to_the_family(model_type: str, tied: bool) -> None:
    """Where the key is absent the family's class decides; where it is given, the key."""
    fields = config(model_type, 2048, 8192, 4, 16, 32000, num_key_value_heads=8)
    assert read(fields).tied_embeddings is tied
    assert read({**fields, "tie_word_embeddings": not tied}).tied_embeddings is not tied


def test_qwen2_has_biases_on_q_k_v_only() -> None:
    """Qwen2 biases q, k and v although no key says so; Qwen3 has q/k norms instead."""
    qwen2 = read(PUBLISHED["qwen2.5-0.5b"][0]).blocks[0]
    assert (qwen2.qkv_bias, qwen2.o_bias, qwen2.qk_norm) == (True, False, False)
    qwen3 = load_model("qwen3-8b").blocks[0]
    assert (qwen3.qkv_bias, qwen3.o_bias, qwen3.qk_norm) == (False, False, True)


def test_a_window_that_is_switched_off_is_ignored() -> None:
    """Qwen2.5 states a window and does not use it."""
    fields = {**PUBLISHED["qwen2.5-0.5b"][0], "sliding_window": 4096, "max_window_layers": 20}
    assert {b.sliding_window for b in read(fields).blocks} == {None}
    used = read({**fields, "use_sliding_window": True}).blocks
    assert [b.sliding_window for b in used] == [None] * 20 + [4096] * 4


def test_layer_types_say_which_layers_slide() -> None:
    """gpt-oss alternates; a list of layer_types overrides the pattern."""
    fields = PUBLISHED["gpt-oss-20b"][0]
    blocks = read(fields).blocks
    assert [b.sliding_window for b in blocks[:4]] == [128, None, 128, None]
    types = ["full_attention"] * 23 + ["sliding_attention"]
    assert [b.sliding_window for b in read({**fields, "layer_types": types}).blocks].count(128) == 1


def test_mistral_windows() -> None:
    """An absent window is the class's 4096, an explicit null is none."""
    fields = config("mistral", 4096, 14336, 2, 32, 32000, num_key_value_heads=8)
    assert read(fields).blocks[0].sliding_window == 4096
    assert read({**fields, "sliding_window": None}).blocks[0].sliding_window is None


def test_gemma3_attends_fully_in_every_sixth_layer() -> None:
    """Five sliding layers, then a full one."""
    blocks = read(PUBLISHED["gemma-3-1b"][0]).blocks
    assert [i for i, b in enumerate(blocks) if b.sliding_window is None] == [5, 11, 17, 23]


def test_sparse_step_and_dense_layers_of_qwen_mixtures() -> None:
    """decoder_sparse_step makes every n-th layer sparse; mlp_only_layers are dense."""
    fields = {**PUBLISHED["qwen3-30b-a3b"][0], "decoder_sparse_step": 2, "mlp_only_layers": [3]}
    sparse = [i for i, b in enumerate(read(fields).blocks) if b.moe is not None]
    assert sparse == [1, *range(5, 48, 2)]


def test_first_layers_of_deepseek_are_dense() -> None:
    """first_k_dense_replace layers have the dense width, the others shared and routed experts."""
    blocks = read(PUBLISHED["deepseek-v2-lite"][0]).blocks
    assert blocks[0].moe is None
    assert blocks[0].intermediate_size == 10944
    assert blocks[1].moe is not None
    assert (blocks[1].moe.num_shared_experts, blocks[1].moe.num_experts) == (2, 64)
    assert blocks[0].mla is not None
    assert blocks[0].mla.q_lora_rank is None


def llama4(**more: Any) -> Config:
    inner = config(
        "llama4_text", 5120, 8192, 4, 40, 202048,
        num_key_value_heads=8, head_dim=128, intermediate_size_mlp=16384, num_local_experts=16,
        num_experts_per_tok=1, interleave_moe_layer_step=2, attention_chunk_size=8192,
        **more,
    )  # fmt: skip
    return {"model_type": "llama4", "text_config": inner, "vision_config": {"hidden_size": 1408}}


def test_the_language_model_of_a_multimodal_config_is_read() -> None:
    """text_config is the model; experts interleave; NoPE layers attend to everything."""
    arch = read(llama4())
    assert arch.hidden_size == 5120
    assert [b.intermediate_size for b in arch.blocks] == [16384, 0, 16384, 0]
    assert [b.sliding_window for b in arch.blocks] == [8192, 8192, 8192, None]
    assert [b.sliding_window for b in read(llama4(no_rope_layers=[1, 0, 1, 0])).blocks] == [
        8192, None, 8192, None,
    ]  # fmt: skip
    shared_expert = arch.blocks[1].moe
    assert (shared_expert.num_shared_experts, shared_expert.shared_intermediate_size) == (1, 8192)


def test_the_tie_outside_text_config_counts() -> None:
    """Multimodal configs may say tie_word_embeddings only outside, but not two things at once."""
    assert read({**llama4(), "tie_word_embeddings": True}).tied_embeddings
    text = refusal({**llama4(tie_word_embeddings=False), "tie_word_embeddings": True})
    assert "contradicts" in text


def test_a_draft_head_is_recognised() -> None:
    """An EAGLE-3 head: 2 d wide q, k, v, its own vocabulary, a 3 d to d fusion."""
    fields = {
        **LLAMA,
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "num_key_value_heads": 8,
        "draft_vocab_size": 8000,
    }
    arch = read(fields)
    assert arch.draft_head is not None
    d, kv, f = 4096, 1024, 11008
    layer = 2 * d * (d + 2 * kv) + d * d + 3 * d * f + 3 * d
    assert model_params(arch) == layer + 32000 * d + 8000 * d + d + 3 * d * d
    assert kv_bytes_per_token(arch, "bf16") == 2 * kv * 2


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "fp8", "fmt": "e4m3"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4_g128"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "int4_g32"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, None),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "type": "float"},
                        "input_activations": {"num_bits": 8},
                    }
                },
            },
            "fp8",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}
                },
                "ignore": ["re:.*self_attn.*", "lm_head"],
            },
            "int4_g32_experts",
        ),
        ({"quant_method": "somebody's"}, None),
    ],
)
def test_the_published_format_is_noted(quantization: Config, expected: str | None) -> None:
    """quantization_config, else torch_dtype, names the checkpoint's format if simspec has it."""
    assert read({**LLAMA, "quantization_config": quantization}).checkpoint_dtype == expected
    assert read(LLAMA).checkpoint_dtype == "fp16"


# What is refused.


@pytest.mark.parametrize(
    ("change", "key", "says"),
    [
        ({"hidden_size": None}, "hidden_size", "is missing"),
        ({"num_hidden_layers": None}, "num_hidden_layers", "is missing"),
        ({"vocab_size": None}, "vocab_size", "is missing"),
        ({"intermediate_size": None}, "intermediate_size", "is missing"),
        ({"max_position_embeddings": None}, "max_position_embeddings", "is missing"),
        ({"hidden_size": 4096.5}, "hidden_size", "4096.5 is not a whole number"),
        ({"hidden_size": "4096"}, "hidden_size", '"4096" is not a whole number'),
        ({"hidden_size": True}, "hidden_size", "true is not a whole number"),
        ({"hidden_size": -1}, "hidden_size", "-1 is out of range"),
        ({"num_hidden_layers": 0}, "num_hidden_layers", "0 is out of range"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers", "at most 2000"),
        ({"vocab_size": 10**12}, "vocab_size", "out of range"),
        ({"num_attention_heads": 31}, "num_attention_heads", "does not divide hidden_size"),
        ({"num_key_value_heads": 5}, "num_key_value_heads", "does not divide num_attention_heads"),
        ({"num_key_value_heads": 64}, "num_key_value_heads", "does not divide"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings", "neither true nor false"),
        ({"model_type": None}, "model_type", "is missing"),
        ({"model_type": "lama"}, "model_type", "did you mean 'llama'"),
        ({"model_type": "mamba2"}, "model_type", "'mamba2' is not supported"),
        ({"model_type": ["llama"]}, "model_type", "is not a text"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "architectures", "not generate"),
        ({"architectures": "LlamaForCausalLM"}, "architectures", "is not a list"),
        ({"num_local_experts": 8}, "num_local_experts", "does not know whether"),
        ({"sliding_window": 4096}, "sliding_window", "does not know whether"),
        ({"num_key_value_head": 8}, "num_key_value_head", "did you mean 'num_key_value_heads'"),
        ({"layer_types": ["full_attention"]}, "layer_types", "1 entries for num_hidden_layers"),
        ({"layer_types": ["linear_attention"] * 32}, "layer_types", "allowed: full_attention"),
        ({"draft_vocab_size": 64000}, "draft_vocab_size", "more than vocab_size"),
    ],
)
def test_a_config_that_cannot_be_trusted_is_refused(change: Config, key: str, says: str) -> None:
    """Missing, impossible, contradicting and unknown fields are one sentence with their line."""
    fields = {**LLAMA, **change}
    text = refusal(fields)
    lines = json.dumps(fields, indent=2).splitlines()
    line = next(i for i, shown in enumerate(lines, 1) if shown.startswith(f'  "{key}"'))
    assert text.startswith(f"config.json:{line}: {key}: "), text
    assert says in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_experts_per_tok": 200}, "200 experts per token is more than the 128"),
        ({"num_local_experts": 64}, "num_local_experts: 64 contradicts num_experts = 128"),
        ({"num_experts": None}, "num_experts: is missing"),
        ({"moe_intermediate_size": None}, "moe_intermediate_size: is missing"),
        ({"mlp_only_layers": [-1]}, "mlp_only_layers: -1 is not a layer number"),
        ({"use_sliding_window": False, "layer_types": ["sliding_attention"] * 48}, "switched off"),
    ],
)
def test_mixtures_that_contradict_themselves_are_refused(change: Config, says: str) -> None:
    """Two spellings that disagree, or more experts per token than experts, are refused."""
    assert says in refusal({**PUBLISHED["qwen3-30b-a3b"][0], **change})


def test_latent_ranks_are_never_guessed() -> None:
    """DeepSeek's q_lora_rank must be given, if only as null; biases are not modelled."""
    fields = dict(PUBLISHED["deepseek-v2-lite"][0])
    assert "attention_bias" in refusal({**fields, "attention_bias": True})
    del fields["q_lora_rank"]
    assert "q_lora_rank: is missing" in refusal(fields)


def test_an_empty_foreign_key_is_harmless() -> None:
    """A key of another family that is null, false or empty changes nothing."""
    assert read({**LLAMA, "num_local_experts": None, "use_sliding_window": False}) == read(LLAMA)
    assert read({**LLAMA, "_name_or_path": "somewhere", "rope_theta": 1e6}) == read(LLAMA)


def test_no_key_is_both_read_and_ignored() -> None:
    """The list of ignored keys holds nothing that any family reads."""
    for name, family in FAMILIES.items():
        assert not (COMMON_KEYS | family.keys) & IGNORED_KEYS, name


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"model_type": "llama",\n "hidden_size" 5}', "config.json:2: not valid JSON"),
        ('{"a": 1,\n "b": 2,\n "a": 3}', "config.json:3: a: is given twice"),
        ("[1, 2]", "config.json:1: a model config is a JSON object, not [1, 2]"),
        ('{"hidden_size": NaN}', "NaN is not a number"),
        ("[" * 100_000, "too deeply nested"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "not a model config"),
    ],
)
def test_broken_json_is_one_sentence(text: str, says: str) -> None:
    """Broken, repeated, not an object, NaN, too deep, too long: the place and the reason."""
    with pytest.raises(ProfileError) as refused:
        parse_config(text, "config.json")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", ":1: the file is empty"),
        (b"{\n\xff\xfe}", ":2: not UTF-8 text"),
        (b" " * (5 * 2**20), "too large for a config.json"),
    ],
)
def test_files_that_are_no_text_are_refused(tmp_path: Path, content: bytes, says: str) -> None:
    """Empty, binary and huge files are told apart."""
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ProfileError) as refused:
        load_model(str(path))
    assert str(path) in str(refused.value)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("vicuna-7c", "did you mean 'vicuna-7b'"),
        ("meta-llama/Llama-2-7b-hf", "did you mean 'llama-2-7b'"),
        ("unheard-of", "choices: bloom-176b"),
        ("x" * 5000, "unknown model"),
        ("nul\0byte", "unknown model"),
    ],
)
def test_unknown_models_offer_the_nearest(name: str, says: str) -> None:
    """A name that is neither in the catalog nor a path offers the nearest catalog name."""
    with pytest.raises(ProfileError) as refused:
        load_model(name)
    assert says in str(refused.value)


def test_missing_files_offer_the_nearest(tmp_path: Path) -> None:
    """A mistyped path names the file beside it; a directory without a config says so."""
    write(tmp_path, LLAMA, "llama.json")
    with pytest.raises(ProfileError, match=r"no such file or directory; did you mean .*llama.json"):
        load_model(str(tmp_path / "lama.json"))
    with pytest.raises(ProfileError, match=r"is a directory without a config.json"):
        load_model(str(tmp_path))


@given(
    st.dictionaries(
        st.sampled_from(sorted(COMMON_KEYS | FAMILIES["deepseek_v3"].keys | {"text_config"})),
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers()),
    ),
    st.sampled_from(sorted(FAMILIES)),
)
def test_nonsense_never_escapes_as_another_error(fields: Config, model_type: str) -> None:
    """Whatever a config holds, it is read or refused with our own error."""
    sizes = PUBLISHED["deepseek-v2-lite"][0]
    with contextlib.suppress(ProfileError):
        assert model_params(read({**sizes, "model_type": model_type, **fields})) > 0
