"""A mixture-of-experts feed-forward: router, routed experts, shared experts.

Weights are read for the distinct experts a pass hits, ``E_r (1 - (1 - k/E_r)^T)`` in expectation
over independent uniform routing. A verify pass of m+1 tokens reads more experts than a decode of
one, so speculation pays less than in a dense model until a decode step hits nearly all experts
by itself (Huang et al., "MoESD", arXiv 2505.19645).

Without expert parallelism every expert is divided among the ranks, which then work alike. With
it (``ep``) a rank holds ``E_r / ep`` experts whole, or split over the ``moe_tp`` ranks that share
them, and the step waits for the busiest one. Under uniform routing the routes that fall on a
rank are hypergeometric for each token: mean ``k / ep``, variance
``k / ep (1 - 1/ep) (E_r - k) / (E_r - 1)``; its distinct experts have the mean above over ``ep``
and the variance of as many draws without replacement. The busiest of ``ep`` ranks is the
expected largest of as many normal variables with a fixed sum (:func:`busiest_excess`).

With attention data parallelism the experts see the tokens of all groups, gathered before and
scattered after them (``simspec.cost.segment``); router and shared experts see their own group's.

Left out: the correlation of the routes of neighbouring tokens (fewer distinct experts), experts
that are popular with all texts (more imbalance), replicated experts (less).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from simspec.cost.operators._base import AffineKernel, GemmFormat, Place, RowKernel
from simspec.cost.operators._pairs import Work
from simspec.cost.roofline import Bound, larger, product_seconds, ruling_bound, smaller
from simspec.cost.work import Quantity
from simspec.models.arch import Block, MoE


def distinct_experts(
    num_tokens: Quantity,
    num_experts: int,
    experts_per_token: int,
    routing_shape: float = math.inf,
) -> Quantity:
    """Return the expected number of different experts that ``num_tokens`` tokens are sent to.

    ``E_r (1 - (1 - k/E_r)^T)``: an expert is missed by one token with probability
    ``1 - k/E_r``, and by all of them independently.

    Where experts are not equally popular, let the rate ``-ln(1 - k/E_r)`` at which a further
    token finds one vary between experts by a gamma law of shape ``a`` and that mean. Its Laplace
    transform in place of the power leaves, of the experts the first token missed,
    ``(E_r - k) (1 - (T - 1) ln(1 - k/E_r) / a)^-a`` unhit; ``a`` infinite is the formula above.
    """
    if experts_per_token >= num_experts:
        return float(num_experts)
    if routing_shape != math.inf:
        rate = -math.log1p(-experts_per_token / num_experts)
        further = larger(num_tokens - 1.0, 0.0)
        unhit = (num_experts - experts_per_token) * (
            1.0 + further * rate / routing_shape
        ) ** -routing_shape
        return (num_experts - unhit) * smaller(num_tokens, 1.0)
    # expm1 keeps few tokens among many experts exact, where 1 - (1 - x)^T would cancel.
    missed = num_tokens * np.log1p(-experts_per_token / num_experts)
    hit: Quantity = -num_experts * np.expm1(missed)
    return hit if isinstance(hit, np.ndarray) else float(hit)


@cache
def busiest_excess(num_ranks: int) -> float:
    """Return by how many standard deviations the busiest of some ranks exceeds the mean.

    The expected largest of ``n`` normal variables (Blom, "Statistical estimates and transformed
    beta-variables", 1958: ``Phi^-1((n - 3/8) / (n + 1/4))``) times ``sqrt(n / (n - 1))``, since
    loads with a fixed sum are that much farther apart than independent ones.
    """
    if num_ranks == 1:
        return 0.0
    largest = NormalDist().inv_cdf((num_ranks - 0.375) / (num_ranks + 0.25))
    return largest * math.sqrt(num_ranks / (num_ranks - 1))


@dataclass(frozen=True, slots=True)
class ExpertKernel:
    """One grouped ``[k x n]`` product over all experts that the rows are sent to."""

    name: str
    form: GemmFormat
    in_features: float
    out_features: float
    num_experts: int
    experts_per_token: int
    has_bias: bool = False
    ep: int = 1
    """Ranks the experts are divided over; the work is that of the busiest."""
    shares_input: bool = False
    """Whether the experts of a token read the same input, which is then quantised once."""
    is_network: bool = False
    is_gathered: bool = True
    padding_rows: float = 0.0
    """Rows of each expert's last tile that hold no token."""
    routing_shape: float = math.inf

    def work(self, rows: Quantity) -> Work:
        """Return FLOP and bytes of one launch over ``rows`` tokens."""
        k, n, form = self.in_features, self.out_features, self.form
        routed, distinct = self._load(rows)
        read = self._experts_read(routed, distinct)
        weights = read * ((k + self.has_bias) * n * form.weight_bytes)
        return Work(
            routed * (2.0 * k * n),
            weights + routed * (k * form.input_bytes + n * form.output_bytes),
        )

    def seconds(self, rows: Quantity) -> Quantity:
        """Return the time of one launch over ``rows`` tokens."""
        flop, num_bytes = self.work(rows)
        # Each expert is a product of its own, with its share of the rows.
        routed, distinct = self._load(rows)
        flop = flop + distinct * (self.padding_rows * 2.0 * self.in_features * self.out_features)
        per_expert = routed / larger(distinct, 1.0)
        form, k = self.form, self.in_features
        product_s = product_seconds(
            per_expert,
            flop,
            num_bytes,
            replace(form.product_rate(k, self.out_features), row_s=0.0),
        )
        inputs = rows if self.shares_input else routed
        return product_s + inputs * (k * form.quantise_s)

    def _experts_read(self, routed: Quantity, distinct: Quantity) -> Quantity:
        """Return how often the weights of an expert are read.

        Once for each expert that is hit; by matrix-vector kernels, which take few rows each,
        once for each route.
        """
        vector_rows = self.form.rate.vector_rows
        if not vector_rows:
            return distinct
        is_few = np.asarray(routed) <= vector_rows * np.asarray(distinct)
        read = np.where(is_few, routed, distinct)
        return float(read) if read.ndim == 0 else read

    def bound(self, rows: float) -> Bound:
        """Return what rules that time."""
        flop, num_bytes = self.work(rows)
        return ruling_bound(float(flop), float(num_bytes), self.form.rate)

    def _load(self, rows: Quantity) -> tuple[Quantity, Quantity]:
        """Return the routes and the distinct experts of the busiest rank."""
        experts, per_token, ep = self.num_experts, self.experts_per_token, self.ep
        routed = rows * per_token
        distinct = distinct_experts(rows, experts, per_token, self.routing_shape)
        if ep == 1:
            return routed, distinct
        excess, local = busiest_excess(ep), experts / ep
        spread = (1.0 - 1.0 / ep) / max(experts - 1.0, 1.0)
        deviation = np.sqrt(routed / ep * (experts - per_token) * spread)
        hit = distinct / experts
        distinct_deviation = np.sqrt(local * hit * (1.0 - hit) * experts * spread)
        return (
            smaller(routed / ep + excess * deviation, rows * min(per_token, local)),
            smaller(distinct / ep + excess * distinct_deviation, local),
        )


def kernels(place: Place) -> Sequence[RowKernel]:
    """Return the kernels of a feed-forward made of experts."""
    block = place.block
    if block is None or block.moe is None:
        return ()
    return [*_routed(place, block, block.moe), *_shared(place, block, block.moe)]


def _routed(place: Place, block: Block, moe: MoE) -> list[RowKernel]:
    d, k, stack = block.hidden_size, moe.experts_per_token, place.stack
    ep, num_experts = stack.ep, moe.num_experts
    width = moe.expert_intermediate_size / stack.moe_tp
    columns = 2 if block.gated_ffn else 1
    form = _grouped(place)
    bias, grouped = block.mlp_bias, place.hardware.grouped
    in_step: dict[str, Any] = {
        "padding_rows": grouped.grouped_padding_rows,
        "routing_shape": grouped.routing_shape,
    }
    return [
        place.gemm("router").kernel("router", d, num_experts, has_bias=moe.router_bias),
        # Reads the router's scores, writes a weight and an index for each route.
        place.elementwise_kernel("top_k", num_experts + 2 * k),
        ExpertKernel(
            "experts_up", form, d, columns * width, num_experts, k, bias, ep, True, **in_step
        ),
        place.elementwise_kernel(
            "experts_activation", (columns + 1) * k * width / ep, is_gathered=True
        ),
        ExpertKernel("experts_down", form, width, d, num_experts, k, bias, ep, **in_step),
        # Sums the expert outputs of a token that this rank made.
        place.elementwise_kernel("combine", (k / ep + 1) * d, is_gathered=True),
    ]


def _grouped(place: Place) -> GemmFormat:
    """Return the format of the experts, at the rates the engine's grouped products reach."""
    form, grouped = place.gemm("experts"), place.hardware.grouped
    rate = form.rate
    if isinstance(rate.tile_rows, tuple):
        # The tiles of plain products; grouped ones fill theirs expert by expert.
        rate = replace(rate, tile_rows=1)
    return replace(
        form,
        tile_columns=0,
        rate=replace(
            rate,
            flop_per_s=rate.flop_per_s * grouped.grouped_flop_share,
            bytes_per_s=rate.bytes_per_s * grouped.grouped_bandwidth_share,
            overhead_s=rate.overhead_s + grouped.grouped_overhead_s,
        ),
    )


def _shared(place: Place, block: Block, moe: MoE) -> list[AffineKernel]:
    if not moe.num_shared_experts:
        return []
    d, columns = block.hidden_size, 2 if block.gated_ffn else 1
    width = moe.num_shared_experts * moe.shared_intermediate_size / place.stack.tp
    form = place.gemm("ffn")
    gate = [place.gemm("router").kernel("shared_gate", d, 1)] if moe.shared_expert_gate else []
    return [
        *gate,
        form.kernel("shared_up", d, columns * width, has_bias=block.mlp_bias),
        place.elementwise_kernel("shared_activation", (columns + 1) * width),
        form.kernel("shared_down", width, d, has_bias=block.mlp_bias),
    ]
