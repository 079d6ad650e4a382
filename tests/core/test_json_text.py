"""JSON of others: whatever is wrong is one ValueError that says what."""

from __future__ import annotations

import pytest

from simspec.core.json_text import parse_json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 200_000, "too deeply nested"),
        ("[NaN]", "NaN is no JSON number"),
        ("[-Infinity]", "-Infinity is no JSON number"),
        ("1" * 10_000, "thousands of digits"),
        (b"\xff\xfe", "codec can't decode"),
        ("{", "Expecting property name"),
    ],
)
def test_what_is_wrong_is_said(text: str | bytes, message: str) -> None:
    """No RecursionError, no advice for Python's users."""
    with pytest.raises(ValueError, match=message):
        parse_json(text)


def test_a_byte_order_mark_is_no_content() -> None:
    """Windows editors write one."""
    assert parse_json(b'\xef\xbb\xbf{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
