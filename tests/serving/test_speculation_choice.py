"""What the policies choose, from what they are shown."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.rng import stream
from simspec.decoding._base import METHODS, AcceptanceProcess
from simspec.scenarios.build import Deployment
from simspec.serving.metrics import summarise
from simspec.serving.simulate import simulate
from simspec.serving.speculation._base import Load, Mode
from simspec.serving.speculation._estimate import RoundEstimate
from simspec.serving.speculation.tracking import Config as Tracking
from simspec.workloads._base import IMPORTERS
from simspec.workloads.request import Request
from simspec.workloads.request_log import read_log
from tests.helpers.shared import shared
from tests.serving.fakes import FakeMethod
from tests.serving.test_with_real_parts import KANGAROO, deployment, serving

EAGLE = {"name": "eagle", "version": 3, "top_k": 1}


class Shown:
    """Rounds with a given number of accepted drafts."""

    def __init__(self, in_force: int, accepted: list[int]) -> None:
        self.in_force, self.size, self.accepted = in_force, len(accepted), accepted

    def of(self, mode: int) -> tuple[list[int], list[int]]:
        return [9] * self.size, self.accepted


def followed(accepted: list[float], **fields: float) -> list[int]:
    """Return the draft length after each step of rounds with so many accepted drafts."""
    lengths = (7, 5, 3, 1)
    modes = [Mode(f"K={k}", FakeMethod(k), k) for k in lengths]
    config = Tracking(**{"warmup_rounds": 0, "interval_rounds": 1, **fields})  # type: ignore[arg-type]
    policy = config.build(modes, None)  # type: ignore[arg-type]
    mode, seen = 0, []
    for mean in accepted:
        few = int(mean)
        share = round(10 * (mean - few))
        policy.see_rounds(Shown(mode, [few] * (10 - share) + [few + 1] * share))
        mode = policy.choose(mode, Load())
        seen.append(lengths[mode])
    return seen


def test_tracking_drafts_a_token_more_than_was_accepted():
    """With all the weight on the newest step the length is the smallest above what came."""
    assert followed([6.0, 4.6, 2.6, 0.3, 0.7, 2.6, 4.6], smoothing=1.0, up_hysteresis=0.0) == [
        7, 7, 5, 1, 3, 5, 7,
    ]  # fmt: skip


def test_tracking_waits_and_smooths():
    """Nothing in the warm-up, a decision every interval, and a mean that forgets slowly."""
    never = followed([0.0] * 6, warmup_rounds=6)
    assert never == [7] * 6
    seldom = followed([0.0] * 6, smoothing=1.0, interval_rounds=3)
    assert seldom == [7, 7, 1, 1, 1, 1]
    slowly = followed([0.0] * 16, smoothing=0.2)
    assert slowly == sorted(slowly, reverse=True)
    assert set(slowly) == {7, 5, 3, 1}


@given(st.floats(0.05, 0.95), st.floats(0.2, 1.0), st.integers(0, 99))
def test_hazards_of_long_rounds_are_the_laws_of_shorter_ones(alpha: float, go_on: float, seed: int):
    """From the longest rounds alone: exactly the means of min(m, K) and min(a, K)."""
    draws = stream(seed, "rounds")
    longest = 6
    m = np.minimum(1 + draws.geometric(1.0 - 0.999 * go_on, 200) - 1, longest).clip(1)
    a = np.minimum(draws.geometric(1.0 - alpha, 200) - 1, m)
    estimate = RoundEstimate(longest, 10_000)
    estimate.add(longest, m.tolist(), a.tolist())
    estimate.refresh()
    for depth in range(1, longest + 1):
        law = estimate.statistics(depth, depth)
        assert law.drafted_per_round == pytest.approx(np.minimum(m, depth).mean())
        assert law.accepted_per_round == pytest.approx(np.minimum(a, depth).mean())
        full = np.minimum(a, depth) == np.minimum(m, depth)
        assert law.all_accepted == pytest.approx(full.mean())
        assert estimate.tokens(depth) == pytest.approx(1.0 + np.minimum(a, depth).mean())


def test_the_error_of_the_tokens_is_what_samples_scatter_by():
    """The delta method against 400 samples of 300 rounds, within 15 %."""
    draws = stream(7, "scatter")
    found, said = [], []
    for _ in range(400):
        a = np.minimum(draws.geometric(0.3, 300) - 1, 5)
        estimate = RoundEstimate(5, 10_000)
        estimate.add(5, [5] * 300, a.tolist())
        estimate.refresh()
        found.append(estimate.tokens(4))
        said.append(estimate.tokens_sigma(4))
    assert np.mean(said) == pytest.approx(np.std(found), rel=0.15)


def best_in_closed_form(of: Deployment, acceptance: AcceptanceProcess, batch: int) -> float:
    """Return the least time per token over the modes of a deployment, seconds."""
    assert of.speculation is not None
    times = []
    for mode in of.speculation.modes:
        law = mode.method.statistics(acceptance)
        weighted = mode.method.expected_passes(batch, 400, law)
        times.append(float(of.cost.expected_step(weighted, batch).total_s) / law.tokens_per_round)
    return min(times)


@pytest.mark.parametrize("batch", [1, 8, 64, 250])
@pytest.mark.parametrize("alpha", [0.3, 0.7])
def test_goodput_is_within_a_few_per_cent_of_the_best_mode(batch: int, alpha: float):
    """A steady batch ends in a mode whose closed form is near the best one's, at any size."""
    method = {**EAGLE, "num_speculative_tokens": 6}
    of = deployment(method, acceptance=alpha, speculation="goodput")
    assert of.speculation is not None
    assert of.acceptance is not None
    load = [Request(i, 0.0, 300, 200) for i in range(batch)]
    run = simulate(serving(of, load, speculation=of.speculation))
    steps = run.steps
    late = (steps.num_decoding == batch) & (steps.num_prefilling == 0)
    mode = of.speculation.modes[int(steps.mode[np.flatnonzero(late)[-1]])]
    law = mode.method.statistics(of.acceptance)
    weighted = mode.method.expected_passes(batch, 400, law)
    ours = float(of.cost.expected_step(weighted, batch).total_s) / law.tokens_per_round
    assert ours <= 1.04 * best_in_closed_form(of, of.acceptance, batch)


