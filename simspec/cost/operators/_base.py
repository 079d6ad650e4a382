"""What an operator file offers: the kernels it launches at a place of the network.

Each module of this package has one function ``kernels(place) -> Sequence[Kernel]`` and returns
nothing where it has nothing to do, so :func:`kernels_of` asks all of them everywhere. All work
is that of one tensor-parallel rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from simspec.core.registry import Registry
from simspec.cost.operators._pairs import PairKernel, Work
from simspec.cost.roofline import (
    Bound,
    KernelRate,
    fit_of,
    kernel_rate,
    product_seconds,
    ruling_bound,
)
from simspec.cost.work import Quantity, RowKind, Stack
from simspec.hardware.profile import Hardware, KernelFit
from simspec.models.arch import Block
from simspec.models.dtypes import DType, Part, bytes_per_value, dtype

OPERATORS = Registry("simspec.cost.operators", "operator")

Site: TypeAlias = Literal["embedding", "block", "head"]


class RowKernel(Protocol):
    """A kernel whose work depends on the number of rows alone.

    Rows are the pass's tokens in a block or the embedding, its logit rows in the head.
    """

    @property
    def name(self) -> str:
        """What a breakdown calls it."""
        ...

    @property
    def is_network(self) -> bool:
        """Whether its bytes travel between devices."""
        ...

    @property
    def is_gathered(self) -> bool:
        """Whether its rows are those of all groups of an attention-data-parallel stack."""
        ...

    def work(self, rows: Quantity) -> Work:
        """Return FLOP and bytes of one launch over ``rows`` rows."""
        ...

    def seconds(self, rows: Quantity) -> Quantity:
        """Return the time of one launch over ``rows`` rows."""
        ...

    def bound(self, rows: float) -> Bound:
        """Return what rules that time."""
        ...


Kernel: TypeAlias = RowKernel | PairKernel


@dataclass(frozen=True, slots=True)
class AffineKernel:
    """A :class:`RowKernel` whose FLOP and bytes grow linearly with the rows."""

    name: str
    rate: KernelRate
    flop_per_row: float
    bytes_per_row: float
    fixed_bytes: float = 0.0
    """Weights, read once per launch."""
    is_network: bool = False
    is_gathered: bool = False

    def work(self, rows: Quantity) -> Work:
        """Return FLOP and bytes of one launch over ``rows`` rows."""
        return Work(rows * self.flop_per_row, self.fixed_bytes + rows * self.bytes_per_row)

    def seconds(self, rows: Quantity) -> Quantity:
        """Return the time of one launch over ``rows`` rows."""
        flop, num_bytes = self.work(rows)
        return product_seconds(rows, flop, num_bytes, self.rate)

    def bound(self, rows: float) -> Bound:
        """Return what rules that time."""
        flop, num_bytes = self.work(rows)
        return ruling_bound(float(flop), float(num_bytes), self.rate)


@dataclass(frozen=True, slots=True)
class GemmFormat:
    """Bytes per value and rate of a matrix product with the weights of one part of a model."""

    weight_bytes: float
    input_bytes: float
    output_bytes: float
    rate: KernelRate
    depth_s: float = 0.0
    """Seconds per input feature: a tile adds up its products in steps."""
    quantise_s: float = 0.0
    """Seconds per activation that is brought into the format first."""
    tile_columns: int = 0
    """Columns one multiprocessor computes at once; 0: waves of tiles are not counted."""
    multiprocessors: int = 0

    def product_rate(self, in_features: Any, out_features: Any) -> KernelRate:
        """Return the rate of a ``[k x n]`` product; numbers or arrays."""
        waves = None
        if self.tile_columns:
            waves = np.ceil(out_features / self.tile_columns) / self.multiprocessors
        return replace(
            self.rate,
            overhead_s=self.rate.overhead_s + in_features * self.depth_s,
            row_s=in_features * self.quantise_s,
            waves=waves,
        )

    def kernel(
        self, name: str, in_features: float, out_features: float, *, has_bias: bool = False
    ) -> AffineKernel:
        """Return one ``[k x n]`` product on one rank.

        ``2 T k n`` FLOP and ``k n b_w + T (k b_in + n b_out)`` bytes.

        Parameters
        ----------
        name : str
            What a breakdown calls it.
        in_features, out_features : float
            k and n of this rank.
        has_bias : bool
            Whether n biases are added, stored like the weights.
        """
        return AffineKernel(
            name=name,
            rate=self.product_rate(in_features, out_features),
            flop_per_row=2.0 * in_features * out_features,
            bytes_per_row=in_features * self.input_bytes + out_features * self.output_bytes,
            fixed_bytes=(in_features + has_bias) * out_features * self.weight_bytes,
        )


def gemm_compute_dtype(hardware: Hardware, form: DType) -> str:
    """Return the rate at which ``hardware`` multiplies weights stored as ``form``."""
    return form.compute_on(hardware.peak_flop_per_s.keys() & hardware.gemm.keys())


def _gemm_fit(hardware: Hardware, form: DType, compute: str) -> KernelFit:
    """Return the fit of the format itself, of formats unpacked first, or of what is multiplied."""
    unpacks = form.bits_per_weight < 16.0 and (form.weight_only or compute != form.compute_dtype)
    names = [form.name, "weight_only", compute] if unpacks else [form.name, compute]
    return next(hardware.gemm[name] for name in names if name in hardware.gemm)


@dataclass(frozen=True, slots=True)
class Place:
    """Where kernels are asked for: a site of a stack on a device."""

    site: Site
    block: Block | None
    """The layer; None outside ``site == "block"``."""
    stack: Stack
    hardware: Hardware

    @property
    def activation_bytes(self) -> float:
        """Bytes of one activation between kernels."""
        return bytes_per_value(self.stack.activation_dtype)

    @property
    def kv_bytes(self) -> float:
        """Bytes of one cached value."""
        return bytes_per_value(self.stack.kv_dtype)

    def weight_bytes(self, part: Part) -> float:
        """Bytes of one weight of ``part``."""
        return dtype(self.stack.weight_dtype).bits(part) / 8.0

    def gemm(self, part: Part) -> GemmFormat:
        """Return how products with the weights of ``part`` are stored and computed."""
        hardware, output_bytes = self.hardware, self.activation_bytes
        weights = dtype(self.stack.weight_dtype)
        is_quantised = weights.bits(part) == weights.bits_per_weight
        form = weights if is_quantised else dtype(self.stack.activation_dtype)
        compute = gemm_compute_dtype(hardware, form)
        fit = _gemm_fit(hardware, form, compute)
        # A device without the format's own rate unpacks the weights and leaves activations.
        is_native = compute == form.compute_dtype
        return GemmFormat(
            weight_bytes=weights.bits(part) / 8.0,
            input_bytes=min(form.activation_bytes, output_bytes) if is_native else output_bytes,
            output_bytes=output_bytes,
            rate=kernel_rate(hardware, fit, compute),
            depth_s=fit.depth_s,
            quantise_s=fit.quantise_s,
            tile_columns=fit.tile_columns,
            multiprocessors=hardware.multiprocessors,
        )

    def elementwise_kernel(
        self,
        name: str,
        values_per_row: float,
        *,
        bytes_per_row: float = 0.0,
        fixed_bytes: float = 0.0,
        is_gathered: bool = False,
    ) -> AffineKernel:
        """Return a kernel that only moves data.

        Parameters
        ----------
        name : str
            What a breakdown calls it.
        values_per_row : float
            Activations read and written for each row.
        bytes_per_row : float, bytes
            Other traffic of a row (cache entries, embedding rows).
        fixed_bytes : float, bytes
            Weights, read once per launch.
        is_gathered : bool
            As of :class:`RowKernel`.
        """
        hardware = self.hardware
        compute = dtype(self.stack.activation_dtype).compute_on(hardware.peak_flop_per_s)
        return AffineKernel(
            name=name,
            rate=kernel_rate(hardware, hardware.elementwise, compute),
            flop_per_row=0.0,
            bytes_per_row=values_per_row * self.activation_bytes + bytes_per_row,
            fixed_bytes=fixed_bytes,
            is_gathered=is_gathered,
        )

    def attention_rate(self, kind: RowKind, kv_heads: Any) -> KernelRate:
        """Return the rate of the attention kernel that serves row groups of ``kind``.

        ``kv_heads``, a number or an array, are those of the rank: their set-up and their new
        keys and values cost time besides the roofline.

        The products run at the activation type. Where the profile has no efficiencies for the
        KV type, those of the 16-bit kernels stand in (the bytes stay those of the KV type).
        """
        hardware = self.hardware
        fits = hardware.decode_attention if kind == "decode" else hardware.prefill_attention
        stored = self.stack.kv_dtype
        known = next((name for name in (stored, "bf16", "fp16") if name in fits), stored)
        compute = dtype(self.stack.activation_dtype).compute_on(hardware.peak_flop_per_s)
        fit = fit_of(hardware, f"{kind} attention", fits, known)
        return replace(
            kernel_rate(hardware, fit, compute),
            sequence_s=kv_heads * fit.sequence_s if kind == "decode" else 0.0,
            row_s=kv_heads * fit.token_s if kind == "prefill" else 0.0,
        )


def kernels_of(place: Place) -> Sequence[Kernel]:
    """Return every kernel the operators launch at ``place``."""
    found: list[Kernel] = []
    for name in OPERATORS.names():
        found.extend(OPERATORS.module(name).kernels(place))
    return found
