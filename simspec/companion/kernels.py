"""The kernels a decoder runs, as plain torch: what is timed one by one and in a stack.

Shapes stand beside the lines; ``T`` rows (new tokens of all sequences), ``B`` sequences, ``n`` new
tokens each, ``c`` tokens cached before, ``h`` and ``g`` query heads and query heads per KV head,
``d`` width of a head. Queries that share a KV head are one block of rows, so that its keys are
read once for all of them.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def norm(x: Any, residual: Any, weight: Any) -> tuple[Any, Any]:
    """Add the residual and normalise (RMSNorm); ``[T, width]``."""
    total = residual + x
    return F.rms_norm(total, (total.shape[-1],), weight, 1e-5), total


def activation(gate_up: Any) -> Any:
    """Return ``silu(gate) * up``; ``[T, 2 width] -> [T, width]``."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def angles(first: int, num: int, head_dim: int, like: Any) -> tuple[Any, Any]:
    """Return cosines and sines of positions ``first .. first + num - 1``; ``[n, 1, d]``."""
    rates = 10000.0 ** (-torch.arange(0, head_dim, 2, device=like.device) / head_dim)
    turned = torch.outer(torch.arange(first, first + num, device=like.device), rates)
    both = torch.cat((turned, turned), dim=-1)[:, None, :]
    return both.cos().to(like.dtype), both.sin().to(like.dtype)


def rotate_and_cache(qkv: Any, turns: tuple[Any, Any], cache: Any, first: int) -> Any:
    """Rotate queries and keys, write keys and values into the cache, return the queries.

    ``qkv [B, n, (h + 2 h_kv) d]``, ``turns`` of :func:`angles`, ``cache [2, B, h_kv, slots, d]``
    written from slot ``first``. Returns ``[B, n, h, d]``.
    """
    batch, num, width = qkv.shape
    kv_heads, head_dim = cache.shape[2], cache.shape[-1]
    heads, (cos, sin) = width // head_dim - 2 * kv_heads, turns
    x = qkv.view(batch, num, heads + 2 * kv_heads, head_dim)
    turning = x[:, :, : heads + kv_heads]
    half = head_dim // 2
    swapped = torch.cat((-turning[..., half:], turning[..., :half]), dim=-1)
    turned = turning * cos + swapped * sin
    cache[0, :, :, first : first + num] = turned[:, :, heads:].transpose(1, 2)
    cache[1, :, :, first : first + num] = x[:, :, heads + kv_heads :].transpose(1, 2)
    return turned[:, :, :heads]


def causal_mask(num: int, context: int, group: int, like: Any) -> Any:
    """Return which of ``context + n`` tokens each of ``n`` new ones sees; ``[n g, c + n]``.

    None for one new token, which sees all.
    """
    if num == 1:
        return None
    seen = torch.arange(context + num, device=like.device)
    own = context + torch.arange(num, device=like.device)
    return (seen[None, :] <= own[:, None]).repeat_interleave(group, dim=0)


def attend(q: Any, cache: Any, mask: Any) -> Any:
    """Return the attention of few new tokens over the whole cache.

    ``q [B, n, h, d]``, ``cache [2, B, h_kv, c + n, d]``; returns ``[B, n, h d]``.
    """
    batch, num, heads, head_dim = q.shape
    kv_heads = cache.shape[2]
    group = heads // kv_heads
    rows = q.view(batch, num, kv_heads, group, head_dim).permute(0, 2, 1, 3, 4)
    rows = rows.reshape(batch, kv_heads, num * group, head_dim)
    out = F.scaled_dot_product_attention(rows, cache[0], cache[1], attn_mask=mask)
    out = out.view(batch, kv_heads, num, group, head_dim).permute(0, 2, 1, 3, 4)
    return out.reshape(batch, num, heads * head_dim)


def attend_prompt(q: Any, k: Any, v: Any) -> Any:
    """Return causal attention of whole prompts; ``[B, h, n, d]``, KV ``[B, h_kv, n, d]``."""
    shared = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared)