@cache
def rows() -> list[tuple[float, int, int]]:
    log = read_log(IMPORTERS.parse("azure"), shared("traces/azure/AzureLLMInferenceTrace_conv.csv"))
    lengths = log.lengths.prompt_lens.tolist(), log.lengths.output_lens.tolist()
    return list(zip(log.times_s.tolist(), *lengths, strict=True))


def azure(num_requests: int, rate_scale: float) -> list[Request]:
    return [Request(i, t / rate_scale, p, o) for i, (t, p, o) in enumerate(rows()[:num_requests])]


def on_azure(load: list[Request], alpha: float, length: int, **fields: object) -> dict[str, float]:
    """Return the metrics of a draft length, 0: autoregression, on given requests."""
    of = deployment("autoregressive")
    if length:
        acceptance = {"name": "constant", "alpha": alpha, "confidence": {"a": 4.5, "b": 1.8}}
        method = {**KANGAROO, "num_speculative_tokens": length}
        of = deployment(method, acceptance=acceptance, **fields)
    run = simulate(serving(of, load, speculation=of.speculation))
    return summarise(run, warmup=0.1, cooldown=0.0)


@pytest.mark.parametrize("alpha", [0.15, 0.7])
def test_goodput_is_the_best_length_on_a_calm_trace(alpha: float):
    """At a quarter of its rate, with a drafter that pays and one that does not (best: none).

    Same requests and tapes; the full table is in docs/guides/control-speculation.md.
    """
    load = azure(80, 0.25)
    ours = on_azure(load, alpha, 6, speculation="goodput")
    fixed = [on_azure(load, alpha, length) for length in (0, 1, 2, 3)]
    for metric in ("tpot_ms", "e2e_ms"):
        assert ours[metric] <= 1.01 * min(run[metric] for run in fixed)


@pytest.mark.parametrize("alpha", [0.15, 0.25, 0.7])
def test_goodput_is_never_behind_autoregression_in_a_rush(alpha: float):
    """At four times the rate, where drafts pay, just break even and do harm: 2 % at most."""
    load = azure(300, 4.0)
    ours = on_azure(load, alpha, 6, speculation="goodput")
    plain = on_azure(load, alpha, 0)
    for metric in ("tpot_ms", "e2e_ms"):
        assert ours[metric] <= 1.02 * plain[metric]
    assert ours["throughput_tokens_per_s"] >= 0.98 * plain["throughput_tokens_per_s"]
    # The claim is not an empty one: what is best at low load would not do.
    if alpha < 0.5:
        assert on_azure(load, alpha, 3)["tpot_ms"] > 1.3 * plain["tpot_ms"]


def test_the_policy_of_the_guide_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The example of ``docs/extending/speculation.md`` divides K drafts among the batch."""
    page = (Path(__file__).parents[2] / "docs" / "extending" / "speculation.md").read_text()
    (tmp_path / "shared_drafts.py").write_text(page.split("```python\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    config = importlib.import_module("shared_drafts").Config()
    method = METHODS.parse({**EAGLE, "num_speculative_tokens": 4})
    modes = config.modes(method, deployment(EAGLE).target)
    policy = config.build(modes, None)
    depths = [modes[policy.choose(0, Load(num_running=n))].depth for n in (0, 1, 2, 3, 4, 5)]
    assert depths == [4, 4, 2, 1, 1, 0]


def test_the_rounds_a_policy_sees_are_no_more_than_it_verified():
    """A policy that asks for what the rounds in force do not show is stopped."""
    of = deployment({**EAGLE, "num_speculative_tokens": 4}, speculation="goodput")
    assert of.speculation is not None
    longest, shorter = of.speculation.modes[0], of.speculation.modes[2]
    assert longest.shows(shorter)
    assert not shorter.shows(longest)
    assert not of.speculation.modes[-1].shows(shorter)
