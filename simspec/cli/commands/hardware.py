"""``simspec hardware list | show``: the profiles and where their numbers come from."""

from __future__ import annotations

import typer

from simspec.cli._output import (
    JSON_OPTION,
    help_without_command,
    print_json,
    print_pairs,
    print_rows,
)

hardware_app = typer.Typer(help="List and show hardware profiles.")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    hardware_app.callback(invoke_without_command=True)(help_without_command)
    app.add_typer(hardware_app, name="hardware")


@hardware_app.command("list")
def list_(as_json: bool = JSON_OPTION) -> None:
    """List the packaged hardware profiles.

    Example: simspec hardware list
    """
    from simspec.hardware.load import hardware_names, load_hardware

    rows: list[dict[str, object]] = []
    for name in hardware_names():
        device = load_hardware(name)
        rows.append(
            {
                "name": name,
                "description": device.description,
                "memory_capacity_gb": device.memory_capacity_bytes / 1e9,
                "memory_bandwidth_gb_s": device.memory_bandwidth_bytes_per_s / 1e9,
                "bf16_dense_tflops": device.peak_flop_per_s.get("bf16", 0.0) / 1e12 or None,
                "calibrated": device.calibrated,
            }
        )
    if as_json:
        print_json({"hardware": rows})
    else:
        print_rows("Hardware profiles", rows)


@hardware_app.command()
def show(
    name: str = typer.Argument(help="Profile name or path to a YAML file."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Show one profile with the source of each group.

    Example: simspec hardware show h100_sxm
    """
    from simspec.hardware.load import load_hardware
    from simspec.hardware.schema import describe

    device = load_hardware(name)
    values, sources = describe(device)
    if as_json:
        print_json({"name": device.name, **values, "sources": sources})
        return
    print_pairs(f"Hardware profile {device.name}", values)
    print_rows("Sources", [{"group": g, "source": s} for g, s in sources.items()])
