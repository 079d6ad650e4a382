"""A Hugging Face ``config.json``, or a name of the catalog, to an ``Architecture``.

What a family implies is ``simspec.models.hf_families``. A config is read or refused, never
half-understood: an unknown ``model_type``, an unknown key that could change the shape, a missing
size and sizes that contradict each other each end in one sentence with the file and line.

Left out: the vision and audio parts of multimodal models (only ``text_config`` is read) and the
extra layers of multi-token prediction.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from simspec.core.errors import ProfileError, nearest
from simspec.core.resources import is_special
from simspec.models.arch import Architecture, Block, DraftHead
from simspec.models.config_json import ConfigFile, read_config
from simspec.models.hf_families import (
    COMMON_KEYS,
    FAMILIES,
    IGNORED_KEYS,
    Bias,
    Family,
    latent_attention,
)

CATALOG = Path(__file__).with_name("catalog")
"""The architectures that ship with simspec, one config each."""

_MAX_LAYERS = 2000
_EAGLE3_FUSED_STATES = 3  # low, middle and high states of the target: arXiv:2503.01840, section 3.1
_EAGLE3_NORMS = 3  # of the token, of the fused state, and before the FFN
_INT4_BY_GROUP = {32: "int4_g32", 64: "int4_g64", 128: "int4_g128"}
_INT4_EXPERTS_BY_GROUP = {32: "int4_g32_experts"}
_TORCH_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def catalog_names() -> tuple[str, ...]:
    """Return the names of the architectures that ship with simspec, sorted."""
    return tuple(sorted(path.stem for path in CATALOG.glob("*.json")))


def load_model(name_or_path: str) -> Architecture:
    """Return the architecture of a catalog name, a ``config.json`` or a directory with one.

    A catalog name wins over a file of the same name; write ``./name`` for the file.

    Raises
    ------
    ProfileError
        Neither a catalog name nor a readable config (the message offers the nearest name), or
        a config that simspec does not fully understand.
    """
    if name_or_path in catalog_names():
        file = read_config(CATALOG / f"{name_or_path}.json")
        # Messages and sources name the model, not where the package happens to be installed.
        file = replace(file, label=f"catalog/{name_or_path}.json")
        source = str(file.fields.get("_source", "simspec catalog"))
        return architecture(file, name_or_path, source)
    path = _find(name_or_path)
    name = path.parent.resolve().name if path.name == "config.json" else path.stem
    return architecture(read_config(path), name, f"file {path.name}")


def architecture(file: ConfigFile, name: str, source: str) -> Architecture:
    """Return the architecture a parsed config describes.

    Parameters
    ----------
    file : ConfigFile
        The whole config; a ``text_config`` in it is found here.
    name, source : str
        Kept for reports.

    Raises
    ------
    ProfileError
        As ``load_model``.
    """
    outer = file
    file = _language_part(file)
    family = _family(file)
    file = _with_common_names(file, family)
    _check_generates(outer)
    _refuse_unknown_keys(file, family)
    num_layers = file.count("num_hidden_layers")
    if num_layers > _MAX_LAYERS:
        file.fail("num_hidden_layers", f"{num_layers} layers; simspec takes at most {_MAX_LAYERS}")
    blocks = _blocks(file, family, num_layers)
    result = Architecture(
        name=name,
        blocks=blocks,
        hidden_size=file.count("hidden_size"),
        vocab_size=file.count("vocab_size"),
        tied_embeddings=_tied(outer, file, family),
        max_context_len=file.count("max_position_embeddings"),
        source=source,
        checkpoint_dtype=_checkpoint_dtype(outer, file),
    )
    return _as_draft_head(file, result) if _is_draft_head(file) else result


def _find(name_or_path: str) -> Path:
    path = Path(name_or_path)
    try:
        path = path.expanduser()
        is_dir, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError, RuntimeError):
        is_dir = is_file = False  # A name no file can have.
    if is_file:
        return path
    if is_dir:
        inner = path / "config.json"
        if not inner.is_file():
            raise ProfileError(f"{path}: is a directory without a config.json")
        return inner
    if is_special(path):
        raise ProfileError(f"{name_or_path}: is a pipe or a device; give a config.json")
    if path.suffix == ".json" or name_or_path.startswith((".", "/", "~")):
        raise ProfileError(f"{name_or_path}: no such file or directory{_similar_files(path)}")
    hint = nearest(name_or_path.rsplit("/", 1)[-1].lower(), catalog_names())
    raise ProfileError(
        f"unknown model {name_or_path!r}: neither a catalog name nor a config.json nor a directory "
        f"with one; {hint}"
    )


def _similar_files(path: Path) -> str:
    try:
        siblings = [sibling.name for sibling in path.parent.iterdir() if sibling != path]
    except (OSError, ValueError):
        return ""
    close = difflib.get_close_matches(path.name, siblings, n=1)
    return f"; did you mean {path.parent / close[0]}?" if close else ""


def _language_part(file: ConfigFile) -> ConfigFile:
    inner = file.fields.get("text_config")
    if inner is None:
        return file
    if not isinstance(inner, dict):
        file.fail("text_config", "is not an object")
    start = file.text.find('"text_config"')
    return replace(file, fields=inner, start=max(start, 0))


def _family(file: ConfigFile) -> Family:
    if not file.has("model_type"):
        file.fail(
            "model_type",
            f"is missing, so this is not a Hugging Face config.json simspec can read; "
            f"supported: {', '.join(sorted(FAMILIES))}",
        )
    model_type = file.text_of("model_type")
    if model_type not in FAMILIES:
        file.fail("model_type", f"{model_type!r} is not supported; {nearest(model_type, FAMILIES)}")
    return FAMILIES[model_type]


def _with_common_names(file: ConfigFile, family: Family) -> ConfigFile:
    fields = dict(file.fields)
    for own, common in family.renamed.items():
        value = fields.pop(own, None)
        if value is None:
            continue
        if fields.get(common, value) != value:
            file.fail(own, f"{value} contradicts {common} = {fields[common]}")
        fields[common] = value
    return replace(file, fields=fields) if family.renamed else file


def _check_generates(outer: ConfigFile) -> None:
    for name in outer.sequence("architectures") or ():
        if not str(name).endswith(("ForCausalLM", "ForConditionalGeneration", "Eagle3")):
            outer.fail("architectures", f"{name} does not generate text; a causal model does")


def _refuse_unknown_keys(file: ConfigFile, family: Family) -> None:
    known = COMMON_KEYS | family.keys
    for key, value in file.fields.items():
        harmless = value is None or value is False or value in ([], {}, "")
        if key in known or key in IGNORED_KEYS or key.startswith("_") or harmless:
            continue
        close = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.8)
        hint = f"did you mean {close[0]!r}?" if close else "remove it if it changes neither"
        file.fail(
            key,
            f"simspec does not know whether this changes the shape or the work of a "
            f"{file.text_of('model_type')} model; {hint}",
        )


def _blocks(file: ConfigFile, family: Family, num_layers: int) -> tuple[Block, ...]:
    template = _attention(file, family)
    windows = _windows(file, family, num_layers)
    layers = family.feed_forward(file, num_layers)
    return tuple(
        replace(template, sliding_window=window, intermediate_size=width, moe=moe)
        for window, (width, moe) in zip(windows, layers, strict=True)
    )


def _attention(file: ConfigFile, family: Family) -> Block:
    """Return a layer with everything but its FFN and window."""
    num_heads = file.count("num_attention_heads")
    mla = latent_attention(file) if family.latent_attention else None
    mlp_bias = file.flag("mlp_bias", False) if family.mlp_bias is None else family.mlp_bias
    qk_norm = family.qk_norm is not None
    if family.qk_norm_switch is not None:
        qk_norm = file.flag(family.qk_norm_switch, True)
    if mla is not None:
        if file.flag("attention_bias", False):
            file.fail("attention_bias", "biases with latent attention are not supported")
        num_kv_heads, head_dim = num_heads, mla.qk_nope_head_dim + mla.qk_rope_head_dim
    else:
        num_kv_heads, head_dim = _num_kv_heads(file, family), _head_dim(file, family)
    if file.text_of("qk_norm_type", "per_layer") != "per_layer":
        file.fail("qk_norm_type", "only 'per_layer' is supported")
    return Block(
        hidden_size=file.count("hidden_size"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=0,
        gated_ffn=family.gated,
        is_parallel=family.parallel,
        qkv_bias=_bias(file, family, family.qkv_bias),
        o_bias=_bias(file, family, family.o_bias),
        mlp_bias=mlp_bias,
        qk_norm=qk_norm,
        num_norms=family.num_norms,
        mla=mla,
        attention_sinks=family.attention_sinks,
        qk_norm_weights=family.qk_norm or "per_head",
    )


def _num_kv_heads(file: ConfigFile, family: Family) -> int:
    num_heads = file.count("num_attention_heads")
    key = "num_key_value_heads"
    if key not in file.fields and family.num_kv_heads not in (None, num_heads):
        file.fail(
            key,
            f"is missing; transformers would assume {family.num_kv_heads} for this model_type, "
            f"one per head would be {num_heads}: give it",
        )
    num_kv_heads = file.count(key, num_heads)
    if num_heads % num_kv_heads:
        file.fail(key, f"{num_kv_heads} does not divide num_attention_heads = {num_heads}")
    return num_kv_heads


def _head_dim(file: ConfigFile, family: Family) -> int:
    if file.has("head_dim") or family.head_dim is not None:
        return file.count("head_dim", family.head_dim)
    hidden, num_heads = file.count("hidden_size"), file.count("num_attention_heads")
    if hidden % num_heads:
        file.fail(
            "num_attention_heads",
            f"{num_heads} does not divide hidden_size = {hidden}, and there is no head_dim",
        )
    return hidden // num_heads


def _bias(file: ConfigFile, family: Family, rule: Bias) -> bool:
    return file.flag(rule, family.bias_default) if isinstance(rule, str) else rule


def _windows(file: ConfigFile, family: Family, num_layers: int) -> list[int | None]:
    """Return each layer's window, None where it attends to everything."""
    window = family.window
    size = None
    if window is not None and (window.switch is None or file.flag(window.switch, False)):
        absent = window.key not in file.fields
        size = window.default if absent else _optional(file, window.key)
    kinds = file.sequence("layer_types")
    if kinds is None:
        if window is None or size is None:
            return [None] * num_layers
        return [size if slides else None for slides in window.pattern(file, num_layers)]
    if len(kinds) != num_layers:
        file.fail("layer_types", f"{len(kinds)} entries for num_hidden_layers = {num_layers}")
    windowed = window.kind if window is not None else None
    for kind in kinds:
        if kind not in ("full_attention", windowed):
            allowed = "full_attention" if windowed is None else f"full_attention, {windowed}"
            file.fail("layer_types", f"{kind!r} is not supported here; allowed: {allowed}")
        if kind == windowed and size is None:
            file.fail("layer_types", f"says {kind}, but no window is given or it is switched off")
    return [size if kind == windowed else None for kind in kinds]


