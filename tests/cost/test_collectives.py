"""All-reduces and the gather of logits; a new algorithm file is tested without being named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import ConfigError, ProfileError
from simspec.cost.collectives._base import ALGORITHMS, collective, device_link
from simspec.cost.segment import Segment
from simspec.hardware.profile import AllReduceFit
from tests.cost.factory import DENSE, hardware, link, stack
from tests.cost.factory import model as cost_model

DEVICE = hardware(link=link())


def all_reduce(tp, device=DEVICE):
    return collective("all_reduce", "all_reduce", bytes_per_row=2048.0, tp=tp, hardware=device)


@pytest.mark.parametrize("name", ALGORITHMS.names())
@pytest.mark.parametrize("tp", [2, 4, 8, 64])
def test_no_algorithm_sends_less_than_a_reduction_needs(name, tp):
    """A rank sends at least 2 (tp - 1)/tp of the message to reduce and (tp - 1)/tp to gather."""
    module = ALGORITHMS.module(name)
    assert module.all_reduce_wire(tp) >= 2 * (tp - 1) / tp - 1e-12
    assert module.all_gather_wire(tp) >= (tp - 1) / tp - 1e-12


def test_a_small_message_takes_one_shot_and_its_latency():
    """2 kB over 8 ranks: 1 us + 7 * 0.5 us + 7 * 2048 B at 1e10 B/s = 5.93 us."""
    assert all_reduce(8).seconds(1) == pytest.approx(1e-6 + 3.5e-6 + 7 * 2048 / 1e10)


def test_a_large_message_takes_the_ring():
    """20 MB over 8 ranks: 10 us + 2 * 7/8 * 20.48e6 B at 1e10 B/s."""
    assert all_reduce(8).seconds(10_000) == pytest.approx(1e-5 + 1.75 * 20.48e6 / 1e10)


@pytest.mark.parametrize(("kind", "steps"), [("all_reduce", 14), ("all_gather", 7)])
def test_nccl_waits_at_every_step_of_its_ring(kind, steps):
    """8 ranks: 2 x 7 steps reduce and 7 gather, 5 us + 1 us each; large ones take the other."""
    fits = {
        "nccl_low_latency": AllReduceFit(5e-6, 1e-6, 1e11),
        "nccl_simple": AllReduceFit(25e-6, 0.0, 3e11),
    }
    device = replace(DEVICE, link=replace(link(), all_reduce=fits))
    kernel = collective(kind, kind, bytes_per_row=1.0, tp=8, hardware=device)
    wire = steps / 8
    assert kernel.seconds(1024) == pytest.approx(5e-6 + steps * 1e-6 + wire * 1024 / 1e11)
    assert kernel.seconds(2**30) == pytest.approx(25e-6 + wire * 2**30 / 3e11)


def test_the_logits_gather_moves_every_other_rank_s_share():
    """(tp - 1)/tp of the result enters each rank; 1 MB over 4 ranks one-shot: 2.5 us + 75 us."""
    gather = collective("all_gather", "gather", bytes_per_row=1e6, tp=4, hardware=DEVICE)
    assert gather.seconds(1) == pytest.approx(2.5e-6 + 0.75e6 / 1e10)


@given(rows=st.integers(1, 10_000), more=st.integers(1, 1000))
def test_longer_messages_and_more_ranks_never_take_less(rows, more):
    """Time grows with the message and with the ranks."""
    assert all_reduce(4).seconds(rows) <= all_reduce(4).seconds(rows + more)
    assert all_reduce(2).seconds(rows) <= all_reduce(4).seconds(rows) <= all_reduce(8).seconds(rows)


def test_arrays_equal_loops():
    """The faster algorithm is chosen entry by entry."""
    span = np.array([1.0, 30.0, 1000.0, 50_000.0])
    looped = [all_reduce(8).seconds(float(entry)) for entry in span]
    np.testing.assert_allclose(all_reduce(8).seconds(span), looped, rtol=1e-14)


def test_a_collective_is_bound_by_the_network():
    """It does no FLOP and touches the wire only."""
    assert all_reduce(2).bound(1.0) == "network"
    assert all_reduce(2).work(3).flop == 0.0
    assert all_reduce(2).is_network


def test_tensor_parallelism_without_a_link_is_refused():
    """The message names the degree and the device."""
    with pytest.raises(ConfigError, match=r"tp 2: hardware 'ideal' has no link.*use tp 1"):
        cost_model(stack(tp=2))


def test_more_ranks_than_the_link_joins_are_refused():
    """The message names the degree, the link, and the most it joins."""
    device = hardware(link=link(max_devices=4))
    with pytest.raises(ConfigError, match=r"tp 8: link 'test-link' of hardware 'ideal'.*tp 4"):
        cost_model(stack(tp=8), device=device)
    assert device_link(device, 4).name == "test-link"


def test_a_link_without_times_is_refused_with_the_known_algorithms():
    """A profile that gives no all-reduce cannot run tensor parallel."""
    device = replace(DEVICE, link=replace(link(), all_reduce={}))
    with pytest.raises(ProfileError, match=r"no all-reduce times.*one_shot, ring"):
        all_reduce(2, device)


def test_an_unknown_algorithm_in_a_profile_is_refused_with_the_nearest():
    """The name in the profile is the name of the file."""
    fits = {"rings": AllReduceFit(1e-6, 0.0, 1e10)}
    device = replace(DEVICE, link=replace(link(), all_reduce=fits))
    with pytest.raises(ConfigError, match=r"'rings'.*did you mean 'ring'"):
        all_reduce(2, device)


def test_a_layer_that_sums_once_exchanges_once():
    """Attention and feed-forward of GPT-J and Falcon are summed before the one all-reduce."""
    for block, count in ((DENSE, 2), (replace(DENSE, is_parallel=True), 1)):
        owner = stack((block,) * 3, tp=4)
        segment = Segment(owner, DEVICE, 0, 3, embeds=False)
        found = {k.name: number for k, number in segment.tokens.kernels if k.is_network}
        assert found == {"all_reduce": 3 * count}
