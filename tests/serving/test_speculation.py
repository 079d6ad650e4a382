"""Speculation control: modes, policies, and what coming back costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from simspec.cost.work import Rows
from simspec.memory.blocks import BlockPool
from simspec.scenarios.build import Deployment
from simspec.serving.metrics import summarise
from simspec.serving.modes import mode_shares, switches
from simspec.serving.plan import EngineState, SequenceState
from simspec.serving.records import PHASES, RunRecords
from simspec.serving.simulate import simulate
from simspec.serving.speculation._base import SPECULATIONS, Load, Mode
from simspec.serving.speculation._control import SpeculationControl
from simspec.workloads.request import Request
from tests.serving.fakes import only, together
from tests.serving.test_with_real_parts import deployment, mixed, serving

CATCH_UP = PHASES.index("catch_up")
LAYERSKIP = {"name": "layerskip", "exit_layer": 8, "num_speculative_tokens": 4}
EAGLE = {"name": "eagle", "version": 3, "num_speculative_tokens": 4, "top_k": 1}
MTP = {"name": "mtp", "num_speculative_tokens": 3}
DUAL = {"name": "dual_model", "draft_model": "llama-3.2-1b", "num_speculative_tokens": 4}
POLICIES = {
    "fixed": ({"name": "fixed"}, EAGLE),
    "off_above": ({"name": "off_above", "batch_size": 4, "resume_below": 3}, DUAL),
    "tracking": ({"name": "tracking", "interval_rounds": 2}, EAGLE),
    "goodput": ({"name": "goodput", "thresholds": [0.8]}, {**DUAL, "confidence_threshold": 0.4}),
    "unverified_fallback": (
        {"name": "unverified_fallback", "batch_size": 6, "num_waiting": 2}, LAYERSKIP,
    ),
}  # fmt: skip


def controlled(policy: object, method: object) -> Deployment:
    return deployment(method, speculation=policy)


def run_of(of: Deployment, requests: Sequence[Request]) -> RunRecords:
    return simulate(serving(of, list(requests), speculation=of.speculation), check=True)


def in_mode(of: Deployment, mode: Mode, num_requests: int) -> RunRecords:
    """Run a deployment under one of its modes from the first step on."""
    load = mixed(num_requests, 30.0)
    return simulate(serving(of, load, method=mode.method, speculation=only(mode)))


def same_but_for(one: RunRecords, other: RunRecords, *but: str) -> None:
    for table in ("requests", "steps"):
        for column in getattr(one, table).__slots__:
            if column not in but:
                pair = [getattr(getattr(run, table), column) for run in (one, other)]
                assert np.array_equal(*pair, equal_nan=True), (table, column)


@pytest.mark.parametrize("name", SPECULATIONS.names())
@pytest.mark.parametrize("num_blocks", [120, 10_000])
def test_every_policy_keeps_the_laws_and_looks_at_nothing_twice(name: str, num_blocks: int):
    """Laws after every step with and without preemption; the same bytes step by step."""
    of = controlled(*POLICIES[name])
    given = serving(of, mixed(25, 30.0), speculation=of.speculation, num_blocks=num_blocks)
    run = simulate(given, check=True)
    assert run.digest() == simulate(given).digest()
    assert run.digest() == simulate(replace(given, step_by_step=True)).digest()
    assert (name == "fixed") == (np.ptp(run.steps.mode) == 0)
    assert set(run.steps.draft_in_force.tolist()) <= {mode.max_draft for mode in run.modes}


def test_fixed_is_what_was_before():
    """The default policy has nothing to decide and leaves no trace but its name."""
    of = controlled("fixed", EAGLE)
    assert of.speculation is None
    run = run_of(of, mixed(9, 30.0))
    assert [mode.name for mode in run.modes] == ["fixed"]
    assert set(run.steps.draft_in_force.tolist()) == {4}


@pytest.mark.parametrize("method", [EAGLE, DUAL, LAYERSKIP, "kangaroo", "medusa", "prompt_lookup"])
def test_switched_off_costs_what_autoregression_costs(method: object):
    """Without drafts every number of every step is that of plain decoding."""
    of = controlled({"name": "off_above", "batch_size": 1}, method)
    assert of.speculation is not None
    off = in_mode(of, of.speculation.modes[1], 25)
    plain = simulate(serving(deployment("autoregressive"), mixed(25, 30.0)))
    assert off.modes[0].name == "off"
    same_but_for(off, plain)


@pytest.mark.parametrize("method", [EAGLE, DUAL, LAYERSKIP, MTP, {"name": "prompt_lookup"}])
def test_a_shorter_draft_in_force_is_the_method_of_that_length(method: dict[str, object]):
    """Every draft length gives the run of a method that was given it."""
    of = controlled("goodput", method)
    assert of.speculation is not None
    for mode in of.speculation.modes[:-1]:
        alone = deployment({**method, "num_speculative_tokens": mode.depth})
        same_but_for(
            in_mode(of, mode, 9),
            simulate(serving(alone, mixed(9, 30.0))),
        )


def test_cut_chains_are_those_of_the_shorter_method():
    """min(m, K') and min(a, K') of the longest chains are what the shorter method makes of a tape.

    With a threshold as well, and from every text position.
    """
    of = controlled("goodput", {**DUAL, "confidence_threshold": 0.5})
    assert of.speculation is not None
    assert of.acceptance is not None
    state = EngineState(BlockPool(100, 16))
    given = serving(of, [], speculation=of.speculation)
    control = SpeculationControl(given, of.speculation, state, [0] * 60)
    sequence = SequenceState(3, 10, 60, 0.0, 10, 0.0)
    tape = of.acceptance.tape(0, 3, 65)
    for index, mode in enumerate(of.speculation.modes[:-1]):
        outcomes = mode.method.outcomes(tape)
        drafted, accepted = control.outcomes(sequence, index)
        assert drafted == outcomes.drafted[:60].tolist()
        assert accepted == outcomes.accepted[:60].tolist()


def test_coming_back_reads_what_the_drafter_missed():
    """Tokens made while off, and prompts that came meanwhile, pass the draft once, together."""
    method = {**DUAL, "catch_up": "first_step"}
    of = controlled({"name": "off_above", "batch_size": 3, "resume_below": 3}, method)
    late = Request(3, 0.03, 200, 60)
    run = run_of(of, [*together((100, 50), (100, 12), (100, 12)), late])
    (back,) = np.flatnonzero(run.steps.caught_up_tokens)
    # Both short ones end together; the step after them is the first with drafts again.
    assert run.steps.mode[back - 1 : back + 1].tolist() == [1, 0]
    is_off = run.steps.mode == 1
    prefilled_off = run.steps.prefill_tokens[is_off].sum()
    assert prefilled_off == 200
    steps_off = int(is_off.sum())
    of_late = steps_off - 1 - int(np.flatnonzero(run.steps.prefill_tokens[is_off])[0])
    owed = [steps_off, 200 + of_late]
    assert run.steps.caught_up_tokens[back] == sum(owed)
    contexts = [100 + steps_off, 200 + of_late]
    pairs = sum(n * (c - n + (n + 1) / 2) for c, n in zip(contexts, owed, strict=True))
    rows = Rows("prefill", 2, sum(owed), sum(contexts), pairs, 0)
    (target, draft) = of.method.round_passes([], [], [], rows)
    assert (target.stack, draft.stack) == ("target", "draft")
    owed_s = float(of.cost.pass_seconds(draft))
    assert run.steps.phase_s[back, CATCH_UP] == pytest.approx(owed_s)
    assert run.steps.phase_s[is_off, CATCH_UP].sum() == 0.0


def test_unverified_tokens_pay_their_deep_layers_before_a_round_is_verified():
    """F(E, L, n) over all of them, in the first step back; who ends unverified never pays."""
    of = controlled({"name": "unverified_fallback", "batch_size": 3}, LAYERSKIP)
    assert of.speculation is not None
    run = run_of(of, together((100, 50), (80, 12), (60, 12)))
    (back,) = np.flatnonzero(run.steps.caught_up_tokens)
    steps_out = int((run.steps.mode == 1).sum())
    assert run.steps.mode[back] == 0
    assert run.steps.caught_up_tokens[back] == steps_out == 11
    shallow = of.speculation.modes[1].method
    owed = shallow.repayment([100 + 11], [11])  # type: ignore[attr-defined]
    assert run.steps.phase_s[back, CATCH_UP] == pytest.approx(float(of.cost.pass_seconds(owed)))
    metrics = summarise(run, warmup=0.0, cooldown=0.0)
    assert metrics["unverified_share"] == pytest.approx(33 / 74)
    assert metrics["mode_switches"] == 2


def test_the_states_of_an_exit_take_room():
    """A deployment that may fall back to its exit keeps d values for every token."""
    plain, falling = deployment(LAYERSKIP), controlled(*POLICIES["unverified_fallback"])
    state = plain.target.hidden_size * 2
    assert falling.budget.kv_bytes_per_token - plain.budget.kv_bytes_per_token == state
    assert falling.num_blocks < plain.num_blocks


def test_a_report_says_when_each_mode_was_in_force():
    """Shares of time add up to one, and switches are where the record changes."""
    run = run_of(controlled(*POLICIES["off_above"]), mixed(25, 30.0))
    rows = mode_shares(run)
    assert sum(row["share_of_time"] for row in rows) == pytest.approx(1.0)
    assert [row["draft_in_force"] for row in rows] == [4, 0]
    times = switches(run)
    assert len(times) == 1 + np.count_nonzero(np.diff(run.steps.mode))
    assert {entry["mode"] for entry in times} == {row["mode"] for row in rows}


def test_off_above_has_hysteresis():
    """Off at the upper threshold, on again only below the lower one."""
    of = controlled({"name": "off_above", "batch_size": 8, "resume_below": 4}, EAGLE)
    assert of.speculation is not None
    policy = of.speculation.config.build(of.speculation.modes, None)  # type: ignore[arg-type]
    mode, seen = 0, []
    for size in (1, 7, 8, 7, 4, 3, 7, 8):
        mode = policy.choose(mode, Load(num_running=size))
        seen.append(mode)
    assert seen == [0, 0, 1, 1, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("policy", "method", "message"),
    [
        ("goodput", "autoregressive", "drafts nothing, so speculation has no effect"),
        ({"name": "tracking"}, {**EAGLE, "num_speculative_tokens": 1}, "has but one"),
        ({"name": "tracking", "draft_lengths": [9]}, EAGLE, "9 is not shorter"),
        ({"name": "goodput", "thresholds": [0.5]}, EAGLE, "has no confidence_threshold"),
        ({"name": "unverified_fallback", "batch_size": 2}, "kangaroo", "use layerskip"),
        ({"name": "unverified_fallback"}, LAYERSKIP, "give num_waiting or batch_size"),
        ({"name": "off_above", "batch_size": 2, "resume_below": 3}, EAGLE, "is above batch_size"),
        ("of_above", EAGLE, "did you mean 'off_above'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(policy: object, method: object, message: str):
    """Whatever a policy needs of a method, and its own fields."""
    with pytest.raises(ValueError, match=message):
        controlled(policy, method)
