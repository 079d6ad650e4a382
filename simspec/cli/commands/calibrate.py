"""``simspec calibrate``: coefficients from measurements, as YAML to paste into a profile."""

from __future__ import annotations

from pathlib import Path

import typer

from simspec.cli._output import help_without_command, note

calibrate_app = typer.Typer(help="Fit profiles to measurements.")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    calibrate_app.callback(invoke_without_command=True)(help_without_command)
    app.add_typer(calibrate_app, name="calibrate")


@calibrate_app.command()
def kernels(
    tables: Path = typer.Argument(help="Folder of KIND.ENGINE.parquet tables, or its parent."),
    profile: str = typer.Argument(help="Hardware profile with peaks, bandwidth and cache size."),
    engine: str = typer.Option("vllm", help="Whose kernels: vllm or trtllm."),
) -> None:
    """Fit GEMM, attention and all-reduce of one device; print the YAML of its profile.

    Example: simspec calibrate kernels measured/kernels h100_sxm
    """
    from simspec.calibration.kernels import fit_device, tables_of

    fits = fit_device(tables_of(tables, profile), engine, profile=profile)
    typer.echo(fits.yaml(), nl=False)
    note("each held_out_error is from shapes the fit did not see; add a source to every group")