def _optional(file: ConfigFile, key: str) -> int | None:
    return file.count(key) if file.has(key) else None


def _tied(outer: ConfigFile, file: ConfigFile, family: Family) -> bool:
    """Return whether embedding and LM head are one matrix."""
    key = "tie_word_embeddings"
    if outer is not file and outer.has(key) and file.has(key):
        if outer.flag(key, False) != file.flag(key, False):
            file.fail(key, "contradicts the one outside text_config")
        return file.flag(key, False)
    return file.flag(key, outer.flag(key, family.tied))


def _checkpoint_dtype(outer: ConfigFile, file: ConfigFile) -> str | None:
    """Return the format the checkpoint is stored in, None if simspec has no name for it."""
    for where in (file, outer):
        quantization = where.fields.get("quantization_config")
        if isinstance(quantization, dict):
            return _quantized_dtype(quantization)
    for where in (file, outer):
        for key in ("dtype", "torch_dtype"):
            name = str(where.fields.get(key, "")).removeprefix("torch.")
            if name in _TORCH_DTYPES:
                return _TORCH_DTYPES[name]
    return None


def _quantized_dtype(quantization: Mapping[str, Any]) -> str | None:
    method = quantization.get("quant_method")
    if method == "fp8":
        return "fp8_block" if quantization.get("weight_block_size") else "fp8"
    if method == "mxfp4":
        return "mxfp4"
    if method in ("awq", "gptq") and quantization.get("bits", quantization.get("w_bit")) == 4:
        group = quantization.get("group_size", quantization.get("q_group_size", 128))
        return _INT4_BY_GROUP.get(group) if isinstance(group, int) else None
    if method == "bitsandbytes":
        return "nf4" if quantization.get("load_in_4bit") else "int8_weight_only"
    if method == "compressed-tensors":
        return _compressed_tensors_dtype(quantization)
    return None


