"""The exception tree is the one its docstring draws."""

from __future__ import annotations

import re

import pytest

from simspec.core import errors
from simspec.core.errors import SimspecError, nearest


def _classes() -> list[type[BaseException]]:
    return [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, Exception)]


def test_every_error_is_ours_and_drawn() -> None:
    """Each class descends from SimspecError and stands in the drawing of the module."""
    drawn = set(re.findall(r"[├└]── (\w+)|^    (\w+Error) ", errors.__doc__ or "", re.MULTILINE))
    names = {name for pair in drawn for name in pair if name}
    assert {c.__name__ for c in _classes()} == names
    assert all(issubclass(c, SimspecError) for c in _classes())


@pytest.mark.parametrize("error", _classes(), ids=lambda c: c.__name__)
def test_every_error_leaves_with_exit_code_two(error: type[SimspecError]) -> None:
    """A user's mistake is exit code 2, whatever the class, and str() is the sentence."""
    assert error.exit_code == 2
    assert str(error("one sentence")) == "one sentence"


def test_nearest_offers_the_closest_name_and_lists_all() -> None:
    """A typo gets a suggestion; something else gets the list."""
    assert nearest("kangaro", ["medusa", "kangaroo"]) == (
        "did you mean 'kangaroo'? (choices: kangaroo, medusa)"
    )
    assert nearest("zzz", ["medusa", "kangaroo"]) == "choices: kangaroo, medusa"
    assert nearest("zzz", []) == "choices: none"
