"""A mixture-of-experts feed-forward: router, routed experts, shared experts.

Weights are read for the distinct experts a pass hits, ``E_r (1 - (1 - k/E_r)^T)`` in expectation
over independent uniform routing. A verify pass of m+1 tokens reads more experts than a decode of
one, so speculation pays less than in a dense model until a decode step hits nearly all experts
by itself (Huang et al., "MoESD", arXiv 2505.19645). Every expert is divided among the ranks.
Left out: imbalance and the correlation of the routes of neighbouring tokens (fewer distinct
experts), expert parallelism.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simspec.cost.operators._base import AffineKernel, GemmFormat, Place, RowKernel
from simspec.cost.operators._pairs import Work
from simspec.cost.roofline import Bound, kernel_seconds, ruling_bound
from simspec.cost.work import Quantity
from simspec.models.arch import Block, MoE


def distinct_experts(num_tokens: Quantity, num_experts: int, experts_per_token: int) -> Quantity:
    """Return the expected number of different experts that ``num_tokens`` tokens are sent to.

    ``E_r (1 - (1 - k/E_r)^T)``: an expert is missed by one token with probability
    ``1 - k/E_r``, and by all of them independently.
    """
    if experts_per_token >= num_experts:
        return float(num_experts)
    # expm1 keeps few tokens among many experts exact, where 1 - (1 - x)^T would cancel.
    missed = num_tokens * np.log1p(-experts_per_token / num_experts)
    hit: Quantity = -num_experts * np.expm1(missed)
    return hit if isinstance(hit, np.ndarray) else float(hit)


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
    is_network: bool = False

    def work(self, rows: Quantity) -> Work:
        """Return FLOP and bytes of one launch over ``rows`` tokens."""
        k, n, form = self.in_features, self.out_features, self.form
        routed = rows * self.experts_per_token
        distinct = distinct_experts(rows, self.num_experts, self.experts_per_token)
        weights = distinct * ((k + self.has_bias) * n * form.weight_bytes)
        return Work(
            routed * (2.0 * k * n),
            weights + routed * (k * form.input_bytes + n * form.output_bytes),
        )

    def seconds(self, rows: Quantity) -> Quantity:
        """Return the time of one launch over ``rows`` tokens."""
        flop, num_bytes = self.work(rows)
        return kernel_seconds(flop, num_bytes, self.form.rate)

    def bound(self, rows: float) -> Bound:
        """Return what rules that time."""
        flop, num_bytes = self.work(rows)
        return ruling_bound(float(flop), float(num_bytes), self.form.rate)


def kernels(place: Place) -> Sequence[RowKernel]:
    """Return the kernels of a feed-forward made of experts."""
    block = place.block
    if block is None or block.moe is None:
        return ()
    return [*_routed(place, block, block.moe), *_shared(place, block, block.moe)]


def _routed(place: Place, block: Block, moe: MoE) -> list[RowKernel]:
    d, k = block.hidden_size, moe.experts_per_token
    width = moe.expert_intermediate_size / place.stack.tp
    columns = 2 if block.gated_ffn else 1
    form = place.gemm("experts")
    bias = block.mlp_bias
    return [
        place.gemm("router").kernel("router", d, moe.num_experts, has_bias=moe.router_bias),
        # Reads the router's scores, writes a weight and an index for each route.
        place.elementwise_kernel("top_k", moe.num_experts + 2 * k),
        ExpertKernel("experts_up", form, d, columns * width, moe.num_experts, k, bias),
        place.elementwise_kernel("experts_activation", (columns + 1) * k * width),
        ExpertKernel("experts_down", form, width, d, moe.num_experts, k, bias),
        # Sums the k expert outputs of a token.
        place.elementwise_kernel("combine", (k + 1) * d),
    ]


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
