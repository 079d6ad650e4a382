"""A device, an engine and a target with everything defaulted, so that a test states its point."""

from __future__ import annotations

from typing import Any

from simspec.hardware.profile import EngineProfile, Hardware, KernelFit, Link
from simspec.memory.capacity import MemoryBudget, memory_budget
from simspec.models.arch import Architecture
from simspec.models.hf_config import load_model
from simspec.models.stack import Stack

GIB = 2.0**30
H100_VISIBLE = 79.19 * GIB
"""What an "80 GB" H100 shows to PyTorch, from the start-up log of report R01."""

_IDEAL = KernelFit(1.0, 1.0, 0.0)


def hardware(capacity_bytes: float = H100_VISIBLE, *, max_devices: int | None = 8) -> Hardware:
    link = Link("nvlink", 450e9, max_devices) if max_devices is not None else None
    return Hardware(
        name="test_gpu",
        description="for tests",
        memory_capacity_bytes=capacity_bytes,
        memory_bandwidth_bytes_per_s=3e12,
        peak_flop_per_s={"bf16": 1e15, "fp8": 2e15},
        gemm={"bf16": _IDEAL},
        decode_attention={"bf16": _IDEAL},
        prefill_attention={"bf16": _IDEAL},
        elementwise=_IDEAL,
        kv_reads="once_per_pass",
        link=link,
        host_link=None,
        power=None,
        price=None,
        calibrated=False,
        sources={},
    )


def engine(**changes: Any) -> EngineProfile:
    fields: dict[str, Any] = {
        "name": "test_engine",
        "description": "for tests",
        "host_time_per_step_s": 0.0,
        "host_time_per_sequence_s": 0.0,
        "host_time_per_draft_step_s": 0.0,
        "launch_time_s": 0.0,
        "graph_capture": True,
        "block_size_tokens": 16,
        "memory_fraction": 0.9,
        "reserve_bytes": 0.07 * GIB,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
        "chunked_prefill": True,
        "sources": {},
    }
    return EngineProfile(**{**fields, **changes})


def target(arch: Architecture, dtype: str = "bf16", kv_dtype: str = "bf16", tp: int = 1) -> Stack:
    return Stack("target", arch.blocks, arch.hidden_size, arch.vocab_size, dtype, kv_dtype, tp)


def budget(
    model: str | Architecture = "llama-3.1-8b",
    dtype: str = "bf16",
    kv_dtype: str = "bf16",
    tp: int = 1,
    *,
    capacity_bytes: float = H100_VISIBLE,
    max_devices: int | None = 8,
    extra_weights_bytes: float = 0.0,
    extra_kv_bytes_per_token: float = 0.0,
    **engine_changes: Any,
) -> MemoryBudget:
    arch = load_model(model) if isinstance(model, str) else model
    return memory_budget(
        hardware(capacity_bytes, max_devices=max_devices),
        engine(**engine_changes),
        arch=arch,
        target=target(arch, dtype, kv_dtype, tp),
        extra_weights_bytes=extra_weights_bytes,
        extra_kv_bytes_per_token=extra_kv_bytes_per_token,
    )
