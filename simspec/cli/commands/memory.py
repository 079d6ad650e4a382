"""``simspec memory``: the budget of one GPU, line by line."""

from __future__ import annotations

import typer

from simspec.cli import _options as opt
from simspec.cli._output import JSON_OPTION, print_json


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("memory")(memory)


def memory(
    hardware: str = opt.HARDWARE,
    model: str = opt.MODEL,
    engine: str = opt.ENGINE,
    tp: int = opt.TP,
    expert_parallel: int = opt.EXPERT_PARALLEL,
    attention_data_parallel: int = opt.ATTENTION_DP,
    dtype: str = opt.DTYPE,
    kv_dtype: str = opt.KV_DTYPE,
    context: int = opt.CONTEXT,
    method: str = opt.METHOD,
    exit_layer: int | None = opt.EXIT_LAYER,
    num_speculative_tokens: int | None = opt.NUM_SPECULATIVE_TOKENS,
    method_option: list[str] | None = opt.METHOD_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Show what fits on one GPU: weights, activations, KV pool, sequences.

    Example: simspec memory --hardware h100_sxm --model llama-3.1-70b --tp 4 --context 8192
    """
    from simspec.scenarios.build import build_without_acceptance, memory_facts, require_room
    from simspec.scenarios.closed_form import deployment_facts

    config = opt.deployment_config(
        hardware=hardware,
        model=model,
        engine=engine,
        tp=tp,
        expert_parallel=expert_parallel,
        attention_data_parallel=attention_data_parallel,
        dtype=dtype,
        kv_dtype=kv_dtype,
        method=opt.method_mapping(method, exit_layer, num_speculative_tokens, None, method_option),
    )
    deployment = build_without_acceptance(config)
    slots = context + deployment.method.footprint().reserved_slots
    most = deployment.max_sequences(context)
    lines = list(deployment.budget.lines())
    if as_json:
        facts = {**deployment_facts(deployment), **memory_facts(deployment), "fits": most > 0}
        print_json({**facts, "context": context, "max_sequences": most, "lines": lines})
    else:
        for line in lines:
            typer.echo(line)
        ranks = deployment.target.num_ranks
        together = f" on {ranks} GPUs together" if ranks > 1 else ""
        typer.echo(f"at most {most:,} sequences of {context:,} tokens{together}")
    require_room(deployment, slots)
