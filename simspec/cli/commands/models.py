"""``simspec models list | show``: architectures, parameters and KV bytes."""

from __future__ import annotations

import typer

from simspec.cli._output import (
    JSON_OPTION,
    help_without_command,
    print_json,
    print_pairs,
    print_rows,
)

models_app = typer.Typer(help="List and show model architectures.")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    models_app.callback(invoke_without_command=True)(help_without_command)
    app.add_typer(models_app, name="models")


def _summary(name: str) -> dict[str, object]:
    from simspec.models.counts import active_params, kv_bytes_per_token, model_params
    from simspec.models.hf_config import load_model

    arch = load_model(name)
    first = arch.blocks[0]
    moe = next((block.moe for block in arch.blocks if block.moe is not None), None)
    return {
        "name": arch.name,
        "num_layers": arch.num_layers,
        "hidden_size": arch.hidden_size,
        "num_heads": first.num_heads,
        "num_kv_heads": first.num_kv_heads,
        "head_dim": first.head_dim,
        "intermediate_size": max(block.intermediate_size for block in arch.blocks),
        "num_experts": 0 if moe is None else moe.num_experts,
        "experts_per_token": 0 if moe is None else moe.experts_per_token,
        "expert_intermediate_size": 0 if moe is None else moe.expert_intermediate_size,
        "vocab_size": arch.vocab_size,
        "params_total": model_params(arch),
        "params_active": active_params(arch),
        "kv_bytes_per_token": kv_bytes_per_token(arch, "bf16", 1),
    }


@models_app.command("list")
def list_(as_json: bool = JSON_OPTION) -> None:
    """List the catalog of architectures.

    Example: simspec models list
    """
    from simspec.models.hf_config import catalog_names

    rows = [_summary(name) for name in catalog_names()]
    if as_json:
        print_json({"models": rows})
        return
    short = {
        "name": "name",
        "layers": "num_layers",
        "hidden": "hidden_size",
        "heads": "num_heads",
        "KV heads": "num_kv_heads",
        "FFN": "intermediate_size",
        "experts": "num_experts",
        "parameters": "params_total",
        "KV B/token": "kv_bytes_per_token",
    }
    print_rows(
        "Models (KV bytes per token: bf16, one GPU)",
        [{label: row[key] for label, key in short.items()} for row in rows],
    )


@models_app.command()
def show(
    name: str = typer.Argument(help="Catalog name, config.json, or a directory holding one."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Show one architecture as simspec read it.

    Example: simspec models show llama-3.1-8b
    """
    from simspec.models.hf_config import load_model

    arch = load_model(name)
    first = arch.blocks[0]
    values = {
        **_summary(name),
        "tied_embeddings": arch.tied_embeddings,
        "max_context_len": arch.max_context_len,
        "qkv_bias": first.qkv_bias,
        "moe_layers": sum(b.moe is not None for b in arch.blocks),
        "mla_layers": sum(b.mla is not None for b in arch.blocks),
        "sliding_window_layers": sum(b.sliding_window is not None for b in arch.blocks),
        "source": arch.source,
    }
    if as_json:
        print_json(values)
    else:
        print_pairs(f"Model {arch.name}", values)
