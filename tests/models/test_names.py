"""Which architecture a published name stands for."""

from __future__ import annotations

import csv

import pytest

from simspec.models.hf_config import catalog_names, load_model
from simspec.models.names import _SAME_ARCHITECTURE, catalog_name_of
from tests.helpers.shared import shared


@pytest.mark.parametrize(
    ("published", "entry"),
    [
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b"),
        ("Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("nvidia/DeepSeek-R1-NVFP4", "deepseek-r1"),
        ("nvidia/DeepSeek-V3.1-NVFP4", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("moonshotai/Kimi-K2.5", "kimi-k2.5"),
        ("MiniMaxAI/MiniMax-M2.5", "minimax-m2.5"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo"),
        ("LLaMA2-Chat-13B", "llama-2-13b"),
        ("LLaMA-3.3-Instruct-70B", "llama-3.1-70b"),
        ("Vicuna-33B-v1.3", "vicuna-33b"),
        ("llama-33b", "vicuna-33b"),
        ("Vicuna-68M", "llama-68m"),
        ("Llama-4-Scout-17B-16E FP8", "llama-4-scout"),
        ("gemma-3-4b-it", "gemma-3-4b"),
    ],
)
def test_a_published_name_finds_its_architecture(published: str, entry: str) -> None:
    """Maker, tuning and weight format do not change which architecture a name stands for."""
    assert catalog_name_of(published) == entry


@pytest.mark.parametrize(
    "published",
    ["", "GLM-5", "zai-org/GLM-5-FP8", "T5-XXL", "Llama-3.1", "llama-65b", "Kimi-K2.7-Code-NVFP4",
     "Qwen/Qwen3.5-397B-A17B", "DeepSeek-V2", "instruct"],
)  # fmt: skip
def test_an_unknown_name_is_not_guessed(published: str) -> None:
    """A name without an entry of its architecture gives nothing, however alike it looks."""
    assert catalog_name_of(published) is None


def test_every_entry_answers_to_its_own_name() -> None:
    """No entry is shadowed by another of the same words, and every listed name has an entry."""
    for name in catalog_names():
        assert catalog_name_of(name) == name
    for name, entry in _SAME_ARCHITECTURE.items():
        assert catalog_name_of(name) == entry
        assert load_model(entry).num_layers


def test_the_served_models_have_an_entry() -> None:
    """Every model of the serving measurements is known, but for the hybrids left out."""
    with (shared("measured") / "serving_closed_loop.csv").open() as table:
        models = {row["model"] for row in csv.DictReader(table)}
    unknown = {model for model in models if catalog_name_of(model) is None}
    assert unknown == {"Qwen/Qwen3.5-397B-A17B", "zhipuai/GLM-5"}
