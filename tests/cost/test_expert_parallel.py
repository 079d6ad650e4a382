"""Experts divided over ranks whole, and attention repeated in groups of ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simspec.core.errors import ConfigError
from simspec.cost.operators.moe import ExpertKernel, busiest_excess
from simspec.cost.segment import Segment
from simspec.cost.work import Pass
from simspec.hardware.profile import AllReduceFit, Link
from simspec.models.arch import MoE
from simspec.models.counts import block_params, check_expert_parallel, weights_bytes
from tests.cost.factory import BANDWIDTH, DENSE, MIXTURE, PEAK, hardware, link, model, rows, stack

NODE = hardware(link=link())
WIDE = replace(MIXTURE, moe=MoE(64, 4, 512))


def experts(num_experts: int, k: int, ep: int) -> ExpertKernel:
    owner = replace(stack((replace(MIXTURE, moe=MoE(num_experts, k, 512)),), tp=ep), ep=ep)
    segment = Segment(owner, NODE, 0, 1, embeds=False)
    return next(kernel for kernel, _ in segment.tokens.kernels if kernel.name == "experts_up")


def draw(rng: np.random.Generator, tokens: int, num_experts: int, k: int, ep: int):
    """Return routes and distinct experts of the busiest rank of one uniform draw."""
    routes = rng.random((tokens, num_experts)).argsort(axis=1)[:, :k]
    rank = routes // (num_experts // ep)
    hits = np.bincount(np.unique(routes) // (num_experts // ep), minlength=ep)
    return np.bincount(rank.ravel(), minlength=ep).max(), hits.max()


@pytest.mark.parametrize("tokens", [1, 4, 32, 256])
@pytest.mark.parametrize(("num_experts", "k", "ep"), [(64, 4, 8), (128, 8, 4), (256, 8, 8)])
def test_the_busiest_rank_is_that_of_drawn_routes(tokens, num_experts, k, ep):
    """Routes and distinct experts of the busiest rank are within 12 % of uniform draws.

    The normal approximation is coarsest for one token, whose few routes are whole numbers.
    """
    rng = np.random.default_rng(tokens * num_experts)
    drawn = np.mean([draw(rng, tokens, num_experts, k, ep) for _ in range(400)], axis=0)
    routed, distinct = experts(num_experts, k, ep)._load(tokens)
    assert routed == pytest.approx(drawn[0], rel=0.12)
    assert distinct == pytest.approx(drawn[1], rel=0.12)


def test_two_ranks_are_apart_by_the_mean_of_a_folded_normal():
    """For two loads with a fixed sum the excess is E|N(0, 1)| = sqrt(2 / pi)."""
    assert busiest_excess(2) == pytest.approx(np.sqrt(2 / np.pi), rel=0.05)
    assert busiest_excess(1) == 0.0


def test_a_rank_never_does_more_than_there_is():
    """The busiest rank holds at most its own experts and gets at most every token's routes."""
    for tokens in (1, 2, 1000):
        routed, distinct = experts(64, 4, 8)._load(tokens)
        assert distinct <= 64 / 8
        assert tokens * 4 / 8 <= routed <= tokens * 4


def test_many_tokens_cost_the_same_split_or_whole():
    """With many tokens all experts are read: E_r / ep whole ones weigh as much as 1 / ep of each,
    and the busiest rank's routes exceed the mean by less and less."""
    whole, split = experts(64, 4, 8), experts(64, 4, 1)
    narrow = replace(split, out_features=split.out_features / 8)
    ratio = [whole.work(t).flop / narrow.work(t).flop for t in (100, 10_000, 1_000_000)]
    assert ratio[0] > ratio[1] > ratio[2] > 1.0
    assert ratio[2] == pytest.approx(1.0, abs=0.01)


def test_expert_parallelism_alone_talks_as_tensor_parallelism_does():
    """Without groups activations are on every rank already: two all-reduces a layer, as before."""
    plain, divided = stack((WIDE,) * 4, tp=4), replace(stack((WIDE,) * 4, tp=4), ep=4)
    names = []
    for owner in (plain, divided):
        segment = Segment(owner, NODE, 0, 4, embeds=False)
        assert segment.gathered.kernels == ()
        names.append([(k.name, count) for k, count in segment.tokens.kernels if k.is_network])
    assert names[0] == names[1] == [("all_reduce", 8)]


def grouped(groups: int, ep: int, blocks=(WIDE,) * 4):
    return replace(stack(blocks, tp=1), attention_dp=groups, ep=ep)


def test_groups_divide_attention_and_share_the_experts():
    """Four groups: each rank's attention sees a quarter of the sequences and whole heads, the
    experts see all tokens; gather and scatter move T d 2 bytes, 3/4 of them over the wire."""
    one = model(stack((WIDE,) * 4), device=NODE)
    four = model(grouped(4, 4), device=NODE)
    work = Pass("target", 0, 4, "decode", (rows(500, batch=16),))
    quarter = Pass("target", 0, 4, "decode", (rows(500, batch=4),))
    lines = {line.operator: line for line in four.breakdown([work])}
    alone = {line.operator: line for line in one.breakdown([quarter])}
    for name in ("qkv", "decode_attention", "router"):
        assert lines[name].bytes == alone[name].bytes, name
    assert lines["experts_up"].bytes > alone["experts_up"].bytes / 4
    for name in ("expert_gather", "expert_scatter"):
        assert lines[name].count == 4
        assert lines[name].bytes == 4 * 16 * 1024 * 2
        wire = 16 * 1024 * 2 * 3 / 4
        assert lines[name].seconds == pytest.approx(4 * (1e-6 + 3 * 5e-7 + wire / 1e10))
    total = sum(line.seconds for line in four.breakdown([work]))
    assert four.pass_seconds(work) == pytest.approx(total)


