"""Passes and steps: how kernels add up."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import ConfigError
from simspec.cost.work import Pass, Quantity, Rows
from simspec.hardware.profile import KernelFit
from simspec.models.counts import block_params
from tests.cost.factory import (
    ADAPTER,
    BANDWIDTH,
    BLOCKS,
    DENSE,
    PEAK,
    REAL,
    SLIDING,
    engine,
    hardware,
    link,
    model,
    roof_s,
    rows,
    stack,
    work,
)


@dataclass(frozen=True)
class Weighted:
    weight: Quantity
    work: Pass


def real_model(blocks=(DENSE,) * 4, *, tp=1, **profile):
    device = hardware(REAL, link=link() if tp > 1 else None)
    return model(stack(blocks, tp=tp), device=device, serving=engine(**profile))


# -- by hand --------------------------------------------------------------------------------


def test_a_decode_step_of_one_layer_computed_by_hand():
    """One token on a context of 999, one layer, head of 32,000: every kernel is memory-bound.

    Matrices 1024 x 1536 (QKV), 1024 x 1024 (O), 1024 x 4096 (gate+up), 2048 x 1024 (down) and
    1024 x 32,000 (head) at 2 bytes plus their inputs and outputs; 1000 KV entries of 1024 bytes;
    norms, rotary, activation and embedding move activations.
    """
    weights = 2 * 1024 * (1536 + 1024 + 4096 + 2048 + 32000)
    products = 2 * (1024 + 1536 + 1024 + 1024 + 1024 + 4096 + 2048 + 1024 + 1024 + 32000)
    attention = 1000 * 1024 + 2 * 1024 * 2
    norms = 2 * (2 * 4 * 1024 + 2 * 1024) + 2 * (2 * 1024 + 1024)
    rotary = 2 * (2 * 1024 + 2 * 256) + 2 * 2 * 256
    rest = 2 * 3 * 2048 + 2 * 2 * 1024
    step = model(stack((DENSE,))).step([work(rows(999), last=1)], 1)
    num_bytes = weights + products + attention + norms + rotary + rest
    assert step.bytes == pytest.approx(num_bytes, rel=1e-12)
    assert step.device_s == pytest.approx(num_bytes / BANDWIDTH, rel=1e-12)
    flop = 2 * 1024 * (1536 + 1024 + 4096 + 2048 + 32000) + 4 * 1024 * 1000
    assert step.flop == pytest.approx(flop, rel=1e-12)


def test_a_long_prompt_is_compute_bound_by_hand():
    """4096 tokens: the products alone take 2 * parameters * tokens / peak, and rule."""
    prompt = work(rows(0, 4096, kind="prefill", logit_rows=1), last=1, phase="prefill")
    lines = {line.operator: line for line in model(stack((DENSE,))).breakdown([prompt])}
    params = block_params(DENSE)
    products_s = sum(lines[name].seconds for name in ("qkv", "o", "gate_up", "down"))
    assert products_s == pytest.approx(2 * (params.attention + params.ffn) * 4096 / PEAK)
    assert lines["prefill_attention"].seconds == pytest.approx(4 * 1024 * 4096 * 4097 / 2 / PEAK)
    assert lines["gate_up"].bound == lines["prefill_attention"].bound == "compute"
    assert lines["lm_head"].bound == "memory"


def test_eager_steps_take_as_long_as_their_launches():
    """2 layers of 9 kernels, embedding, final norm and head: 21 launches of 1 ms."""
    eager = real_model((DENSE,) * 2, graph_capture=False, launch_s=1e-3)
    assert eager.pass_seconds(work(rows(10), last=2)) == pytest.approx(21e-3)
    captured = real_model((DENSE,) * 2, launch_s=1e-3)
    assert captured.pass_seconds(work(rows(10), last=2)) < 2e-3


def test_eager_steps_hide_the_cache_reads_and_captured_ones_add_them():
    """A longer context is free while launches rule, and costs its bytes under a graph."""
    device = hardware(KernelFit(0.7, 0.85, 3e-6))
    eager = model(device=device, serving=engine(graph_capture=False, launch_s=1e-4))
    captured = model(device=device)
    short, long = work(rows(10)), work(rows(2010))
    assert eager.pass_seconds(short) == eager.pass_seconds(long)
    added = captured.pass_seconds(long) - captured.pass_seconds(short)
    # 4 layers, 2000 entries of 1024 bytes at 85 % of the bandwidth.
    assert added == pytest.approx(4 * 2000 * 1024 / (0.85 * BANDWIDTH), rel=1e-9)


# -- laws -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BLOCKS)
@given(context=st.integers(0, 3000), new=st.integers(1, 9), batch=st.integers(1, 64))
def test_no_pass_beats_the_roofline(name, context, new, batch):
    """Device time >= FLOP / peak and >= bytes / bandwidth of the whole pass."""
    step = real_model((BLOCKS[name],) * 4).step([work(rows(context, new, batch=batch))], batch)
    assert step.device_s >= roof_s(step.flop, step.bytes)


@given(
    context=st.integers(0, 3000),
    new=st.integers(1, 9),
    batch=st.integers(1, 64),
    graph_capture=st.booleans(),
)
def test_more_work_never_takes_less(context, new, batch, graph_capture):
    """Time grows with rows, new tokens, context and logit rows."""
    priced = real_model(graph_capture=graph_capture)
    here = priced.pass_seconds(work(rows(context, new, batch=batch, logit_rows=batch)))
    for more in (
        rows(context + 50, new, batch=batch, logit_rows=batch),
        rows(context, new + 1, batch=batch, logit_rows=batch),
        rows(context, new, batch=batch + 1, logit_rows=batch),
        rows(context, new, batch=batch, logit_rows=batch + 1),
    ):
        assert priced.pass_seconds(work(more)) >= here


def test_halving_the_bandwidth_nearly_doubles_a_decode_step():
    """At batch 1 decoding is bound by bytes: all but the fixed overheads doubles."""
    fast, slow = (
        model(device=hardware(REAL, bandwidth=rate)).pass_seconds(work(rows(1000)))
        for rate in (BANDWIDTH, BANDWIDTH / 2)
    )
    assert 1.9 < slow / fast <= 2.0


@pytest.mark.parametrize("exit_layer", [1, 2, 3])
@pytest.mark.parametrize("tp", [1, 2])
def test_layer_ranges_add_up(exit_layer, tp):
    """F(0, E) + F(E, L) = F(0, L): embedding below and head above belong to one part each."""
    priced = real_model((DENSE, SLIDING, DENSE, ADAPTER), tp=tp)
    group = rows(700, 3, batch=5)
    silent = replace(group, logit_rows=0)
    parts = priced.step(
        [work(silent, last=exit_layer), work(group, first=exit_layer, embeds=False)], 5
    )
    whole = priced.step([work(group)], 5)
    assert parts.device_s == pytest.approx(whole.device_s, rel=1e-12)
    assert parts.flop == pytest.approx(whole.flop, rel=1e-12)
    assert parts.bytes == pytest.approx(whole.bytes, rel=1e-12)
    assert parts.network_s == pytest.approx(whole.network_s, rel=1e-12)


def test_an_empty_layer_range_costs_nothing():
    """F(E, E) without embedding and head launches no kernel."""
    empty = work(rows(5, logit_rows=0), first=2, last=2, embeds=False)
    assert real_model().pass_seconds(empty) == 0.0


def test_verification_is_nearly_free_alone_and_compute_bound_in_a_batch():
    """5 tokens instead of 1: under 10 % more at batch 1, several times more at batch 256."""
    priced = real_model()

    def verify_over_decode(batch):
        verify = priced.pass_seconds(work(rows(200, 5, batch=batch)))
        return verify / priced.pass_seconds(work(rows(200, 1, batch=batch)))

    ratios = [verify_over_decode(batch) for batch in (1, 4, 16, 64, 256)]
    assert ratios[0] < 1.10
    assert ratios == sorted(ratios)
    assert ratios[-1] > 3.0
    for batch, bound in ((1, "memory"), (256, "compute")):
        lines = priced.breakdown([work(rows(200, 5, batch=batch))])
        assert {line.bound for line in lines if line.operator == "gate_up"} == {bound}


def test_small_steps_at_tp_8_are_mostly_all_reduces():
    """Dividing a small model among 8 ranks leaves the latency of its all-reduces undivided."""
    device = hardware(REAL, bandwidth=1e12, link=link())
    alone, divided = (
        model(stack(tp=tp), device=device).step([work(rows(100))], 1) for tp in (1, 8)
    )
    assert alone.network_s == 0.0
    # 8 all-reduces of at least 1 us + 7 * 0.5 us, and the gather of the logits.
    assert divided.network_s >= 9 * 4.5e-6
    assert divided.network_s / divided.device_s > 0.2
    assert divided.device_s > alone.device_s / 8 * 2


def test_attention_only_layers_exchange_once():
    """An adapter has no feed-forward to reduce after."""
    adapter = real_model((ADAPTER,), tp=2).breakdown([work(rows(9), last=1)])
    dense = real_model((DENSE,), tp=2).breakdown([work(rows(9), last=1)])
    counts = [
        sum(line.count for line in lines if line.operator == "all_reduce")
        for lines in (adapter, dense)
    ]
    assert counts == [1, 2]


# -- numbers and arrays ---------------------------------------------------------------------


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("graph_capture", [True, False])
@pytest.mark.parametrize("tp", [1, 4])
def test_numbers_equal_arrays(name, graph_capture, tp):
    """The table of the simulator and the vectorised closed form agree to 1e-12."""
    priced = real_model((BLOCKS[name],) * 4, tp=tp, graph_capture=graph_capture)
    contexts = np.array([0.0, 17.0, 900.0, 3000.0])
    new = np.array([1.0, 4.0, 2.0, 6.0])
    batch = np.array([1.0, 3.0, 64.0, 600.0])
    vector = priced.step([work(rows(contexts, new, batch=batch))], batch)
    for i in range(contexts.size):
        group = rows(int(contexts[i]), int(new[i]), batch=int(batch[i]))
        number = priced.step([work(group)], int(batch[i]))
        for field in ("total_s", "device_s", "network_s", "flop", "bytes"):
            entry = np.broadcast_to(getattr(vector, field), batch.shape)[i]
            assert entry == pytest.approx(getattr(number, field), rel=1e-12)


@pytest.mark.parametrize("tokens", [1.5, 70_000, 1e6])
def test_rows_beyond_the_table_and_between_integers_use_the_same_formulas(tokens):
    """A fractional or huge number of rows is priced as an array of it is."""
    priced = real_model()
    number = priced.pass_seconds(work(rows(10.0, 1, batch=tokens)))
    array = priced.pass_seconds(work(rows(10.0, 1, batch=np.array([tokens]))))
    assert number == pytest.approx(float(array[0]), rel=1e-12)


def test_rows_of_numpy_scalars_are_numbers():
    """A NumPy scalar gives a plain float, as an int does."""
    priced = real_model()
    scalar = Rows("decode", np.int64(2), np.int64(2), np.int64(12), np.float64(12.0), np.int64(2))
    assert isinstance(priced.pass_seconds(work(scalar)), float)
    assert priced.pass_seconds(work(scalar)) == pytest.approx(
        priced.pass_seconds(work(rows(5, batch=2))), rel=1e-12
    )


def test_axes_broadcast_against_each_other():
    """Batches down, contexts across: a grid of step times in one call."""
    priced = real_model()
    batch, context = np.array([[1.0], [8.0], [64.0]]), np.array([[10.0, 500.0]])
    grid = priced.pass_seconds(work(rows(context, 1, batch=batch)))
    assert grid.shape == (3, 2)
    assert grid[2, 1] == pytest.approx(priced.pass_seconds(work(rows(500, batch=64))), rel=1e-12)


def test_a_pass_without_rows_is_not_run():
    """No tokens: no time, no bytes, as a number and as an entry of an array."""
    priced = real_model(graph_capture=False)
    assert priced.pass_seconds(work(rows(10, batch=0))) == 0.0
    some = priced.pass_seconds(work(rows(10.0, 1, batch=np.array([0.0, 1.0]))))
    assert some[0] == 0.0
    assert some[1] > 0.0


# -- steps ----------------------------------------------------------------------------------


def test_phases_add_up_to_the_step():
    """draft + verify + decode + prefill + catch_up + host = total, device + host = total."""
    priced = real_model(per_step_s=1e-3, per_sequence_s=1e-5, per_draft_step_s=1e-4)
    prompt = rows(0, 500, kind="prefill", logit_rows=1)
    step = priced.step(
        [
            work(rows(100, batch=4), last=1, phase="draft"),
            work(rows(100, batch=4, logit_rows=0), last=1, phase="catch_up"),
            work(rows(100, 3, batch=4), prompt, first=1, phase="verify", embeds=False),
        ],
        5,
    )
    assert set(step.by_phase) == {"draft", "verify", "decode", "prefill", "catch_up", "host"}
    assert sum(step.by_phase.values()) == pytest.approx(step.total_s, rel=1e-12)
    assert step.device_s + step.host_s == pytest.approx(step.total_s, rel=1e-12)
    assert step.by_phase["host"] == step.host_s
    assert step.by_phase["decode"] == 0.0
    assert all(step.by_phase[phase] > 0 for phase in ("draft", "verify", "prefill", "catch_up"))


def test_a_riding_prompt_pays_what_it_adds():
    """prefill = time with the chunk - time without it; the decode rows pay the rest."""
    priced = real_model()
    decode, prompt = rows(100, batch=4), rows(0, 512, kind="prefill", logit_rows=0)
    mixed = priced.step([work(decode, prompt)], 5)
    alone = priced.step([work(decode)], 4)
    assert mixed.by_phase["decode"] == pytest.approx(alone.device_s, rel=1e-12)
    assert mixed.by_phase["prefill"] == pytest.approx(mixed.device_s - alone.device_s, rel=1e-12)
    assert priced.step([work(prompt, phase="prefill")], 1).by_phase["decode"] == 0.0


def test_a_mixed_pass_reads_the_weights_once():
    """Riding costs less than a pass of its own: the layers are shared."""
    priced = real_model()
    decode, prompt = rows(100, batch=2), rows(0, 2, kind="prefill", logit_rows=0)
    mixed = priced.pass_seconds(work(decode, prompt))
    apart = priced.pass_seconds(work(decode)) + priced.pass_seconds(work(prompt))
    assert mixed < 0.7 * apart


def test_host_time_is_per_step_per_sequence_and_per_draft_step():
    """1 ms + 8 * 10 us + 3 draft steps * 0.1 ms; an adapter continues the step it follows."""
    device = hardware()
    serving = engine(per_step_s=1e-3, per_sequence_s=1e-5, per_draft_step_s=1e-4)
    adapter = stack((ADAPTER,), name="adapter")
    priced = model(stack(), adapter, device=device, serving=serving)
    silent = rows(10, batch=8, logit_rows=0)
    draft = [
        work(silent, last=1, phase="draft"),
        work(rows(10, batch=8), last=1, phase="draft", embeds=False, name="adapter"),
    ]
    last = work(silent, last=1, phase="catch_up")
    verify = work(rows(10, 3, batch=8), first=1, phase="verify", embeds=False)
    assert priced.step([*draft, *draft, last, verify], 8).host_s == pytest.approx(1.38e-3)
    assert priced.step([work(rows(10, batch=8))], 8).host_s == pytest.approx(1.08e-3)


def test_expected_steps_weigh_their_passes():
    """The expectation is linear in the probabilities; certain passes give the step itself."""
    priced = real_model(per_step_s=1e-3, per_draft_step_s=1e-4)
    draft = work(rows(100, batch=4), last=1, phase="draft")
    verify = work(rows(100, 3, batch=4), phase="verify")
    certain = priced.expected_step([Weighted(1.0, draft), Weighted(1.0, verify)], 4)
    assert certain == priced.step([draft, verify], 4)
    chance = np.array([0.0, 0.25, 1.0])
    expected = priced.expected_step([Weighted(chance, draft), Weighted(1.0, verify)], 4)
    draft_s = priced.pass_seconds(draft) + 1e-4
    verify_s = priced.pass_seconds(verify) + 1e-3
    np.testing.assert_allclose(expected.total_s, chance * draft_s + verify_s, rtol=1e-12)


# -- breakdown ------------------------------------------------------------------------------


@pytest.mark.parametrize("graph_capture", [True, False])
@pytest.mark.parametrize("tp", [1, 2])
def test_the_breakdown_adds_up_to_the_step(graph_capture, tp):
    """Seconds, FLOP and bytes of the lines are those of the step."""
    priced = real_model(tp=tp, graph_capture=graph_capture, launch_s=1e-4)
    passes = [
        work(rows(100, batch=4), last=2, phase="draft"),
        work(rows(100, 3, batch=4), rows(0, 80, kind="prefill"), first=2, phase="verify"),
    ]
    step, lines = priced.step(passes, 5), priced.breakdown(passes)
    assert sum(line.seconds for line in lines) == pytest.approx(step.device_s, rel=1e-12)
    assert sum(line.flop for line in lines) == pytest.approx(step.flop, rel=1e-12)
    memory = sum(line.bytes for line in lines if line.bound != "network")
    assert memory == pytest.approx(step.bytes, rel=1e-12)
    network = sum(line.seconds for line in lines if line.bound == "network")
    assert network == pytest.approx(step.network_s, rel=1e-12)
    assert ("launch_wait" in {line.operator for line in lines}) == (not graph_capture)


def test_the_breakdown_counts_launches():
    """4 layers: 8 norms, 4 of each product, 4 attention kernels, one head."""
    counts = {line.operator: line.count for line in real_model().breakdown([work(rows(10))])}
    assert counts["norm"] == 8
    assert counts["qkv"] == counts["down"] == counts["decode_attention"] == 4
    assert counts["lm_head"] == counts["embedding"] == 1
    assert "prefill_attention" not in counts


@pytest.mark.parametrize(
    ("weight_dtype", "peak"), [("bf16", PEAK), ("fp8", 2 * PEAK), ("q4_0", PEAK), ("nvfp4", PEAK)]
)
def test_the_compute_roof_is_the_peak_the_layers_multiply_at(weight_dtype, peak):
    """fp8 has its own, weight-only formats and those without a unit multiply in 16 bit."""
    assert model(stack(weight_dtype=weight_dtype)).peak_flop_per_s() == peak


# -- mistakes -------------------------------------------------------------------------------


def test_an_unknown_stack_is_refused_with_the_nearest():
    """The message lists the stacks there are."""
    with pytest.raises(ConfigError, match=r"unknown stack 'targets'; did you mean 'target'"):
        model().pass_seconds(work(rows(1), name="targets"))


def test_layers_beyond_the_stack_are_refused():
    """The message states the layers there are."""
    with pytest.raises(ConfigError, match=r"no layers \[0, 5\); it has \[0, 4\)"):
        model().pass_seconds(work(rows(1), last=5))


def test_logits_of_a_stack_without_head_are_refused():
    """A stack with vocabulary 0 makes none."""
    with pytest.raises(ConfigError, match="'target': logits asked for, but it has no LM head"):
        model(stack(vocab_size=0)).pass_seconds(work(rows(1)))


def test_a_degree_that_does_not_divide_the_heads_is_refused():
    """3 ranks cannot share 16 heads."""
    with pytest.raises(ConfigError, match="tp=3 does not divide the 16 attention heads"):
        model(stack(tp=3), device=hardware(link=link()))


def test_the_model_travels_between_processes():
    """Pickling keeps the prices and leaves the tables behind."""
    priced = real_model()
    seconds = priced.pass_seconds(work(rows(100)))
    copied = pickle.loads(pickle.dumps(priced))
    assert copied.pass_seconds(work(rows(100))) == seconds
    assert len(pickle.dumps(priced)) < 10_000
