"""Checkpoints: a folder with ``config.json`` and safetensors, sharded or not, as Hugging Face has.

Pickled checkpoints are refused: reading one runs whatever code it holds. What made a checkpoint
stands in the metadata of its weights.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from simspec.companion.model.config import DecoderConfig
from simspec.companion.model.decoder import HEAD, Decoder
from simspec.core.errors import ConfigError
from simspec.core.json_text import parse_json

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


def save_weights(path: Path, weights: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """Write weights and what made them; the file appears whole or not at all.

    Parameters
    ----------
    path : Path
        Ends in ``.safetensors``; its folder is made.
    weights : mapping of str to Tensor
        By name.
    facts : mapping of str to str
        Provenance: what was trained on what, for how long, with which seed and versions.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        save_file(whole, unfinished, metadata=dict(facts))
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the weights of one file by name, and what made them.

    Raises
    ------
    ConfigError
        The file is missing, damaged, or pickled.
    """
    if path.suffix in _PICKLED:
        raise ConfigError(
            f"{path}: pickled checkpoints can run any code when they are read and are refused; "
            "convert it to safetensors"
        )
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            facts = dict(file.metadata() or {})
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path}: is not a whole safetensors file ({error})") from error


def save_decoder(folder: Path, decoder: Decoder, facts: Mapping[str, str]) -> None:
    """Write a decoder as a Hugging Face folder: sizes, then weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**decoder.config.as_dict(), "torch_dtype": _TYPES[decoder.dtype]}
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_weights(folder / WEIGHTS, decoder.weights, facts)


def load_decoder(folder: Path) -> tuple[Decoder, dict[str, str]]:
    """Return the decoder of a folder, and what made its weights.

    Raises
    ------
    ConfigError
        Files are missing or damaged, the weights are pickled, or the architecture is another.
    """
    config = load_config(folder)
    weights: dict[str, Tensor] = {}
    facts: dict[str, str] = {}
    for path in _weight_files(folder):
        more, facts_here = load_weights(path)
        weights |= more
        facts |= facts_here
    # What old exports keep beside the weights.
    weights = {n: w for n, w in weights.items() if not n.endswith("rotary_emb.inv_freq")}
    if config.tie_word_embeddings:
        weights.pop(HEAD, None)
    try:
        return Decoder(config, weights), facts
    except ConfigError as error:
        raise ConfigError(f"{folder}: {error}") from error


def load_config(folder: Path) -> DecoderConfig:
    """Return the sizes of a Hugging Face folder.

    Raises
    ------
    ConfigError
        ``config.json`` is missing, damaged, or of an architecture that this decoder is not.
    """
    path = folder / CONFIG
    try:
        fields = parse_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}: holds no sizes; it must be an object")
    return _config_of(fields, path)


def _config_of(fields: dict[str, Any], path: Path) -> DecoderConfig:
    _refuse_other_architectures(fields, path)
    scaling = fields.get("rope_scaling") or fields.get("rope_parameters") or {}
    theta = fields.get("rope_theta") or scaling.get("rope_theta") or 10_000.0
    try:
        heads = int(fields["num_attention_heads"])
        hidden = int(fields["hidden_size"])
        return DecoderConfig(
            num_hidden_layers=int(fields["num_hidden_layers"]),
            hidden_size=hidden,
            intermediate_size=int(fields["intermediate_size"]),
            vocab_size=int(fields["vocab_size"]),
            num_attention_heads=heads,
            num_key_value_heads=int(fields.get("num_key_value_heads") or heads),
            head_dim=int(fields.get("head_dim") or hidden // heads),
            rms_norm_eps=float(fields.get("rms_norm_eps", 1e-5)),
            rope_theta=float(theta),
            tie_word_embeddings=bool(fields.get("tie_word_embeddings", False)),
        )
    except KeyError as error:
        raise ConfigError(f"{path}: lacks {error.args[0]}") from error
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _refuse_other_architectures(fields: dict[str, Any], path: Path) -> None:
    kind = fields.get("model_type")
    if kind not in {"llama", "layerskip_llama"}:
        raise ConfigError(
            f"{path}: model_type is {kind!r}; the decoder runs 'llama', LayerSkip's among them"
        )
    if fields.get("attention_bias") or fields.get("mlp_bias"):
        raise ConfigError(f"{path}: layers with biases are not what this decoder runs")
    if fields.get("hidden_act", "silu") != "silu":
        raise ConfigError(f"{path}: hidden_act is {fields['hidden_act']!r}, the decoder has 'silu'")
    scaling = fields.get("rope_scaling") or fields.get("rope_parameters") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default")) if scaling else "default"
    if kind != "default":
        raise ConfigError(f"{path}: rotary scaling {kind!r} is not what this decoder runs")


def _weight_files(folder: Path) -> list[Path]:
    single = folder / WEIGHTS
    if single.is_file():
        return [single]
    index = folder / _INDEX
    if index.is_file():
        try:
            names = set(parse_json(index.read_bytes())["weight_map"].values())
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ConfigError(f"{index}: has no weight_map") from error
        if any(Path(name).name != name for name in names):
            raise ConfigError(f"{index}: names files outside its folder")
        return [folder / name for name in sorted(names)]
    pickled = [p for p in sorted(folder.glob("*")) if p.suffix in _PICKLED]
    if pickled:
        load_weights(pickled[0])
    raise ConfigError(f"{folder}: has no {WEIGHTS}")
