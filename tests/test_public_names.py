"""What ``import simspec`` offers: a change of this list is a change of the interface."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import simspec
from simspec.core.provenance import to_json

PUBLIC = {
    "ConfigError",
    "DoesNotFit",
    "SimspecError",
    "__version__",
    "break_even",
    "compare",
    "diff",
    "engine_names",
    "estimate",
    "hardware_names",
    "load_engine",
    "load_hardware",
    "load_model",
    "model_names",
    "simulate",
    "sweep",
    "validate",
    "write_sweep_dashboard",
}
POINT = {"model": "llama-3.2-1b", "hardware": "h100_sxm"}


def test_the_public_names_are_these() -> None:
    """``__all__`` holds the interface, nothing more and nothing less, and ``dir`` lists it."""
    assert set(simspec.__all__) == PUBLIC
    assert len(simspec.__all__) == len(PUBLIC)
    assert set(dir(simspec)) >= PUBLIC


def test_the_stub_names_the_same() -> None:
    """What type checkers read (``__init__.pyi``) offers exactly the same names."""
    stub = Path(simspec.__file__).with_suffix(".pyi")
    listed = next(
        ast.literal_eval(node.value)
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.Assign)
    )
    imported = {
        alias.asname
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(listed) == PUBLIC
    assert imported | {"__version__"} == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_each_name_is_there_and_documented(name: str) -> None:
    """Every name leads somewhere, and every function and class says what it is."""
    value = getattr(simspec, name)
    if name != "__version__":
        assert value.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A misspelt name fails like that of any module."""
    with pytest.raises(AttributeError, match="no attribute 'estimat'"):
        simspec.estimat  # noqa: B018


def test_importing_imports_nothing_else() -> None:
    """``import simspec`` takes less than 0.3 s of CPU and loads no library."""
    code = (
        "import time; start = time.process_time(); import simspec, sys; "
        "print(time.process_time() - start, *sorted(sys.modules))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert float(answer[0]) < 0.3
    assert not {"numpy", "pandas", "scipy", "plotly", "pydantic", "yaml"} & set(answer[1:])


def test_estimate_equals_the_command() -> None:
    """The function returns the dictionary that the command prints."""
    point = simspec.estimate(
        **POINT,
        batch=4,
        context=512,
        method={"name": "kangaroo", "exit_layer": 2, "confidence_threshold": 0},
        acceptance=[0.5, 0.2],
    )
    printed = subprocess.run(
        [
            sys.executable, "-m", "simspec", "estimate", "--json", "--model", POINT["model"],
            "--hardware", POINT["hardware"], "--batch", "4", "--context", "512",
            "--method", "kangaroo", "--exit-layer", "2", "--confidence-threshold", "0",
            "--acceptance", "0.5,0.2",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout  # fmt: skip

    assert json.loads(printed) == json.loads(to_json(point))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"batch": 0}, "batch: 0 is out of range"),
        ({"context": 1.5}, "context: 1.5 is not a whole number"),
        ({"prompt": True}, "prompt: True is not a whole number"),
        ({"hardwear": "h100_sxm"}, "did you mean 'hardware'"),
        ({"method": "kangaroo"}, "needs an acceptance model"),
        ({"tp": 3}, "does not divide"),
    ],
)
def test_estimate_refuses_in_one_sentence(changes: dict[str, object], says: str) -> None:
    """A wrong argument is a ``SimspecError`` with the field in it."""
    with pytest.raises(simspec.SimspecError, match=says):
        simspec.estimate(**{**POINT, "method": "autoregressive", **changes})


def test_estimate_refuses_what_does_not_fit() -> None:
    """Memory that is too small has its own exception."""
    with pytest.raises(simspec.DoesNotFit, match="would fit"):
        simspec.estimate(model="llama-3.1-70b", hardware="h100_sxm", method="autoregressive")


def test_simulate_takes_data_or_a_file(tmp_path: Path) -> None:
    """A mapping and the file that holds it give the same numbers."""
    scenario = {
        **POINT,
        "method": "autoregressive",
        "workload": {
            "arrivals": {"name": "closed_loop", "concurrency": 1},
            "lengths": {"name": "fixed", "prompt_len": 16, "output_len": 4},
            "num_requests": 3,
        },
        "simulation": {"replications": 1},
    }

    path = tmp_path / "scenario.yaml"  # JSON is YAML
    path.write_text(to_json(scenario))
    of_file, of_data = simspec.simulate(path), simspec.simulate(scenario)
    of_file.pop("manifest"), of_data.pop("manifest")
    assert of_file == of_data
    assert of_data["status"] == "ok"
    assert of_data["speedup"] == 1.0


def test_comparing_from_python_is_the_commands_document() -> None:
    """Absolute times of both sides; the same refusals as on the command line."""
    row = simspec.compare(
        {
            "model": "vicuna-7b",
            "hardware": "h100_sxm",
            "methods": [{"method": "kangaroo", "acceptance": "kangaroo-vicuna-7b-math"}],
        }
    )["rows"][0]
    assert row["speedup"] == pytest.approx(row["autoregressive_tpot_ms"] / row["tpot_ms"])
    found = simspec.break_even(
        "acceptance", model="vicuna-7b", hardware="h100_sxm", method="kangaroo"
    )
    assert found["pays"]
    with pytest.raises(simspec.ConfigError, match="over: unknown choice 'load'"):
        simspec.break_even("load", **POINT, method="kangaroo")  # type: ignore[arg-type]
    with pytest.raises(simspec.ConfigError, match="batch: 0 is out of range"):
        simspec.break_even("context", batch=0, **POINT, method="kangaroo", acceptance=0.5)
    with pytest.raises(simspec.ConfigError, match="a given one has no effect"):
        simspec.break_even("acceptance", **POINT, method="kangaroo", acceptance=0.5)
