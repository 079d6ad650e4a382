"""The options that name a deployment, shared by every command that takes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from simspec.core.errors import ConfigError, nearest

HARDWARE = typer.Option("h100_sxm", "--hardware", help="Profile name or YAML path.")
MODEL = typer.Option("llama-3.1-8b", "--model", help="Catalog name or config.json path.")
ENGINE = typer.Option("vllm", "--engine", help="Engine profile name or YAML path.")
TP = typer.Option(1, "--tp", help="Tensor-parallel degree.")
DTYPE = typer.Option("bf16", "--dtype", help="Weight data type.")
KV_DTYPE = typer.Option("bf16", "--kv-dtype", help="KV-cache data type.")
BATCH = typer.Option(1, "--batch", min=1, max=1_000_000, help="Sequences decoding together.")
CONTEXT = typer.Option(1024, "--context", min=1, max=100_000_000, help="Context of each, tokens.")
METHOD = typer.Option("autoregressive", "--method", help="Decoding method.")
EXIT_LAYER = typer.Option(None, "--exit-layer", help="E: layers 1..E draft.")
NUM_SPECULATIVE_TOKENS = typer.Option(
    None, "--num-speculative-tokens", help="K: most tokens drafted per round."
)
CONFIDENCE_THRESHOLD = typer.Option(
    None, "--confidence-threshold", help="tau: stop drafting below this confidence."
)
ACCEPTANCE = typer.Option(
    None,
    "--acceptance",
    help="A probability, comma-separated per-position rates, inline YAML, or a YAML file.",
)
METHOD_OPTION = typer.Option(
    None, "--method-option", help="Another field of the method, NAME=VALUE; may be repeated."
)


def method_mapping(
    name: str,
    exit_layer: int | None,
    num_speculative_tokens: int | None,
    confidence_threshold: float | None,
    extra: list[str] | None,
) -> dict[str, Any]:
    """Return the method as the mapping a scenario would hold.

    Raises
    ------
    ConfigError
        Unknown method, or an option the method does not have: a flag is never ignored.
    """
    from simspec.decoding._base import METHODS

    given = {
        "exit_layer": exit_layer,
        "num_speculative_tokens": num_speculative_tokens,
        "confidence_threshold": confidence_threshold,
    }
    values = {key: value for key, value in given.items() if value is not None}
    for item in extra or []:
        key, _, text = item.partition("=")
        if not key or not text:
            raise ConfigError(f"--method-option: {item!r} is not NAME=VALUE")
        values[key] = _yaml_value(text, "--method-option")
    fields = set(METHODS.config_class(name).model_fields) - {"name"}
    for key in values:
        if key not in fields:
            raise ConfigError(
                f"--{key.replace('_', '-')}: method {name} has no field {key!r}; "
                f"{nearest(key, fields)}"
            )
    return {"name": name, **values}


def acceptance_value(text: str | None) -> Any:
    """Return what ``--acceptance`` says as scenario data (None when it was not given)."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) == 1:
        return numbers[0]
    if numbers:
        return numbers
    if text.lstrip().startswith("{"):
        return _yaml_value(text, "--acceptance")
    from simspec.core.yamlio import load_yaml

    return load_yaml(Path(text)).data


def _yaml_value(text: str, option: str) -> Any:
    from simspec.core.yamlio import loads_yaml

    return loads_yaml(f"value: {text}", option).data["value"]


def deployment_config(**fields: Any) -> Any:
    """Return the validated ``DeploymentConfig`` of command-line fields."""
    from simspec.core.yamlio import parse_mapping
    from simspec.scenarios.schema import DeploymentConfig

    cleaned = {key: value for key, value in fields.items() if value is not None}
    return parse_mapping(cleaned, DeploymentConfig, "command line")
