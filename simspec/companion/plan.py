"""What to time on a machine: sizes, and the list of timings in the order they are taken.

Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from simspec.traces.samples import Machine, Sample

_HEAD_DIM = 128
_MEMORY_SHARE = 0.4
"""Of the memory that one timing may take."""


@dataclass(frozen=True, slots=True)
class StackShape:
    """Sizes of the stack whose steps are timed."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """What to time; every combination of a kind's sizes that the memory holds."""

    rows: tuple[int, ...]
    """Rows of products."""
    weights: tuple[tuple[int, int], ...]
    """``(n, k)`` of products."""
    elementwise_rows: tuple[int, ...]
    widths: tuple[int, ...]
    heads: tuple[tuple[int, int], ...]
    """``(h, h_kv)`` of attention."""
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    new_tokens: tuple[int, ...]
    """Of a verify pass; 1 is plain decoding."""
    prompts: tuple[int, ...]
    stack: StackShape
    steps: tuple[tuple[int, int, int], ...]
    """``(batch, new tokens, context)`` of passes over the stack."""
    messages: tuple[int, ...] = tuple(16 * round(2 ** (8 + i / 3)) for i in range(43))
    """Bytes of all-reduces: 4 KB to 64 MB."""


# Fits are judged on the weights that a hash of their name deals to the other half; these sizes
# put small and large ones on both sides.
_SMALL = (
    (512, 512), (1024, 768), (4096, 1024), (2048, 4096),
    (1024, 1024), (2048, 1024), (3072, 1024), (1536, 4096),
)  # fmt: skip
_QUICK = Sizes(
    rows=(1, 2, 4, 8, 16, 64, 256),
    weights=_SMALL,
    elementwise_rows=(1, 4, 16, 64, 256),
    widths=(1024, 4096),
    # Groups of other sizes: reading the cache again and computing on it again grow alike, but for
    # the queries that share a KV head.
    heads=((8, 2), (8, 8)),
    batches=(1, 2, 4),
    contexts=(128, 256, 512, 1024),
    new_tokens=(1, 2, 4, 8),
    prompts=(128, 160, 192, 256, 320, 384, 512, 768),
    stack=StackShape(2, 1024, 8, 2, _HEAD_DIM, 2816, 8192),
    steps=((1, 1, 256), (1, 4, 256), (4, 1, 512), (4, 4, 512)),
)
_FULL = replace(
    _QUICK,
    rows=(1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256, 512),
    weights=(*_SMALL, (4096, 2048), (5632, 2048), (2048, 5632), (4096, 4096), (32000, 2048)),
    elementwise_rows=(1, 2, 4, 8, 16, 64, 256, 1024),
    widths=(1024, 2048, 4096),
    heads=((8, 2), (16, 4), (8, 8)),
    batches=(1, 2, 4, 8),
    contexts=(128, 512, 1024, 2048, 4096),
    new_tokens=(1, 2, 3, 4, 5, 6, 7, 8),
    prompts=(128, 192, 256, 384, 512, 768, 1024, 2048),
    stack=StackShape(4, 2048, 16, 4, _HEAD_DIM, 5632, 32000),
    steps=tuple((b, n, c) for b in (1, 4, 8) for n in (1, 2, 4, 8) for c in (256, 1024)),
)
_LARGE = replace(
    _FULL,
    rows=(*_FULL.rows, 1024, 2048, 4096),
    weights=(*_FULL.weights, (8192, 8192), (14336, 4096), (4096, 14336), (28672, 8192)),
    elementwise_rows=(*_FULL.elementwise_rows, 4096),
    widths=(4096, 8192, 14336),
    heads=((32, 8), (32, 32), (64, 8)),
    batches=(1, 4, 16, 64),
    contexts=(512, 1024, 2048, 4096, 8192, 16384),
    prompts=(*_FULL.prompts, 4096, 8192),
    stack=StackShape(16, 4096, 32, 8, _HEAD_DIM, 14336, 32000),
    steps=tuple((b, n, c) for b in (1, 8, 32) for n in (1, 2, 4, 8) for c in (1024, 4096)),
)


def sizes_for(kind: str, *, is_quick: bool) -> Sizes:
    """Return what to time on a kind of device."""
    if is_quick:
        return _QUICK
    return _FULL if kind == "cpu" else _LARGE


