"""Kernels that work on query-key pairs: attention, priced per row group.

Only sums over the sequences of a group are known. Without a window every formula is linear in
them, so the sums are exact; with a sliding window the group is treated as equal sequences,
which is exact when they are and never too low otherwise (min is concave, Jensen).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simspec.cost.roofline import (
    Bound,
    KernelRate,
    attention_seconds,
    larger,
    ruling_bound,
    smaller,
)
from simspec.cost.work import Quantity, RowKind, Rows
from simspec.hardware.profile import KvReads


class Work(NamedTuple):
    """What one kernel does on one rank."""

    flop: Quantity
    num_bytes: Quantity
    """Device memory traffic; of a collective, the bytes on the wire."""


@dataclass(frozen=True, slots=True)
class PairKernel:
    """Attention of one layer over one row group."""

    name: str
    row_kind: RowKind
    rate: KernelRate
    flop_per_pair: float
    """Per query-key pair: scores and weighted sum, all heads of the rank."""
    bytes_per_kv_token: float
    """KV of one token in this layer on this rank."""
    bytes_per_row: float
    """Queries read and outputs written, per new token."""
    kv_reads: KvReads
    window: int | None = None
    """Tokens a query sees, itself included."""
    flop_per_context_token: float = 0.0
    """Per token already cached, once per pass (MLA prefill expands the latents again)."""

    def work(self, rows: Rows) -> Work:
        """Return FLOP and bytes of one launch over a row group.

        ``4 h d_h sum n_i (c_i + (n_i + 1)/2)`` FLOP and ``2 h_kv d_h b_kv sum (c_i + n_i)``
        bytes of KV for plain attention: every KV entry is read once per pass, or once for each
        query token where ``kv_reads`` says so.
        """
        kv_tokens, pairs = rows.kv_tokens, rows.attended_tokens
        if self.window is not None:
            kv_tokens, pairs = windowed(rows, self.window)
        read = kv_tokens if self.kv_reads == "once_per_pass" else pairs
        flop = pairs * self.flop_per_pair
        if self.flop_per_context_token:
            flop = flop + (rows.kv_tokens - rows.num_tokens) * self.flop_per_context_token
        return Work(flop, read * self.bytes_per_kv_token + rows.num_tokens * self.bytes_per_row)

    def seconds(self, rows: Rows) -> Quantity:
        """Return the time of one launch over a row group."""
        flop, num_bytes = self.work(rows)
        return attention_seconds(rows.num_sequences, rows.num_tokens, flop, num_bytes, self.rate)

    def bound(self, rows: Rows) -> Bound:
        """Return what rules that time."""
        flop, num_bytes = self.work(rows)
        return ruling_bound(float(flop), float(num_bytes), self.rate)


def windowed(rows: Rows, window: int) -> tuple[Quantity, Quantity]:
    """Return the KV tokens and query-key pairs of a group under a sliding window.

    A query sees itself and the ``window - 1`` tokens before it. With ``n`` new tokens on a
    context ``c``, the ``n`` windows together cover ``min(c + n, window + n - 1)`` tokens, and
    the pairs are ``sum_{j=1..n} min(c + j, window)``: the first ``k = clip(window - c, 0, n)``
    queries see everything before them, the others ``window`` tokens each.
    """
    num_sequences = larger(rows.num_sequences, _SMALLEST)
    n = rows.num_tokens / num_sequences
    c = rows.kv_tokens / num_sequences - n
    k = smaller(larger(window - c, 0.0), n)
    pairs = k * c + k * (k + 1.0) / 2.0 + (n - k) * window
    visible = smaller(c + n, window + n - 1.0)
    return num_sequences * visible, num_sequences * pairs


_SMALLEST = 1e-12
"""Keeps an empty group (no sequences, no tokens) away from 0 / 0."""
