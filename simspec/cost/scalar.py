"""The device time of a pass over decode-like rows as one function of five numbers.

The same kernels and formulas as in ``forward``, in the same order, with every constant of a pass
looked up beforehand: the simulator prices some ten passes a round, and the look-ups cost more
than the arithmetic. A test compares the two on every kind of layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from simspec.cost.operators._pairs import PairKernel
from simspec.cost.roofline import attention_seconds
from simspec.cost.segment import RowTable, Segment
from simspec.cost.work import Rows

Numbers: TypeAlias = tuple[Any, Any, Any, Any, Any]
"""num_sequences, num_tokens, kv_tokens, attended_tokens and logit_rows of a row group."""
Priced: TypeAlias = tuple[float, float, float, float]
"""Seconds, of them those of collectives, FLOP, bytes."""
DecodePass: TypeAlias = Callable[[Any, Any, Any, Any, Any], Priced]


def decode_pass(segment: Segment, head: RowTable | None, launch_s: float) -> DecodePass:
    """Return the price of a pass of one decode-like row group with at least one token.

    Parameters
    ----------
    segment : Segment
        Its layers, without kernels over the tokens of other groups of ranks.
    head : RowTable or None
        The kernels that make logits; None: no row needs any.
    launch_s : float
        Host time per launch that kernels can hide behind; 0 under captured graphs.
    """
    launches = segment.tokens.launches + segment.attention_launches["decode"]
    wait_s = (launches + (head.launches if head is not None else 0)) * launch_s
    kernels = segment.attention["decode"]
    if len(kernels) == 1 and _is_plain(kernels[0][0]):
        return _one_kernel(segment.tokens, *kernels[0], head, wait_s)
    return _any_kernels(segment.tokens, kernels, head, wait_s)


def _is_plain(kernel: PairKernel) -> bool:
    return (
        type(kernel) is PairKernel
        and kernel.window is None
        and kernel.kv_reads == "once_per_pass"
        and not kernel.flop_per_context_token
    )


def _one_kernel(
    rows: RowTable, kernel: PairKernel, count: int, head: RowTable | None, wait_s: float
) -> DecodePass:
    table, at = rows.entries, rows.at
    heads, head_at = (None, None) if head is None else (head.entries, head.at)
    rate = kernel.rate
    flop_per_pair, bytes_per_kv_token = kernel.flop_per_pair, kernel.bytes_per_kv_token
    bytes_per_row = kernel.bytes_per_row
    flop_per_s, bytes_per_s, overhead_s = rate.flop_per_s, rate.bytes_per_s, rate.overhead_s
    sequence_s, row_s = rate.sequence_s, rate.row_s
    sharpness, root = rate.sharpness, 1.0 / rate.sharpness
    is_smooth = sharpness != math.inf

    def price(
        num_sequences: Any, tokens: Any, kv_tokens: Any, attended: Any, logit_rows: Any
    ) -> Priced:
        try:
            seconds, network_s, flop, num_bytes = table[tokens]
        except (IndexError, TypeError):
            seconds, network_s, flop, num_bytes = at(tokens)
        # PairKernel.work and attention_seconds, written out.
        pair_flop = attended * flop_per_pair
        kv_bytes = kv_tokens * bytes_per_kv_token + tokens * bytes_per_row
        high = pair_flop / flop_per_s
        low = kv_bytes / bytes_per_s
        if low > high:
            high, low = low, high
        if is_smooth and high != 0:
            high *= (1.0 + (low / high) ** sharpness) ** root
        seconds += count * (high + overhead_s + (num_sequences * sequence_s + tokens * row_s))
        flop += count * pair_flop
        num_bytes += count * kv_bytes
        if heads is not None:
            try:
                head_s, head_network_s, head_flop, head_bytes = heads[logit_rows]
            except (IndexError, TypeError):
                head_s, head_network_s, head_flop, head_bytes = head_at(logit_rows)  # type: ignore[misc]
            seconds += head_s
            network_s += head_network_s
            flop += head_flop
            num_bytes += head_bytes
        return (seconds if seconds > wait_s else wait_s), network_s, flop, num_bytes

    return price


def _any_kernels(
    rows: RowTable,
    kernels: Sequence[tuple[PairKernel, int]],
    head: RowTable | None,
    wait_s: float,
) -> DecodePass:
    def price(
        num_sequences: Any, tokens: Any, kv_tokens: Any, attended: Any, logit_rows: Any
    ) -> Priced:
        of_rows: Any = rows.at(tokens)
        seconds, network_s, flop, num_bytes = of_rows
        group = Rows("decode", num_sequences, tokens, kv_tokens, attended, logit_rows)
        for kernel, count in kernels:
            pair_flop, kv_bytes = kernel.work(group)
            seconds += count * attention_seconds(
                num_sequences, tokens, pair_flop, kv_bytes, kernel.rate
            )
            flop += count * pair_flop
            num_bytes += count * kv_bytes
        if head is not None:
            of_head: Any = head.at(logit_rows)
            seconds += of_head.seconds
            network_s += of_head.network_s
            flop += of_head.flop
            num_bytes += of_head.num_bytes
        return (seconds if seconds > wait_s else wait_s), network_s, flop, num_bytes

    return price
