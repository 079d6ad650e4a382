"""What is timed: enough for a fit and its judge on every kind of machine, and no more than fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simspec.calibration import own_machine
from simspec.calibration.kernel_tables import KernelRows
from simspec.calibration.robust import halves
from simspec.companion.plan import plan, sizes_for
from simspec.traces.samples import Machine, Sample

MACHINE = Machine("a device", "cuda", 2**40, "torch 0", 0, 1, is_quick=False)


def planned(kind: str, is_quick: bool, **changes: object) -> list[Sample]:
    machine = replace(MACHINE, **changes)  # type: ignore[arg-type]
    return plan(machine, ["bf16"], sizes_for(kind, is_quick=is_quick), 2**28)


@pytest.mark.parametrize("is_quick", [True, False])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_both_halves_of_every_kind_can_be_fitted(kind: str, is_quick: bool) -> None:
    """Four coefficients need twelve rows, and the other half has some to judge on."""
    samples = [replace(sample, seconds=1.0) for sample in planned(kind, is_quick)]

    def of(*kinds: str) -> list[Sample]:
        return [sample for sample in samples if sample.kind in kinds]

    rows: dict[str, KernelRows] = {
        "gemm": own_machine.gemm_rows(of("gemm")),
        "decode": own_machine.decode_rows(of("decode_attention"), "once_per_pass"),
        "prefill": own_machine.prefill_rows(of("prefill_attention")),
        "elementwise": own_machine.elementwise_rows(of("norm", "activation", "rope")),
    }
    for name, each in rows.items():
        chosen = halves(each.groups)
        least = 6 if name == "elementwise" else 12
        assert chosen.sum() >= least, name
        assert (~chosen).sum() >= 8, name
        for half in (chosen, ~chosen):
            # Small and large work on both sides, or bandwidth and overhead are one number.
            assert np.ptp(np.log(each.num_bytes[half])) > np.log(4), name


def test_nothing_is_timed_twice() -> None:
    """A key is a timing, which a stopped run goes on from."""
    keys = [sample.key for sample in planned("cuda", False, num_devices=8)]
    assert len(keys) == len(set(keys))


def test_what_does_not_fit_is_left_out() -> None:
    """On a small machine the large products and caches are missing, the small ones are there."""
    small = planned("cuda", False, memory_bytes=2**31)
    assert 0 < len(small) < len(planned("cuda", False))
    assert all(s.shape["n"] * s.shape["k"] < 2**29 for s in small if s.kind == "gemm")


def test_links_are_timed_between_the_devices_there_are() -> None:
    """Two, four or eight ranks of a machine with so many; none on one device."""

    def ranks(num_devices: int) -> set[int]:
        samples = planned("cuda", True, num_devices=num_devices)
        return {s.shape["ranks"] for s in samples if s.kind == "all_reduce"}

    assert ranks(1) == set()
    assert ranks(2) == {2}
    assert ranks(7) == {2, 4}
    assert ranks(8) == {2, 4, 8}


def test_a_verify_pass_is_timed_at_one_to_eight_tokens() -> None:
    """By batch and context; the answer to how often the cache is read."""
    samples = [s for s in planned("cpu", False) if s.kind == "decode_attention"]
    assert {s.shape["new_tokens"] for s in samples} == set(range(1, 9))
    assert len({(s.shape["batch"], s.shape["context"]) for s in samples}) >= 12