def test_the_fullest_group_rules():
    """Nine sequences over four groups cost attention as much as three on each."""
    device = hardware(link=Link("free", 1e30, 8, {"ring": AllReduceFit(0.0, 0.0, 1e30)}))
    cost = model(grouped(4, 1), device=device)

    def attention_bytes(batch):
        lines = cost.breakdown([Pass("target", 0, 4, "decode", (rows(500, batch=batch),))])
        return next(line.bytes for line in lines if line.operator == "decode_attention")

    assert attention_bytes(9) == pytest.approx(attention_bytes(12))
    assert attention_bytes(8) == pytest.approx(attention_bytes(12) * 2 / 3)


def test_one_prompt_runs_in_one_group():
    """A prompt chunk is not divided: its group computes all of its attention."""
    one, four = model(stack((WIDE,) * 4), device=NODE), model(grouped(4, 4), device=NODE)
    chunk = Pass("target", 0, 4, "prefill", (rows(0, 800, batch=1, kind="prefill"),))
    for name in ("qkv", "prefill_attention"):
        seconds = [
            next(line.seconds for line in cost.breakdown([chunk]) if line.operator == name)
            for cost in (one, four)
        ]
        assert seconds[0] == pytest.approx(seconds[1]), name


def test_numbers_and_arrays_agree_with_groups():
    """The table and the vectorised formulas give the same seconds, FLOP and bytes."""
    cost = model(grouped(4, 2), device=NODE)
    batches = np.array([1.0, 3.0, 4.0, 9.0, 64.0])
    work = Pass("target", 0, 4, "decode", (rows(300, 2, batch=batches),))
    together = cost.step([work], batches)
    for i, batch in enumerate(batches.astype(int).tolist()):
        single = cost.step([Pass("target", 0, 4, "decode", (rows(300, 2, batch=batch),))], batch)
        assert together.total_s[i] == pytest.approx(single.total_s, rel=1e-12)
        assert together.bytes[i] == pytest.approx(single.bytes, rel=1e-12)
        assert together.flop[i] == pytest.approx(single.flop, rel=1e-12)


def test_memory_and_time_count_the_same_weights():
    """With all experts hit, the weights a decode step reads are those stored on a rank."""
    owner = grouped(4, 2)
    segment = Segment(owner, NODE, 0, 4, embeds=False)
    read = 0.0
    for kernel, count in (*segment.tokens.kernels, *segment.gathered.kernels):
        if isinstance(kernel, ExpertKernel):
            _, distinct = kernel._load(1e9)
            per_expert = kernel.in_features * kernel.out_features * kernel.form.weight_bytes
            read += count * distinct * per_expert
        elif not kernel.is_network:
            read += count * kernel.fixed_bytes
    assert read == pytest.approx(weights_bytes(owner_of(owner), "bf16", 1, ep=2, attention_dp=4))


def owner_of(owner):
    """Return the layers alone, without formats and ranks."""
    return type("Layers", (), {"blocks": owner.blocks})()


def test_a_rank_holds_its_share_of_the_experts():
    """16 experts over ep=4 of 8 ranks: 4 experts, each split in two; the rest is whole."""
    whole = block_params(MIXTURE)
    share = block_params(MIXTURE, 1, ep=4, attention_dp=8)
    assert share.experts == whole.experts // 8
    assert share.attention == whole.attention
    assert share.ffn == whole.ffn
    assert block_params(MIXTURE, 8, ep=8).experts == whole.experts // 8


@pytest.mark.parametrize(
    ("blocks", "tp", "ep", "groups", "field", "says"),
    [
        ((DENSE,), 2, 2, 1, "expert_parallel", "needs experts to divide"),
        ((DENSE,), 1, 1, 2, "attention_data_parallel", "shares nothing"),
        ((MIXTURE,), 2, 4, 1, "expert_parallel", "does not divide the 2 GPUs"),
        ((MIXTURE,), 24, 24, 1, "expert_parallel", "does not divide the 16 experts"),
    ],
)
def test_impossible_layouts_are_refused(blocks, tp, ep, groups, field, says):
    """Experts that are not there or do not divide are one sentence with the field."""
    with pytest.raises(ConfigError, match=says) as refused:
        check_expert_parallel(blocks, tp, ep=ep, attention_dp=groups)
    assert refused.value.field == field
    assert "\n" not in str(refused.value)


def test_more_groups_than_the_link_joins_are_refused():
    """Two groups of eight devices do not fit a link of eight."""
    owner = replace(stack((WIDE,) * 2, tp=4), attention_dp=4, ep=16)
    with pytest.raises(ConfigError, match="4 groups of 4 devices are more than the 8"):
        model(owner, device=NODE)


def test_the_ideal_device_prices_a_divided_expert_by_hand():
    """One token, 2 of 16 experts of 512 over two ranks of the busiest kind, all bytes at 1e11 B/s.

    Routes on a rank: mean 1, variance 2 * 1/2 * 1/2 * 14/15 = 0.4667, excess sqrt(2/pi).
    """
    kernel = replace(experts(16, 2, 2), is_gathered=False)
    routed, distinct = kernel._load(1)
    expected = 1 + busiest_excess(2) * np.sqrt(14 / 30)
    assert routed == pytest.approx(expected)
    assert distinct == pytest.approx(expected)
    weights = expected * 1024 * 1024 * 2
    num_bytes = weights + expected * (1024 + 1024) * 2
    flop = expected * 2 * 1024 * 1024
    assert kernel.seconds(1) == pytest.approx(max(flop / PEAK, num_bytes / BANDWIDTH))
