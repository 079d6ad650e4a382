"""The page about round traces says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from simspec.traces._lines import LINE_OF, HeaderLine
from simspec.traces.io import read_trace, write_trace
from tests.helpers.shared import REPO_ROOT

PAGE = REPO_ROOT / "docs/reference/traces.md"


def test_the_example_is_a_trace_as_the_writer_writes_it(tmp_path: Path) -> None:
    """Copied from the page it reads, and rewriting it changes no byte."""
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "t.jsonl"
    path.write_text(example)
    trace = read_trace(path)
    assert (len(trace.prefills), len(trace.rounds), len(trace.steps)) == (1, 1, 1)
    write_trace(path, trace.header, trace.records)
    assert path.read_text() == example


@pytest.mark.parametrize("model", [HeaderLine, *LINE_OF.values()], ids=lambda m: m.__name__)
def test_the_page_explains_every_key(model: type[BaseModel]) -> None:
    """No key without its meaning."""
    text = PAGE.read_text(encoding="utf-8")
    assert [key for key in model.model_fields if f"`{key}`" not in text] == []
