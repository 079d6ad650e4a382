"""``simspec breakeven``: where a method stops paying, on one card or on all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import typer

from simspec.cli import _options as opt
from simspec.cli._output import JSON_OPTION, note, print_json, print_rows

if TYPE_CHECKING:
    from simspec.scenarios.breakeven import Over

OVER = typer.Option("batch", "--over", help="What varies: acceptance, batch or context.")
HARDWARE = typer.Option(
    "h100_sxm", "--hardware", help="Profile name or YAML path, several with commas, or 'all'."
)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("breakeven")(breakeven)


def breakeven(
    over: str = OVER,
    hardware: str = HARDWARE,
    model: str = opt.MODEL,
    engine: str = opt.ENGINE,
    tp: int = opt.TP,
    dtype: str = opt.DTYPE,
    kv_dtype: str = opt.KV_DTYPE,
    batch: int | None = typer.Option(
        None, "--batch", min=1, max=1_000_000, help="Sequences decoding together; default 1."
    ),
    context: int | None = typer.Option(
        None, "--context", min=1, max=100_000_000, help="Context of each, tokens; default 1024."
    ),
    method: str = typer.Option("kangaroo", "--method", help="Decoding method, e.g. kangaroo."),
    exit_layer: int | None = opt.EXIT_LAYER,
    num_speculative_tokens: int | None = opt.NUM_SPECULATIVE_TOKENS,
    confidence_threshold: float | None = opt.CONFIDENCE_THRESHOLD,
    method_option: list[str] | None = opt.METHOD_OPTION,
    acceptance: str | None = opt.ACCEPTANCE,
    as_json: bool = JSON_OPTION,
) -> None:
    """Find the batch, context or acceptance at which a method stops paying.

    Example: simspec breakeven --over batch --hardware all --model vicuna-7b --method kangaroo
    --acceptance kangaroo-vicuna-7b-math
    """
    _check(over, batch, context, acceptance)
    decoding = opt.method_mapping(
        method, exit_layer, num_speculative_tokens, confidence_threshold, method_option
    )
    fields = {
        "model": model,
        "engine": engine,
        "tp": tp,
        "dtype": dtype,
        "kv_dtype": kv_dtype,
        "method": decoding,
        "acceptance": opt.acceptance_value(acceptance, decoding),
    }
    rows = _rows(_hardware(hardware), fields, cast("Over", over), batch or 1, context or 1024)
    _print(rows, over, as_json)


def _check(over: str, batch: int | None, context: int | None, acceptance: str | None) -> None:
    from simspec.core.errors import ConfigError, nearest
    from simspec.scenarios.breakeven import OVER as CHOICES

    if over not in CHOICES:
        raise ConfigError(f"--over: unknown choice {over!r}; {nearest(over, CHOICES)}")
    for name, given in (("acceptance", acceptance), ("batch", batch), ("context", context)):
        if over == name and given is not None:
            raise ConfigError(f"--{name} has no effect with --over {name}; remove one of them")


def _rows(
    names: list[str], fields: dict[str, Any], over: Over, batch: int, context: int
) -> list[dict[str, Any]]:
    """Return one row per card; where several are asked for, one that cannot says so in its row."""
    from simspec.core.errors import ConfigError, Infeasible
    from simspec.hardware.load import load_hardware
    from simspec.scenarios.breakeven import break_even
    from simspec.scenarios.build import Deployment, build, build_without_acceptance
    from simspec.scenarios.closed_form import deployment_facts

    for name in names:
        load_hardware(name)  # an unknown name is a mistake, not a card that cannot
    make = build_without_acceptance if over == "acceptance" else build
    rows: list[dict[str, Any]] = []
    for name in names:
        deployment: Deployment | None = None
        try:
            deployment = make(opt.deployment_config(hardware=name, **fields))
            rows.append(break_even(deployment, over, batch, context))
        except (Infeasible, ConfigError) as error:
            # One card that cannot is an answer; a mistake that every card would share is not.
            is_mistake = deployment is None or isinstance(error, ConfigError)
            if len(names) == 1 or (is_mistake and name not in str(error)):
                raise
            facts = {"hardware": name} if deployment is None else deployment_facts(deployment)
            rows.append({**facts, "over": over, "status": "refused", "reason": str(error)})
    return rows


def _hardware(text: str) -> list[str]:
    from simspec.core.errors import ConfigError
    from simspec.hardware.load import hardware_names

    if text == "all":
        return list(hardware_names())
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ConfigError(f"--hardware: {text!r} has an empty name; give names between commas")
    return names


def _print(rows: list[dict[str, Any]], over: str, as_json: bool) -> None:
    if as_json:
        print_json({"over": over, "rows": rows})
        return
    ok = [row for row in rows if row["status"] == "ok"]
    table = [
        {
            "hardware": row["hardware"] + _note(row),
            "pays": row["verdict"],
            f"best {over}": row["best"]["at"],
            "speedup": row["best"]["speedup"],
            "TPOT ms": row["best"]["tpot_ms"],
            "autoregressive ms": row["best"]["autoregressive_tpot_ms"],
        }
        for row in ok
    ]
    if ok:
        first = ok[0]
        fixed = ", ".join(
            f"{name} {first[name]:,}" for name in ("batch", "context") if first[name] is not None
        )
        options = ", ".join(f"{k}={v}" for k, v in first["method_options"].items())
        caption = (
            f"{first['model']}, {first['engine']}, {fixed}; {first['method']} ({options})\n"
            f"acceptance: {first['acceptance']}"
        )
        print_rows(f"Where {first['method']} pays over {over} (closed form)", table, caption)
    for row in rows:
        if row["status"] != "ok":
            note(f"{row['hardware']}: {row['reason']}")


def _note(row: dict[str, Any]) -> str:
    if row["calibrated"]:
        return ""
    relative = row.get("efficiencies_of")
    return f" (uncalibrated: efficiencies of {relative})" if relative else " (uncalibrated)"
