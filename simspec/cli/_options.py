"""The options that name a deployment, shared by every command that takes one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from simspec.core.errors import ConfigError, nearest

if TYPE_CHECKING:
    from simspec.scenarios.schema import DeploymentConfig

HARDWARE = typer.Option("h100_sxm", "--hardware", help="Profile name or YAML path.")
MODEL = typer.Option("llama-3.1-8b", "--model", help="Catalog name or config.json path.")
ENGINE = typer.Option("vllm", "--engine", help="Engine profile name or YAML path.")
TP = typer.Option(1, "--tp", help="Tensor-parallel degree.")
EXPERT_PARALLEL = typer.Option(
    1, "--expert-parallel", help="Ranks that the experts are divided over whole."
)
ATTENTION_DP = typer.Option(
    1,
    "--attention-data-parallel",
    help="Groups of --tp GPUs that each hold the whole attention and share the experts.",
)
DTYPE = typer.Option("bf16", "--dtype", help="Weight data type.")
KV_DTYPE = typer.Option("bf16", "--kv-dtype", help="KV-cache data type.")
BATCH = typer.Option(1, "--batch", min=1, max=1_000_000, help="Sequences decoding together.")
CONTEXT = typer.Option(1024, "--context", min=1, max=100_000_000, help="Context of each, tokens.")
PROMPT = typer.Option(
    None, "--prompt", min=1, max=100_000_000, help="Prompt of the TTFT figure; default --context."
)
METHOD = typer.Option("autoregressive", "--method", help="Decoding method, e.g. kangaroo.")
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
    help="A probability, comma-separated rates per position, a profile of the catalog, inline YAML,"
    " or a YAML file.",
)
METHOD_OPTION = typer.Option(
    None, "--method-option", help="Another field of the method, NAME=VALUE; may be repeated."
)


MAX_NUM_SEQS = typer.Option(None, "--max-num-seqs", min=1, help="Sequences that may run at once.")
MAX_NUM_BATCHED_TOKENS = typer.Option(
    None, "--max-num-batched-tokens", min=1, help="Tokens one engine step may process."
)
CHUNKED_PREFILL = typer.Option(
    None,
    "--chunked-prefill/--no-chunked-prefill",
    help="Whether a prompt may be split; else the largest step holds one of --context tokens.",
)
MEMORY_FRACTION = typer.Option(
    None, "--memory-fraction", help="The engine's memory knob; its profile says a share of what."
)
WEIGHTS_GIB = typer.Option(None, "--weights-gib", help="Weights on one GPU, of the engine's log.")
ACTIVATION_GIB = typer.Option(
    None, "--activation-gib", help="Activation peak on one GPU, of the engine's log."
)
NON_TORCH_GIB = typer.Option(
    None, "--non-torch-gib", help="Memory outside the allocator on one GPU, of the engine's log."
)
KV_BYTES_PER_TOKEN = typer.Option(
    None,
    "--kv-bytes-per-token",
    min=1.0,
    help="Your own figure for one GPU; refused where it contradicts the model.",
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
    fields = set(METHODS.config_class(name).model_fields) - {"name"}
    for key in values:
        if key not in fields:
            raise ConfigError(
                f"--{key.replace('_', '-')}: method {name} has no such option; "
                f"{_options_of(name, fields)}"
            )
    for item in extra or []:
        key, _, text = item.partition("=")
        if not key or not text:
            raise ConfigError(f"--method-option: {item!r} is not NAME=VALUE")
        if key not in fields:
            raise ConfigError(
                f"--method-option: method {name} has no field {key!r}; {nearest(key, fields)}"
            )
        if key in values:
            raise ConfigError(f"--method-option: {key} is given twice; keep one")
        values[key] = _yaml_value(text, "--method-option")
    return {"name": name, **values}


def _options_of(name: str, fields: set[str]) -> str:
    options = sorted(f"--{field.replace('_', '-')}" for field in fields)
    return f"its options: {', '.join(options)}" if options else f"{name} has no options"


def acceptance_value(text: str | None, method: Mapping[str, Any]) -> Any:
    """Return what ``--acceptance`` says as scenario data (None when it was not given).

    Bare numbers for a method that exits on confidence mean a calibrated drafter
    (:mod:`simspec.decoding.acceptance._shorthand`); the report says so.

    Raises
    ------
    ConfigError
        It is in none of these forms, or the file it names is wrong.
    """
    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        if text.lstrip().startswith(("{", "[")):
            return _yaml_value(text, "--acceptance")
        return text if text in _profile_names() else _acceptance_file(text)
    if _exits_on_confidence(method) and all(0.0 <= number <= 1.0 for number in numbers):
        from simspec.decoding.acceptance._shorthand import calibrated_beta

        return calibrated_beta(numbers)
    return numbers[0] if len(numbers) == 1 else numbers


def _profile_names() -> tuple[str, ...]:
    from simspec.decoding.acceptance._profiles import profile_names

    return profile_names()


def _exits_on_confidence(method: Mapping[str, Any]) -> bool:
    from simspec.decoding._base import METHODS

    field = METHODS.config_class(str(method["name"])).model_fields.get("confidence_threshold")
    return field is not None and method.get("confidence_threshold", field.default) != 0


def _acceptance_file(text: str) -> Mapping[str, Any]:
    from simspec.core.resources import exists
    from simspec.core.yamlio import load_yaml, parse
    from simspec.decoding._base import ACCEPTANCE_MODELS

    path = Path(text)
    if not text.strip() or not exists(path):
        raise ConfigError(
            f"--acceptance: {_short(text)!r} is neither a number, nor numbers separated by commas, "
            "nor inline YAML, nor a file that exists, nor a profile of the catalog; "
            f"{nearest(text[:80], _profile_names())}"
        )
    document = load_yaml(path)
    name = document.at(["name"])
    if name not in ACCEPTANCE_MODELS.names():
        hint = nearest(str(name), ACCEPTANCE_MODELS.names())
        raise document.error(["name"], f"unknown acceptance model {name!r}; {hint}")
    # Checked here, where its lines are known, and again as a part of the deployment.
    parse(document, ACCEPTANCE_MODELS.config_class(name))
    return document.data


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}…"


def _yaml_value(text: str, option: str) -> Any:
    from simspec.core.yamlio import loads_yaml

    data = loads_yaml(f"value: {text}", option).data
    for key in data:
        if key != "value":
            raise ConfigError(f"{option}: the line {key!r} follows the value; give one value")
    return data["value"]


def given(**fields: Any) -> dict[str, Any] | None:
    """Return the options that were given as a section of a scenario; None where none was."""
    return {name: value for name, value in fields.items() if value is not None} or None


def deployment_config(**fields: Any) -> DeploymentConfig:
    """Return the validated configuration of command-line fields; None means not given."""
    from simspec.core.yamlio import parse_mapping
    from simspec.scenarios.schema import DeploymentConfig

    cleaned = {key: value for key, value in fields.items() if value is not None}
    return parse_mapping(cleaned, DeploymentConfig, "command line")
