"""Readers of small tables, each row worked out by hand or left out for its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simspec.core.units import from_gib
from simspec.hardware.load import load_hardware
from simspec.validation._base import Comparison, LeftOut, MeasurementTable
from simspec.validation.tables import allreduce_latency, kv_capacity_reports, verify_cost_curves

POOL: dict[str, Any] = {
    "model": "meta-llama/Llama-3.1-8B", "dtype": "bf16", "kv_dtype": "bf16", "gpu": "RTX 4090",
    "gpu_memory_gb": 24.0, "tp": 1.0, "gpu_memory_utilization": 0.9, "max_model_len": 32768.0,
    "kv_cache_tokens": 41408.0, "kv_bytes_per_token_per_gpu": 131072.0,
    "weights_gib_per_gpu": 15.0, "engine": "vLLM 0.19.0", "notes": "visible 24 GiB",
}  # fmt: skip
PASS: dict[str, Any] = {
    "hardware": "H100 SXM", "engine": "vLLM", "build": "x", "model": "llama-3-8b",
    "weight_dtype": "bf16", "n_tokens_per_forward": 1.0, "context_depth": 1000.0,
    "ms_per_forward": 7.2, "kind": "verify (one sequence)", "notes": "",
}  # fmt: skip
REDUCE: dict[str, Any] = {
    "system": "h100_dgx", "num_gpus": 8.0, "gpus_per_node": 8.0, "message_bytes": 8.0 * 2**20,
    "latency_us": 60.0, "mode": "captured",
}  # fmt: skip


def rows(reader: Any, *records: dict[str, Any]) -> list[Comparison | LeftOut]:
    table = MeasurementTable(Path("t.csv"), pd.DataFrame(list(records)))
    return list(reader.compare(table))


class TestPools:
    """KV caches that engines report."""

    def test_the_rule_of_the_log_in_whole_blocks(self) -> None:
        """0.9 of 24 GiB less 15, 1 and 0.5 GiB is 5.1 GiB: 41,779.2 tokens in 2,611 blocks."""
        notes = "visible 24 GiB; activation 1, non-torch 0.5 GiB"
        found = rows(kv_capacity_reports, {**POOL, "notes": notes})
        (ours,) = [r for r in found if r.group == "from the log's reserves"]
        assert isinstance(ours, Comparison)
        assert ours.predicted == 16 * 2611
        assert ours.breakdown["weights_bytes"] == -from_gib(15)

    @pytest.mark.parametrize(
        ("model", "tp", "expected"),
        [
            # 2 h_kv d_h L b per rank; 4 KV heads on 8 ranks are one each, never half of one.
            ("Qwen/Qwen3-30B-A3B", 1.0, 2 * 4 * 128 * 48 * 2),
            ("Qwen/Qwen3-30B-A3B", 4.0, 2 * 1 * 128 * 48 * 2),
            ("Qwen/Qwen3-30B-A3B", 8.0, 2 * 1 * 128 * 48 * 2),
            ("meta-llama/Llama-2-7b", 2.0, 2 * 16 * 128 * 32 * 2),
            # A latent is held whole on every rank: (512 + 64) values in 61 layers.
            ("deepseek-ai/DeepSeek-V3", 8.0, 576 * 61 * 2),
        ],
    )
    def test_bytes_per_token_of_a_rank(self, model: str, tp: float, expected: int) -> None:
        """KV heads are split over the ranks and replicated once there are more ranks."""
        record = {**POOL, "model": model, "tp": tp, "kv_bytes_per_token_per_gpu": float(expected)}
        found = rows(kv_capacity_reports, record)[0]
        assert isinstance(found, Comparison)
        assert (found.quantity, found.predicted) == ("kv_bytes_per_token", expected)

    def test_more_utilisation_is_more_pool(self) -> None:
        """A hundredth of 24 GiB is 1,966 tokens of 128 KiB."""
        found = [
            rows(kv_capacity_reports, {**POOL, "gpu_memory_utilization": share})[1]
            for share in (0.90, 0.95)
        ]
        low, high = (r.predicted for r in found if isinstance(r, Comparison))
        assert high - low == pytest.approx(0.05 * 24 * 2**30 / 131072, abs=16)

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"model": "nobody/Nothing-9B"}, "no architecture 'nobody/Nothing-9B'"),
            ({"gpu": "TPU v5e", "notes": ""}, "no hardware profile 'TPU v5e'"),
            ({"dtype": "ternary"}, "no data type for dtype 'ternary'"),
            ({"model": None}, "no architecture ''"),
        ],
    )
    def test_what_is_unknown_is_said(self, changes: dict[str, Any], says: str) -> None:
        """A row that simspec cannot price names what is missing."""
        (found,) = rows(kv_capacity_reports, {**POOL, **changes})
        assert isinstance(found, LeftOut)
        assert found.reason.startswith(says)

    def test_another_engine_has_its_own_rule(self) -> None:
        """Only vLLM sizes its pool as the vllm profile does; bytes per token hold for all."""
        found = rows(kv_capacity_reports, {**POOL, "engine": "llama.cpp"})
        assert [type(r) for r in found] == [Comparison, LeftOut]


class TestPasses:
    """Forward passes over several tokens."""

    def test_ratios_are_to_the_single_token_of_the_same_curve(self) -> None:
        """Twice the time of one token is a ratio of 2; another context is another curve."""
        four = {**PASS, "n_tokens_per_forward": 4.0, "ms_per_forward": 14.4}
        found = rows(verify_cost_curves, PASS, four, {**four, "context_depth": 99.0})
        single, ratio, alone = found
        assert isinstance(single, Comparison)
        assert isinstance(ratio, Comparison)
        assert (single.quantity, ratio.quantity) == ("tpot_ms", "step_cost_ratio")
        assert ratio.measured == 2.0
        assert 1.0 < ratio.predicted < 1.1
        assert ratio.interval is not None
        assert ratio.interval[0] < ratio.predicted < ratio.interval[1]
        assert isinstance(alone, LeftOut)
        assert "no pass over a single token" in alone.reason

    def test_a_batch_reads_the_kv_of_every_sequence(self) -> None:
        """At a long context 16 sequences cost more than 16 tokens of one."""
        long = {**PASS, "context_depth": 30_000.0}
        many = {**long, "n_tokens_per_forward": 16.0, "ms_per_forward": 20.0}
        batched = [{**row, "kind": "batched decode"} for row in (long, many)]
        verify = rows(verify_cost_curves, long, many)[1]
        decode = rows(verify_cost_curves, *batched)[1]
        assert isinstance(verify, Comparison)
        assert isinstance(decode, Comparison)
        assert decode.predicted > 1.5 * verify.predicted

    @pytest.mark.parametrize(
        ("changes", "cause", "says"),
        [
            ({"ms_per_forward": 2.0}, "refuted", "and h100_sxm has 3.35 TB/s"),
            ({"notes": "not point measurements"}, "suspect", "not point measurements"),
            ({"engine": "abacus"}, "unsupported", "no engine profile 'abacus'"),
            ({"hardware": "abacus"}, "unsupported", "no hardware profile 'abacus'"),
            ({"model": "abacus"}, "unsupported", "no architecture 'abacus'"),
            ({"weight_dtype": "abacus"}, "unsupported", "no data type 'abacus'"),
            ({"n_tokens_per_forward": None}, "unsupported", "no number of tokens"),
        ],
    )
    def test_what_is_left_out(self, changes: dict[str, Any], cause: str, says: str) -> None:
        """Weights that cannot be read that fast, doubts in the notes, unknown names."""
        found = rows(verify_cost_curves, {**PASS, **changes})[0]
        assert isinstance(found, LeftOut)
        assert found.cause == cause
        assert says in found.reason


class TestAllReduce:
    """All-reduces of one node."""

    def test_a_large_message_goes_round_the_ring(self) -> None:
        """2 (8 - 1) / 8 of 1 GiB at the ring's bandwidth, and its latency."""
        (found,) = rows(allreduce_latency, {**REDUCE, "message_bytes": 2.0**30})
        assert isinstance(found, Comparison)
        link = load_hardware("h100_sxm").with_kernels("nccl").link
        assert link is not None
        ring = link.all_reduce["nccl_simple"]
        waits_s = ring.latency_s + 14 * ring.latency_per_peer_s
        expected = 2 * 7 / 8 * 2**30 / ring.bandwidth_bytes_per_s + waits_s
        assert found.predicted == pytest.approx(expected * 1e3, rel=1e-9)

    @pytest.mark.parametrize(
        ("changes", "cause"),
        [
            ({"num_gpus": 16.0}, "unsupported"),
            ({"system": "abacus"}, "unsupported"),
            ({"mode": "eager NCCL", "message_bytes": 2048.0}, "suspect"),
            ({"latency_us": None}, "unsupported"),
        ],
    )
    def test_what_is_left_out(self, changes: dict[str, Any], cause: str) -> None:
        """Several nodes, unknown systems, launches of small messages, empty cells."""
        (found,) = rows(allreduce_latency, {**REDUCE, **changes})
        assert isinstance(found, LeftOut)
        assert found.cause == cause
