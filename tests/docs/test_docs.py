"""The pages are true: commands run and print what is shown, links resolve, nothing is forgotten."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from simspec.core.registry import Registry
from simspec.decoding._base import ACCEPTANCE_MODELS, METHODS
from simspec.hardware.load import engine_names, hardware_names
from simspec.models.hf_config import catalog_names
from simspec.serving.preemption._base import PREEMPTIONS
from simspec.serving.routing._base import ROUTERS
from simspec.serving.scheduling._base import SCHEDULERS
from simspec.sweeps.executors._base import EXECUTORS
from simspec.validation._base import TABLES
from simspec.workloads._base import ARRIVALS, IMPORTERS, LENGTHS
from tests.docs.pages import DOCS, PAGES, relative, script
from tests.helpers.shared import REPO_ROOT

examples = script("run_examples")
SLOW = os.environ.get("SIMSPEC_SLOW_DOCS") == "1"
WITH_COMMANDS = [page for page in PAGES if re.search(r"^\$ simspec\b", page.read_text(), re.M)]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=relative)
def test_commands_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    """Every ``$ simspec`` command of a page runs, and its output stands below it.

    Numbers may differ by 2 %. ``python docs/run_examples.py --write`` puts new outputs in place.
    """
    _, found = examples.check_page(page, tmp_path, slow=SLOW)
    assert [(d.command, d.problems, d.printed) for d in found] == []


def test_a_wrong_number_and_a_missing_line_are_noticed() -> None:
    """The comparison allows rounding and gaps, and nothing else."""
    printed = "│ speedup │ 1.342 │\n│ tpot_ms │ 5.06 │\nfits"
    assert examples.same("│ speedup │ 1.341 │\n...\nfits", printed)
    assert examples.same("...\ntpot_ms   5.06\n...", printed)
    assert not examples.same("speedup 1.342", printed)
    assert not examples.same("speedup 1.4\n...", printed)
    assert not examples.same("...\nspeedup 1.342 fits", printed)


def slugs(page: str) -> set[str]:
    """Return the anchors of a page's headings, as Markdown's table of contents makes them."""
    text = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*)$", text, flags=re.MULTILINE):
        plain = re.sub(
            r"[^\w\s-]", "", re.sub(r"[`*]", "", heading).encode("ascii", "ignore").decode()
        )
        slug = re.sub(r"[-\s]+", "-", plain.strip().lower())
        while slug in found:
            base, _, number = slug.rpartition("_")
            slug = f"{base}_{int(number) + 1}" if base and number.isdigit() else f"{slug}_1"
        found.add(slug)
    return found


@pytest.mark.parametrize("page", [*PAGES, REPO_ROOT / "CONTRIBUTING.md"], ids=relative)
def test_internal_links_resolve(page: Path) -> None:
    """Every relative link leads to a file, and its anchor to a heading of that file."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{relative(page)} links to {target}"
        if anchor:
            assert anchor in slugs(path.read_text(encoding="utf-8")), f"{relative(page)}: {target}"


def names_of(registry: Registry) -> Callable[[], Sequence[str]]:
    return registry.names


@pytest.mark.parametrize(
    ("names", "where"),
    [
        pytest.param(METHODS.names, "theory/rounds.md", id="methods explained"),
        pytest.param(ACCEPTANCE_MODELS.names, "theory/acceptance.md", id="acceptance explained"),
        *(
            pytest.param(registry.names, "reference/config.md", id=registry.kind)
            for registry in (
                METHODS, ACCEPTANCE_MODELS, ARRIVALS, LENGTHS, IMPORTERS,
                SCHEDULERS, PREEMPTIONS, ROUTERS, EXECUTORS,
            )
        ),
        pytest.param(TABLES.names, "reference/measurements.md", id="measurement tables"),
        pytest.param(hardware_names, "reference/config.md", id="hardware"),
        pytest.param(engine_names, "reference/config.md", id="engines"),
        pytest.param(catalog_names, "reference/config.md", id="models"),
    ],
)  # fmt: skip
def test_every_plug_in_is_mentioned(names: Callable[[], Sequence[str]], where: str) -> None:
    """A new method, policy, format or profile is not done before a page names it."""
    page = (DOCS / where).read_text(encoding="utf-8").lower().replace(" ", "_")
    assert [name for name in names() if name.lower() not in page] == []


