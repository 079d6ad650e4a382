"""What a program calls: scenario data in, plain dictionaries out.

The data are those of a scenario's YAML, and so are the checks and the keys of the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from simspec.core.errors import ConfigError, nearest
from simspec.core.provenance import to_json
from simspec.core.yamlio import parse_mapping
from simspec.scenarios.build import build
from simspec.scenarios.closed_form import estimate as closed_form
from simspec.scenarios.files import experiment_path
from simspec.scenarios.report import simulate_config, simulate_file
from simspec.scenarios.schema import DeploymentConfig, ScenarioConfig


def estimate(
    *, batch: int = 1, context: int = 1024, prompt: int | None = None, **deployment: Any
) -> dict[str, object]:
    """Return steady decoding of one batch in closed form; what ``simspec estimate`` prints.

    ::

        simspec.estimate(model="llama-3.1-8b", hardware="h100_sxm", method="autoregressive")

    Parameters
    ----------
    batch : int
        Sequences decoding together.
    context : int, tokens
        Context of each.
    prompt : int, tokens, optional
        Prompt of the TTFT figure; ``context`` when not given.
    **deployment : plain data
        Fields of a scenario that are not about its load: ``model``, ``hardware``, ``engine``,
        ``tp``, ``dtype``, ``method``, ``acceptance``, …

    Raises
    ------
    ConfigError
        A field is wrong.
    DoesNotFit
        Weights and the contexts of the batch exceed the memory.
    """
    _check_counts(batch=batch, context=context, prompt=prompt)
    config = parse_mapping(deployment, DeploymentConfig, "estimate")
    return closed_form(build(config), batch, context, prompt)


def simulate(
    scenario: str | Path | Mapping[str, Any], *, baseline: bool = True, check: bool = False
) -> dict[str, Any]:
    """Return one simulated scenario with its intervals; what ``simspec simulate`` prints.

    Parameters
    ----------
    scenario : path or mapping
        A scenario file, or what would stand in one.
    baseline : bool
        Whether to run autoregression too, on the same tapes, for the speedup.
    check : bool
        Assert the conservation laws after every step.

    Raises
    ------
    ConfigError, TraceError, Infeasible
        The scenario or a file it names is wrong, or it cannot work.
    """
    if isinstance(scenario, Mapping):
        config = parse_mapping(scenario, ScenarioConfig, "scenario")
        inputs = {"scenario": to_json(scenario).encode()}
        return simulate_config(config, inputs, baseline=baseline, check=check).document
    path = experiment_path(Path(scenario))
    return simulate_file(path, baseline=baseline, check=check).document


def diff(a: str | Path, b: str | Path) -> dict[str, Any]:
    """Return how two simulations differ on common tapes; what ``simspec diff --json`` prints.

    ::

        simspec.diff("experiments/kangaroo_chat.yaml", "experiments/kangaroo_chat_k5.yaml")

    Parameters
    ----------
    a, b : path
        Folders that ``simspec simulate --output`` wrote, or scenario files.

    Raises
    ------
    ConfigError, TraceError, Infeasible
        The two did not meet the same requests, or one of them is wrong or cannot work.
    """
    from simspec.scenarios.diff import diff_paths

    places = [Path(side) for side in (a, b)]
    first, second = (path if path.is_dir() else experiment_path(path) for path in places)
    return diff_paths(first, second).document


def compare(comparison: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """Return methods side by side on one deployment; what ``simspec compare`` prints.

    ::

        simspec.compare({
            "model": "vicuna-7b", "hardware": "h100_sxm", "batch": [1, 64],
            "methods": [{"method": "kangaroo", "acceptance": "kangaroo-vicuna-7b-math"}],
        })

    Parameters
    ----------
    comparison : path or mapping
        A comparison file, or what would stand in one.

    Raises
    ------
    ConfigError
        The comparison or a file it names is wrong, or a method has no acceptance.
    """
    from simspec.scenarios.compare import ComparisonConfig, load_comparison
    from simspec.scenarios.compare import compare as side_by_side

    if isinstance(comparison, Mapping):
        return side_by_side(parse_mapping(comparison, ComparisonConfig, "comparison"))
    return side_by_side(*load_comparison(experiment_path(Path(comparison))))


def break_even(
    over: Literal["acceptance", "batch", "context"],
    *,
    batch: int = 1,
    context: int = 1024,
    **deployment: Any,
) -> dict[str, Any]:
    """Return where a method pays; a row of what ``simspec breakeven`` prints.

    ::

        simspec.break_even("batch", model="vicuna-7b", hardware="h100_sxm",
                           method="kangaroo", acceptance="kangaroo-vicuna-7b-math")

    Parameters
    ----------
    over : "acceptance", "batch" or "context"
        What varies.
    batch : int
        Sequences decoding together, unless they vary.
    context : int, tokens
        Context of each, unless it varies.
    **deployment : plain data
        As for :func:`estimate`; ``acceptance`` is left out when it varies.

    Raises
    ------
    ConfigError
        A field is wrong, or the method drafts nothing.
    DoesNotFit
        Not even one sequence fits.
    """
    from simspec.scenarios.breakeven import OVER
    from simspec.scenarios.breakeven import break_even as solve
    from simspec.scenarios.build import build_without_acceptance

    if over not in OVER:
        raise ConfigError(f"over: unknown choice {over!r}; {nearest(str(over), OVER)}")
    _check_counts(batch=batch, context=context)
    config = parse_mapping(deployment, DeploymentConfig, "break_even")
    if over == "acceptance" and config.acceptance is not None:
        raise ConfigError("acceptance: it varies, so a given one has no effect; leave it out")
    make = build_without_acceptance if over == "acceptance" else build
    return solve(make(config), over, batch, context)


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ConfigError(f"{name}: {value!r} is not a whole number")
        if value is not None and value < 1:
            raise ConfigError(f"{name}: {value} is out of range; give a whole number of at least 1")