def plan(machine: Machine, dtypes: Sequence[str], sizes: Sizes, flush_bytes: int) -> list[Sample]:
    """Return everything to time, without results, in the order it is timed.

    Parameters
    ----------
    flush_bytes : int
        Bytes that no cache holds: what is copied and read.
    """
    num_devices = machine.num_devices
    wanted = [Sample("launch", "fp32")]
    for dtype in dtypes:
        wanted += [Sample(kind, dtype, {"num_bytes": flush_bytes}) for kind in ("copy", "read")]
        wanted += [Sample("gemm", dtype, shape) for shape in _gemm_shapes(sizes)]
        wanted += [Sample(kind, dtype, shape) for kind, shape in _elementwise_shapes(sizes)]
        wanted += [Sample("decode_attention", dtype, shape) for shape in _decode_shapes(sizes)]
        wanted += [Sample("prefill_attention", dtype, shape) for shape in _prompt_shapes(sizes)]
        wanted += [Sample("step", dtype, shape) for shape in _step_shapes(sizes)]
        if num_devices > 1:
            wanted += [
                Sample("all_reduce", dtype, {"ranks": ranks, "num_bytes": size})
                for ranks in (2, 4, 8, 16)
                if ranks <= num_devices
                for size in sizes.messages
            ]
    limit = _MEMORY_SHARE * machine.memory_bytes
    return [sample for sample in wanted if _needed_bytes(sample) < limit]


# -- shapes --------------------------------------------------------------------------------


def _gemm_shapes(sizes: Sizes) -> Iterator[dict[str, int]]:
    for n, k in sizes.weights:
        for m in sizes.rows:
            yield {"m": m, "n": n, "k": k}


def _elementwise_shapes(sizes: Sizes) -> Iterator[tuple[str, dict[str, int]]]:
    for rows in sizes.elementwise_rows:
        for width in sizes.widths:
            yield "norm", {"rows": rows, "width": width}
            yield "activation", {"rows": rows, "width": width}
        for heads, kv_heads in sizes.heads:
            yield "rope", {"rows": rows, **_of_heads(heads, kv_heads)}


def _decode_shapes(sizes: Sizes) -> Iterator[dict[str, int]]:
    for heads, kv_heads in sizes.heads:
        for batch in sizes.batches:
            for context in sizes.contexts:
                for new_tokens in sizes.new_tokens:
                    lengths = {"batch": batch, "context": context, "new_tokens": new_tokens}
                    yield lengths | _of_heads(heads, kv_heads)


def _prompt_shapes(sizes: Sizes) -> Iterator[dict[str, int]]:
    # Few sizes of one kind of attention are too few rows for a fit: twice and half the heads too.
    for heads, kv_heads in sizes.heads:
        for scale in (1, 2):
            for batch in (1, 2):
                for tokens in sizes.prompts:
                    yield {
                        "batch": batch,
                        "tokens": tokens,
                        **_of_heads(heads * scale, kv_heads * scale),
                    }


def _step_shapes(sizes: Sizes) -> Iterator[dict[str, int]]:
    for batch, new_tokens, context in sizes.steps:
        lengths = {"batch": batch, "new_tokens": new_tokens, "context": context}
        yield {**asdict(sizes.stack), **lengths}


def _of_heads(heads: int, kv_heads: int) -> dict[str, int]:
    return {"heads": heads, "kv_heads": kv_heads, "head_dim": _HEAD_DIM}


def _needed_bytes(sample: Sample) -> float:
    """Return about how much memory a timing takes."""
    shape, width = sample.shape, _width(sample.dtype)
    if sample.kind == "gemm":
        return width * (shape["n"] * shape["k"] + shape["m"] * (shape["n"] + shape["k"]))
    if sample.kind == "decode_attention":
        slots = shape["batch"] * (shape["context"] + shape["new_tokens"])
        return 2.0 * width * slots * shape["kv_heads"] * shape["head_dim"]
    if sample.kind == "prefill_attention":
        # Kernels that do not tile hold a matrix of scores.
        return 4.0 * shape["batch"] * shape["heads"] * shape["tokens"] ** 2
    if sample.kind == "step":
        of_layer = shape["hidden"] * (3 * shape["ffn"] + 4 * shape["hidden"])
        return width * (shape["layers"] * of_layer + 2 * shape["vocab"] * shape["hidden"])
    return float(shape.get("num_bytes", 0)) * 2.0


def _width(dtype: str) -> int:
    return 4 if dtype == "fp32" else 2
