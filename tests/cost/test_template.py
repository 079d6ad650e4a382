"""A step priced as a function of its numbers is the step priced from its passes, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.cost.forward import CostModel
from simspec.cost.scalar import Numbers
from simspec.cost.template import columns, slot_rows
from simspec.cost.work import Pass, Rows
from tests.cost.factory import BLOCKS, REAL, engine, hardware, link, model, rows, stack


def numbers_of(group: Rows) -> Numbers:
    values = [group.num_sequences, group.num_tokens, group.kv_tokens, group.attended_tokens]
    return (*values, group.logit_rows)  # type: ignore[return-value]


groups = st.builds(
    rows,
    st.lists(st.integers(0, 100_000), min_size=1, max_size=5),
    st.integers(1, 9),
)
MODELS = {
    f"{name}-{'graphs' if graphs else 'eager'}": model(
        stack((block,) * 4, tp=2),
        device=hardware(REAL, link=link()),
        serving=replace(
            engine(
                graph_capture=graphs,
                per_step_s=1e-3,
                per_sequence_s=1e-5,
                per_draft_step_s=3e-4,
                per_lookup_s=1e-5,
            ),
            host_time_per_round_s=2e-3,
            host_time_per_tree_s=5e-4,
            host_time_per_prompt_s=1e-4,
        ),
    )
    for name, block in BLOCKS.items()
    for graphs in (True, False)
}


def both(priced: CostModel, groups: list[Rows], passes: list[Pass]) -> None:
    """The template of ``passes`` over slots, and the step of the same passes over ``groups``."""

    def filled(group: Rows) -> Rows:
        slot = group.num_sequences.slots[0]  # type: ignore[union-attr]
        whole = groups[slot]
        return whole if group.logit_rows != 0 else replace(whole, logit_rows=0)

    written = [
        replace(
            work,
            rows=tuple(filled(group) for group in work.rows),
            host_lookups=groups[0].num_sequences if work.host_lookups else 0.0,
        )
        for work in passes
    ]
    given = priced.template(passes).price([numbers_of(group) for group in groups], 7)
    assert given == columns(priced.step(written, 7))


@pytest.mark.parametrize("name", MODELS)
@given(first=groups, second=groups, third=groups)
def test_a_round_in_slots_is_the_round(name: str, first: Rows, second: Rows, third: Rows):
    """Draft steps with and without logits, verification, catch-up and searches add up alike."""
    quiet = replace(slot_rows(1), logit_rows=0)
    passes = [
        Pass("target", 0, 2, "draft", (slot_rows(0),), True, slot_rows(0).num_sequences),
        Pass("target", 0, 2, "draft", (slot_rows(1),), True),
        Pass("target", 0, 2, "verify", (quiet,), True),
        Pass("target", 2, 4, "verify", (slot_rows(2),), has_tree=True),
        Pass("target", 0, 4, "catch_up", (quiet,), True),
    ]
    both(MODELS[name], [first, second, third], passes)


@given(decode=groups, chunk=st.integers(1, 3000), context=st.integers(0, 9000))
def test_prompt_chunks_ride_in_slots(decode: Rows, chunk: int, context: int):
    """What a prompt adds to a pass goes to prefill, in either form."""
    prompt = rows(context, chunk, kind="prefill", logit_rows=1)
    riding = slot_rows(1, "prefill")
    passes = [
        Pass("target", 0, 4, "verify", (slot_rows(0), riding), True),
        Pass("target", 0, 2, "prefill", (replace(riding, logit_rows=0),), True),
    ]
    both(MODELS["dense-graphs"], [decode, prompt], passes)


@given(step=groups, gap=groups)
def test_a_row_group_may_be_the_sum_of_two(step: Rows, gap: Rows):
    """A draft step that also reads missing tokens has the tokens of both and the first's logits."""
    first, second = slot_rows(0), slot_rows(1)
    merged = replace(
        first,
        num_tokens=first.num_tokens + second.num_tokens,
        attended_tokens=first.attended_tokens + second.attended_tokens,
    )
    written = replace(
        step,
        num_tokens=step.num_tokens + gap.num_tokens,
        attended_tokens=step.attended_tokens + gap.attended_tokens,
    )
    priced = MODELS["dense-graphs"]
    given = priced.template([Pass("target", 0, 4, "draft", (merged,), True)]).price(
        [numbers_of(step), numbers_of(gap)], 3
    )
    assert given == columns(priced.step([Pass("target", 0, 4, "draft", (written,), True)], 3))


@pytest.mark.parametrize("name", MODELS)
@given(group=groups)
def test_numbers_and_arrays_agree(name: str, group: Rows):
    """The function of five numbers and the vectorised formulas are the same physics."""
    arrays = Rows("decode", *(np.array([value], dtype=np.float64) for value in numbers_of(group)))
    by_number = MODELS[name].step([Pass("target", 0, 4, "decode", (group,), True)], 5)
    by_array = MODELS[name].step([Pass("target", 0, 4, "decode", (arrays,), True)], 5)
    for quantity in ("total_s", "network_s", "flop", "bytes"):
        assert getattr(by_number, quantity) == pytest.approx(
            float(np.squeeze(getattr(by_array, quantity))), rel=1e-12
        )
