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
    from simspec.hardware.load import hardware_names, load_hardware_config

    rows: list[dict[str, object]] = []
    for name in hardware_names():
        config = load_hardware_config(name)
        rows.append(
            {
                "name": name,
                "description": config.description,
                "memory_nominal_gb": config.memory.nominal_gb,
                "memory_visible_gb": config.memory.capacity_gb,
                "memory_bandwidth_gb_s": config.memory.bandwidth_gb_s,
                "bf16_dense_tflops": config.compute.dense_peak_tflops.get("bf16"),
                "calibrated": config.kernels.calibrated,
            }
        )
    if as_json:
        print_json({"hardware": rows})
        return
    short = {
        "name": "name",
        "description": "description",
        "label GB": "memory_nominal_gb",
        "visible GB": "memory_visible_gb",
        "GB/s": "memory_bandwidth_gb_s",
        "bf16 TFLOP/s": "bf16_dense_tflops",
        "calibrated": "calibrated",
    }
    print_rows(
        "Hardware profiles (visible: what programs see, in 10^9 bytes)",
        [{label: row[key] for label, key in short.items()} for row in rows],
    )


@hardware_app.command()
def show(
    name: str = typer.Argument(help="Profile name or path to a YAML file."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Show one profile with the source of each group.

    Example: simspec hardware show h100_sxm
    """
    from simspec.hardware.describe import describe
    from simspec.hardware.load import load_hardware_config
    from simspec.hardware.schema import to_hardware

    config = load_hardware_config(name)
    device = to_hardware(config)
    values, sources = describe(device)
    if as_json:
        # Nested as the YAML nests it, with the evidence behind each fit.
        print_json({**config.model_dump(mode="json", exclude_none=True), "sources": sources})
        return
    print_pairs(f"Hardware profile {device.name}", values)
    print_rows("Sources", [{"group": g, "source": s} for g, s in sources.items()])
