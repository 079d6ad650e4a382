"""Number formats: bits per weight, the rate they compute at, and what they cover.

Bits include the scales stored beside the weights: a group of ``g`` weights of ``b`` bits with
``s`` bits of scale and zero point takes ``b + s / g`` bits per weight.

A format that is *weight only* is unpacked on chip and multiplied at the 16-bit rate; it saves
bytes, not FLOPs. A format with quantised activations multiplies at its own rate where the
device has one, and falls back to weight-only where it has not (``DType.compute_on``): NVFP4 on a
Hopper card is unpacked to bf16. MXFP4 weights meet 8-bit activations at the FP8 rate on devices
with FP4 units, whose tensor cores mix the two widths, and are weight only elsewhere.

Formats also differ in what they leave alone. Serving checkpoints (fp8, AWQ, GPTQ, NVFP4) keep
embedding, LM head, router and norms in 16 bit; llama.cpp and MLX files quantise the embedding
and the head too. Checkpoints of mixtures often quantise the experts and nothing else (gpt-oss in
MXFP4, Kimi-K2.5 in int4), or every feed-forward but no attention (DeepSeek-R1 in NVFP4).
``DType.bits`` answers per part, and both the memory and the cost model ask it. Left out: the
distribution of quantisation levels inside llama.cpp's mixed files, whose average is used for
every part.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from simspec.core.errors import ConfigError, nearest

Part = Literal["attention", "ffn", "experts", "router", "norms", "embedding", "head"]
"""The parts of a model whose weights may be stored in different formats."""

Coverage = Literal["everything", "matrices", "layers", "ffn", "experts"]
"""What a format stores in its own bits: everything, every matrix (router apart), the matrices
of the layers, those of the feed-forwards (experts included), or the routed experts; the rest
stays in 16 bit."""

_COVERED: dict[Coverage, frozenset[Part]] = {
    "everything": frozenset(
        {"attention", "ffn", "experts", "router", "norms", "embedding", "head"}
    ),
    "matrices": frozenset({"attention", "ffn", "experts", "embedding", "head"}),
    "layers": frozenset({"attention", "ffn", "experts"}),
    "ffn": frozenset({"ffn", "experts"}),
    "experts": frozenset({"experts"}),
}

_UNCOVERED_BITS = 16.0
_SAME_RATE = {"bf16": "fp16", "fp16": "bf16"}


@dataclass(frozen=True, slots=True)
class DType:
    """One number format.

    Attributes
    ----------
    name : str
        What a scenario writes under ``dtype`` or ``kv_dtype``.
    bits_per_weight : float, bits
        Average over a quantised matrix, scales included.
    compute_dtype : str
        The rate it multiplies at: a key of ``Hardware.peak_flop_per_s``.
    activation_bytes : float, bytes
        One activation entering a matrix product: 2 for weight-only formats, 1 for W8A8.
    covers : Coverage
        Which parts of a model it applies to.
    cache : bool
        Whether engines store KV caches in it.
    source : str
        Where the bits come from.
    needs : str
        A rate the device must have for ``compute_dtype`` to apply; empty: none but its own.
    """

    name: str
    bits_per_weight: float
    compute_dtype: str
    activation_bytes: float
    covers: Coverage
    cache: bool
    source: str
    needs: str = ""

    @property
    def weight_only(self) -> bool:
        """Whether weights are unpacked to 16 bit before they are multiplied."""
        return self.bits_per_weight < 16.0 and self.activation_bytes >= 2.0

    @property
    def bytes_per_value(self) -> float:
        """Bytes of one value, scales included."""
        return self.bits_per_weight / 8.0

    def bits(self, part: Part) -> float:
        """Return the bits per weight of one part of the model."""
        return self.bits_per_weight if part in _COVERED[self.covers] else _UNCOVERED_BITS

    def compute_on(self, available: Collection[str]) -> str:
        """Return the rate this format multiplies at on a device that has ``available`` rates.

        Its own if the device has it; otherwise the 16-bit rate, as engines then unpack the
        weights (FP8 on an A100). Wider formats have no such way out.

        Raises
        ------
        ConfigError
            The device can run it at no known rate.
        """
        candidates = self._rates(available)
        for candidate in candidates:
            if candidate in available:
                return candidate
        raise ConfigError(
            f"dtype {self.name!r} computes at {' or '.join(candidates)}, which the device has no "
            f"rate for; it has: {', '.join(sorted(available)) or 'none'}"
        )

    def runs_on(self, available: Collection[str]) -> bool:
        """Return whether a device that has ``available`` rates can run this format."""
        return any(candidate in available for candidate in self._rates(available))

    def _rates(self, available: Collection[str]) -> list[str]:
        own = self.compute_dtype
        rates = [own, _SAME_RATE[own]] if own in _SAME_RATE else [own]
        if self.needs and self.needs not in available:
            rates = []
        if self.bits_per_weight < 16.0:
            rates += [rate for rate in ("bf16", "fp16") if rate not in rates]
        return rates


_IEEE = "width of the format"
_GGML = "block layouts of llama.cpp's ggml-common.h"
_FP8_TILES = "DeepSeek-V3, arXiv:2412.19437, section 3.3: 32-bit scale per 128x128, inputs per 128"
_MXFP4 = "OCP MX: one 8-bit scale per 32, inputs in MXFP8 where there are FP4 units"
_MXFP4_EXPERTS = f"{_MXFP4}; gpt-oss model card, arXiv:2508.10925, section 2.1"
_INT4_EXPERTS = "16-bit scale per 32, symmetric; Kimi-K2.5 checkpoint"
_GGUF_MIX = "llama.cpp quantize table for Llama-2-7B, file size over parameters"


def _table() -> dict[str, DType]:
    rows: list[DType] = [
        # Plain formats.
        DType("fp32", 32.0, "fp32", 4.0, "everything", True, _IEEE),
        DType("bf16", 16.0, "bf16", 2.0, "everything", True, _IEEE),
        DType("fp16", 16.0, "fp16", 2.0, "everything", True, _IEEE),
        # Serving formats with quantised activations.
        DType("fp8", 8.0, "fp8", 1.0, "layers", True, "scales per tensor or channel"),
        DType("fp8_static", 8.0, "fp8", 1.0, "layers", False, "fp8 with input scales known before"),
        DType("fp8_block", 8.001953125, "fp8", 1.03125, "layers", False, _FP8_TILES),
        DType("int8", 8.0, "int8", 1.0, "layers", True, "W8A8, scales per channel"),
        DType("nvfp4", 4.5, "fp4", 0.5625, "layers", False, "one 8-bit scale per 16 values"),
        DType("nvfp4_ffn", 4.5, "fp4", 0.5625, "ffn", False, "as nvfp4; nvidia/DeepSeek-R1-FP4"),
        DType("mxfp4", 4.25, "fp8", 1.03125, "experts", False, _MXFP4_EXPERTS, needs="fp4"),
        DType("mxfp4_layers", 4.25, "fp8", 1.03125, "layers", False, _MXFP4, needs="fp4"),
        # Serving formats that only shrink the weights.
        DType("fp8_weight_only", 8.0, "bf16", 2.0, "layers", False, "scales per channel"),
        DType("int8_weight_only", 8.0, "bf16", 2.0, "layers", False, "scales per channel"),
        DType("int4_g128", 4.25, "bf16", 2.0, "layers", False, "16-bit scale and zero per 128"),
        DType("int4_g64", 4.5, "bf16", 2.0, "layers", False, "16-bit scale and zero per 64"),
        DType("int4_g32", 5.0, "bf16", 2.0, "layers", False, "16-bit scale and zero per 32"),
        DType("int4_g32_experts", 4.5, "bf16", 2.0, "experts", False, _INT4_EXPERTS),
        DType("nf4", 4.127, "bf16", 2.0, "layers", False, "QLoRA, arXiv:2305.14314, section 3"),
        # llama.cpp and MLX files.
        DType("q4_0", 4.5, "fp16", 2.0, "matrices", True, _GGML),
        DType("q4_1", 5.0, "fp16", 2.0, "matrices", True, _GGML),
        DType("q5_0", 5.5, "fp16", 2.0, "matrices", True, _GGML),
        DType("q5_1", 6.0, "fp16", 2.0, "matrices", True, _GGML),
        DType("q8_0", 8.5, "fp16", 2.0, "matrices", True, _GGML),
        DType("q6_k", 6.5625, "fp16", 2.0, "matrices", False, _GGML),
        DType("q4_k_m", 4.85, "fp16", 2.0, "matrices", False, _GGUF_MIX),
        DType("q5_k_m", 5.69, "fp16", 2.0, "matrices", False, _GGUF_MIX),
        DType("mlx_4bit", 4.5, "fp16", 2.0, "matrices", False, "16-bit scale and bias per 64"),
        DType("mlx_4bit_g32", 5.0, "fp16", 2.0, "matrices", False, "16-bit scale and bias per 32"),
        DType("mlx_5bit", 5.5, "fp16", 2.0, "matrices", False, "16-bit scale and bias per 64"),
        DType("mlx_5bit_g32", 6.0, "fp16", 2.0, "matrices", False, "16-bit scale and bias per 32"),
        DType("mlx_6bit", 6.5, "fp16", 2.0, "matrices", False, "16-bit scale and bias per 64"),
        DType("mlx_8bit", 8.5, "fp16", 2.0, "matrices", False, "16-bit scale and bias per 64"),
    ]
    return {row.name: row for row in rows}


DTYPES: dict[str, DType] = _table()
"""Every known format by name."""


def dtype(name: str) -> DType:
    """Return the format called ``name``.

    Raises
    ------
    ConfigError
        Unknown name; the message offers the nearest one.
    """
    found = DTYPES.get(name)
    if found is None:
        raise ConfigError(f"unknown dtype {name!r}; {nearest(name, DTYPES)}")
    return found


def kv_dtype(name: str) -> DType:
    """Return the format called ``name`` if engines keep KV caches in it.

    Raises
    ------
    ConfigError
        Unknown, or a format for weights only.
    """
    caches = [known.name for known in DTYPES.values() if known.cache]
    found = DTYPES.get(name)
    if found is None:
        raise ConfigError(f"unknown KV dtype {name!r}; {nearest(name, caches)}")
    if not found.cache:
        raise ConfigError(f"no engine keeps its KV cache in {name!r}; {nearest(name, caches)}")
    return found


def bytes_per_value(name: str) -> float:
    """Return the bytes of one value in the format ``name``, scales included.

    >>> bytes_per_value("bf16"), bytes_per_value("q8_0")
    (2.0, 1.0625)
    """
    return dtype(name).bytes_per_value
