"""Swap against recompute: the closed form, and what the simulation of one preemption takes."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from simspec.core.errors import ConfigError
from simspec.scenarios.build import Deployment
from simspec.scenarios.swapping import Others, break_even_context, recompute_s, swap_s
from simspec.serving.plan import ServingSetup
from simspec.serving.records import RunRecords
from simspec.serving.simulate import simulate
from simspec.workloads.request import Request
from tests.helpers.shared import REPO_ROOT
from tests.serving.test_with_real_parts import deployment, serving

OTHERS = Others(batch_size=17, context_len=400)


@cache
def on(hardware: str, preemption: str = "swap") -> Deployment:
    """Full attention heads and a slow link: a token's KV is large beside its computing."""
    return deployment(
        "autoregressive",
        model="llama-2-13b",
        hardware=hardware,
        scheduler={"preemption": preemption, "max_num_batched_tokens": 8192},
    )


def one_preemption(preemption: str, victim_context: int) -> RunRecords:
    """Sixteen sequences decode, the last admitted is preempted and returns when another leaves."""
    of = on("l40s")
    decoding = [Request(i, 0.0, 392 + i, 60) for i in range(16)]
    leaving = Request(16, 0.0, victim_context + 1200, 8)
    # At the third round the pool is short of a block, and the victim holds two tokens more.
    victim = Request(17, 0.0, victim_context - 2, 20)
    load = [*decoding, leaving, victim]
    held = sum(-(-request.prompt_len // 16) for request in load)
    drawn: ServingSetup = serving(
        of, load, num_blocks=held + 3, limits=replace(of.limits, preemption=preemption)
    )
    run = simulate(replace(drawn, host=of.host), check=True)
    assert run.requests.num_preemptions.tolist() == [0] * 17 + [1], run.requests.num_preemptions
    return run


def test_swap_costs_less_from_the_break_even_on_and_never_before():
    """R - S changes its sign once for good."""
    of = on("l40s")
    found = break_even_context(of, OTHERS, 30_000)
    assert found is not None
    assert 50 < found < 1000
    for context in (found, found + 1, 2 * found, 5 * found, 10_000, 30_000):
        assert swap_s(of, context) < recompute_s(of, context, OTHERS), context
    for context in (found - 1, found // 2):
        assert swap_s(of, context) >= recompute_s(of, context, OTHERS), context


@pytest.mark.parametrize(("share", "swap_wins"), [(0.5, False), (3.0, True)])
def test_the_simulation_agrees_on_both_sides_of_the_break_even(share: float, swap_wins: bool):
    """The run with the cheaper preemption ends first, by what the closed form says."""
    of = on("l40s")
    found = break_even_context(of, OTHERS, 30_000)
    assert found is not None
    context = round(share * found)
    swapped, recomputed = (one_preemption(name, context) for name in ("swap", "recompute"))
    lost = int(recomputed.requests.recomputed_tokens[17])
    assert abs(lost - context) <= 8
    assert swapped.requests.swapped_tokens[17] == lost
    saved_s = recomputed.end_s - swapped.end_s
    assert (saved_s > 0) == swap_wins
    expected_s = recompute_s(of, lost, OTHERS) - swap_s(of, lost)
    scale_s = max(recompute_s(of, lost, OTHERS), swap_s(of, lost))
    # The sequence computes one token more again, and decodes beside the others a step later.
    assert abs(saved_s - expected_s) < 0.1 * scale_s


def test_copies_take_the_link_s_time_and_nothing_is_computed_twice():
    """Both ways at the link's rate, in the steps that preempt and admit."""
    of = on("l40s")
    run = one_preemption("swap", 400)
    copied = run.steps.swap_s[run.steps.swap_s > 0]
    tokens = int(run.requests.swapped_tokens[17])
    assert of.host is not None
    per_token = of.budget.kv_bytes_per_token
    assert copied.tolist() == [pytest.approx(tokens * per_token / 32e9)] * 2
    assert run.requests.recomputed_tokens.sum() == 0
    assert run.steps.prefill_tokens.sum() == run.requests.prompt_len.sum()


def test_where_computing_is_slower_than_copying_from_the_start_swap_always_pays():
    """Grouped heads over PCIe 5: 8 times less KV for as much computing."""
    of = deployment("autoregressive", model="llama-3.1-8b", scheduler={"preemption": "swap"})
    assert break_even_context(of, OTHERS, 30_000) == 1


def test_the_numbers_of_the_page_are_what_its_code_gives():
    """docs/theory/preemption.md; profiles may move them a little."""
    page = (REPO_ROOT / "docs" / "theory" / "preemption.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    shown = re.findall(r"^(c_star\(.*\)) +# (\d+)$", code, re.MULTILINE)
    assert len(shown) == 3
    for call, number in shown:
        assert eval(call, names) == pytest.approx(int(number), rel=0.25), call


def test_recompute_has_nowhere_to_copy_to():
    """The question is refused for a deployment that does not swap."""
    with pytest.raises(ConfigError, match="set scheduler.preemption to swap"):
        swap_s(on("l40s", "recompute"), 100)
