"""Predicted times of many kernels at once.

FLOP and bytes are those the cost model's operators count (:mod:`simspec.cost.operators`), which
a test holds to; rates, times and collectives are the cost model's own functions, with arrays.
"""

from __future__ import annotations

import numpy as np

from simspec.core.errors import SimspecError
from simspec.cost.collectives._base import CollectiveKind, collective
from simspec.cost.operators._base import GemmFormat, Place
from simspec.cost.operators._pairs import windowed
from simspec.cost.roofline import attention_seconds, product_seconds
from simspec.cost.work import RowKind, Rows, Stack
from simspec.hardware.profile import Hardware
from simspec.models.dtypes import bytes_per_value, dtype
from simspec.validation.tables._kernel_table import Array, KernelTable, Mask


def gemm_format(hardware: Hardware, weight_dtype: str) -> GemmFormat:
    """Return how a device multiplies weights of one format."""
    return _place(hardware, weight_dtype=weight_dtype).gemm("ffn")


def predict_gemm(table: KernelTable, chosen: Mask, weight_dtype: str) -> None:
    """Predict products of ``m`` tokens with ``[k x n]`` weights.

    ``2 m k n`` FLOP and ``k n b_w + m (k b_in + n b_out)`` bytes.
    """
    m, n, k = (table.number(name)[chosen] for name in ("m", "n", "k"))
    form = gemm_format(table.hardware, weight_dtype)
    flop = 2.0 * m * k * n
    num_bytes = k * n * form.weight_bytes + m * (k * form.input_bytes + n * form.output_bytes)
    seconds = np.asarray(product_seconds(m, flop, num_bytes, form.product_rate(k, n)))
    table.predict(chosen, seconds, (flop, num_bytes), form.rate)
    table.audit(
        chosen,
        (flop, num_bytes),
        dtype(weight_dtype).compute_on(table.hardware.peak_flop_per_s),
    )


def predict_attention(
    table: KernelTable, chosen: Mask, *, kind: RowKind, kv_dtype: str, window: int | None
) -> None:
    """Predict attention over ``step`` cached tokens and ``isl`` added ones (1 in a decode).

    ``4 h d_h B n (c + (n + 1) / 2)`` FLOP and ``2 h_kv d_h b_kv B (c + n) + 2 h d_h b_a B n``
    bytes, both within the window.
    """
    batch, cached = (table.number(name)[chosen] for name in ("batch_size", "step"))
    new = table.number("isl")[chosen] if kind == "prefill" else np.ones_like(batch)
    head_dim = table.number("head_dim")[chosen]
    query = table.number("num_heads")[chosen] * head_dim
    kv_values = 2.0 * table.number("num_key_value_heads")[chosen] * head_dim
    rows = Rows(
        kind=kind,
        num_sequences=batch,
        num_tokens=batch * new,
        kv_tokens=batch * (cached + new),
        attended_tokens=batch * new * (cached + (new + 1.0) / 2.0),
        logit_rows=0,
    )
    kv_tokens, pairs = rows.kv_tokens, rows.attended_tokens
    if window is not None:
        kv_tokens, pairs = windowed(rows, window)
    where = _place(table.hardware, kv_dtype=kv_dtype)
    rate = where.attention_rate(kind, table.number("num_key_value_heads")[chosen])
    once = kind == "prefill" or table.hardware.kv_reads == "once_per_pass"
    kv_bytes = kv_values * bytes_per_value(kv_dtype) * (kv_tokens if once else pairs)
    flop = np.asarray(4.0 * query * pairs)
    num_bytes = np.asarray(kv_bytes + 2.0 * query * where.activation_bytes * rows.num_tokens)
    seconds = np.asarray(attention_seconds(batch, batch * new, flop, num_bytes, rate))
    table.predict(chosen, seconds, (flop, num_bytes), rate)
    table.audit(chosen, (flop, num_bytes), "bf16")


def predict_collective(
    table: KernelTable, chosen: Mask, message_bytes: Array, *, kind: CollectiveKind, tp: int
) -> None:
    """Predict collectives of ``tp`` ranks over the device link, messages of all chosen rows."""
    try:
        kernel = collective(kind, kind, bytes_per_row=1.0, tp=tp, hardware=table.hardware)
    except SimspecError as error:
        table.leave_out(chosen, "unsupported", str(error))
        return
    seconds = np.asarray(kernel.seconds(message_bytes))
    latency_s = np.asarray(kernel.seconds(np.zeros_like(message_bytes)))
    table.predicted_s[chosen] = seconds
    table.parts["overhead_s"][chosen] = latency_s
    table.parts["memory_s"][chosen] = seconds - latency_s


def _place(hardware: Hardware, *, weight_dtype: str = "bf16", kv_dtype: str = "bf16") -> Place:
    """Return a place whose kernels can be asked for without a model."""
    stack = Stack("kernels", (), 1, 1, weight_dtype, kv_dtype, tp=1)
    return Place("block", None, stack, hardware)
