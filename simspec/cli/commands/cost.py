"""``simspec cost``: one decode step, operator by operator, to check by hand."""

from __future__ import annotations

import typer

from simspec.cli import _options as opt
from simspec.cli._output import JSON_OPTION, note, print_json, print_rows

_PERCENT = {"share": "share_%"}
"""Columns shown to people in per cent; JSON keeps the fraction."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("cost")(cost)


def cost(
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
    new_tokens: int = typer.Option(
        1, "--new-tokens", min=1, max=10_000_000, help="Tokens each sequence adds (K+1: a verify)."
    ),
    first_layer: int = typer.Option(0, "--first-layer", min=0, help="First layer, from 0."),
    last_layer: int | None = typer.Option(
        None, "--last-layer", min=1, help="One past the last layer; default: all."
    ),
    prefill: bool = typer.Option(False, "--prefill", help="Use the prefill attention kernel."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Break one forward pass down by operator: time, FLOPs, bytes, binding roof.

    Example: simspec cost --model llama-3.1-8b --hardware h100_sxm --batch 1 --context 1024
    """
    from simspec.scenarios.breakdown import step_breakdown
    from simspec.scenarios.build import build

    config = opt.deployment_config(
        hardware=hardware,
        model=model,
        engine=engine,
        tp=tp,
        expert_parallel=expert_parallel,
        attention_data_parallel=attention_data_parallel,
        dtype=dtype,
        kv_dtype=kv_dtype,
        method={"name": "autoregressive"},
    )
    deployment = build(config)
    if not deployment.fits:
        note(f"note: {model} does not fit on {hardware} like this, see 'simspec memory'")
    result = step_breakdown(
        deployment,
        batch=batch,
        context=context,
        new_tokens=new_tokens,
        first_layer=first_layer,
        last_layer=last_layer,
        prefill=prefill,
    )
    if as_json:
        print_json(result.as_dict())
        return
    rows = [
        {_PERCENT.get(key, key): 100 * value if key in _PERCENT else value for key, value in row}
        for row in (operator.items() for operator in result.rows)
    ]
    print_rows(result.title, rows, caption=result.caption)
