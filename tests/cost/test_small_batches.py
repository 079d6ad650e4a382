"""Products of few rows (matrix-vector kernels, whole tiles) and engines with own kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simspec.cost.forward import CostModel
from simspec.cost.operators._base import Place
from simspec.cost.roofline import KernelRate, kernel_seconds, product_seconds
from simspec.cost.work import Pass, Rows, Stack
from simspec.hardware.load import load_engine, load_hardware
from simspec.hardware.profile import Hardware, KernelFit, KernelSet
from simspec.models.hf_config import load_model

RATE = KernelRate(
    flop_per_s=1e12, bytes_per_s=1e11, overhead_s=1e-5, sharpness=1.0,
    vector_rows=8, vector_flop_per_s=2e11, tile_rows=32,
)  # fmt: skip
FLOP_PER_ROW, WEIGHT_BYTES = 1e8, 1e7


def seconds(rows: float, rate: KernelRate = RATE) -> float:
    """Return the time of a product of ``rows`` rows without activation traffic."""
    return float(product_seconds(rows, rows * FLOP_PER_ROW, WEIGHT_BYTES, rate))


def test_few_rows_cost_nearly_as_many_vector_kernels() -> None:
    """1e8 FLOP at 0.2 TFLOP/s are 0.5 ms a row, beside 0.1 ms of reading and 10 us."""
    assert seconds(1) == pytest.approx(0.5e-3 + 0.1e-3 + 1e-5)
    assert seconds(8) == pytest.approx(4.0e-3 + 0.1e-3 + 1e-5)


def test_more_rows_cost_whole_tiles() -> None:
    """9 to 32 rows cost 32 rows of the matrix kernel, 33 cost 64."""
    tile_s = 32 * FLOP_PER_ROW / 1e12
    assert seconds(9) == seconds(32) == pytest.approx(tile_s + 0.1e-3 + 1e-5)
    assert seconds(33) == pytest.approx(2 * tile_s + 0.1e-3 + 1e-5)


def test_arrays_and_numbers_agree() -> None:
    """The vectorised formula gives what single numbers give, an empty pass included."""
    rows = np.arange(0.0, 100.0)
    many = product_seconds(rows, rows * FLOP_PER_ROW, WEIGHT_BYTES, RATE)
    np.testing.assert_allclose(many, [seconds(float(r)) for r in rows], rtol=1e-12)


def test_without_few_row_kernels_it_is_the_roofline() -> None:
    """A profile that says nothing of few rows keeps its one kernel."""
    plain = replace(RATE, vector_rows=0, tile_rows=1)
    for rows in (1.0, 7.0, 40.0):
        expected = kernel_seconds(rows * FLOP_PER_ROW, WEIGHT_BYTES, plain)
        assert seconds(rows, plain) == expected


def own_kernels() -> Hardware:
    """Return a device that an engine ``mine`` drives at half the bandwidth efficiency."""
    device = load_hardware("h100_sxm")
    fit = device.gemm["bf16"]
    slow = replace(fit, bandwidth_efficiency=fit.bandwidth_efficiency / 2)
    unpacked = KernelFit(0.5, 0.4, 1e-5)
    mine = KernelSet(
        gemm={"bf16": slow, "weight_only": unpacked, "q8_0": replace(unpacked, overhead_s=2e-5)},
        decode_attention=None, prefill_attention=None, elementwise=None, kv_reads="once_per_token",
        calibrated=False, efficiencies_of="a relative",
    )  # fmt: skip
    return replace(device, kernel_sets={"mine": mine})


def decode_s(device: Hardware, kernels: str) -> float:
    """Return a decode step of one sequence."""
    model = load_model("llama-3.1-8b")
    stack = Stack("target", model.blocks, model.hidden_size, model.vocab_size, "bf16", "bf16", tp=1)
    cost = CostModel({"target": stack}, device, replace(load_engine("ideal"), kernels=kernels))
    rows = Rows("decode", 1, 1, 101, 101, 1)
    work = Pass("target", 0, model.num_layers, "decode", (rows,), embeds=True)
    return float(cost.step([work], 1).total_s)


def test_an_engine_runs_its_own_kernels() -> None:
    """Half the bandwidth in products nearly doubles a step; an unknown set changes nothing."""
    device = own_kernels()
    assert decode_s(device, "theirs") == decode_s(device, "") == decode_s(device, "other")
    assert 1.6 < decode_s(device, "mine") / decode_s(device, "") < 2.0


def test_a_set_says_whose_efficiencies_it_has() -> None:
    """What stands in for missing measurements is named; the device's own stay calibrated."""
    device = own_kernels()
    assert device.uncalibrated_note == ""
    driven = device.with_kernels("mine")
    assert driven.uncalibrated_note == "uncalibrated: efficiencies of a relative"
    assert driven.kv_reads == "once_per_token"
    assert driven.decode_attention == device.decode_attention


def test_unpacked_formats_have_kernels_of_their_own() -> None:
    """The format's fit, then that of all unpacked formats, then that of the product's type."""
    device = own_kernels().with_kernels("mine")
    model = load_model("llama-3.1-8b")

    def overhead_s(form: str) -> float:
        stack = Stack("t", model.blocks, model.hidden_size, model.vocab_size, form, "bf16", tp=1)
        return Place("block", model.blocks[0], stack, device).gemm("ffn").rate.overhead_s

    assert overhead_s("q8_0") == 2e-5
    assert overhead_s("q4_0") == overhead_s("int4_g128") == 1e-5
    assert overhead_s("bf16") == device.gemm["bf16"].overhead_s
