"""NCCL's low-latency protocols: the same ring, with a flag in every store instead of a fence.

Steps are several times shorter and the link carries flags beside the data, at less than half its
rate (NCCL, ``src/collectives/device``, protocols LL and LL128). For small messages.
"""

from __future__ import annotations

from simspec.cost.collectives.nccl_simple import all_reduce_steps
from simspec.cost.collectives.ring import all_gather_wire, all_reduce_wire, reduce_scatter_wire

__all__ = ["all_gather_wire", "all_reduce_steps", "all_reduce_wire", "reduce_scatter_wire"]
