"""Parameters per part and KV values per token: the one place both cost and memory count from.

With d the hidden size, h heads and h_kv KV heads of width d_h, f the FFN width:

- attention ``d (h + 2 h_kv) d_h + h d_h d`` (plus biases and sink logits),
- FFN ``3 d f`` gated, ``2 d f`` plain; experts the same times their number; router ``d E_r``,
- KV values per token and layer ``2 h_kv d_h``; with MLA the latent ``r_kv + d_rope`` (DeepSeek-V2,
  arXiv:2405.04434, section 2.1).

Tensor parallelism as Megatron-LM and vLLM shard it: heads, FFN columns, and the vocabulary of
embedding and LM head are divided by ``tp``; norms, routers, output biases and the
down-projections of MLA are on every rank; KV heads are divided until each rank holds one and
replicated beyond that, ``max(1, h_kv / tp)``. The MLA latent is on every rank.

Expert parallelism and attention data parallelism as vLLM and TensorRT-LLM lay them out: of
``tp * dp`` ranks each group of ``tp`` holds everything but the routed experts, and all of them
together hold the experts once: ``E_r / ep`` on each, with ``tp * dp / ep`` ranks sharing each.

Left out: the padding of the vocabulary to a multiple of 64, buffers such as rotary tables, and
vision towers and extra prediction (MTP) layers of multimodal or DeepSeek checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from simspec.core.errors import ConfigError
from simspec.models.arch import Architecture, Block
from simspec.models.dtypes import dtype, kv_dtype


class Layered(Protocol):
    """Anything made of layers: an ``Architecture`` or a ``Stack`` of the cost model."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The layers."""
        ...


@dataclass(frozen=True, slots=True)
class BlockParams:
    """Parameters of one layer (or of its share on one rank), by part.

    ``ffn`` holds the dense FFN or the shared experts, ``experts`` all routed experts, ``fusion``
    the projection in front of a draft head's layer.
    """

    attention: int
    ffn: int
    experts: int
    router: int
    norms: int
    fusion: int = 0

    @property
    def total(self) -> int:
        """Sum over the parts."""
        parts = self.attention + self.ffn + self.experts + self.router + self.norms
        return parts + self.fusion


