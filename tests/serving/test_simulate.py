"""What one run does, step by step, against times worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from simspec.core.errors import ConfigError
from simspec.cost.work import Pass, Rows
from simspec.serving.records import Fate
from simspec.serving.simulate import simulate
from simspec.workloads.request import Request
from tests.serving.fakes import (
    FakeAcceptance,
    FakeCost,
    FakePrice,
    limits,
    poisson,
    setup,
    together,
)

ONE_SECOND = FakeCost(pass_s=1.0, token_s=0.0, kv_token_s=0.0)


def test_one_request_alone():
    """The prefill's last chunk yields token 0, each round one more; KV ends with what was fed."""
    run = simulate(setup(together((10, 4)), cost=ONE_SECOND), check=True)
    assert run.requests.first_token_s.tolist() == [1.0]
    assert run.requests.last_token_s.tolist() == [4.0]
    assert run.steps.emitted.tolist() == [1, 1, 1, 1]
    assert run.steps.prefill_tokens.tolist() == [10, 0, 0, 0]
    # Byte per KV token: after the prompt's 10, rounds read 11, 12, 13.
    assert run.steps.bytes.tolist() == [10.0, 11.0, 12.0, 13.0]


def test_a_prompt_longer_than_the_budget_is_split():
    """Chunks of the token budget; the first token comes with the last chunk."""
    run = simulate(
        setup(together((25, 2)), cost=ONE_SECOND, scheduler=limits(max_num_batched_tokens=10)),
        check=True,
    )
    assert run.steps.prefill_tokens.tolist() == [10, 10, 5, 0]
    assert run.requests.first_token_s.tolist() == [3.0]


def test_rounds_of_a_perfect_draft():
    """With everything accepted a round yields K + 1 tokens, cut at the end of the answer."""
    cost = FakeCost(pass_s=1.0, token_s=0.0, kv_token_s=0.0)
    run = simulate(setup(together((10, 5)), max_draft=2, alpha=1.0, cost=cost), check=True)
    assert run.steps.emitted.tolist() == [1, 3, 1]
    # The last round is counted whole, although one token was missing.
    assert run.steps.accepted.tolist() == [0, 2, 2]
    assert run.steps.cut_tokens.tolist() == [0, 0, 2]
    # Two draft passes and one target pass per round.
    assert run.requests.last_token_s.tolist() == [1.0 + 3.0 + 3.0]


def test_rounds_of_a_useless_draft():
    """With nothing accepted a round yields one token and its drafts are thrown away."""
    run = simulate(setup(together((10, 4)), max_draft=3, alpha=0.0), check=True)
    assert run.steps.emitted.tolist() == [1, 1, 1, 1]
    assert run.requests.drafted.tolist() == [9]
    assert run.requests.accepted.tolist() == [0]


def test_a_request_keeps_its_tape_under_any_load():
    """What a request drafts and accepts depends on (seed, request), not on its neighbours."""
    load = poisson(40, 20.0, prompt_len=30, output_len=50)
    alone = simulate(setup(load, max_draft=4, scheduler=limits(max_num_seqs=1)))
    packed = simulate(setup(load, max_draft=4, concurrency=40, scheduler=limits(max_num_seqs=40)))
    assert alone.requests.num_rounds.tolist() == packed.requests.num_rounds.tolist()
    assert alone.requests.accepted.tolist() == packed.requests.accepted.tolist()


def test_an_arrival_waits_for_the_step_in_progress():
    """Steps are not interrupted: who comes during one is admitted at its end."""
    load = [Request(0, 0.0, 10, 3), Request(1, 0.5, 10, 1)]
    run = simulate(setup(load, cost=ONE_SECOND), check=True)
    assert run.requests.admission_s.tolist() == [0.0, 1.0]
    assert run.requests.queue_s.tolist() == [0.0, 0.5]


def test_arrivals_at_the_same_time_keep_their_order():
    """Equal times resolve by order in the workload, and one step takes all that fit."""
    load = [Request(i, 5.0, 10, 1) for i in range(5)]
    run = simulate(
        setup(load, cost=ONE_SECOND, scheduler=limits(max_num_batched_tokens=20)), check=True
    )
    assert run.requests.last_token_s.tolist() == [6.0, 6.0, 7.0, 7.0, 8.0]


def test_closed_loop_keeps_its_concurrency():
    """The next request comes the moment one leaves, so the number in the system is constant."""
    run = simulate(setup(together(*[(10, 3)] * 6), concurrency=2, cost=ONE_SECOND), check=True)
    assert run.requests.arrival_s.tolist() == [0.0, 0.0, 3.0, 3.0, 6.0, 6.0]
    assert run.num_in_system_integral_s == pytest.approx(2 * run.end_s)


def test_the_clock_can_be_stopped():
    """Who is still there is recorded as running or waiting, who never came is counted."""
    load = [Request(0, 0.0, 10, 9), Request(1, 1.0, 10, 9), Request(2, 50.0, 10, 9)]
    run = simulate(
        setup(load, cost=ONE_SECOND, scheduler=limits(max_num_seqs=1), max_simulated_s=4.5),
        check=True,
    )
    assert run.requests.fate.tolist() == [Fate.RUNNING, Fate.WAITING]
    assert run.requests.emitted.tolist() == [4, 0]
    assert run.requests.queue_s.tolist() == [0.0, 3.5]
    assert run.num_not_arrived == 1
    assert run.end_s == 4.5


