"""``simspec hardware list | show | measure``: profiles, their sources, and one of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from simspec.cli._output import (
    JSON_OPTION,
    help_without_command,
    note,
    print_json,
    print_pairs,
    print_rows,
)

if TYPE_CHECKING:
    from simspec.traces.samples import Machine, Sample

hardware_app = typer.Typer(help="List, show and measure hardware profiles.")


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
                "efficiencies_of": config.kernels.efficiencies_of or None,
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
        "or efficiencies of": "efficiencies_of",
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


@hardware_app.command()
def measure(
    output: Path = typer.Option(
        Path("my_machine.yaml"), "--output", "-o", help="Profile to write; the timings go beside."
    ),
    device: str = typer.Option("", help="cpu, cuda or mps; the best one there is by default."),
    dtype: list[str] | None = typer.Option(
        None, help="fp32, bf16 or fp16, repeatable; what models are served in here by default."
    ),
    threads: int | None = typer.Option(None, min=1, help="Threads of a CPU."),
    quick: bool = typer.Option(False, "--quick", help="Small sizes: a minute instead of many."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Measure this machine through torch and write its hardware profile.

    A run that is stopped goes on from where it was. Ends with whole steps of a small model,
    predicted from the profile and measured.

    Example: simspec hardware measure --quick --output my_machine.yaml
    """
    from statistics import median

    from simspec.calibration.own_machine import fit_machine, judged_steps
    from simspec.hardware.load import load_hardware

    _require_new_name(output)
    machine, samples = _timings(output, device, tuple(dtype or ()), threads, quick)
    fit = fit_machine(machine, samples)
    output.write_text(fit.yaml(output.stem), encoding="utf-8")
    steps = judged_steps(samples, load_hardware(str(output)))
    rows = [
        {
            "dtype": step.sample.dtype,
            **{key: step.sample.shape[key] for key in ("layers", "batch", "new_tokens", "context")},
            "measured_ms": 1e3 * step.sample.seconds,
            "predicted_ms": 1e3 * step.predicted_s,
            "error": step.error,
        }
        for step in steps
    ]
    facts = {
        "profile": str(output),
        "machine": machine.name,
        "timings": len(samples),
        "median_repeat_over_shortest": 1.0 + fit.noise,
        "launch_us": 1e6 * fit.launch_s,
        "kv_reads": fit.kv_reads,
        "kv_reads_error": dict(fit.kv_reads_error),
        "step_error_median": median(abs(step.error) for step in steps),
        "step_error_largest": max(abs(step.error) for step in steps),
    }
    if as_json:
        print_json({**facts, "steps": rows})
        return
    print_pairs("Measured", facts)
    print_rows("Steps that nothing was fitted to", rows)


def _require_new_name(output: Path) -> None:
    from simspec.core.errors import ConfigError

    if output.suffix not in {".yaml", ".yml"}:
        raise ConfigError(f"--output: {output} is not a profile; give a name that ends in .yaml")
    if not output.parent.is_dir():
        raise ConfigError(f"--output: there is no folder {output.parent}; make it first")


def _timings(
    output: Path, device: str, dtypes: tuple[str, ...], threads: int | None, quick: bool
) -> tuple[Machine, list[Sample]]:
    """Take every timing, keeping each beside the profile as soon as it is there."""
    from importlib.util import find_spec

    from simspec.core.errors import ConfigError, MissingExtra, nearest
    from simspec.traces.samples import SampleWriter, read_samples

    if find_spec("torch") is None:
        raise MissingExtra(
            "simspec hardware measure runs kernels through torch, which is not installed; "
            "pip install 'simspec[companion]'"
        )
    from simspec.cli._progress import file_progress
    from simspec.companion.device import DTYPES, Device
    from simspec.companion.measure import measured
    from simspec.companion.plan import plan, sizes_for

    for name in dtypes:
        if name not in DTYPES:
            raise ConfigError(f"--dtype: unknown data type {name!r}; {nearest(name, DTYPES)}")
    here = Device(device, threads, budget_s=0.05 if quick else 0.2)
    machine = here.machine(is_quick=quick)
    sizes = sizes_for(here.kind, is_quick=quick)
    wanted = plan(machine, dtypes or here.default_dtypes(), sizes, here.flush_bytes)
    log = output.with_name(f"{output.stem}.samples.jsonl")
    kept: list[Sample] = []
    if log.is_file():
        before, kept = read_samples(log)
        if before != machine:
            note(f"note: {log} is of another machine or other settings and is measured again")
            kept = []
    writer = SampleWriter(log, machine, kept)
    done = {sample.key: sample for sample in kept}
    taken: list[Sample] = []
    with file_progress("measured") as report:
        try:
            for sample in measured(wanted, here, done):
                if sample.key not in done:
                    writer.write(sample)
                taken.append(sample)
                report(str(output), len(taken), len(wanted))
        except KeyboardInterrupt:
            note(
                f"stopped after {len(taken)} of {len(wanted)} timings, kept in {log}; the same "
                "command goes on from there"
            )
            raise
    return machine, taken
