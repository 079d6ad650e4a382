"""What people see, whole: each file holds a command and its output.

Words must be the same, numbers within a thousandth. After a change that is meant to move them:
``pytest tests/cli/test_golden.py --update-golden``, and read the difference.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import GOLDEN, Command

FILES = sorted(GOLDEN.glob("*.txt"))
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
FRAME = re.compile("[─━│┃┏┓┗┛┳┻╇╈┡┩└┘┴┬├┤┼╞╡╪ \n]+")


def words(text: str) -> str:
    """Return the text without numbers, frames and the widths that follow from them."""
    return FRAME.sub(" ", NUMBER.sub("#", text)).strip()


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_output(simspec: Command, golden: Path, path: Path, request: pytest.FixtureRequest) -> None:
    """The command prints what the file says."""
    first, _, expected = path.read_text(encoding="utf-8").partition("\n")
    arguments = shlex.split(first.removeprefix("$ simspec "))
    said = simspec(*arguments)
    assert (said.code, said.err) == (0, "")
    if request.config.getoption("--update-golden"):
        path.write_text(f"{first}\n{said.out}", encoding="utf-8")
        return
    assert words(said.out) == words(expected)
    assert numbers(said.out) == pytest.approx(numbers(expected), rel=1e-3, abs=1e-12)


def test_there_is_one_for_each_kind_of_table() -> None:
    """Pairs, rows, lines and the summary of a plan are all covered."""
    commands = {path.read_text(encoding="utf-8").split()[2] for path in FILES}
    assert commands >= {"estimate", "cost", "memory", "hardware", "models", "simulate", "sweep"}


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("│ a │ 1.000 │", "│ a │ 1.002 │"),
        ("│ a │ 1.000 │", "│ b │ 1.000 │"),
        ("│ a │ 1.000 │", "│ a │ – │"),
        ("│ a │ 1.000 │", "│ a │ 1.000 │ 2 │"),
    ],
)
def test_the_comparison_notices(text: str, changed: str) -> None:
    """A moved number, another word, a lost number and one more are all differences."""
    same_words = words(text) == words(changed)
    assert not (same_words and numbers(text) == pytest.approx(numbers(changed), rel=1e-3))
