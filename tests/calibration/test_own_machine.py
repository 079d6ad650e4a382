"""A profile of this machine: coefficients come back from synthetic timings, and it loads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simspec.calibration import own_machine
from simspec.calibration.own_machine import fit_machine, judged_steps
from simspec.companion.plan import plan, sizes_for
from simspec.core.errors import CalibrationError
from simspec.cost.roofline import smooth_max
from simspec.hardware.load import load_hardware, load_hardware_config
from simspec.hardware.profile import KvReads
from simspec.traces.samples import Machine, Sample

MACHINE = Machine('a "CPU"', "cpu", 2**36, "torch 0", 2, 4, is_quick=True)
FLOP_PER_S, BYTES_PER_S, COPY_BYTES_PER_S = 2e12, 5e10, 8e10
OVERHEAD_S, SHARPNESS = 2e-5, 3.0
WANTED = plan(MACHINE, ["bf16"], sizes_for("cpu", is_quick=True), 2**28)


def seconds_of(sample: Sample, kv_reads: KvReads = "once_per_pass") -> float:
    """What a machine takes whose kernels are exactly of the form that is fitted."""
    counts: dict[str, Callable[[list[Sample]], own_machine.KernelRows]] = {
        "gemm": own_machine.gemm_rows,
        "decode_attention": lambda taken: own_machine.decode_rows(taken, kv_reads),
        "prefill_attention": own_machine.prefill_rows,
        **dict.fromkeys(("norm", "activation", "rope"), own_machine.elementwise_rows),
    }
    if sample.kind in counts:
        rows = counts[sample.kind]([replace(sample, seconds=1.0)])
        roof = smooth_max(rows.flop / FLOP_PER_S, rows.num_bytes / BYTES_PER_S, SHARPNESS)
        return float(np.asarray(roof)[0]) + OVERHEAD_S
    if sample.kind == "all_reduce":
        return 1e-5 + (sample.shape["ranks"] - 1) * sample.shape["num_bytes"] / 2e9
    if sample.kind in {"copy", "read"}:
        return sample.shape["num_bytes"] * (1 + (sample.kind == "copy")) / COPY_BYTES_PER_S
    return 1e-6 if sample.kind == "launch" else 1e-2


def times(kv_reads: KvReads = "once_per_pass") -> list[Sample]:
    return [replace(s, seconds=seconds_of(s, kv_reads), spread=0.04) for s in WANTED]


def test_coefficients_come_back() -> None:
    """Rates are shares of the highest ones measured; their products are what went in."""
    fit = fit_machine(MACHINE, times())
    assert fit.bandwidth_bytes_per_s == pytest.approx(COPY_BYTES_PER_S)
    assert fit.prefill_attention["bf16"].judged.median < 0.01
    for fitted in (fit.gemm["bf16"], fit.decode_attention["bf16"], fit.elementwise):
        values = fitted.values
        rate = values["bandwidth_efficiency"] * fit.bandwidth_bytes_per_s
        assert rate == pytest.approx(BYTES_PER_S, rel=0.05)
        assert values["overhead_us"] == pytest.approx(1e6 * OVERHEAD_S, rel=0.1)
        assert fitted.judged.median < 0.01
    gemm = fit.gemm["bf16"].values
    # The fastest product is a little slower than the rate, and a share is at most 1.
    assert gemm["flop_efficiency"] * fit.peak_flop_per_s["bf16"] == pytest.approx(
        FLOP_PER_S, rel=0.1
    )
    assert fit.noise == pytest.approx(0.04)
    assert fit.launch_s == 1e-6


@pytest.mark.parametrize("kv_reads", ["once_per_pass", "once_per_token"])
def test_how_often_the_cache_is_read_is_told_from_the_times(kv_reads: KvReads) -> None:
    """Either truth is recognised, by a held-out error that is far smaller."""
    fit = fit_machine(MACHINE, times(kv_reads))
    assert fit.kv_reads == kv_reads
    right, wrong = sorted(fit.kv_reads_error.values())
    assert right < 0.01 < 0.03 < wrong


def test_the_profile_loads_and_says_where_it_is_from(tmp_path: Path) -> None:
    """Numbers, sources and errors, whatever the machine is called."""
    path = tmp_path / "mine.yaml"
    fit = fit_machine(MACHINE, times())
    path.write_text(fit.yaml("mine"), encoding="utf-8")
    config, device = load_hardware_config(str(path)), load_hardware(str(path))
    assert (config.name, device.calibrated, device.kv_reads) == ("mine", True, "once_per_pass")
    assert "a 'CPU'" in config.description
    assert "simspec hardware measure --quick" in config.kernels.source
    assert "2 threads" in config.memory.source
    assert "4 % longer" in config.compute.source
    entry = config.kernels.gemm["bf16"]
    assert entry.held_out_error is not None
    assert entry.bandwidth_efficiency == pytest.approx(
        fit.gemm["bf16"].values["bandwidth_efficiency"], rel=1e-3
    )
    assert device.link is not None
    assert device.link.max_devices == 4
    assert device.link.all_reduce["one_shot"].bandwidth_bytes_per_s == pytest.approx(2e9, rel=0.02)


def test_steps_are_predicted_from_the_profile(tmp_path: Path) -> None:
    """A plain step of the stack by hand: weights and the cache at the bandwidth, and overheads."""
    path = tmp_path / "mine.yaml"
    path.write_text(fit_machine(MACHINE, times()).yaml("mine"), encoding="utf-8")
    steps = judged_steps(times(), load_hardware(str(path)))
    assert len(steps) == len([s for s in WANTED if s.kind == "step"])
    plain = next(
        s for s in steps if (s.sample.shape["batch"], s.sample.shape["new_tokens"]) == (1, 1)
    )
    shape = plain.sample.shape
    d, qkv = shape["hidden"], (shape["heads"] + 2 * shape["kv_heads"]) * shape["head_dim"]
    o = shape["heads"] * shape["head_dim"]
    weights = shape["layers"] * (d * qkv + o * d + 3 * d * shape["ffn"]) + d * shape["vocab"]
    # Per layer four products, attention, two norms, rotation, activation; embedding, norm, head.
    launches = 9 * shape["layers"] + 3
    by_hand = 2.0 * weights / BYTES_PER_S + launches * OVERHEAD_S
    assert plain.predicted_s == pytest.approx(by_hand, rel=0.05)
    assert plain.error == pytest.approx(plain.predicted_s / 1e-2 - 1.0)


def test_a_run_without_products_is_refused() -> None:
    """There is nothing to call a peak."""
    with pytest.raises(CalibrationError, match="no matrix product was timed"):
        fit_machine(MACHINE, [Sample("copy", "bf16", {"num_bytes": 8}, 1.0)])


def test_pairs_are_counted_as_the_cost_model_counts_them() -> None:
    """Attention of 3 new tokens on 10 cached ones of 2 sequences, by hand."""
    shape = {"batch": 2, "context": 10, "new_tokens": 3, "heads": 4, "kv_heads": 2, "head_dim": 8}
    sample = [Sample("decode_attention", "bf16", shape, 1.0)]
    once = own_machine.decode_rows(sample, "once_per_pass")
    each = own_machine.decode_rows(sample, "once_per_token")
    pairs = 2 * (11 + 12 + 13)
    assert once.flop[0] == 4 * 4 * 8 * pairs
    queries = 2 * (4 * 8) * 2.0 * 2 * 3
    assert once.num_bytes[0] == 2 * 2 * 8 * 2.0 * 2 * 13 + queries
    assert each.num_bytes[0] == 2 * 2 * 8 * 2.0 * pairs + queries
    assert np.all(~once.is_resident)
