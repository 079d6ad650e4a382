"""Fields that are refused in most variants have an effect where they are allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.test_every_field import folder, in_closed_form, other, unchanged

__all__ = ["folder"]


@pytest.mark.parametrize(
    ("variant", "field"),
    [
        ("alpha", "acceptance.curve"),
        ("by_exit_layer", "acceptance.layers"),
        ("catalog", "acceptance.profile"),
        ("dual_model", "method.draft_tp"),
        ("published_mean", "acceptance.num_speculative_tokens"),
        ("published_mean", "acceptance.tokens_per_round"),
        ("static_tree", "method.tree"),
        ("static_tree", "method.version"),
        ("trace", "acceptance.path"),
    ],
)
def test_a_refusal_elsewhere_hides_no_idle_field(folder: Path, variant: str, field: str) -> None:
    """Another value of the field is other numbers."""
    before = in_closed_form(*unchanged(folder, variant))
    assert in_closed_form(*other(folder, variant, field)) != before
