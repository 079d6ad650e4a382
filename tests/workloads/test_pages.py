"""The pages about workloads say what the code does."""

from __future__ import annotations

import re
import types
from pathlib import Path

import pytest
import yaml

from simspec.core.errors import TraceError
from simspec.core.registry import Registry
from simspec.workloads._base import ARRIVALS, IMPORTERS, LENGTHS
from simspec.workloads.importers.azure import Config as Azure
from simspec.workloads.workload import WorkloadConfig
from tests.helpers.shared import REPO_ROOT

GUIDE = REPO_ROOT / "docs/guides/workloads.md"
RECIPE = REPO_ROOT / "docs/extending/importer.md"


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("block", blocks(GUIDE, "yaml"))
def test_every_workload_of_the_guide_builds(block: str, tmp_path: Path) -> None:
    """Copied from the page, each is a valid workload with requests."""
    (tmp_path / "AzureLLMInferenceTrace_conv.csv").write_bytes(Azure.sample)
    run = WorkloadConfig.model_validate(yaml.safe_load(block)).build(0, base=tmp_path)
    assert run.requests


@pytest.mark.parametrize("registry", [ARRIVALS, LENGTHS, IMPORTERS], ids=lambda r: r.kind)
def test_the_guide_names_every_plug_in(registry: Registry) -> None:
    """A new process, distribution or format gets its line."""
    text = GUIDE.read_text(encoding="utf-8")
    assert [n for n in registry.names() if f"`{n}`" not in text] == []


def test_the_guide_states_what_dropping_loses() -> None:
    """8 % of the requests and 30 % of the prompt tokens at 4,096 tokens."""
    fields = {
        "arrivals": {"name": "poisson", "rate_per_s": 1},
        "lengths": {"name": "empirical", "profile": "azure_conv_2023"},
        "num_requests": 50_000,
    }
    cut = {"max_context_tokens": 4096, "over_context": "drop"}
    whole = WorkloadConfig.model_validate(fields).build(0).requests
    rest = WorkloadConfig.model_validate(fields | cut).build(0).requests
    assert 1 - len(rest) / len(whole) == pytest.approx(0.08, abs=0.005)
    lost = 1 - sum(r.prompt_len for r in rest) / sum(r.prompt_len for r in whole)
    assert lost == pytest.approx(0.30, abs=0.01)


def test_the_importer_of_the_recipe_keeps_the_contract(tmp_path: Path) -> None:
    """The example runs as printed: its sample, a broken line, an empty file."""
    (source,) = blocks(RECIPE, "python")
    module = types.ModuleType("recipe")
    exec(compile(source, str(RECIPE), "exec"), module.__dict__)
    config = module.Config()
    path = tmp_path / "log"
    path.write_bytes(config.sample)
    rows = list(config.rows(path))
    for row, expected in zip(rows, config.sample_rows, strict=True):
        assert row.arrival_s == pytest.approx(expected.arrival_s)
        assert row[1:] == expected[1:]
    path.write_bytes(config.sample + b"{")
    with pytest.raises(TraceError, match=r"log:3: broken line"):
        list(config.rows(path))
    path.write_bytes(b"")
    with pytest.raises(TraceError, match="no requests"):
        list(config.rows(path))
