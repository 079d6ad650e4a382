"""Kangaroo's round, counted as the method is built."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simspec.core.errors import ConfigError
from simspec.cost.work import Pass, Rows
from simspec.decoding._base import ACCEPTANCE_MODELS, METHODS
from simspec.decoding.kangaroo import Config, Kangaroo, adapter_block
from tests.decoding.factories import target, walk

E, L = 4, 32


def kangaroo(tau: float = 0.65, max_draft: int = 5) -> Kangaroo:
    """Return Kangaroo at exit layer 4 of a 32-layer target."""
    config = Config(exit_layer=E, num_speculative_tokens=max_draft, confidence_threshold=tau)
    return config.build(target(L))


def layer_tokens(passes: list[Pass], stack: str) -> list[float]:
    """Return the tokens that each layer of a stack sees, decode rows only."""
    tokens = [0.0] * (L if stack == "target" else 1)
    for work in passes:
        if work.stack == stack:
            for layer in range(work.first_layer, work.last_layer):
                tokens[layer] += sum(r.num_tokens for r in work.rows if r.kind == "decode")
    return tokens


def logit_rows(passes: list[Pass], stack: str) -> float:
    """Return the rows that go through the head of a stack."""
    return sum(rows.logit_rows for work in passes if work.stack == stack for rows in work.rows)


def test_one_sequence_in_order() -> None:
    """m = 2 at context 100: two draft steps, the closing pass, the deep layers on 3 tokens."""
    passes = kangaroo().round_passes([100], [2], [2], None)
    summary = [(p.stack, p.first_layer, p.last_layer, p.phase, p.embeds, *(p.rows)) for p in passes]
    assert summary == [
        ("target", 0, E, "draft", True, Rows("decode", 1, 1, 101, 101, 0)),
        ("adapter", 0, 1, "draft", False, Rows("decode", 1, 1, 101, 101, 1)),
        ("target", 0, E, "draft", True, Rows("decode", 1, 1, 102, 102, 0)),
        ("adapter", 0, 1, "draft", False, Rows("decode", 1, 1, 102, 102, 1)),
        ("target", 0, E, "verify", True, Rows("decode", 1, 1, 103, 103, 0)),
        ("target", E, L, "verify", False, Rows("decode", 1, 3, 103, 306.0, 3)),
    ]


@given(
    st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 5)), min_size=1, max_size=30).filter(
        lambda batch: any(m for _, m in batch)
    )
)
def test_work_is_conserved(batch: list[tuple[int, int]]) -> None:
    """Shallow layers, deep layers and target head see m + 1 tokens of each sequence.

    The adapter and the head of the drafter see m.
    """
    contexts, drafted = [c for c, _ in batch], [m for _, m in batch]
    passes = kangaroo().round_passes(contexts, drafted, drafted, None)
    verified = sum(m + 1 for m in drafted)
    assert layer_tokens(passes, "target") == [verified] * L
    assert logit_rows(passes, "target") == verified
    assert logit_rows(passes, "adapter") == sum(drafted)
    assert layer_tokens(passes, "adapter") == [sum(drafted)]
    draft_passes = [p for p in passes if p.phase == "draft"]
    assert len(draft_passes) == 2 * max(drafted)


def test_a_prompt_chunk_is_split_at_the_exit_layer() -> None:
    """Shallow layers with the closing pass, deep layers with verification, then the adapter."""
    chunk = Rows("prefill", 1, 512, 512, 512 * 256.5, 1)
    passes = kangaroo().round_passes([100], [1], [0], chunk)
    closing, verify, adapter = passes[-3:]
    assert closing.rows[1] == Rows("prefill", 1, 512, 512, 512 * 256.5, 0)
    assert verify.rows[1] == chunk
    assert (adapter.stack, adapter.phase) == ("adapter", "prefill")
    assert adapter.rows == (closing.rows[1],)


def test_a_prompt_alone_is_one_prefill_pass_and_the_adapter() -> None:
    """With no sequence decoding the whole model runs once, then the adapter fills its KV."""
    chunk = Rows("prefill", 1, 512, 512, 512 * 256.5, 1)
    whole, adapter = kangaroo().round_passes([], [], [], chunk)
    assert (whole.first_layer, whole.last_layer, whole.phase) == (0, L, "prefill")
    assert whole.rows == (chunk,)
    assert adapter.rows[0].logit_rows == 0


@pytest.mark.parametrize("batch_size", [1, 16])
def test_expected_work_is_the_mean_over_simulated_rounds(batch_size: int) -> None:
    """Tokens, KV reads and passes per round agree with rounds drawn from tapes.

    3,000 rounds per sequence; tolerance 4 standard errors of each mean, false alarm 6e-5.
    """
    method = kangaroo()
    acceptance = ACCEPTANCE_MODELS.parse(
        {
            "name": "beta_curve",
            "confidence": {"a": 4.5, "b": 1.8},
            "off_track_confidence": {"a": 2.0, "b": 2.0},
            "autocorrelation": 0.5,
            "alpha": 0.7,
        }
    ).at(E)
    num_rounds = 3000
    drafted = np.array(
        [
            walk(method.outcomes(acceptance.tape(1, r, num_rounds * 6)), num_rounds)[0]
            for r in range(batch_size)
        ]
    )

    def totals(passes: list[tuple[float, Pass]]) -> list[float]:
        return [
            sum(w for w, _ in passes),
            sum(w * sum(r.num_tokens for r in p.rows) * (p.last_layer - p.first_layer)
                for w, p in passes),
            sum(w * sum(r.kv_tokens for r in p.rows) for w, p in passes),
            sum(w * sum(r.num_tokens for r in p.rows) ** 2 for w, p in passes),
        ]  # fmt: skip

    context = 300
    seen = np.array(
        [
            totals(
                [
                    (1.0, p)
                    for p in method.round_passes([context] * batch_size, m, [0] * batch_size, None)
                ]
            )
            for m in drafted.T.tolist()
        ]
    )
    weighted = method.expected_passes(batch_size, context, method.statistics(acceptance))
    # Alternatives of one verification share one pass: only weights count passes.
    expected = totals([(float(entry.weight), entry.work) for entry in weighted])
    # Rounds of one sequence are correlated a little: batch means of 50 rounds.
    blocks = seen.reshape(60, 50, -1).mean(axis=1)
    errors = blocks.std(axis=0, ddof=1) / np.sqrt(60)
    for mean, error, value in zip(blocks.mean(axis=0), errors, expected, strict=True):
        assert mean == pytest.approx(value, abs=4 * error + 1e-9 * value)


def test_the_footprint_per_rank() -> None:
    """Adapter weights and KV are divided over the ranks; K + 1 slots are reserved."""
    whole = kangaroo().footprint()
    assert whole.extra_weights_bytes == 2 * (4 * 4096**2 + 2 * 4096)
    assert whole.extra_kv_bytes_per_token == 2 * 2 * 4096
    assert whole.reserved_slots == 6
    config = Config(exit_layer=E)
    shared = config.build(target(L, tp=4)).footprint()
    assert shared.extra_kv_bytes_per_token == 2 * 2 * 4096 / 4
    # Norms are on every rank.
    assert shared.extra_weights_bytes == 2 * (4 * 4096**2 / 4 + 2 * 4096)


@pytest.mark.parametrize(
    ("width", "heads", "num_heads"), [(4096, 32, 32), (2880, 64, 64), (96, 64, 32)]
)
def test_the_adapter_is_as_wide_as_the_model(width: int, heads: int, num_heads: int) -> None:
    """4 d^2 weights whatever the target's head size; the target's heads where they divide d."""
    stack = target(hidden_size=4096)
    block = stack.blocks[0]
    narrow = type(block)(width, heads, 8, 64, 1024)
    adapter = adapter_block(type(stack)("target", (narrow,), width, 100, "bf16", "bf16", 1))
    assert adapter.num_heads * adapter.head_dim == width
    assert adapter.num_kv_heads == adapter.num_heads == num_heads
    assert adapter.intermediate_size == 0


def test_the_head_of_the_drafter_is_the_targets() -> None:
    """Every draft step pays the full vocabulary, in the target's format and on its ranks."""
    stacks = kangaroo().stacks()
    assert stacks["adapter"].vocab_size == stacks["target"].vocab_size == 32000
    assert stacks["adapter"].weight_dtype == stacks["target"].weight_dtype
    assert stacks["adapter"].tp == stacks["target"].tp


