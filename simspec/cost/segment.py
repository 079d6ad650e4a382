"""The kernels of a run of layers, each once with its count, and their totals by rows.

Kernels that see only the number of rows are summed into a table over integer rows, built a
stretch at a time by the vectorised formulas, so that the simulator looks a pass up instead of
pricing every kernel of every layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from simspec.cost.collectives._base import CollectiveKind, collective
from simspec.cost.operators._base import Kernel, Place, RowKernel, kernels_of
from simspec.cost.operators._pairs import PairKernel
from simspec.cost.work import Quantity, RowKind, Stack
from simspec.hardware.profile import Hardware

_FIRST_TABLE_LEN = 512
_TABLE_LIMIT = 1 << 16
"""More rows than this are priced directly: no engine's token budget reaches it."""


class Totals(NamedTuple):
    """What a set of kernels takes and does on one rank."""

    seconds: Quantity
    network_s: Quantity
    """Of ``seconds``, those of collectives."""
    flop: Quantity
    num_bytes: Quantity
    """Device memory traffic."""


NOTHING = Totals(0.0, 0.0, 0.0, 0.0)


class RowTable:
    """Row kernels with their counts, and the totals of all of them for each number of rows."""

    def __init__(self, kernels: Iterable[tuple[RowKernel, int]]) -> None:
        self.kernels = tuple(kernels)
        self.launches = sum(count for _, count in self.kernels)
        self.entries: list[Totals] = []
        """The table so far, entry ``n`` for ``n`` rows; it grows in place."""

    def at(self, rows: float) -> Totals:
        """Return the totals for a number of rows; integers come from the table."""
        index = int(rows)
        if index < len(self.entries) and index == rows:
            return self.entries[index]
        if index != rows or index >= _TABLE_LIMIT:
            return self.totals(rows)
        self._grow(index)
        return self.entries[index]

    def totals(self, rows: Quantity) -> Totals:
        """Return the totals for a number or an array of rows, without the table."""
        seconds: Quantity = 0.0
        network_s: Quantity = 0.0
        flop: Quantity = 0.0
        num_bytes: Quantity = 0.0
        for kernel, count in self.kernels:
            kernel_s = count * kernel.seconds(rows)
            seconds = seconds + kernel_s
            if kernel.is_network:
                network_s = network_s + kernel_s
                continue
            work = kernel.work(rows)
            flop = flop + count * work.flop
            num_bytes = num_bytes + count * work.num_bytes
        return Totals(seconds, network_s, flop, num_bytes)

    def _grow(self, rows: int) -> None:
        # Doubling keeps the work of building proportional to the largest table.
        length = max(_FIRST_TABLE_LEN, 1 << rows.bit_length())
        span = np.arange(length, dtype=np.float64)
        columns = [np.broadcast_to(column, span.shape).tolist() for column in self.totals(span)]
        table = [Totals(*entry) for entry in zip(*columns, strict=True)]
        table[0] = NOTHING  # a pass without rows is not launched
        self.entries[:] = table


class Segment:
    """Layers ``[first, last)`` of a stack, with or without the embedding below them."""

    def __init__(
        self, stack: Stack, hardware: Hardware, first_layer: int, last_layer: int, *, embeds: bool
    ) -> None:
        counted: dict[Kernel, int] = {}
        if embeds:
            _count(counted, kernels_of(Place("embedding", None, stack, hardware)), 1)
        for block, repeats in Counter(stack.blocks[first_layer:last_layer]).items():
            place = Place("block", block, stack, hardware)
            kernels = [*kernels_of(place), *_all_reduces(place), *_exchanges(place)]
            _count(counted, kernels, repeats)
        rows = _row_kernels(counted)
        shares = stack.attention_dp > 1
        self.tokens = RowTable(row for row in rows if not (shares and row[0].is_gathered))
        self.gathered = RowTable(row for row in rows if shares and row[0].is_gathered)
        """Kernels over the tokens of all groups of an attention-data-parallel stack."""
        self.attention: dict[RowKind, tuple[tuple[PairKernel, int], ...]] = {
            kind: tuple(
                (kernel, count)
                for kernel, count in counted.items()
                if isinstance(kernel, PairKernel) and kernel.row_kind == kind
            )
            for kind in ("decode", "prefill")
        }
        self.attention_launches = {
            kind: sum(count for _, count in kernels) for kind, kernels in self.attention.items()
        }


def head_table(stack: Stack, hardware: Hardware) -> RowTable:
    """Return the kernels that make logits: final norm, product, gather across ranks."""
    counted: dict[Kernel, int] = {}
    place = Place("head", None, stack, hardware)
    _count(counted, kernels_of(place), 1)
    if stack.tp > 1:
        gather = collective(
            "all_gather",
            "logits_gather",
            bytes_per_row=stack.vocab_size * place.activation_bytes,
            tp=stack.tp,
            hardware=hardware,
        )
        _count(counted, [gather], 1)
    return RowTable(_row_kernels(counted))


def _all_reduces(place: Place) -> list[RowKernel]:
    """One after the attention and one after the feed-forward, ``T d b_a`` bytes each.

    Layers that sum both at once exchange once.
    """
    block, tp = place.block, place.stack.tp
    if tp == 1 or block is None:
        return []
    has_ffn = block.moe is not None or block.intermediate_size > 0
    all_reduce = collective(
        "all_reduce",
        "all_reduce",
        bytes_per_row=block.hidden_size * place.activation_bytes,
        tp=tp,
        hardware=place.hardware,
    )
    if block.is_parallel:
        return [all_reduce]
    return [all_reduce] * ((block.num_heads > 0) + has_ffn)


def _exchanges(place: Place) -> list[RowKernel]:
    """Collect the tokens of all groups for the experts and give each group its own sums back.

    An all-gather before and a reduce-scatter after the experts of ``T d b_a`` bytes over the
    ``attention_dp`` groups, T the tokens of all of them, as vLLM does by default and
    TensorRT-LLM within a node. An all-to-all would send less where a token meets fewer ranks.
    """
    block, groups = place.block, place.stack.attention_dp
    if groups == 1 or block is None or block.moe is None:
        return []
    bytes_per_row = block.hidden_size * place.activation_bytes
    kinds: dict[CollectiveKind, str] = {
        "all_gather": "expert_gather",
        "reduce_scatter": "expert_scatter",
    }
    return [
        collective(
            kind,
            name,
            bytes_per_row=bytes_per_row,
            tp=groups,
            hardware=place.hardware,
            is_gathered=True,
        )
        for kind, name in kinds.items()
    ]


def _count(counted: dict[Kernel, int], kernels: Sequence[Kernel], repeats: int) -> None:
    for kernel in kernels:
        counted[kernel] = counted.get(kernel, 0) + repeats


def _row_kernels(counted: dict[Kernel, int]) -> list[tuple[RowKernel, int]]:
    return [(k, count) for k, count in counted.items() if not isinstance(k, PairKernel)]
