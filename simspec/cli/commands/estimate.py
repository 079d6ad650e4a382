"""``simspec estimate``: one point in closed form."""

from __future__ import annotations

from collections.abc import Mapping

import typer

from simspec.cli import _options as opt
from simspec.cli._output import JSON_OPTION, format_value, note, print_json, print_pairs


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("estimate")(estimate)


def estimate(
    hardware: str = opt.HARDWARE,
    model: str = opt.MODEL,
    engine: str = opt.ENGINE,
    tp: int = opt.TP,
    expert_parallel: int = opt.EXPERT_PARALLEL,
    attention_data_parallel: int = opt.ATTENTION_DP,
    dtype: str = opt.DTYPE,
    kv_dtype: str = opt.KV_DTYPE,
    batch: int = opt.BATCH,
    context: int = opt.CONTEXT,
    prompt: int | None = opt.PROMPT,
    method: str = opt.METHOD,
    exit_layer: int | None = opt.EXIT_LAYER,
    num_speculative_tokens: int | None = opt.NUM_SPECULATIVE_TOKENS,
    confidence_threshold: float | None = opt.CONFIDENCE_THRESHOLD,
    method_option: list[str] | None = opt.METHOD_OPTION,
    acceptance: str | None = opt.ACCEPTANCE,
    as_json: bool = JSON_OPTION,
) -> None:
    """Estimate steady decoding of one batch: time per token, speedup, memory.

    Intervals hold 95 % of what the errors of the profiles allow; acceptance is taken as given.

    Example: simspec estimate --batch 8 --method kangaroo --exit-layer 2 --num-speculative-tokens 6
    --confidence-threshold 0 --acceptance 0.505,0.225,0.10,0.045,0.02,0.007
    """
    from simspec.core.errors import Infeasible
    from simspec.scenarios.build import build
    from simspec.scenarios.closed_form import cautions, refusal_document
    from simspec.scenarios.closed_form import estimate as closed_form

    decoding = opt.method_mapping(
        method, exit_layer, num_speculative_tokens, confidence_threshold, method_option
    )
    config = opt.deployment_config(
        hardware=hardware,
        model=model,
        engine=engine,
        tp=tp,
        expert_parallel=expert_parallel,
        attention_data_parallel=attention_data_parallel,
        dtype=dtype,
        kv_dtype=kv_dtype,
        method=decoding,
        acceptance=opt.acceptance_value(acceptance, decoding),
    )
    deployment = build(config)
    try:
        values = closed_form(deployment, batch, context, prompt)
    except Infeasible as error:
        if as_json:
            print_json(refusal_document(deployment, batch, context, error))
        raise
    for caution in cautions(deployment, batch, context):
        note(f"note: {caution}")
    if as_json:
        print_json(values)
    else:
        print_pairs("Closed-form estimate (95 % from calibration)", with_spans(values))


def with_spans(values: Mapping[str, object]) -> dict[str, object]:
    """Return a result with each interval beside its value: ``7.82 (6.9–8.9)``."""
    told: dict[str, object] = {}
    for key, value in values.items():
        if key.endswith("_interval"):
            continue
        span = values.get(f"{key}_interval")
        low, high = span if isinstance(span, list) else (None, None)
        told[key] = value
        if low is not None and low < high:
            told[key] = f"{format_value(value)} ({format_value(low)}–{format_value(high)})"
    return told
