"""The layers of EAGLE's heads.

The published heads are one Llama layer with the target's heads, whatever the target is
(github.com/SafeAILab/EAGLE, ``cnets.py`` and ``cnets1.py``). Version 1 and 2 project embedding and
state (2 d) to d and have no norm before the attention. Version 3 projects three states (3 d) to d
where a row comes from the target, and its attention reads 2 d under two norms of its own.
"""

from __future__ import annotations

from simspec.core.errors import ConfigError
from simspec.cost.work import Stack
from simspec.models.arch import Architecture, Block
from simspec.models.hf_config import load_model

_FUSED_STATES = 3


def eagle_layer(
    target: Stack, *, is_third: bool, intermediate_size: int | None, num_kv_heads: int | None
) -> Block:
    """Return the transformer layer of a head.

    Parameters
    ----------
    target : Stack
        Whose width, heads and, with None below, feed-forward and KV heads it has.
    is_third : bool
        EAGLE-3.
    intermediate_size, num_kv_heads : int or None
        Of the head, where they are not the target's.

    Raises
    ------
    ConfigError
        ``num_kv_heads`` does not divide the target's heads, or the target caches a latent.
    """
    like, double = target.blocks[-1], 2 * target.hidden_size
    if num_kv_heads is not None:
        _check_kv_heads(like, num_kv_heads)
    return Block(
        hidden_size=like.hidden_size,
        num_heads=like.num_heads,
        num_kv_heads=num_kv_heads or like.num_kv_heads,
        head_dim=like.head_dim,
        intermediate_size=intermediate_size or dense_width(target),
        num_norms=3 if is_third else 1,
        mla=like.mla,
        qkv_input_size=double if is_third else None,
        fused_size=None if is_third else double,
    )


def _check_kv_heads(like: Block, num_kv_heads: int) -> None:
    if like.mla is not None:
        raise ConfigError(
            "num_kv_heads: the target caches a latent and so does its head, which has no KV heads "
            "to count; remove it",
            field="num_kv_heads",
        )
    if like.num_heads % num_kv_heads:
        raise ConfigError(
            f"num_kv_heads: {num_kv_heads} does not divide the {like.num_heads} heads that the "
            "head has from the target",
            field="num_kv_heads",
        )


def states_fusion(target: Stack) -> Block:
    """Return EAGLE-3's projection of three states of the target, a layer without anything else."""
    width = target.hidden_size
    return Block(width, 0, 0, 0, 0, num_norms=0, fused_size=_FUSED_STATES * width)


def dense_width(target: Stack) -> int:
    """Return the width of a dense feed-forward beside the target's layers.

    That of its widest dense layer; of a target of experts alone, that of the experts a token
    goes through.
    """
    widest = max(block.intermediate_size for block in target.blocks)
    return widest or max(map(_active_width, target.blocks))


def _active_width(block: Block) -> int:
    moe = block.moe
    if moe is None:
        return 0
    routed = moe.experts_per_token * moe.expert_intermediate_size
    return routed + moe.num_shared_experts * moe.shared_intermediate_size


def eagle3_architecture(reference: str, target: Stack) -> Architecture:
    """Return the EAGLE-3 head that ``reference`` names.

    Raises
    ------
    ConfigError
        It is unknown, a language model, or a head of another target.
    """
    try:
        arch = load_model(reference)
    except ConfigError as error:
        raise ConfigError(f"draft_model: {error}", field="draft_model") from error
    if arch.draft_head is None:
        raise ConfigError(
            f"draft_model: {arch.name} is a language model, not an EAGLE-3 head; use method "
            "dual_model",
            field="draft_model",
        )
    if arch.hidden_size != target.hidden_size or len(arch.blocks) != 1:
        raise ConfigError(
            f"draft_model: {arch.name} has {len(arch.blocks)} layer(s) of width "
            f"{arch.hidden_size}, an EAGLE-3 head of this target has 1 of {target.hidden_size}",
            field="draft_model",
        )
    return arch


def head_vocabulary(arch: Architecture) -> int:
    """Return the tokens that a head can propose."""
    return arch.vocab_size if arch.draft_head is None else arch.draft_head.vocab_size
