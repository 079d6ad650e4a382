"""All-reduce fits: the algorithms that made the data are told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simspec.calibration.collectives import fit_all_reduce, fit_nccl
from simspec.calibration.kernel_tables import (
    AllReduceRows,
    all_reduce_rows,
    nccl_rows,
    read_all_reduce_table,
    read_table,
)
from simspec.calibration.robust import halves
from simspec.core.rng import stream
from simspec.cost.collectives._base import collective_seconds
from simspec.cost.collectives.one_shot import all_reduce_wire as one_shot_wire
from simspec.cost.collectives.ring import all_reduce_wire as ring_wire
from simspec.hardware.profile import AllReduceFit
from tests.helpers.shared import shared

ONE_SHOT = AllReduceFit(4e-6, 2e-7, 270e9)
RING = AllReduceFit(10e-6, 0.0, 340e9)
SHARED = replace(ONE_SHOT, sharing_per_rank=0.5)


def synthetic(seed: int, *, has_switch: bool) -> AllReduceRows:
    """Return all-reduces timed by the faster of the two fits, or by the one-shot alone."""
    rng = stream(seed, "synthetic all-reduce")
    rows = [(tp, 256.0 * 2**i) for tp in (2, 4, 8) for i in range(0, 23)]
    seconds = []
    for tp, size in rows:
        first = ONE_SHOT if has_switch else SHARED
        times = [collective_seconds(size * one_shot_wire(tp), tp=tp, fit=first)]
        if has_switch:
            times.append(collective_seconds(size * ring_wire(tp), tp=tp, fit=RING))
        seconds.append(min(times))
    ranks, sizes = np.array(rows).T
    return AllReduceRows(
        ranks=ranks,
        message_bytes=sizes,
        measured_s=np.array(seconds) * np.exp(0.02 * rng.standard_normal(ranks.size)),
        groups=tuple(f"{tp}x{int(size)}" for tp, size in rows),
    )


@pytest.mark.parametrize("has_switch", [True, False])
def test_recovers_the_algorithms_that_made_the_data(has_switch: bool) -> None:
    """Latency and bandwidth come back within 5 %, the latency of a peer within 0.1 µs.

    The noise is 2 %; the bandwidth of the one-shot rests on the three or four middle sizes of
    each rank count, so 5 % is about 4 standard errors of it.
    """
    fits = fit_all_reduce(synthetic(1, has_switch=has_switch), has_switch=has_switch, what="toy")
    assert set(fits) == ({"one_shot", "ring"} if has_switch else {"one_shot"})
    for name, true in (("one_shot", ONE_SHOT), ("ring", RING)):
        if name not in fits:
            continue
        expected = {
            "latency_us": true.latency_s * 1e6,
            "latency_per_peer_us": true.latency_per_peer_s * 1e6,
            "bandwidth_gb_s": true.bandwidth_bytes_per_s / 1e9,
        }
        if not has_switch:
            expected["sharing_per_rank"] = SHARED.sharing_per_rank
        values = fits[name].values
        assert values == pytest.approx(expected, rel=0.05, abs=0.1), name


def test_the_si_form_prices_a_message() -> None:
    """Edge units of a fit become the seconds and bytes per second the cost model takes."""
    fits = fit_all_reduce(synthetic(2, has_switch=True), has_switch=True, what="toy")
    fit = fits["ring"].all_reduce_fit()
    assert fit.bandwidth_bytes_per_s == pytest.approx(340e9, rel=0.05)
    assert fit.latency_per_peer_s == 0.0


@pytest.mark.parametrize(
    ("folder", "median", "p90"), [("h100_sxm", 0.08, 0.2), ("a100_sxm", 0.08, 0.3)]
)
def test_measured_all_reduce_is_met_on_sizes_never_seen(
    folder: str, median: float, p90: float
) -> None:
    """Held-out sizes from 256 B to 1 GB on 2, 4 and 8 ranks; A100 misses most at 8 to 60 MB."""
    rows = all_reduce_rows(read_all_reduce_table(shared(f"measured/kernels/{folder}"), "vllm"))
    fits = fit_all_reduce(rows, has_switch=True, what=folder)
    assert fits["one_shot"].judged.median < median
    assert fits["one_shot"].judged.p90 < p90
    # A small message under a captured graph: a few microseconds, growing with the ranks.
    assert 3.0 < fits["one_shot"].values["latency_us"] < 6.0
    assert fits["one_shot"].values["latency_per_peer_us"] > 0.0


@pytest.mark.parametrize("folder", ["h100_sxm", "h200_sxm", "b200_sxm", "a100_sxm"])
def test_nccl_is_met_on_sizes_never_seen(folder: str) -> None:
    """All-reduces and gathers of 256 B to 1 GB, by one ring in two protocols: within 12 %."""
    rows = nccl_rows(read_table(shared(f"measured/kernels/{folder}"), "nccl", "nccl"))
    fits = fit_nccl(rows, what=folder)
    assert fits["nccl_simple"].judged.median < 0.12
    small, large = (fits[name].all_reduce_fit() for name in ("nccl_low_latency", "nccl_simple"))
    assert small.latency_s < large.latency_s
    assert small.bandwidth_bytes_per_s < large.bandwidth_bytes_per_s


def test_ranks_that_share_a_bridge_slow_each_other_down() -> None:
    """L40S cards over PCIe: held-out sizes within 10 % in the middle, from 8 kB within 12 %."""
    rows = all_reduce_rows(read_all_reduce_table(shared("measured/kernels/l40s"), "vllm"))
    fitted = fit_all_reduce(rows, has_switch=False, what="l40s")["one_shot"]
    assert fitted.judged.median < 0.10
    fit = fitted.all_reduce_fit()
    judged = ~halves(rows.groups) & (rows.message_bytes >= 8192)
    predicted = np.array(
        [
            collective_seconds(size * one_shot_wire(int(tp)), tp=int(tp), fit=fit)
            for tp, size in zip(rows.ranks, rows.message_bytes, strict=True)
        ]
    )
    assert np.median(np.abs(predicted / rows.measured_s - 1.0)[judged]) < 0.12
