"""The shape of the house: floors, forbidden imports, sizes, and what importing costs."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.shared import REPO_ROOT

PACKAGE = REPO_ROOT / "simspec"
SOURCES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((REPO_ROOT / "tests").rglob("*.py"))
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
SLOW_TO_IMPORT = {"pandas", "scipy", "plotly", "pyarrow", "torch", "dask"}

LINT = (
    "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
)


def _name(path: Path) -> str:
    return str(path.relative_to(REPO_ROOT))


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LINT],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def _imported(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names a module imports, at any depth; ``a.b`` and ``a.b.c`` for
    ``from a.b import c``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_run_down_the_floors() -> None:
    """The contracts of ``.importlinter`` hold."""
    checked = _lint(REPO_ROOT)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("file", "text", "contract"),
    [
        ("cost/bad.py", "import simspec.decoding\n", "Imports run down the floors"),
        ("memory/bad.py", "import simspec.cost.work\n", "Imports run down the floors"),
        ("extra/__init__.py", "", "Imports run down the floors"),
        ("cost/bad.py", "import simpy\n", "SimPy in serving alone"),
        ("reports/bad.py", "def f():\n    import torch\n", "torch in companion alone"),
        ("scenarios/bad.py", "import plotly.graph_objects\n", "Plotly and Jinja in reports alone"),
        ("sweeps/bad.py", "import dask\n", "Dask in one executor"),
        ("sweeps/bad.py", "from rich.progress import Progress\n", "typer and rich in cli alone"),
        ("hardware/bad.py", "import yaml\n", "YAML is read in core alone, strictly"),
    ],
)
def test_a_wrong_import_breaks_its_contract(
    tmp_path: Path, file: str, text: str, contract: str
) -> None:
    """Each contract notices the import it exists for, also inside a function."""
    shutil.copytree(
        PACKAGE, tmp_path / "simspec", ignore=shutil.ignore_patterns("__pycache__", "*.js")
    )
    shutil.copy(REPO_ROOT / ".importlinter", tmp_path)
    bad = tmp_path / "simspec" / file
    bad.parent.mkdir(exist_ok=True)
    bad.write_text(text)
    broken = re.findall(r"^(.+) BROKEN\b", _lint(tmp_path).stdout, re.MULTILINE)
    assert any(name.startswith(contract) for name in broken), broken


def test_companion_stands_apart() -> None:
    """The companion uses traces and core only, and only its commands know it."""
    wrong = []
    for path in SOURCES:
        inside = path.is_relative_to(PACKAGE / "companion")
        for name in _imported(_tree(path)):
            if inside and re.match(r"simspec\.(?!companion\b|traces\b|core\b)", name):
                wrong.append(f"{_name(path)} imports {name}")
            commands = {"hardware", "companion", "capture"}
            its_command = path.parent == PACKAGE / "cli" / "commands" and path.stem in commands
            if name.startswith("simspec.companion") and not (inside or its_command):
                wrong.append(f"{_name(path)} imports {name}")
    assert wrong == []


def _plugin_packages() -> list[Path]:
    """Return the folders that a registry watches, read from the code."""
    found = {
        match
        for path in SOURCES
        for match in re.findall(r"\bRegistry\(\s*\"([\w.]+)\"", path.read_text(encoding="utf-8"))
    }
    return sorted(REPO_ROOT / name.replace(".", "/") for name in found)


def test_plugins_do_not_import_each_other() -> None:
    """A new method, policy or model is one file; what two of them share has a name with ``_``."""
    packages = _plugin_packages()
    assert len(packages) >= 5
    wrong = []
    for folder in packages:
        package = ".".join(folder.relative_to(REPO_ROOT).parts)
        plugins = {p.stem for p in folder.glob("[!_]*.py") if "\nclass Config(" in p.read_text()}
        for name in sorted(plugins):
            others = {f"{package}.{other}" for other in plugins - {name}}
            wrong += [
                f"{package}.{name} imports {imported}"
                for imported in _imported(_tree(folder / f"{name}.py"))
                if imported in others
            ]
    assert wrong == []


def test_files_can_be_read_in_one_sitting() -> None:
    """No module has more than 500 lines."""
    sizes = {_name(p): len(p.read_text(encoding="utf-8").splitlines()) for p in SOURCES + TESTS}
    assert {name: size for name, size in sizes.items() if size > MAX_FILE_LINES} == {}


def test_functions_fit_on_a_screen() -> None:
    """No function of the package has more than 60 lines, its docstring included."""
    long = {
        f"{_name(path)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path in SOURCES
        for node in ast.walk(_tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    }
    assert long == {}


def test_only_the_command_line_prints() -> None:
    """Results are return values and files; ``print`` and ``sys.stdout`` belong to cli."""
    printing = [
        f"{_name(path)}:{node.lineno}"
        for path in SOURCES
        if not path.is_relative_to(PACKAGE / "cli")
        for node in ast.walk(_tree(path))
        if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
        and node.func.id == "print"
        or (isinstance(node, ast.Attribute) and node.attr == "stdout")
        and isinstance(node.value, ast.Name)
        and node.value.id == "sys"
    ]
    assert printing == []


@pytest.mark.parametrize("module", ["simspec", "simspec.cli.main", "simspec.core.yamlio"])
def test_importing_is_quick(module: str) -> None:
    """Nothing slow is imported before it is used."""
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    imported = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO_ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert {name for name in imported if name in SLOW_TO_IMPORT} == set()


def test_no_unfinished_code() -> None:
    """What is in the tree is finished: no stubs and no notes to self."""
    marks = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    here = Path(__file__).resolve()
    unfinished = [
        f"{_name(path)}:{number}"
        for path in SOURCES + TESTS
        if path.resolve() != here
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if marks.search(line)
    ]
    assert unfinished == []
