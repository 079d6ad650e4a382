"""Published model names to names of the catalog.

Tables of measurements write ``meta-llama/Llama-3.1-70B``, ``Qwen/Qwen3-235B-A22B-FP8`` or
``LLaMA2-Chat-7B``. What matters here is the architecture, so the maker, the tuning and the
format of the weights are left out of the comparison; names that share an architecture with a
catalog entry without sharing its spelling are listed. A name that is none of these is unknown:
no guess is made from its size.
"""

from __future__ import annotations

import re

from simspec.models.hf_config import catalog_names

_EDITIONS = (
    "base chat hf instruct it meta pt thinking v0.1 v0.2 v1.1 v1.3 v1.5 0324 0528 0905 2407 2507"
)
"""Tuning and releases of one architecture."""
_FORMATS = "awq bf16 fp16 fp4 fp8 gguf gptq int4 int8 mxfp4 nvfp4"
"""Of the weights; a table gives them in columns of their own."""
_WITHOUT_MEANING = frozenset(f"{_EDITIONS} {_FORMATS}".split())

_SAME_ARCHITECTURE = {
    "deepseek-r1-distill-llama-8b": "llama-3.1-8b",
    "deepseek-r1-distill-llama-70b": "llama-3.1-70b",
    "deepseek-r1-distill-qwen-7b": "qwen2.5-7b",
    "deepseek-r1-distill-qwen-14b": "qwen2.5-14b",
    "deepseek-v3.1": "deepseek-v3",
    "layerskip-llama2-7b": "llama-2-7b",
    "layerskip-llama2-13b": "llama-2-13b",
    "layerskip-llama2-70b": "llama-2-70b",
    "layerskip-llama3-8b": "llama-3.1-8b",
    "layerskip-llama3.2-1b": "llama-3.2-1b",
    "llama-3-8b": "llama-3.1-8b",
    "llama-3-70b": "llama-3.1-70b",
    "llama-3.3-70b": "llama-3.1-70b",
    "llama-4-maverick-17b-128e": "llama-4-maverick",
    "llama-4-scout-17b-16e": "llama-4-scout",
    # LLaMA 1 and the Vicuna models made from it or from Llama 2, arXiv:2302.13971, table 2.
    "llama-7b": "llama-2-7b",
    "llama-13b": "llama-2-13b",
    "llama-30b": "vicuna-33b",
    "llama-33b": "vicuna-33b",
    "mistral-nemo-12b": "mistral-nemo",
    "qwen2.5-coder-7b": "qwen2.5-7b",
    "qwen3-coder-30b-a3b": "qwen3-30b-a3b",
    "vicuna-68m": "llama-68m",
    "zephyr-7b": "mistral-7b",
}


def catalog_name_of(published_name: str) -> str | None:
    """Return the catalog entry with the architecture of a model, None if there is none.

    Contexts may be longer or shorter than the entry's; every size that costs time or memory is
    the same.

    Parameters
    ----------
    published_name : str
        As a hub, a paper or a table of measurements writes it.

    >>> catalog_name_of("nvidia/DeepSeek-R1-NVFP4"), catalog_name_of("LLaMA2-Chat-7B")
    ('deepseek-r1', 'llama-2-7b')
    """
    return _by_key().get(_key(published_name))


def _by_key() -> dict[str, str]:
    listed = {_key(name): entry for name, entry in _SAME_ARCHITECTURE.items()}
    return listed | {_key(name): name for name in catalog_names()}


def _key(name: str) -> str:
    """Return a name without maker, tuning, format and punctuation between its words."""
    words = re.split(r"[-_\s]+", name.rsplit("/", 1)[-1].lower())
    return "".join(word for word in words if word not in _WITHOUT_MEANING)
