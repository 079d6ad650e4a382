"""Mixtures as they are served: counts by hand, and steps beside measured tokens."""

from __future__ import annotations

import csv

import pytest

from simspec.cost.forward import CostModel
from simspec.cost.operators.moe import distinct_experts
from simspec.cost.work import Pass, Stack
from simspec.hardware.load import load_engine, load_hardware
from simspec.models.hf_config import load_model
from tests.cost.factory import rows
from tests.helpers.shared import shared


def served(name: str, device: str, dtype: str, *, tp: int = 1, ep: int = 1) -> CostModel:
    arch = load_model(name)
    owner = Stack(
        "target", arch.blocks, arch.hidden_size, arch.vocab_size, dtype, "bf16", tp, ep=ep
    )
    return CostModel({"target": owner}, load_hardware(device), load_engine("ideal"))


def decode(cost: CostModel, context: int, batch: int, new_tokens: int = 1) -> Pass:
    num_layers = len(cost.stacks["target"].blocks)
    group = rows(context, new_tokens, batch=batch, logit_rows=batch * new_tokens)
    return Pass("target", 0, num_layers, "decode", (group,), embeds=True)


def test_half_of_gpt_oss_reads_128_tokens() -> None:
    """18 layers see the whole context, 18 the last 128 tokens; 2 * 8 * 64 values of 2 bytes."""
    cost = served("gpt-oss-120b", "h100_sxm", "mxfp4")
    lines = cost.breakdown([decode(cost, 8191, 4)])
    read = sum(line.bytes for line in lines if line.operator == "decode_attention")
    queries = 36 * 4 * 2 * 64 * 64 * 2
    assert read == 18 * 4 * (8192 + 128) * 2 * 8 * 64 * 2 + queries


def test_gpt_oss_reads_its_experts_in_four_bits_and_the_rest_in_sixteen() -> None:
    """A decode step of 8 tokens hits 128 (1 - (1 - 4/128)^8) = 28.7 experts a layer."""
    cost = served("gpt-oss-120b", "h100_sxm", "mxfp4")
    lines = {line.operator: line for line in cost.breakdown([decode(cost, 100, 8)])}
    hit = distinct_experts(8, 128, 4)
    assert hit == pytest.approx(28.7, abs=0.1)
    routed = 8 * 4 * (2880 + 2 * 2880) * 2
    weights = hit * (2880 + 1) * 2 * 2880 * 4.25 / 8
    assert lines["experts_up"].bytes == pytest.approx(36 * (weights + routed))
    qkv = 2880 * (64 + 2 * 8) * 64 * 2 + (64 + 2 * 8) * 64 * 2
    assert lines["qkv"].bytes == pytest.approx(36 * (qkv + 8 * (2880 + 80 * 64) * 2))


def test_fp4_experts_multiply_in_sixteen_bit_on_hopper_and_in_eight_on_blackwell() -> None:
    """MXFP4 weights take their rate from the device; their bytes are the same."""
    slow = served("gpt-oss-120b", "h100_sxm", "mxfp4")
    fast = served("gpt-oss-120b", "b200_sxm", "mxfp4")
    assert slow.peak_flop_per_s() == slow.hardware.peak_flop_per_s["bf16"]
    assert fast.peak_flop_per_s() == fast.hardware.peak_flop_per_s["fp8"]


def test_a_mixture_gains_less_from_verifying_than_a_dense_model() -> None:
    """At batch 1 a pass of 5 tokens over a decode costs more where it hits more experts."""

    def ratio(name: str) -> float:
        cost = served(name, "h200_sxm", "fp8")
        verify, plain = decode(cost, 1000, 1, 5), decode(cost, 1000, 1)
        return float(cost.pass_seconds(verify)) / float(cost.pass_seconds(plain))

    assert ratio("qwen3-30b-a3b") > 1.3 * ratio("qwen3-32b")


def test_kernels_of_deepseek_r1_are_most_of_a_measured_token() -> None:
    """FP8 on 8 H200: kernels alone take 60 to 110 % of the time per token that SGLang reports.

    Rows without speculation (expert and tensor parallel degrees as written), concurrency 4 to 64;
    the rest is the host and the prompts of others. Nothing was fitted to them.
    """
    cost = served("deepseek-r1", "h200_sxm", "fp8_block", tp=8)
    with (shared("measured") / "serving_closed_loop.csv").open() as table:
        measured = [
            row
            for row in csv.DictReader(table)
            if row["model"] == "deepseek-ai/DeepSeek-R1"
            and (row["hardware"], row["engine"]) == ("h200_sxm", "sglang")
            and (row["tp"], row["moe_tp"]) == ("8.0", "8.0")
        ]
    assert len(measured) >= 15
    for row in measured:
        context = int(row["input_len"]) + int(row["output_len"]) // 2
        step = cost.pass_seconds(decode(cost, context, int(float(row["concurrency"]))))
        assert 0.6 <= 1e3 * float(step) / float(row["tpot_ms"]) <= 1.1, row
