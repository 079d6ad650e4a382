"""The architectures that ship: published totals, and the full configs they were taken from."""

from __future__ import annotations

import pytest

from simspec.models.counts import active_params, model_params
from simspec.models.dtypes import DTYPES
from simspec.models.hf_config import catalog_names, load_model
from tests.helpers.shared import shared


def test_catalog_names_are_sorted_and_load() -> None:
    """Every file of the catalog loads, under its own name and with a source."""
    assert list(catalog_names()) == sorted(catalog_names())
    assert {"llama-3.1-8b", "vicuna-7b", "qwen3-32b", "codellama-34b"} <= set(catalog_names())
    for name in catalog_names():
        arch = load_model(name)
        assert arch.name == name
        assert len(arch.source) > 10
        assert arch.checkpoint_dtype in DTYPES
        assert arch.max_context_len >= 2048


@pytest.mark.parametrize(
    ("name", "published"),
    [
        # Parameters of the safetensors on the models' pages of the Hugging Face hub.
        ("llama-3.1-405b", 405_853_388_800),
        ("llama-3.2-3b", 3_212_749_824),
        ("tinyllama-1.1b", 1_100_048_384),
        ("mistral-7b", 7_241_732_096),
        ("mistral-nemo", 12_247_782_400),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-14b", 14_770_033_664),
        ("qwen3-4b", 4_022_468_096),
        ("qwen3-14b", 14_768_307_200),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("qwen3-235b-a22b", 235_093_634_560),
        ("qwen3-coder-480b-a35b", 480_154_875_392),
        ("gpt-oss-20b", 20_914_757_184),
        ("deepseek-v3", 671_026_419_200),
    ],
)
def test_catalog_entries_have_their_published_totals(name: str, published: int) -> None:
    """The parameters of an entry are those of its checkpoint, exactly."""
    assert model_params(load_model(name)) == published


@pytest.mark.parametrize(
    ("name", "total_billion", "active_billion"),
    [
        ("deepseek-r1", 671, 37),  # arXiv:2412.19437
        ("gpt-oss-120b", 117, 5),  # arXiv:2508.10925: 116.83B, 5.13B without the embedding
        ("minimax-m2.5", 229, 10),  # its page: 230B, 10B active
        ("llama-4-scout", 108, 17),  # Meta: 109B with the vision encoder, 17B active
        ("llama-4-maverick", 401, 17),
    ],
)
def test_catalog_mixtures_have_the_sizes_in_their_names(
    name: str, total_billion: int, active_billion: int
) -> None:
    """Total and active parameters are within a billion of what their makers say."""
    arch = load_model(name)
    assert abs(model_params(arch) / 1e9 - total_billion) < 1
    assert abs(active_params(arch) / 1e9 - active_billion) < 1.2


@pytest.mark.parametrize(
    ("name", "published"),
    # Parameters of the safetensors on the models' pages of the Hugging Face hub.
    [
        ("gpt-j-6b", 6_050_882_784),
        ("falcon-180b", 179_522_565_120),
        ("bloom-176b", 176_247_271_424),
    ],
)
def test_older_families_lack_only_the_biases_of_their_norms(name: str, published: int) -> None:
    """GPT-J, Falcon and BLOOM miss their published totals by less than 0.003 %."""
    arch = load_model(name)
    assert model_params(arch) == pytest.approx(published, rel=3e-5)
    assert model_params(arch) < published
    assert not any(block.gated_ffn for block in arch.blocks)
    assert all(block.intermediate_size == 4 * arch.hidden_size for block in arch.blocks)


def test_kimi_k2_has_the_size_of_its_report() -> None:
    """1.04T parameters, 32.6B of them active (arXiv:2507.20534, table 2), to two digits."""
    for name in ("kimi-k2", "kimi-k2.5"):
        arch = load_model(name)
        assert model_params(arch) / 1e12 == pytest.approx(1.04, rel=0.02)
        assert active_params(arch) / 1e9 == pytest.approx(32.6, rel=0.02)


def test_catalog_entries_agree_with_the_published_configs() -> None:
    """An entry has the very layers of the full config it was taken from."""
    folder = shared("hf_configs")
    pairs = {
        "qwen3-235b-a22b": "qwen3-235b-a22b", "qwen3-30b-a3b": "qwen3-30b-a3b",
        "gpt-oss-120b": "gpt-oss-120b", "gpt-oss-20b": "gpt-oss-20b",
        "deepseek-v3": "deepseek-v3", "deepseek-r1": "deepseek-r1",
        "minimax-m2.5": "minimax-m2.5", "mixtral-8x7b": "mixtral-8x7b-v0.1",
        "mistral-nemo": "mistral-nemo-instruct-2407", "qwen2.5-7b": "qwen2.5-7b-instruct",
        "qwen3-0.6b": "qwen3-0.6b", "llama-4-scout": "llama-4-scout-17b-16e-fp8",
    }  # fmt: skip
    for name, file in pairs.items():
        entry, config = load_model(name), load_model(str(folder / f"{file}.json"))
        assert entry.blocks == config.blocks, name
        assert entry.vocab_size == config.vocab_size, name
        assert entry.tied_embeddings == config.tied_embeddings, name
