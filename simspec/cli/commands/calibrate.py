"""``simspec calibrate``: coefficients from measurements, as YAML to paste into a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from simspec.cli._output import JSON_OPTION, help_without_command, note, print_json, print_rows

calibrate_app = typer.Typer(help="Fit profiles to measurements.")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    calibrate_app.callback(invoke_without_command=True)(help_without_command)
    app.add_typer(calibrate_app, name="calibrate")


@calibrate_app.command()
def kernels(
    tables: Path = typer.Argument(help="Folder of KIND.ENGINE.parquet tables, or its parent."),
    profile: str = typer.Argument(help="Hardware profile with peaks, bandwidth and cache size."),
    engine: str = typer.Option("vllm", help="Whose kernels: vllm, trtllm or nccl."),
) -> None:
    """Fit GEMM, attention and all-reduce of one device; print the YAML of its profile.

    Example: simspec calibrate kernels measured/kernels h100_sxm
    """
    from simspec.calibration.kernels import fit_device, tables_of

    fits = fit_device(tables_of(tables, profile), engine, profile=profile)
    typer.echo(fits.yaml(), nl=False)
    note("each held_out_error is from shapes the fit did not see; add a source to every group")


@calibrate_app.command()
def acceptance(
    traces: list[Path] = typer.Argument(help="Traces of accepted lengths or rounds, JSON Lines."),
    drafter: str | None = typer.Option(None, help="Which drafter of a file that has several."),
    model: str | None = typer.Option(
        None,
        help="constant, per_position, two_state, lookup or beta_curve; default: by what the trace "
        "records.",
    ),
    hit_probability: float | None = typer.Option(
        None, min=0.0, max=1.0, help="Of lookup: share of searches that find something."
    ),
) -> None:
    """Fit an acceptance model to captured traces; print the YAML that --acceptance takes.

    Example: simspec calibrate acceptance gsm8k.jsonl.gz --drafter eagle
    """
    from simspec.calibration.acceptance import fit_acceptance
    from simspec.traces.accepted import read_accepted

    texts = [text for path in traces for text in read_accepted(path, drafter)]
    fit = fit_acceptance(texts, model, hit_probability=hit_probability)
    names = ", ".join(path.name for path in traces)
    typer.echo(fit.yaml(f"{names}, drafter {drafter}" if drafter else names), nl=False)
    columns = zip(fit.measured, fit.predicted, fit.held_out.T, strict=True)
    for drafts, (measured, predicted, errors) in enumerate(columns, start=1):
        note(
            f"K = {drafts:2d}: {measured:.3f} tokens per round, fitted {predicted:.3f}, "
            f"held-out errors {errors[0]:+.1%} and {errors[1]:+.1%}"
        )


@calibrate_app.command()
def captures(
    folder: Path = typer.Argument(help="Folder of round traces that simspec capture wrote."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Judge acceptance models on captures: fit on half of the texts at threshold 0, predict all.

    Example: simspec calibrate captures traces
    """
    from simspec.calibration.captures import judge_captures, mean_errors, read_captures

    judged = judge_captures(read_captures(folder))
    rows = []
    for row in judged:
        header = row.capture.header
        rows.append(
            {
                "method": header.method,
                "exit_layer": header.exit_layer,
                "dataset": header.dataset,
                "num_speculative_tokens": row.capture.max_draft,
                "confidence_threshold": row.capture.threshold,
                "batch_size": row.capture.batch_size,
                "rounds": row.num_rounds,
                "drafted_per_round": row.drafted_per_round,
                "tokens_per_round": row.tokens_per_round,
                "errors": {
                    name: dict(zip(("drafted", "tokens"), row.errors(name), strict=True))
                    for name in row.predicted
                },
            }
        )
    means = {
        name: {"drafted": drafted, "tokens": tokens}
        for name, (drafted, tokens) in mean_errors(judged).items()
    }
    if as_json:
        print_json({"rows": rows, "mean_absolute_errors": means})
        return
    print_rows("Captures of texts that no fit has seen", [_capture_line(row) for row in rows])
    print_rows(
        "Mean absolute errors of tokens per round",
        [
            {"model": name, **{what: f"{share:.1%}" for what, share in errors.items()}}
            for name, errors in means.items()
        ],
    )


def _capture_line(row: dict[str, Any]) -> dict[str, object]:
    names = {
        "method": "method",
        "E": "exit_layer",
        "text": "dataset",
        "K": "num_speculative_tokens",
        "tau": "confidence_threshold",
        "B": "batch_size",
    }
    line: dict[str, object] = {short: row[key] for short, key in names.items()}
    line["drafted"] = round(row["drafted_per_round"], 3)
    line["tokens"] = round(row["tokens_per_round"], 3)
    for name, errors in row["errors"].items():
        line[name] = f"{errors['drafted']:+.1%} {errors['tokens']:+.1%}"
    return line


@calibrate_app.command()
def host(
    table: Path = typer.Argument(help="Published runs: published_speedups.csv or a part of it."),
    engine: str = typer.Option("pytorch", help="Whose host times: pytorch or vllm."),
) -> None:
    """Fit an engine's host times to published rounds; print the lines of its host group.

    Only the sources set aside for the fit are used; the others judge (simspec validate).

    Example: simspec calibrate host published_speedups.csv --engine pytorch
    """
    from simspec.validation.published_rounds import fit_engine

    fit = fit_engine(table, engine)
    typer.echo(f"host:  # {engine}\n{fit.yaml()}", nl=False)
    for machine, factor in fit.machines.items():
        head = f"host:  # {engine} on a {machine}, times {factor:.3f}"
        typer.echo(f"{head}\n{fit.yaml(machine)}", nl=False)
    for name, error in fit.errors:
        note(f"{error:+7.1%}  {name}")


@calibrate_app.command()
def engine(
    table: Path = typer.Argument(help="Closed-loop benchmarks: a table of serving_closed_loop."),
    name: str = typer.Argument(help="Engine profile, whose rows are used."),
    leave_out: list[str] = typer.Option(
        [], help="Judge, and do not fit, deployments whose name holds this text."
    ),
    every: bool = typer.Option(
        False, "--all", help="Fit all other deployments, not only the published half."
    ),
    fix: list[str] = typer.Option([], help="NAME=VALUE: a coefficient known from elsewhere."),
) -> None:
    """Fit what an engine adds to the kernels to benchmark rows; print groups of its profile.

    Example: simspec calibrate engine serving_closed_loop.csv trtllm --leave-out qwen3-32b
    """
    from simspec.validation.serving_fit import fit_profile

    fit = fit_profile(table, name, leave_out=leave_out, every=every, fixed=_assignments(fix))
    typer.echo(fit.yaml(), nl=False)
    for line in fit.report():
        note(line)


def _assignments(given: list[str]) -> dict[str, float]:
    from simspec.core.errors import ConfigError

    found = {}
    for text in given:
        key, _, value = text.partition("=")
        try:
            found[key.strip()] = float(value)
        except ValueError:
            raise ConfigError(
                f"--fix: {text!r} is not NAME=VALUE with a number; for example per_step_us=753"
            ) from None
    return found
