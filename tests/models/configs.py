"""Configs of public models in Hugging Face's keys, written as facts, with published totals.

``PUBLISHED`` pairs each with the exact parameter count that the model's page on the Hugging Face
hub shows for its safetensors (language model only), or with the rounded total of its report.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Config = dict[str, Any]

LLAMA: Config = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}


def config(
    model_type: str, d: int, f: int, layers: int, heads: int, vocab: int, **more: Any
) -> Config:
    """Return a config of the common sizes and ``more`` keys."""
    return {
        "model_type": model_type,
        "hidden_size": d,
        "intermediate_size": f,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": vocab,
        "max_position_embeddings": 8192,
        **more,
    }


def write(folder: Path, fields: Config, name: str = "model.json") -> str:
    """Write ``fields`` with one key a line and return the path."""
    path = folder / name
    path.write_text(json.dumps(fields, indent=2))
    return str(path)


def _deepseek(d: int, f: int, layers: int, heads: int, vocab: int, **more: Any) -> Config:
    return config(
        "deepseek_v2", d, f, layers, heads, vocab,
        num_key_value_heads=heads, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128, first_k_dense_replace=1, moe_layer_freq=1,
        tie_word_embeddings=False, **more,
    )  # fmt: skip


PUBLISHED: dict[str, tuple[Config, int]] = {
    "mistral-7b": (
        config("mistral", 4096, 14336, 32, 32, 32000, num_key_value_heads=8, sliding_window=None),
        7_241_732_096,
    ),
    "qwen2.5-0.5b": (
        config("qwen2", 896, 4864, 24, 14, 151936, num_key_value_heads=2, tie_word_embeddings=True),
        494_032_768,
    ),
    "gemma-2b": (
        config("gemma", 2048, 16384, 18, 8, 256000, num_key_value_heads=1, head_dim=256),
        2_506_172_416,
    ),
    "gemma-2-2b": (
        config("gemma2", 2304, 9216, 26, 8, 256000, num_key_value_heads=4, head_dim=256),
        2_614_341_888,
    ),
    "gemma-2-9b": (
        config("gemma2", 3584, 14336, 42, 16, 256000, num_key_value_heads=8, head_dim=256),
        9_241_705_984,
    ),
    "gemma-3-1b": (
        config("gemma3_text", 1152, 6912, 26, 4, 262144, num_key_value_heads=1, head_dim=256),
        999_885_952,
    ),
    "phi-3-mini": (
        config("phi3", 3072, 8192, 32, 32, 32064, num_key_value_heads=32, sliding_window=2047),
        3_821_079_552,
    ),
    "phi-4": (
        config("phi3", 5120, 17920, 40, 40, 100352, num_key_value_heads=10),
        14_659_507_200,
    ),
    "qwen1.5-moe-a2.7b": (
        config(
            "qwen2_moe", 2048, 5632, 24, 16, 151936,
            num_key_value_heads=16, num_experts=60, num_experts_per_tok=4,
            moe_intermediate_size=1408, shared_expert_intermediate_size=5632,
            decoder_sparse_step=1,
        ),
        14_315_784_192,
    ),
    "qwen3-30b-a3b": (
        config(
            "qwen3_moe", 2048, 6144, 48, 32, 151936,
            num_key_value_heads=4, head_dim=128, num_experts=128, num_experts_per_tok=8,
            moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[],
        ),
        30_532_122_624,
    ),
    "mixtral-8x7b": (
        config(
            "mixtral", 4096, 14336, 32, 32, 32000,
            num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2,
        ),
        46_702_792_704,
    ),
    "deepseek-v2-lite": (
        _deepseek(
            2048, 10944, 27, 16, 102400,
            q_lora_rank=None, n_routed_experts=64, n_shared_experts=2,
            num_experts_per_tok=6, moe_intermediate_size=1408,
        ),
        15_706_484_224,
    ),
    "deepseek-v2": (
        _deepseek(
            5120, 12288, 60, 128, 102400,
            q_lora_rank=1536, n_routed_experts=160, n_shared_experts=2,
            num_experts_per_tok=6, moe_intermediate_size=1536,
        ),
        235_741_434_880,
    ),
    "gpt-oss-20b": (
        config(
            "gpt_oss", 2880, 2880, 24, 64, 201088,
            num_key_value_heads=8, head_dim=64, num_local_experts=32, num_experts_per_tok=4,
            experts_per_token=4, sliding_window=128,
        ),
        20_914_757_184,
    ),
}  # fmt: skip