def test_a_run_ends_with_its_last_departure():
    """A clock that may go on longer adds no idle time to the run."""
    load = together((10, 4))
    short = simulate(setup(load, cost=ONE_SECOND))
    longer = simulate(setup(load, cost=ONE_SECOND, max_simulated_s=100.0), check=True)
    assert longer.end_s == 4.0
    assert longer.digest() == short.digest()


def test_the_work_of_prompt_chunks():
    """n tokens after c: c + n keys are read, n (c + (n + 1) / 2) pairs attend, one row at last."""
    seen: list[Rows] = []

    class Watch(FakeCost):
        def step(self, passes: Sequence[Pass], num_sequences: int) -> FakePrice:
            seen.extend(rows for work in passes for rows in work.rows if rows.kind == "prefill")
            return super().step(passes, num_sequences)

    simulate(
        setup(together((25, 1), (4, 1)), cost=Watch(), scheduler=limits(max_num_batched_tokens=20))
    )
    assert seen == [
        Rows("prefill", 1, 20, 20, sum(range(1, 21)), 0),
        Rows("prefill", 2, 5 + 4, 25 + 4, sum(range(21, 26)) + sum(range(1, 5)), 2),
    ]


def test_what_can_never_fit_is_refused_with_numbers():
    """A request larger than the pool is turned away on arrival; the others are served."""
    load = together((10, 4), (100, 4), (10, 4))
    run = simulate(setup(load, num_blocks=4, block_size_tokens=16), check=True)
    assert run.requests.fate.tolist() == [Fate.FINISHED, Fate.REFUSED, Fate.FINISHED]
    assert run.refusals == {
        1: "needs 103 KV slots (100 prompt + 4 output tokens with the slots of a round), "
        "the pool holds 64"
    }


def test_a_request_that_just_fits_is_served():
    """The last round may start with all but one token and reserves K + 1 slots."""
    just = setup(together((10, 4)), max_draft=3, alpha=0.0, num_blocks=16, block_size_tokens=1)
    assert simulate(just, check=True).requests.fate.tolist() == [Fate.FINISHED]
    less = setup(together((10, 4)), max_draft=3, alpha=0.0, num_blocks=15, block_size_tokens=1)
    assert simulate(less, check=True).requests.fate.tolist() == [Fate.REFUSED]


def test_without_chunks_a_prompt_above_the_budget_is_refused():
    """Nothing splits a prompt, so it must fit into one step, recomputed or not."""
    whole = limits(max_num_batched_tokens=50, chunked_prefill=False)
    run = simulate(setup(together((48, 3), (49, 3)), scheduler=whole), check=True)
    assert run.requests.fate.tolist() == [Fate.FINISHED, Fate.REFUSED]
    assert "without chunked prefill" in run.refusals[1]


def test_closed_loop_passes_over_the_refused():
    """A refusal does not cost the loop one of its places."""
    load = together(*[(10, 2), (500, 2), (500, 2), (10, 2), (10, 2)])
    run = simulate(setup(load, concurrency=1, num_blocks=10), check=True)
    assert run.requests.fate.tolist() == [0, 1, 1, 0, 0]


def test_a_step_too_small_for_a_round_is_an_error():
    """K + 1 tokens must fit into a step; the message names the field and the nearest value."""
    with pytest.raises(ConfigError, match=r"one round of fake takes 6 tokens.*at least 6") as error:
        simulate(setup(together((1, 2)), max_draft=5, scheduler=limits(max_num_batched_tokens=5)))
    assert error.value.field == "scheduler.max_num_batched_tokens"


def test_an_unknown_policy_is_named_with_its_neighbours():
    """A policy is a file name."""
    with pytest.raises(ConfigError, match="did you mean 'continuous'"):
        simulate(setup(together((1, 1)), scheduler=limits("continous")))


def test_an_empty_workload_is_an_empty_run():
    """Nobody comes, nothing happens, and the clock does not move."""
    run = simulate(setup([]), check=True)
    assert run.requests.request_id.size == 0
    assert run.steps.start_s.size == 0
    assert run.end_s == 0.0


def test_same_seed_same_bytes():
    """Law 7: two runs of one setup agree in every byte, and another seed does not."""
    load = poisson(100, 10.0, prompt_len=40, output_len=30)

    def digest(seed: int) -> str:
        return simulate(setup(load, max_draft=3, seed=seed)).digest()

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


def test_a_method_that_drafts_nothing_is_autoregression():
    """K = 0 with an acceptance process at hand gives byte for byte the run without one."""
    load = poisson(50, 10.0, prompt_len=40, output_len=30)
    plain = setup(load, max_draft=0)
    with_process = setup(load, max_draft=0)
    object.__setattr__(with_process, "acceptance", FakeAcceptance())
    assert simulate(plain).digest() == simulate(with_process).digest()


def test_more_acceptance_never_more_rounds():
    """Law 10: on the same draws a higher acceptance finishes each request in no more rounds."""
    load = poisson(60, 10.0, prompt_len=20, output_len=80)
    rounds = [
        simulate(setup(load, max_draft=5, alpha=alpha)).requests.num_rounds
        for alpha in (0.0, 0.3, 0.6, 0.9, 1.0)
    ]
    assert all(np.all(more >= less) for more, less in zip(rounds, rounds[1:], strict=False))
