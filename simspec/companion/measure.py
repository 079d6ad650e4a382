"""Time the kernels of a decoder on this machine, one after another.

What is timed is planned first (:mod:`simspec.companion.plan`), so that progress can be shown and a
stopped run goes on; :mod:`simspec.calibration.own_machine` turns the timings into a hardware
profile. Buffers rotate, so that weights and caches come from memory as in a real step, which passes
over the whole model in between, and not from a cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import torch
import torch.nn.functional as F

from simspec.companion import kernels
from simspec.companion.device import DTYPES, Call, Device, Timing
from simspec.companion.plan import StackShape
from simspec.companion.stack import TorchStack
from simspec.traces.samples import Sample

_MOST_COPIES = 64


def measured(
    wanted: Iterable[Sample], device: Device, done: Mapping[tuple[object, ...], Sample]
) -> Iterator[Sample]:
    """Yield each sample with its time; those of ``done`` are not timed again."""
    stacks: dict[tuple[str, StackShape], TorchStack] = {}
    for sample in wanted:
        if sample.key in done:
            yield done[sample.key]
            continue
        timing = _timed(sample, device, stacks)
        yield replace(sample, seconds=timing.seconds, spread=timing.spread)


def _timed(
    sample: Sample, device: Device, stacks: dict[tuple[str, StackShape], TorchStack]
) -> Timing:
    if sample.kind == "launch":
        return device.launch_seconds()
    if sample.kind == "step":
        shape = StackShape(
            **{name: sample.shape[name] for name in (field.name for field in fields(StackShape))}
        )
        key = (sample.dtype, shape)
        if key not in stacks:
            stacks.clear()
            stacks[key] = TorchStack(shape, device, sample.dtype)
        size = sample.shape
        with torch.inference_mode():
            call = stacks[key].step(size["batch"], size["new_tokens"], size["context"])
        return device.seconds(call)
    with torch.inference_mode():
        call = _CALLS[sample.kind](device, sample.dtype, **sample.shape)
    return device.seconds(call, captured=sample.kind != "all_reduce")


# -- one kernel of a kind ------------------------------------------------------------------


def _copies(device: Device, num_bytes: int) -> int:
    return max(1, min(_MOST_COPIES, -(-device.flush_bytes // num_bytes)))


def _buffers(device: Device, dtype: str, *shape: int) -> list[Any]:
    one = device.tensor(*shape, dtype=dtype)
    others = _copies(device, one.numel() * one.element_size()) - 1
    return [one, *(one.clone() for _ in range(others))]


def _copy(device: Device, dtype: str, *, num_bytes: int) -> Call:
    source = device.tensor(num_bytes // _width(dtype), dtype=dtype)
    target = torch.empty_like(source)
    return lambda _: target.copy_(source)


def _read(device: Device, dtype: str, *, num_bytes: int) -> Call:
    source = device.tensor(num_bytes // _width(dtype), dtype=dtype)
    return lambda _: source.sum()


def _gemm(device: Device, dtype: str, *, m: int, n: int, k: int) -> Call:
    x, weights = device.tensor(m, k, dtype=dtype), _buffers(device, dtype, n, k)
    return lambda i: F.linear(x, weights[i % len(weights)])


def _norm(device: Device, dtype: str, *, rows: int, width: int) -> Call:
    x, residual = (device.tensor(rows, width, dtype=dtype) for _ in range(2))
    weight = device.tensor(width, dtype=dtype)
    return lambda _: kernels.norm(x, residual, weight)


def _activation(device: Device, dtype: str, *, rows: int, width: int) -> Call:
    gate_up = device.tensor(rows, 2 * width, dtype=dtype)
    return lambda _: kernels.activation(gate_up)


def _rope(
    device: Device, dtype: str, *, rows: int, heads: int, kv_heads: int, head_dim: int
) -> Call:
    qkv = device.tensor(1, rows, (heads + 2 * kv_heads) * head_dim, dtype=dtype)
    cache = device.tensor(2, 1, kv_heads, rows, head_dim, dtype=dtype)
    turns = kernels.angles(0, rows, head_dim, cache)
    return lambda _: kernels.rotate_and_cache(qkv, turns, cache, 0)


def _decode(
    device: Device, dtype: str, *, batch: int, context: int, new_tokens: int,
    heads: int, kv_heads: int, head_dim: int,
) -> Call:  # fmt: skip
    q = device.tensor(batch, new_tokens, heads, head_dim, dtype=dtype)
    caches = _buffers(device, dtype, 2, batch, kv_heads, context + new_tokens, head_dim)
    mask = kernels.causal_mask(new_tokens, context, heads // kv_heads, q)
    return lambda i: kernels.attend(q, caches[i % len(caches)], mask)


def _prompt(
    device: Device, dtype: str, *, batch: int, tokens: int, heads: int, kv_heads: int, head_dim: int
) -> Call:
    q = device.tensor(batch, heads, tokens, head_dim, dtype=dtype)
    k, v = (device.tensor(batch, kv_heads, tokens, head_dim, dtype=dtype) for _ in range(2))
    return lambda _: kernels.attend_prompt(q, k, v)


def _all_reduce(device: Device, dtype: str, *, ranks: int, num_bytes: int) -> Call:
    """Sum over the GPUs of this machine by NCCL, from one process."""
    size = num_bytes // _width(dtype)
    message = device.tensor(size, dtype=dtype)
    tensors = [message.to(f"cuda:{rank}") for rank in range(ranks)]

    def run(_: int) -> None:
        torch.cuda.nccl.all_reduce(tensors)
        for rank in range(ranks):
            torch.cuda.synchronize(rank)

    return run


_CALLS: dict[str, Any] = {
    "copy": _copy,
    "read": _read,
    "gemm": _gemm,
    "norm": _norm,
    "activation": _activation,
    "rope": _rope,
    "decode_attention": _decode,
    "prefill_attention": _prompt,
    "all_reduce": _all_reduce,
}


def _width(dtype: str) -> int:
    return int(DTYPES[dtype].itemsize)