def kv_heads_per_rank(block: Block, tp: int) -> int:
    """Return ``max(1, h_kv / tp)``: KV heads are replicated once ``tp`` exceeds them."""
    return max(1, block.num_kv_heads // tp) if block.num_heads else 0


def check_tensor_parallel(
    model: Layered | Sequence[Block], tp: int, *, ep: int = 1, attention_dp: int = 1
) -> None:
    """Refuse a tensor-parallel degree that cannot shard the layers.

    Parameters
    ----------
    model : Layered or sequence of Block
        The layers.
    tp : int
        Tensor-parallel degree.
    ep, attention_dp : int
        As of :class:`simspec.models.stack.Stack`; they change how far an expert is split.

    Raises
    ------
    ConfigError
        ``tp`` does not divide the heads or the FFN, or neither divides nor is a multiple of the
        KV heads; the message lists the degrees that work.
    """
    blocks = _distinct(_blocks(model))

    def problems_at(degree: int) -> list[str]:
        found = (_sharding_problem(block, degree, degree * attention_dp / ep) for block in blocks)
        return [problem for problem in found if problem]

    problems = problems_at(tp)
    if problems:
        valid = [n for n in range(1, 129) if not problems_at(n)]
        choices = ", ".join(str(n) for n in valid)
        raise ConfigError(f"tp={tp} {problems[0]}; degrees that work: {choices}", field="tp")


def check_expert_parallel(
    model: Layered | Sequence[Block], tp: int, *, ep: int, attention_dp: int
) -> None:
    """Refuse a layout of experts that no engine could give these layers.

    Parameters
    ----------
    model : Layered or sequence of Block
        The layers.
    tp, ep, attention_dp : int
        As of :class:`simspec.models.stack.Stack`.

    Raises
    ------
    ConfigError
        There are no experts, or ``ep`` divides neither the ranks nor the experts.
    """
    if ep == attention_dp == 1:
        return
    counts = {block.moe.num_experts for block in _blocks(model) if block.moe is not None}
    ranks = tp * attention_dp
    if not counts and ep > 1:
        problem = f"{ep} needs experts to divide, and this model has none; leave it out"
        raise ConfigError(problem, field="expert_parallel")
    if not counts:
        raise ConfigError(
            f"{attention_dp} shares nothing between its groups in a model without experts; "
            "leave it out and multiply the load by the number of replicas",
            field="attention_data_parallel",
        )
    if ranks % ep:
        valid = ", ".join(str(n) for n in range(1, ranks + 1) if ranks % n == 0)
        raise ConfigError(
            f"{ep} does not divide the {ranks} GPUs of tp {tp} and attention_data_parallel "
            f"{attention_dp}; degrees that work: {valid}",
            field="expert_parallel",
        )
    for num_experts in sorted(counts):
        if num_experts % ep:
            raise ConfigError(
                f"{ep} does not divide the {num_experts} experts of a layer",
                field="expert_parallel",
            )


def block_params(block: Block, tp: int = 1, *, ep: int = 1, attention_dp: int = 1) -> BlockParams:
    """Return the parameters of one layer, or of its share on one rank.

    Parameters
    ----------
    block : Block
        The layer.
    tp, ep, attention_dp : int
        As of :class:`simspec.models.stack.Stack`.

    Raises
    ------
    ConfigError
        ``tp`` cannot shard this layer.
    """
    if not tp == ep == attention_dp == 1:
        check_tensor_parallel((block,), tp, ep=ep, attention_dp=attention_dp)
    d = block.hidden_size
    moe = block.moe
    ffn = _ffn_params(d, block.intermediate_size // tp, block)
    experts = router = 0
    if moe is not None:
        width = moe.expert_intermediate_size * ep // (tp * attention_dp)
        experts = moe.num_experts // ep * _ffn_params(d, width, block)
        shared_width = moe.num_shared_experts * moe.shared_intermediate_size // tp
        ffn += _ffn_params(d, shared_width, block)
        router = d * moe.num_experts
        router += moe.num_experts if moe.router_bias else 0
        router += d if moe.shared_expert_gate else 0
    return BlockParams(
        attention=_attention_params(block, tp),
        ffn=ffn,
        experts=experts,
        router=router,
        norms=_norm_params(block, tp),
        fusion=(block.fused_size or 0) * d,
    )


def embedding_params(arch: Architecture, tp: int = 1) -> int:
    """Return ``ceil(V / tp) d``: the input embedding, sharded over the vocabulary."""
    return -(-arch.vocab_size // tp) * arch.hidden_size


def head_params(arch: Architecture, tp: int = 1) -> int:
    """Return the LM head's own parameters: none where it is tied to the embedding."""
    if arch.tied_embeddings:
        return 0
    vocab = arch.vocab_size if arch.draft_head is None else arch.draft_head.vocab_size
    return -(-vocab // tp) * arch.hidden_size


def model_params(arch: Architecture) -> int:
    """Return all parameters of the language model: layers, embedding, head, final norm.

    For a draft head also the projection that fuses the target's states.
    """
    layers = sum(block_params(block).total for block in arch.blocks)
    fusion = 0 if arch.draft_head is None else arch.draft_head.fused_states * arch.hidden_size**2
    return layers + embedding_params(arch) + head_params(arch) + arch.hidden_size + fusion


def active_params(arch: Architecture) -> int:
    """Return the parameters one token goes through: of the routed experts only those it picks."""
    idle = 0
    for block in arch.blocks:
        if block.moe is not None:
            moe = block.moe
            each = block_params(block).experts // moe.num_experts
            idle += each * (moe.num_experts - moe.experts_per_token)
    return model_params(arch) - idle


def kv_values_per_token(block: Block, tp: int = 1) -> int:
    """Return the values one token leaves in this layer's KV cache, on one of ``tp`` ranks."""
    if not block.num_heads:
        return 0
    if block.mla is not None:
        return block.mla.kv_lora_rank + block.mla.qk_rope_head_dim
    return 2 * kv_heads_per_rank(block, tp) * block.head_dim


def kv_bytes_per_token(
    model: Layered | Sequence[Block], kv_dtype_name: str = "bf16", tp: int = 1
) -> float:
    """Return the KV-cache bytes of one token over all layers, per rank.

    Sliding layers count in full; ``kv_bytes`` knows their windows.

    Parameters
    ----------
    model : Layered or sequence of Block
        The layers that keep a cache.
    kv_dtype_name : str
        Format of the cache.
    tp : int
        Tensor-parallel degree.
    """
    values = sum(kv_values_per_token(block, tp) for block in _blocks(model))
    return values * kv_dtype(kv_dtype_name).bytes_per_value


def kv_bytes(
    model: Layered | Sequence[Block], kv_dtype_name: str, context_len: int, tp: int = 1
) -> float:
    """Return the KV-cache bytes one sequence needs at ``context_len`` tokens, per rank.

    A sliding layer holds no more than its window.
    """
    values = sum(
        kv_values_per_token(block, tp) * min(context_len, block.sliding_window or context_len)
        for block in _blocks(model)
    )
    return values * kv_dtype(kv_dtype_name).bytes_per_value


def weights_bytes(
    model: Architecture | Layered,
    weight_dtype: str,
    tp: int = 1,
    *,
    ep: int = 1,
    attention_dp: int = 1,
) -> float:
    """Return the bytes of the weights on one rank.

    Each part is stored in the bits the format gives it (``DType.bits``): under serving formats
    such as fp8 or int4_g128, norms, router, embedding and LM head stay in 16 bit.

    Parameters
    ----------
    model : Architecture or Layered
        An ``Architecture`` counts with embedding, LM head and final norm; a bare stack of
        layers (an adapter, a draft layer) without, since it shares the target's.
    weight_dtype : str
        Format of the quantised parts.
    tp, ep, attention_dp : int
        As of :class:`simspec.models.stack.Stack`.

    Raises
    ------
    ConfigError
        Unknown format, or a ``tp`` that cannot shard the layers.
    """
    check_tensor_parallel(model, tp, ep=ep, attention_dp=attention_dp)
    form = dtype(weight_dtype)
    total_bits = 0.0
    for block, repeats in _counted(model.blocks).items():
        params = block_params(block, tp, ep=ep, attention_dp=attention_dp)
        total_bits += repeats * (
            params.attention * form.bits("attention")
            + params.ffn * form.bits("ffn")
            + params.experts * form.bits("experts")
            + params.router * form.bits("router")
            + params.norms * form.bits("norms")
            + params.fusion * form.bits("ffn")
        )
    if isinstance(model, Architecture):
        total_bits += embedding_params(model, tp) * form.bits("embedding")
        total_bits += head_params(model, tp) * form.bits("head")
        total_bits += model.hidden_size * form.bits("norms")
        if model.draft_head is not None:
            fusion = model.draft_head.fused_states * model.hidden_size**2
            total_bits += fusion * form.bits("ffn")
    return total_bits / 8.0


def _blocks(model: Layered | Sequence[Block]) -> Sequence[Block]:
    return model if isinstance(model, Sequence) else model.blocks


def _counted(blocks: Sequence[Block]) -> dict[Block, int]:
    counted: dict[Block, int] = {}
    for block in blocks:
        counted[block] = counted.get(block, 0) + 1
    return counted


def _distinct(blocks: Sequence[Block]) -> list[Block]:
    return list(_counted(blocks))


def _sharding_problem(block: Block, tp: int, moe_tp: float) -> str | None:
    if tp < 1:
        return "is not a number of ranks"
    if block.num_heads % tp:
        return f"does not divide the {block.num_heads} attention heads"
    h_kv = block.num_kv_heads
    if block.mla is None and h_kv and h_kv % tp and tp % h_kv:
        return f"neither divides the {h_kv} KV heads nor is a multiple of them"
    moe = block.moe
    if moe is not None and moe_tp % 1:
        return "times attention_data_parallel is no multiple of expert_parallel"
    widths = {"FFN width": (block.intermediate_size, float(tp))}
    if moe is not None:
        shared_width = moe.num_shared_experts * moe.shared_intermediate_size
        widths["expert width"] = (moe.expert_intermediate_size, moe_tp)
        widths["shared-expert width"] = (shared_width, float(tp))
    for what, (width, ranks) in widths.items():
        if width % ranks:
            return f"does not divide the {what} {width}"
    return None


def _attention_params(block: Block, tp: int) -> int:
    if not block.num_heads:
        return 0
    heads = block.num_heads // tp
    if block.mla is not None:
        return _mla_params(block, heads)
    d, d_h = block.hidden_size, block.head_dim
    qkv_width = (heads + 2 * kv_heads_per_rank(block, tp)) * d_h
    params = (block.qkv_input_size or d) * qkv_width + heads * d_h * d
    params += qkv_width if block.qkv_bias else 0
    params += d if block.o_bias else 0
    params += heads if block.attention_sinks else 0
    return params


def _mla_params(block: Block, heads: int) -> int:
    """Down-projections are on every rank, up-projections and output are sharded by head."""
    mla, d = block.mla, block.hidden_size
    assert mla is not None
    q_width = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    if mla.q_lora_rank is None:
        query = d * q_width
    else:
        query = d * mla.q_lora_rank + mla.q_lora_rank * q_width
    down = d * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    up = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return query + down + up + heads * mla.v_head_dim * d


def _ffn_params(d: int, width: int, block: Block) -> int:
    if not width:
        return 0
    columns = 2 if block.gated_ffn else 1
    params = (columns + 1) * d * width
    return params + (columns * width + d if block.mlp_bias else 0)


def _norm_params(block: Block, tp: int) -> int:
    params = block.num_norms * block.hidden_size
    if block.mla is not None:
        return params + block.mla.kv_lora_rank + (block.mla.q_lora_rank or 0)
    if block.qk_norm and block.qk_norm_weights == "per_head":
        params += 2 * block.head_dim
    if block.qk_norm and block.qk_norm_weights == "per_layer":
        params += (block.num_heads // tp + kv_heads_per_rank(block, tp)) * block.head_dim
    return params
