"""What a program calls: scenario data in, plain dictionaries out.

The data are those of a scenario's YAML, and so are the checks and the keys of the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simspec.core.errors import ConfigError
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
    for name, value in (("batch", batch), ("context", context), ("prompt", prompt)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ConfigError(f"{name}: {value!r} is not a whole number")
        if value is not None and value < 1:
            raise ConfigError(f"{name}: {value} is out of range; give a whole number of at least 1")
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