def _compressed_tensors_dtype(quantization: Mapping[str, Any]) -> str | None:
    groups = quantization.get("config_groups")
    group = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict) or not isinstance(group, dict):
        return None
    weight_only = group.get("input_activations") is None
    kind = (weights.get("type"), weights.get("num_bits"))
    if kind == ("float", 8):
        return "fp8_weight_only" if weight_only else "fp8"
    if kind == ("int", 8):
        return "int8_weight_only" if weight_only else "int8"
    if kind == ("int", 4) and weight_only:
        size: object = weights.get("group_size")
        experts_only = any("self_attn" in str(name) for name in quantization.get("ignore") or ())
        by_group = _INT4_EXPERTS_BY_GROUP if experts_only else _INT4_BY_GROUP
        return by_group.get(size) if isinstance(size, int) else None
    return None


def _is_draft_head(file: ConfigFile) -> bool:
    names = [str(name) for name in file.sequence("architectures") or ()]
    return file.has("draft_vocab_size") or any(name.endswith("Eagle3") for name in names)


def _as_draft_head(file: ConfigFile, arch: Architecture) -> Architecture:
    """Give an EAGLE-3 head what its config leaves to its code (arXiv:2503.01840, section 3.1).

    Its one layer attends over the token embedding beside the fused target state (2 d wide).
    """
    blocks = tuple(
        replace(block, qkv_input_size=2 * arch.hidden_size, num_norms=_EAGLE3_NORMS)
        for block in arch.blocks
    )
    vocab = file.count("draft_vocab_size", arch.vocab_size)
    if vocab > arch.vocab_size:
        file.fail("draft_vocab_size", f"{vocab} is more than vocab_size = {arch.vocab_size}")
    return replace(
        arch, blocks=blocks, draft_head=DraftHead(vocab, fused_states=_EAGLE3_FUSED_STATES)
    )
