"""Draft & Verify: which sublayers draft, and the paper's own arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from simspec.core.errors import ConfigError
from simspec.cost.work import Rows
from simspec.decoding._drafter import StackDrafter
from simspec.decoding.draft_and_verify import Config
from tests.decoding.factories import target

# LLaMA-2-13B, CNN/DM, A100-40GB (arXiv 2309.08168): ms per token of plain decoding and of its
# attention and MLP sublayers; of self-speculation, and of its two parts per token.
PLAIN_MS, ATTENTION_MS, MLP_MS = 56.3, 39.7, 14.3
TOTAL_MS, DRAFT_MS, VERIFY_MS = 36.8, 25.5, 10.7


def method(num_layers: int = 40, **fields: Any) -> StackDrafter:
    values = {"skipped_attention": 24, "skipped_mlp": 10, **fields}
    return Config(**values).build(target(num_layers, hidden_size=5120, num_heads=40))


def kept(drafter: StackDrafter) -> tuple[int, int]:
    """Return how many attention and MLP sublayers draft."""
    blocks = drafter.drafter.blocks
    return sum(b.num_heads > 0 for b in blocks), sum(b.intermediate_size > 0 for b in blocks)


def test_the_published_arithmetic() -> None:
    """c = 0.473, 5.26 tokens a round, 5.04 drafted: 1.555x predicted where 1.530x was measured.

    A verification costs a plain step, so tokens per round = 56.3 / 10.7; the draft time per token
    then gives the drafts per round. With the kept shares of this method's stack.
    """
    num_attention, num_mlp = kept(method())
    assert (num_attention, num_mlp) == (16, 30)
    c = (num_attention / 40 * ATTENTION_MS + num_mlp / 40 * MLP_MS) / PLAIN_MS
    assert c == pytest.approx(0.473, abs=0.0005)
    tokens = PLAIN_MS / VERIFY_MS
    drafted = DRAFT_MS * tokens / (c * PLAIN_MS)
    assert (tokens, drafted) == (pytest.approx(5.26, abs=0.005), pytest.approx(5.04, abs=0.01))
    predicted = tokens / (drafted * c + 1)
    assert predicted == pytest.approx(1.555, abs=0.001)
    assert predicted == pytest.approx(PLAIN_MS / TOTAL_MS, rel=0.02)


def test_one_round_in_order() -> None:
    """Kept sublayers with the head draft, all layers verify; a full round needs no catch-up."""
    passes = method().round_passes([100], [2], [2], None)
    layers = len(method().drafter.blocks)
    assert [(p.stack, p.last_layer, p.phase, *p.rows) for p in passes] == [
        ("kept", layers, "draft", Rows("decode", 1, 1, 101, 101, 1)),
        ("kept", layers, "draft", Rows("decode", 1, 1, 102, 102, 1)),
        ("target", 40, "verify", Rows("decode", 1, 3, 103, 306.0, 3)),
    ]


def test_lists_name_layers() -> None:
    """A layer whose both sublayers are left out is gone; its norms go with them."""
    drafter = method(4, skipped_attention=[0, 2], skipped_mlp=[2, 3])
    blocks = drafter.drafter.blocks
    assert [(b.num_heads > 0, b.intermediate_size > 0, b.num_norms) for b in blocks] == [
        (False, True, 1),
        (True, True, 2),
        (True, False, 1),
    ]


@pytest.mark.parametrize("skipped", [0, 1, 3, 7, 39])
def test_numbers_spread_evenly(skipped: int) -> None:
    """A number leaves out that many sublayers, none twice."""
    assert kept(method(skipped_attention=skipped, skipped_mlp=0)) == (40 - skipped, 40)


def test_there_is_nothing_beside_the_target() -> None:
    """The drafts' KV is overwritten in the target's cache; prompts pass once."""
    footprint = method().footprint()
    assert footprint.extra_weights_bytes == footprint.extra_kv_bytes_per_token == 0
    assert footprint.extra_kv_bytes_per_sequence == 0
    chunk = Rows("prefill", 1, 512, 512, 512 * 256.5, 1)
    assert len(method().round_passes([], [], [], chunk)) == 1


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"skipped_attention": 41}, "skipped_attention: 41 is more than the target's 40 layers"),
        ({"skipped_mlp": [3, 40]}, "skipped_mlp: the target has no layer 40; layers are 0 to 39"),
        ({"skipped_mlp": [3, 3]}, "skipped_mlp: layer 3 is named twice"),
        ({"skipped_attention": 40}, "would not see the text; leave out 39 at most"),
    ],
)
def test_what_cannot_be_left_out_is_refused(fields: dict[str, Any], says: str) -> None:
    """One sentence that names the field."""
    with pytest.raises(ConfigError, match=says) as refused:
        method(**fields)
    assert refused.value.field == next(iter(fields))


def test_what_to_skip_has_no_default() -> None:
    """The layer set is found for each model by search."""
    with pytest.raises(ValidationError, match="skipped_attention"):
        Config.model_validate({})