def test_generated_parts_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    """The reference says what the code says; ``python docs/generate_reference.py`` rewrites it."""
    assert script("generate_reference").main(["--check"]) == 0, capsys.readouterr().out


def test_every_field_of_the_reference_has_a_meaning() -> None:
    """A field without a word about it is not documented."""
    page = (DOCS / "reference/config.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.endswith(("|  |", "| |")) and row.count("|") > 3] == []


class _Loader(yaml.SafeLoader):
    """Reads ``mkdocs.yml``, whose tags are of no interest here."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def test_every_page_is_in_the_navigation() -> None:
    """No page can only be found by searching; decisions are also listed on their own page."""
    config = yaml.load((REPO_ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=_Loader)
    listed = set(re.findall(r"[\w./-]+\.md", str(config["nav"])))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert listed == pages
    index = (DOCS / "decisions/index.md").read_text(encoding="utf-8")
    decisions = [page.name for page in (DOCS / "decisions").glob("0*.md")]
    assert [name for name in decisions if f"({name})" not in index] == []


def test_every_key_of_a_result_is_explained() -> None:
    """Columns of a sweep and keys of an estimate have a line on the results or metrics page."""
    import simspec
    from simspec.sweeps.axes import _RESULT_COLUMNS

    point = simspec.estimate(model="llama-3.1-8b", hardware="h100_sxm", method="autoregressive")
    pages = [DOCS / "reference" / f"{name}.md" for name in ("results", "metrics", "config")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(re.findall(r"`(\w+)`", text))
    # Reserved, but no sweep writes them: ITL has no value per request.
    reserved = {"itl_quantiles_ms"}
    assert (_RESULT_COLUMNS | set(point)) - reserved <= named


def test_the_python_of_the_interface_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Copied from the page, it prints a speedup and a time."""
    page = (DOCS / "reference/api.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert code is not None
    exec(compile(code[1], "api.md", "exec"), {})
    speedup, milliseconds = map(float, capsys.readouterr().out.split())
    assert 0.5 < speedup < 5
    assert milliseconds > 1


def test_commands_on_pages_exist() -> None:
    """No page speaks of a command that was renamed or has gone."""
    reference = (DOCS / "reference/cli.md").read_text(encoding="utf-8")
    known = {command.split()[0] for command in re.findall(r"^## `simspec (.+)`", reference, re.M)}
    for page in [*PAGES, REPO_ROOT / "CONTRIBUTING.md"]:
        text = page.read_text(encoding="utf-8")
        shell = "".join(re.findall(r"^```bash\n(.*?)^```", text, re.M | re.S))
        used = re.findall(r"(?:`|\$ )simspec ([a-z]+)", text)
        used += re.findall(r"^simspec ([a-z]+)", shell, re.M)
        assert set(used) <= known, f"{relative(page)}: {set(used) - known}"


def test_tests_named_on_pages_exist() -> None:
    """Where a page says what checks an equation, the check is there."""
    sources = {path: path.read_text("utf-8") for path in (REPO_ROOT / "tests").rglob("*.py")}
    functions = set(re.findall(r"def (test_\w+)", "".join(sources.values())))
    for page in [*PAGES, REPO_ROOT / "CONTRIBUTING.md"]:
        text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
        paths = re.findall(r"\btests/[\w/]+(?:\.py|\.yaml)?", text)
        gone = [path for path in paths if "NAME" not in path and not (REPO_ROOT / path).exists()]
        assert not gone, f"{relative(page)}: {gone}"
        names = set(re.findall(r"(?<![\w/])(test_\w+)(?!\w|\.py)", text))
        names -= {"test_NAME"}
        assert names <= functions, f"{relative(page)}: {names - functions}"


def test_readme_commands_are_the_ones_people_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script that runs the README finds its commands, and skips only the clone."""
    from tests.readme_commands import commands

    found = commands((REPO_ROOT / "README.md").read_text(encoding="utf-8"))
    assert "make sweep" in found
    assert all(re.match(r"simspec |make |\. |\.venv/", command) for command in found), found
    assert sys.version_info >= (3, 11)
