"""``simspec memory``: the budget of one GPU, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from simspec.cli import _options as opt
from simspec.cli._output import JSON_OPTION, print_json

if TYPE_CHECKING:
    from simspec.memory.capacity import MemoryBudget
    from simspec.scenarios.schema import DeploymentConfig


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
    max_num_seqs: int | None = opt.MAX_NUM_SEQS,
    max_num_batched_tokens: int | None = opt.MAX_NUM_BATCHED_TOKENS,
    chunked_prefill: bool | None = opt.CHUNKED_PREFILL,
    memory_fraction: float | None = opt.MEMORY_FRACTION,
    weights_gib: float | None = opt.WEIGHTS_GIB,
    activation_gib: float | None = opt.ACTIVATION_GIB,
    non_torch_gib: float | None = opt.NON_TORCH_GIB,
    kv_bytes_per_token: float | None = opt.KV_BYTES_PER_TOKEN,
    as_json: bool = JSON_OPTION,
) -> None:
    """Show what fits on one GPU: weights, activations, KV pool, sequences.

    Example: simspec memory --hardware h100_sxm --model llama-3.1-70b --tp 4 --context 8192
    """
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
        scheduler=opt.given(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            chunked_prefill=chunked_prefill,
        ),
        memory=opt.given(
            memory_fraction=memory_fraction,
            weights_gib=weights_gib,
            activation_gib=activation_gib,
            non_torch_gib=non_torch_gib,
        ),
    )
    _show(config, context, kv_bytes_per_token, as_json)


def _show(
    config: DeploymentConfig, context: int, kv_bytes_per_token: float | None, as_json: bool
) -> None:
    from simspec.memory.context import check_kv_bytes_per_token, largest_context
    from simspec.scenarios.build import build_for_lengths, memory_facts, require_room
    from simspec.scenarios.closed_form import deployment_facts

    deployment = build_for_lengths(config, context)
    budget = deployment.budget
    if kv_bytes_per_token is not None:
        check_kv_bytes_per_token(kv_bytes_per_token, deployment.target)
    slots = deployment.method.footprint().reserved_slots
    most = deployment.max_sequences(context)
    longest = largest_context(
        budget, reserved_slots=slots, chunked_prefill=deployment.limits.chunked_prefill
    )
    if as_json:
        facts = {**deployment_facts(deployment), **memory_facts(deployment), "fits": most > 0}
        facts |= {"context": context, "max_sequences": most, "largest_context_tokens": longest}
        print_json({**facts, "budget": _parts(budget), "lines": budget.lines()})
    else:
        for line in budget.lines():
            typer.echo(line)
        ranks = deployment.target.num_ranks
        together = f" on {ranks} GPUs together" if ranks > 1 else ""
        typer.echo(f"at most {most:,} sequences of {context:,} tokens{together}")
        limit = deployment.architecture.max_context_len
        of_model = f"; the model was made for {limit:,}" if longest > limit else ""
        typer.echo(f"at most {longest:,} tokens in one sequence{of_model}")
    require_room(deployment, context + slots)


def _parts(budget: MemoryBudget) -> dict[str, object]:
    """Return every term of the budget of one GPU, bytes."""
    from simspec.memory.context import fixed_kv_bytes_per_sequence

    engine = budget.inputs.engine
    return {
        "rule": engine.memory_rule,
        "knob": budget.inputs.rule.KNOB,
        "memory_fraction": engine.memory_fraction,
        "capacity_bytes": budget.capacity_bytes,
        "usable_bytes": budget.usable_bytes,
        "weights_bytes": budget.weights_bytes,
        "method_weights_bytes": budget.extra_weights_bytes,
        "method_buffer_bytes": budget.buffer_bytes,
        "activation_bytes": budget.activation_bytes,
        "reserve_bytes": budget.reserve_bytes,
        "left_bytes": budget.left_bytes,
        "window_bytes": budget.window_bytes,
        "outside_bytes": budget.outside_bytes,
        "kv_bytes_per_token": budget.kv_bytes_per_token,
        "fixed_kv_bytes_per_sequence": fixed_kv_bytes_per_sequence(budget),
        "num_blocks": budget.num_blocks,
        "block_size_tokens": budget.block_size_tokens,
    }
