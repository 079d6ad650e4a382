"""What a matrix product costs beside its roofline: padding, depth, quantised inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import yaml

from simspec.core.errors import ProfileError
from simspec.cost.operators import attention
from simspec.cost.operators._base import Place
from simspec.cost.operators.moe import kernels
from simspec.cost.roofline import KernelRate, product_seconds, rows_with_padding, waves_of
from simspec.cost.work import Pass
from simspec.hardware.load import load_hardware, load_hardware_config
from simspec.hardware.profile import KernelFit
from tests.cost.factory import BANDWIDTH, DENSE, MIXTURE, PEAK, hardware, model, rows, stack

TILES = KernelRate(PEAK, BANDWIDTH, 0.0, float("inf"), tile_rows=(16, 64, 128, 256))


def gemm(fit: KernelFit):
    return Place("block", DENSE, stack((DENSE,)), hardware(fit)).gemm("ffn")


@pytest.mark.parametrize(
    ("rows", "whole"),
    [(1, 16), (16, 16), (17, 64), (64, 64), (65, 128), (129, 256), (256, 256), (257, 512)],
)
def test_rows_fill_the_smallest_tile_that_holds_them(rows, whole):
    """A padding row as dear as a real one makes a product cost its whole tile."""
    assert float(rows_with_padding(np.array(float(rows)), TILES)) == whole


def test_padding_costs_what_the_profile_says():
    """513 rows in tiles of 256 are 255 short of whole: at 2 rows each 513 + 510."""
    rate = replace(TILES, padding_cost=2.0)
    assert float(rows_with_padding(np.array(513.0), rate)) == 513 + 2 * 255
    flop = 513 * 1e9
    assert product_seconds(513, flop, 0.0, rate) == pytest.approx(1023e9 / PEAK)


def test_padding_makes_the_row_after_a_tile_dearer_than_a_whole_one():
    """With padding above 1 the time falls from one row past a tile to the end of the next."""
    rate = replace(TILES, padding_cost=2.0)
    seconds = [product_seconds(m, m * 1e9, 0.0, rate) for m in (256, 257, 384, 512)]
    assert seconds[1] > seconds[2] > seconds[3] > seconds[0]


def test_numbers_and_arrays_agree_on_padding():
    """The scalar and the vectorised product take the same time."""
    rate = replace(TILES, padding_cost=1.5, row_s=1e-9)
    rate = replace(rate, waves=0.4, idle_cost=0.3, wave_s=1e-6)
    rows = np.array([1.0, 16.0, 17.0, 100.0, 300.0, 5000.0])
    many = product_seconds(rows, rows * 1e9, 1e6, rate)
    for m, seconds in zip(rows.tolist(), many, strict=True):
        assert product_seconds(m, m * 1e9, 1e6, rate) == pytest.approx(seconds, rel=1e-12)


def test_the_last_wave_leaves_multiprocessors_idle():
    """300 rows of 2048 columns are 2 x 32 tiles on 48: 1.33 waves, charged as 1.33 + 0.5 x 0.67."""
    rate = replace(TILES, padding_cost=0.0, waves=32 / 48, idle_cost=0.5, wave_s=2e-6)
    waves, idle = waves_of(np.array(300.0), rate)
    assert float(waves) == pytest.approx(4 / 3 + 0.5 * 2 / 3)
    seconds = product_seconds(300, 1e12, 0.0, rate)
    assert seconds == pytest.approx(1e12 / PEAK * float(idle) + float(waves) * 2e-6)


def test_a_product_of_few_columns_cannot_use_all_multiprocessors():
    """16 tiles on 48 multiprocessors, each idle one as dear as a busy one: three times the time."""
    fit = KernelFit(1.0, 1.0, 0.0, tile_rows=(16, 256), tile_columns=64, idle_cost=1.0)
    device = replace(hardware(fit), multiprocessors=48)
    form = Place("block", DENSE, stack((DENSE,)), device).gemm("ffn")
    few, many = form.kernel("p", 4096, 1024), form.kernel("p", 4096, 3 * 1024)
    assert few.seconds(256) == pytest.approx(many.seconds(256))
    assert many.seconds(256) == pytest.approx(2 * 256 * 4096 * 3072 / PEAK)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"tile_columns": 64}, "without tile_rows"),
        ({"wave_us": 1.0}, "give tile_columns"),
        ({"tile_columns": 64, "tile_rows": [16, 64]}, "give compute.multiprocessors"),
    ],
)
def test_waves_need_what_they_are_made_of(entry, message, tmp_path):
    """A profile that counts waves of nothing is refused with what is missing."""
    own = tmp_path / "own.yaml"
    changes = {"extends": "a100_sxm_80gb", "kernels": {"gemm": {"bf16": entry}}}
    own.write_text(yaml.safe_dump(changes))
    with pytest.raises(ProfileError, match=message):
        load_hardware(str(own))


def test_depth_and_quantisation_are_added_once_each():
    """A product over k inputs takes k depth_s longer, and k quantise_s more for each row."""
    plain = gemm(KernelFit(1.0, 1.0, 3e-6)).kernel("p", 4096, 1024)
    more = gemm(KernelFit(1.0, 1.0, 3e-6, depth_s=1e-10, quantise_s=2e-12)).kernel("p", 4096, 1024)
    for num_rows in (1, 100):
        extra = more.seconds(num_rows) - plain.seconds(num_rows)
        assert extra == pytest.approx(4096 * 1e-10 + num_rows * 4096 * 2e-12)


def test_experts_do_not_fill_the_tiles_of_plain_products():
    """A few rows for each of many experts are a grouped product with tiles of its own."""
    fit = KernelFit(1.0, 1.0, 0.0, tile_rows=(16, 64, 128, 256), padding_cost=2.0)
    seconds = [
        next(
            kernel
            for kernel in kernels(Place("block", MIXTURE, stack((MIXTURE,)), hardware(chosen)))
            if kernel.name == "experts_up"
        ).seconds(2000)
        for chosen in (fit, KernelFit(1.0, 1.0, 0.0))
    ]
    assert seconds[0] == seconds[1]


def test_experts_of_a_token_quantise_its_input_once():
    """The up-projection's input is the token's own, the down-projection's that of each route."""
    places = [
        Place("block", MIXTURE, stack((MIXTURE,)), hardware(KernelFit(1.0, 1.0, 0.0, quantise_s=q)))
        for q in (0.0, 1e-9)
    ]
    plain, more = ({k.name: k for k in kernels(place)} for place in places)
    extra = {name: more[name].seconds(10) - plain[name].seconds(10) for name in plain}
    assert extra["experts_up"] == pytest.approx(10 * 1024 * 1e-9)
    assert extra["experts_down"] == pytest.approx(10 * 2 * 512 * 1e-9)


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_decode_pays_for_each_sequence_and_kv_head_of_a_rank(tp):
    """Not for each token: a verify pass of 5 tokens sets up as much as a decode of 1."""
    device = replace(
        hardware(), decode_attention={"bf16": KernelFit(1.0, 1.0, 0.0, sequence_s=1e-6)}
    )
    place = Place("block", DENSE, stack((DENSE,), tp=tp), device)
    free = Place("block", DENSE, stack((DENSE,), tp=tp), hardware())
    for new in (1, 5):
        group = rows(300, new, batch=6)
        seconds = [
            next(k for k in attention.kernels(p) if k.row_kind == "decode").seconds(group)
            for p in (place, free)
        ]
        assert seconds[0] - seconds[1] == pytest.approx(6 * max(1, 4 // tp) * 1e-6)


def test_prefill_pays_for_each_token_and_kv_head():
    """800 tokens of 4 KV heads at 1 ns; a pass priced by the cost model holds it too."""
    device = replace(hardware(), prefill_attention={"bf16": KernelFit(1.0, 1.0, 0.0, token_s=1e-9)})
    work = Pass("target", 0, 1, "prefill", (rows(0, 800, kind="prefill"),))
    owner = stack((DENSE,))
    extra = model(owner, device=device).pass_seconds(work) - model(owner).pass_seconds(work)
    assert extra == pytest.approx(800 * 4 * 1e-9)


def test_the_profile_writes_them_in_edge_units(tmp_path):
    """depth_ns and quantise_ns are nanoseconds, tile_rows a number or a rising list."""
    text = tmp_path / "base.yaml"
    config = load_hardware_config("h100_sxm").model_dump(mode="json", exclude_none=True)
    entry = config["kernels"]["gemm"]["bf16"]
    entry |= {"depth_ns": 0.1, "quantise_ns": 0.002, "tile_rows": [16, 64], "padding_cost": 1.5}
    text.write_text(yaml.safe_dump(config))
    fit = load_hardware(str(text)).gemm["bf16"]
    assert fit.depth_s == pytest.approx(1e-10)
    assert fit.quantise_s == pytest.approx(2e-12)
    assert fit.tile_rows == (16, 64)
    assert fit.padding_cost == 1.5
