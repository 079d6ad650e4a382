"""What happens when the KV pool runs out."""

from __future__ import annotations

from simspec.serving.records import Fate
from simspec.serving.simulate import simulate
from tests.serving.fakes import FakeCost, limits, setup, together

ONE_SECOND = FakeCost(pass_s=1.0, token_s=0.0, kv_token_s=0.0)


def test_a_pool_just_large_enough_for_plain_decoding_preempts_when_drafting():
    """K + 1 slots are reserved at the start of a round, accepted or not."""
    load = together((10, 10), (10, 10))
    # Each request ends with 10 + 10 - 1 KV tokens.
    plain = simulate(setup(load, num_blocks=38, block_size_tokens=1), check=True)
    drafting = simulate(
        setup(load, max_draft=5, alpha=0.0, num_blocks=38, block_size_tokens=1), check=True
    )
    assert plain.requests.num_preemptions.tolist() == [0, 0]
    assert drafting.requests.num_preemptions.sum() > 0
    assert drafting.requests.fate.tolist() == [Fate.FINISHED, Fate.FINISHED]


def test_the_latest_admitted_recomputes_prompt_and_answer():
    """The victim re-prefills prompt + generated, and the end of that yields its next token."""
    run = simulate(
        setup(together((4, 4), (4, 4)), num_blocks=11, block_size_tokens=1, cost=ONE_SECOND),
        check=True,
    )
    # Both hold 4 after the prefill, 5 after one round; the third step has room for one only.
    assert run.requests.num_preemptions.tolist() == [0, 1]
    assert run.requests.recomputed_tokens.tolist() == [0, 5]
    # Request 0 leaves at t = 4; request 1 has two tokens and re-prefills 4 + 2.
    assert run.steps.prefill_tokens.tolist() == [8, 0, 0, 0, 6, 0]
    assert run.requests.first_token_s.tolist() == [1.0, 1.0]
    assert run.requests.last_token_s.tolist() == [4.0, 6.0]
    assert run.requests.max_gap_s.tolist() == [1.0, 3.0]
    assert run.requests.queue_s.tolist() == [0.0, 2.0]


def test_the_preempted_goes_before_those_who_waited():
    """A victim returns to the front of the queue."""
    run = simulate(
        setup(together((4, 4), (4, 4), (4, 1)), num_blocks=11, block_size_tokens=1,
              cost=ONE_SECOND, scheduler=limits(max_num_seqs=2)),
        check=True,
    )  # fmt: skip
    assert run.requests.num_preemptions.tolist() == [0, 1, 0]
    # The victim's six tokens do not fit beside request 0, and the third does not overtake it.
    assert run.requests.admission_s.tolist() == [0.0, 0.0, 4.0]


def test_rejected_drafts_give_their_blocks_back():
    """Slots of rejected tokens are rolled back at the end of the round."""
    run = simulate(
        setup(together((10, 4)), max_draft=5, alpha=0.0, num_blocks=100, block_size_tokens=1),
        check=True,
    )
    # Rounds start at 10, 11, 12 KV tokens and hold six slots more.
    assert run.steps.kv_blocks_used.tolist() == [10, 16, 17, 18]
