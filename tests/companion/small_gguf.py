"""A tiny GGUF file: a random decoder, its rows in llama.cpp's order."""

from __future__ import annotations

from pathlib import Path

import gguf
import torch

from simspec.companion.model.config import DecoderConfig
from simspec.companion.model.decoder import Decoder, layer_name, random_weights

CONFIG = DecoderConfig(2, 32, 64, 260, 4, 2, 8, rope_theta=5000.0)


def pairs(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """The order that llama.cpp's converter writes: row j of a half becomes row 2j or 2j + 1."""
    rows = weight.shape[0] // num_heads
    order = [
        head * rows + half * (rows // 2) + j
        for head in range(num_heads)
        for j in range(rows // 2)
        for half in range(2)
    ]
    return weight[order]


def write_gguf(path: Path, kind: gguf.GGMLQuantizationType | None = None) -> Decoder:
    """Write a decoder in 32 bit, or its matrices quantised, and return it."""
    decoder = Decoder(CONFIG, random_weights(CONFIG, 3))
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(CONFIG.num_hidden_layers)
    writer.add_embedding_length(CONFIG.hidden_size)
    writer.add_feed_forward_length(CONFIG.intermediate_size)
    writer.add_head_count(CONFIG.num_attention_heads)
    writer.add_head_count_kv(CONFIG.num_key_value_heads)
    writer.add_layer_norm_rms_eps(CONFIG.rms_norm_eps)
    writer.add_rope_freq_base(CONFIG.rope_theta)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    # Bytes under the names that byte-level tokenizers give them, three merges, one control token.
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, "th", "in", "the", "<|end|>"]
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 259 + [3])
    writer.add_token_merges(["t h", "i n", "th e"])
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
    }
    parts = {
        "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    for layer in range(CONFIG.num_hidden_layers):
        for ours, theirs in parts.items():
            names[f"{layer_name(layer)}.{ours}.weight"] = f"blk.{layer}.{theirs}.weight"
    for ours, theirs in names.items():
        weight = decoder.weights[ours]
        if ours.endswith("q_proj.weight"):
            weight = pairs(weight, CONFIG.num_attention_heads)
        if ours.endswith("k_proj.weight"):
            weight = pairs(weight, CONFIG.num_key_value_heads)
        data = weight.numpy()
        if kind is not None and data.ndim == 2:
            writer.add_tensor(theirs, gguf.quants.quantize(data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(theirs, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return decoder