@pytest.mark.parametrize("exit_layer", [32, 40])
def test_an_exit_at_or_beyond_the_last_layer_is_refused(exit_layer: int) -> None:
    """The message names the field, the value and the deepest exit."""
    with pytest.raises(ConfigError, match=rf"exit_layer: {exit_layer} .* deepest exit is 31") as e:
        Config(exit_layer=exit_layer).build(target(L))
    assert e.value.field == "exit_layer"


@pytest.mark.parametrize(
    "field",
    [
        {"exit_layer": 0},
        {"num_speculative_tokens": 0},
        {"num_speculative_tokens": 65},
        {"confidence_threshold": -0.1},
        {"confidence_threshold": 1.1},
        {"confidence_threshold": float("nan")},
        {"threshold": 0.5},
    ],
)
def test_fields_out_of_range_are_refused(field: dict[str, float]) -> None:
    """Each field has its range; unknown fields are errors."""
    with pytest.raises(ValidationError, match=next(iter(field))):
        Config.model_validate(field)


def test_acceptance_is_required() -> None:
    """simspec assumes no acceptance."""
    with pytest.raises(ConfigError, match="kangaroo needs an acceptance model"):
        kangaroo().statistics(None)


def test_a_bare_name_has_the_published_settings() -> None:
    """Exit layer 2, six steps, threshold 0.6: github.com/Equationliu/Kangaroo for Vicuna-7B."""
    config = METHODS.parse("kangaroo")
    assert (config.exit_layer, config.num_speculative_tokens) == (2, 6)
    assert config.confidence_threshold == 0.6
    assert config.acceptance_exit_layer == 2
