"""What a ``model_type`` implies that its config does not spell out.

The defaults are those of the configuration classes of Hugging Face transformers 4.57; the shapes
those of its modelling code. A key is either read (``COMMON_KEYS`` and the family's own), known
to leave shapes alone (``IGNORED_KEYS``), or refused by name: a key nobody here knows may be the
one that changes the model.

A new family is one entry of ``FAMILIES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from simspec.models.arch import MLA, MoE
from simspec.models.config_json import ConfigFile

FeedForward: TypeAlias = tuple[int, MoE | None]
"""FFN width and experts of one layer."""

Bias: TypeAlias = bool | Literal["attention_bias", "qkv_bias"]
"""Always, never, or as the key says."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which layers look back only so far."""

    key: str = "sliding_window"
    default: int | None = None
    """Window where the key is absent; an explicit null always means none."""
    switch: str | None = None
    """Key that must be true for any window to count."""
    kind: str = "sliding_attention"
    """How ``layer_types`` calls such a layer."""
    pattern: Callable[[ConfigFile, int], list[bool]] = lambda _, num_layers: [True] * num_layers
    """Windowed layers where ``layer_types`` is absent."""


@dataclass(frozen=True, slots=True)
class Family:
    """One ``model_type``."""

    feed_forward: Callable[[ConfigFile, int], list[FeedForward]]
    keys: frozenset[str] = frozenset()
    """Structural keys besides ``COMMON_KEYS``."""
    tied: bool = False
    head_dim: int | None = None
    """Where the key is absent; None: hidden size over heads."""
    num_kv_heads: int | None = None
    """Where the key is absent; None: as many as heads."""
    qkv_bias: Bias = False
    bias_default: bool = False
    """Biases where the key is absent."""
    o_bias: Bias = False
    mlp_bias: bool | None = False
    """None: as the key ``mlp_bias`` says."""
    qk_norm: Literal["per_head", "per_layer", "none"] | None = None
    qk_norm_switch: str | None = None
    """Key that turns the q and k norms off; they are on where it is absent."""
    num_norms: int = 2
    window: Window | None = None
    latent_attention: bool = False
    attention_sinks: bool = False
    gated: bool = True
    """Whether the FFN has a gate beside its up-projection."""
    parallel: bool = False
    """Whether attention and FFN read the same input and are summed once."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """How the family calls what ``COMMON_KEYS`` names otherwise."""


def _keys(names: str) -> frozenset[str]:
    """Return the space-separated names as a set."""
    return frozenset(names.split())


COMMON_KEYS = _keys(
    "architectures dtype head_dim hidden_size intermediate_size layer_types "
    "max_position_embeddings model_type num_attention_heads num_hidden_layers "
    "num_key_value_heads quantization_config tie_word_embeddings torch_dtype vocab_size"
)
"""Read for every family."""

IGNORED_KEYS = _keys(
    # Arithmetic without parameters.
    "activation attention_multiplier attn_logit_softcapping attn_scale "
    "attn_temperature_tuning embedding_multiplier final_logit_softcapping floor_scale "
    "hidden_act hidden_activation layer_norm_eps logits_scaling query_pre_attn_scalar "
    "residual_multiplier rms_norm_eps swiglu_limit "
    # Positions.
    "initial_context_length max_sequence_length "
    "original_max_position_embeddings partial_rotary_factor rope_interleave "
    "rope_local_base_freq rope_parameters rope_scaling rope_theta rotary_dim "
    # Routing without parameters, and training losses.
    "aux_loss_alpha ep_size n_group norm_topk_prob num_expert_group output_router_logits "
    "routed_scaling_factor router_aux_loss_coef router_jitter_noise scoring_func seq_aux "
    "topk_group "
    # Training and bookkeeping.
    "activation_function attention_softmax_in_fp32 attn_pdrop bias_dropout_fusion "
    "gradient_checkpointing hidden_dropout layer_norm_epsilon masked_softmax_fusion offset_alibi "
    "rotary scale_attn_weights skip_bias_add skip_bias_add_qkv slow_but_exact summary_activation "
    "summary_first_dropout summary_proj_to_labels summary_type summary_use_proj "
    "task_specific_params "
    "attention_dropout attn_implementation auto_map cache_implementation "
    "chunk_size_feed_forward embd_pdrop for_llm_compressor id2label initializer_range "
    "is_decoder label2id name_or_path output_attentions output_hidden_states "
    "pretraining_tp resid_pdrop return_dict tokenizer_class transformers.js_config "
    "transformers_version unsloth_fixed unsloth_version use_cache "
    # Generation.
    "bos_token_id cls_token_id diversity_penalty do_sample encoder_no_repeat_ngram_size "
    "eos_token_id length_penalty max_length max_new_tokens min_length "
    "no_repeat_ngram_size num_beam_groups num_beams num_return_sequences pad_token_id "
    "repetition_penalty sep_token_id temperature top_k top_p typical_p unk_token_id "
    # Multi-token prediction: extra layers that plain decoding never runs.
    "mtp_transformer_layers num_mtp_modules num_nextn_predict_layers use_mtp "
)
"""Known not to change parameters, KV or work of plain decoding."""

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "experts_per_token")


def latent_attention(config: ConfigFile) -> MLA:
    """Return the MLA ranks and widths; none of them is ever guessed."""
    if "q_lora_rank" not in config.fields:
        config.fail("q_lora_rank", "is missing; give a rank, or null for a full query projection")
    rank = config.count("q_lora_rank") if config.has("q_lora_rank") else None
    return MLA(
        kv_lora_rank=config.count("kv_lora_rank"),
        q_lora_rank=rank,
        qk_nope_head_dim=config.count("qk_nope_head_dim"),
        qk_rope_head_dim=config.count("qk_rope_head_dim"),
        v_head_dim=config.count("v_head_dim"),
    )


def _dense(config: ConfigFile, num_layers: int) -> list[FeedForward]:
    return [(config.count("intermediate_size"), None)] * num_layers


def _four_times(config: ConfigFile, num_layers: int) -> list[FeedForward]:
    """A dense FFN, four times as wide as the model where no width is given."""
    width = config.count("intermediate_size", 4 * config.count("hidden_size"))
    return [(width, None)] * num_layers


def _falcon(config: ConfigFile, num_layers: int) -> list[FeedForward]:
    if not config.flag("new_decoder_architecture", False):
        config.fail("new_decoder_architecture", "only Falcon models that have it are supported")
    for key in ("alibi", "bias"):
        if config.flag(key, False):
            config.fail(key, "is not supported in a Falcon model; none of its size has it")
    return _four_times(config, num_layers)


def _agreed(config: ConfigFile, keys: tuple[str, ...]) -> int:
    """Return the one value several spellings of a key give."""
    given = {key: config.count(key) for key in keys if config.has(key)}
    if not given:
        config.fail(keys[0], f"is missing (also read as {' or '.join(keys[1:])})")
    first, *others = given
    for other in others:
        if given[other] != given[first]:
            config.fail(other, f"{given[other]} contradicts {first} = {given[first]}")
    return given[first]


def _experts(
    config: ConfigFile,
    width_key: str,
    *,
    shared: int = 0,
    shared_width: int = 0,
    shared_gate: bool = False,
    router_bias: bool = False,
) -> MoE:
    num_experts = _agreed(config, _EXPERTS)
    per_token = _agreed(config, _EXPERTS_PER_TOKEN)
    if per_token > num_experts:
        key = next(key for key in _EXPERTS_PER_TOKEN if config.has(key))
        config.fail(key, f"{per_token} experts per token is more than the {num_experts} there are")
    return MoE(
        num_experts=num_experts,
        experts_per_token=per_token,
        expert_intermediate_size=config.count(width_key),
        num_shared_experts=shared,
        shared_intermediate_size=shared_width,
        router_bias=router_bias,
        shared_expert_gate=shared_gate,
    )


def _mixtral(config: ConfigFile, num_layers: int) -> list[FeedForward]:
    return [(0, _experts(config, "intermediate_size"))] * num_layers


def _minimax(config: ConfigFile, num_layers: int) -> list[FeedForward]:
    shared_width = config.count("shared_intermediate_size", 0, minimum=0)
    moe = _experts(
        config,
        "intermediate_size",
        shared=1 if shared_width else 0,
        shared_width=shared_width,
        router_bias=config.flag("use_routing_bias", True),
    )
    return [(0, moe)] * num_layers


def _gpt_oss(config: ConfigFile, num_layers: int) -> list[FeedForward]:
    return [(0, _experts(config, "intermediate_size", router_bias=True))] * num_layers


def _qwen_moe(config: ConfigFile, num_layers: int) -> list[FeedForward]:
    """Every ``decoder_sparse_step``-th layer is sparse unless ``mlp_only_layers`` names it."""
    shared_width = config.count("shared_expert_intermediate_size", 0, minimum=0)
    moe = _experts(
        config,
        "moe_intermediate_size",
        shared=1 if shared_width else 0,
        shared_width=shared_width,
        shared_gate=bool(shared_width),
    )
    step = config.count("decoder_sparse_step", 1)
    dense = set(config.layer_indices("mlp_only_layers") or ())
    sparse = [i not in dense and (i + 1) % step == 0 for i in range(num_layers)]
    return _mixed(config, moe, sparse, "intermediate_size")


def _deepseek_v2(config: ConfigFile, num_layers: int) -> list[FeedForward]:
    return _deepseek(config, num_layers, "greedy")


def _deepseek_v3(config: ConfigFile, num_layers: int) -> list[FeedForward]:
    return _deepseek(config, num_layers, "noaux_tc")


def _deepseek(config: ConfigFile, num_layers: int, routing: str) -> list[FeedForward]:
    """The first ``first_k_dense_replace`` layers are dense, then every ``moe_layer_freq``-th."""
    if not any(config.has(key) for key in _EXPERTS):
        return _dense(config, num_layers)
    num_shared = config.count("n_shared_experts", 0, minimum=0)
    moe = _experts(
        config,
        "moe_intermediate_size",
        shared=num_shared,
        shared_width=config.count("moe_intermediate_size") if num_shared else 0,
        router_bias=config.text_of("topk_method", routing) == "noaux_tc",
    )
    first = config.count("first_k_dense_replace", 0, minimum=0)
    every = config.count("moe_layer_freq", 1)
    sparse = [i >= first and i % every == 0 for i in range(num_layers)]
    return _mixed(config, moe, sparse, "intermediate_size")


def _llama4(config: ConfigFile, num_layers: int) -> list[FeedForward]:
    """One shared expert as wide as the routed ones; dense layers have their own width."""
    width = config.count("intermediate_size")
    moe = _experts(config, "intermediate_size", shared=1, shared_width=width)
    layers = config.layer_indices("moe_layers")
    if layers is None:
        step = config.count("interleave_moe_layer_step", 1)
        layers = range(step - 1, num_layers, step)
    sparse = [i in set(layers) for i in range(num_layers)]
    return _mixed(config, moe, sparse, "intermediate_size_mlp")


def _mixed(config: ConfigFile, moe: MoE, sparse: list[bool], dense_key: str) -> list[FeedForward]:
    return [(0, moe) if is_moe else (config.count(dense_key), None) for is_moe in sparse]


def _from_max_window_layers(config: ConfigFile, num_layers: int) -> list[bool]:
    first = config.count("max_window_layers", 28, minimum=0)
    return [i >= first for i in range(num_layers)]


def _every_second(_: ConfigFile, num_layers: int) -> list[bool]:
    return [i % 2 == 0 for i in range(num_layers)]


def _all_but_every_nth(config: ConfigFile, num_layers: int) -> list[bool]:
    period = config.count("sliding_window_pattern", 6)
    return [(i + 1) % period != 0 for i in range(num_layers)]


def _rope_layers(config: ConfigFile, num_layers: int) -> list[bool]:
    """Layers with rotary positions attend within a chunk; by default all but every fourth."""
    listed = config.layer_indices("no_rope_layers")
    if not listed:
        interval = config.count("no_rope_layer_interval", 4)
        return [(i + 1) % interval != 0 for i in range(num_layers)]
    if len(listed) != num_layers:
        config.fail("no_rope_layers", f"{len(listed)} entries for {num_layers} layers")
    return [bool(uses_rope) for uses_rope in listed]


_QWEN_WINDOW = Window(default=4096, switch="use_sliding_window", pattern=_from_max_window_layers)
_QWEN_KEYS = _keys("max_window_layers sliding_window use_sliding_window")
_QWEN_MOE_KEYS = _QWEN_KEYS | _keys(
    "decoder_sparse_step mlp_only_layers moe_intermediate_size num_experts "
    "num_experts_per_tok num_local_experts shared_expert_intermediate_size"
)

_DEEPSEEK_KEYS = _keys(
    "attention_bias first_k_dense_replace kv_lora_rank moe_intermediate_size "
    "moe_layer_freq n_routed_experts n_shared_experts num_experts_per_tok "
    "num_local_experts q_lora_rank qk_head_dim qk_nope_head_dim qk_rope_head_dim "
    "topk_method v_head_dim"
)
_DEEPSEEK_V2 = Family(feed_forward=_deepseek_v2, keys=_DEEPSEEK_KEYS, latent_attention=True)
_DEEPSEEK_V3 = Family(feed_forward=_deepseek_v3, keys=_DEEPSEEK_KEYS, latent_attention=True)
_LLAMA = Family(
    feed_forward=_dense,
    keys=_keys("attention_bias draft_vocab_size mlp_bias"),
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    mlp_bias=None,
)
_GEMMA_KEYS = _keys("attention_bias sliding_window sliding_window_pattern")

FAMILIES: dict[str, Family] = {
    "llama": _LLAMA,
    "granite": _LLAMA,
    "mistral": Family(
        feed_forward=_dense,
        keys=_keys("sliding_window"),
        num_kv_heads=8,
        window=Window(default=4096),
    ),
    "mixtral": Family(
        feed_forward=_mixtral,
        keys=_keys("num_experts_per_tok num_local_experts sliding_window"),
        num_kv_heads=8,
        window=Window(),
    ),
    "qwen2": Family(
        feed_forward=_dense, keys=_QWEN_KEYS, num_kv_heads=32, qkv_bias=True, window=_QWEN_WINDOW
    ),
    "qwen2_moe": Family(
        feed_forward=_qwen_moe,
        keys=_QWEN_MOE_KEYS | {"qkv_bias"},
        num_kv_heads=16,
        qkv_bias="qkv_bias",
        bias_default=True,
        window=_QWEN_WINDOW,
    ),
    "qwen3": Family(
        feed_forward=_dense,
        keys=_QWEN_KEYS | {"attention_bias"},
        head_dim=128,
        num_kv_heads=32,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="per_head",
        window=_QWEN_WINDOW,
    ),
    "qwen3_moe": Family(
        feed_forward=_qwen_moe,
        keys=_QWEN_MOE_KEYS - {"shared_expert_intermediate_size"} | {"attention_bias"},
        num_kv_heads=4,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="per_head",
        window=Window(default=4096, switch="use_sliding_window"),
    ),
    "deepseek_v2": _DEEPSEEK_V2,
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "gpt_oss": Family(
        feed_forward=_gpt_oss,
        keys=_keys(
            "attention_bias experts_per_token num_experts num_experts_per_tok "
            "num_local_experts sliding_window"
        ),
        head_dim=64,
        num_kv_heads=8,
        qkv_bias="attention_bias",
        bias_default=True,
        o_bias="attention_bias",
        mlp_bias=True,
        window=Window(default=128, pattern=_every_second),
        attention_sinks=True,
    ),
    "llama4_text": Family(
        feed_forward=_llama4,
        keys=_keys(
            "attention_bias attention_chunk_size interleave_moe_layer_step "
            "intermediate_size_mlp moe_layers no_rope_layer_interval "
            "no_rope_layers num_experts_per_tok num_local_experts use_qk_norm"
        ),
        head_dim=128,
        num_kv_heads=8,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="none",
        qk_norm_switch="use_qk_norm",
        window=Window(
            key="attention_chunk_size",
            default=8192,
            kind="chunked_attention",
            pattern=_rope_layers,
        ),
    ),
    "minimax_m2": Family(
        feed_forward=_minimax,
        keys=_keys(
            "num_experts_per_tok num_local_experts qk_norm_type shared_intermediate_size "
            "use_qk_norm use_routing_bias"
        ),
        qk_norm="per_layer",
        qk_norm_switch="use_qk_norm",
    ),
    "gemma": Family(
        feed_forward=_dense,
        keys=_keys("attention_bias"),
        tied=True,
        head_dim=256,
        num_kv_heads=16,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
    ),
    "gemma2": Family(
        feed_forward=_dense,
        keys=_GEMMA_KEYS,
        tied=True,
        head_dim=256,
        num_kv_heads=4,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        num_norms=4,
        window=Window(default=4096, pattern=_every_second),
    ),
    "gemma3_text": Family(
        feed_forward=_dense,
        keys=_GEMMA_KEYS,
        tied=True,
        head_dim=256,
        num_kv_heads=4,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="per_head",
        num_norms=4,
        window=Window(default=4096, pattern=_all_but_every_nth),
    ),
    # Biases of norms and of GPT-J's LM head, under 0.01 % of the parameters, are left out.
    "gptj": Family(
        feed_forward=_four_times,
        mlp_bias=True,
        num_norms=1,
        gated=False,
        parallel=True,
        renamed={
            "n_embd": "hidden_size",
            "n_head": "num_attention_heads",
            "n_inner": "intermediate_size",
            "n_layer": "num_hidden_layers",
            "n_positions": "max_position_embeddings",
        },
    ),
    "bloom": Family(
        feed_forward=_four_times,
        tied=True,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        gated=False,
        renamed={
            "n_embed": "hidden_size",
            "n_layer": "num_hidden_layers",
            "seq_length": "max_position_embeddings",
        },
    ),
    "falcon": Family(
        feed_forward=_falcon,
        keys=_keys("alibi bias multi_query new_decoder_architecture parallel_attn"),
        tied=True,
        gated=False,
        parallel=True,
        renamed={
            "ffn_hidden_size": "intermediate_size",
            "num_kv_heads": "num_key_value_heads",
        },
    ),
    "phi3": Family(feed_forward=_dense, keys=_keys("sliding_window"), window=Window()),
}
"""Every family by ``model_type``."""
