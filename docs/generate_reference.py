"""Write the generated parts of the reference pages from the code.

A page holds its own words and, between a line ``<!-- generated: NAME -->`` and the next
``<!-- end -->``, what the function of that name in :data:`PARTS` returns::

    python docs/generate_reference.py            # rewrite the pages
    python docs/generate_reference.py --check    # exit code 1 if one is out of date
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
import typer.models
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import simspec
from simspec.cli.main import app
from simspec.core._field_types import describe, options_of
from simspec.core.registry import Registry
from simspec.core.resources import data_dir
from simspec.core.yamlio import load_yaml
from simspec.decoding._base import ACCEPTANCE_MODELS, METHODS
from simspec.decoding.acceptance._common import BetaConfidence
from simspec.decoding.acceptance.by_exit_layer import MeasuredLayer
from simspec.hardware import engine_schema, kernel_schema, schema
from simspec.hardware.load import engine_names, hardware_names, load_engine, load_hardware
from simspec.models.dtypes import DTYPES
from simspec.models.hf_config import catalog_names, load_model
from simspec.scenarios.schema import (
    DisaggregationConfig,
    KvLinkConfig,
    MemoryConfig,
    ScenarioConfig,
    SchedulerConfig,
    SimulationConfig,
    SloConfig,
)
from simspec.serving.preemption._base import PREEMPTIONS
from simspec.serving.routing._base import ROUTERS
from simspec.serving.scheduling._base import SCHEDULERS
from simspec.serving.speculation._base import SPECULATIONS
from simspec.sweeps.executors._base import EXECUTORS
from simspec.sweeps.schema import ExecutionConfig, RangeAxis, SweepConfig
from simspec.validation._base import TABLES
from simspec.validation._thresholds import recorded
from simspec.workloads._base import ARRIVALS, IMPORTERS, LENGTHS
from simspec.workloads.lengths.lognormal import LognormalSide
from simspec.workloads.profile import load_profile, packaged_profile_path, profile_names
from simspec.workloads.workload import PriorityClass, WorkloadConfig

sys.path.insert(0, str(Path(__file__).parent))
import profile_tables  # beside this file, which is not a package
import published
import report_tables

FOLDER = Path(__file__).parent / "reference"
MARKER = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

UNITS = (
    ("_tflops", "TFLOP/s"),
    ("_gb_s", "GB/s"),
    ("_per_s", "1/s"),
    ("_usd_per_hour", "$/h"),
    ("usd_per_hour", "$/h"),
    ("_ms", "ms"),
    ("_us", "µs"),
    ("_s", "s"),
    ("_gb", "GB"),
    ("_mb", "MB"),
    ("_w", "W"),
    ("_tokens", "tokens"),
    ("_len", "tokens"),
    ("curve_context", "tokens"),
    ("num_requests", "requests"),
    ("concurrency", "requests"),
    ("_seqs", "sequences"),
    ("_blocks", "blocks"),
)
"""Unit by the end of a field's name; fields without one are pure numbers or texts."""


WORDS = {
    "name": "What messages and reports call it.",
    "description": "One line for people.",
    "source": "Where the numbers come from.",
    "Config.rates": "Unconditional rates of positions 1, 2, …, never rising.",
    "Config.workers": "Processes; one per core when not given.",
    "SweepConfig.scenario": "A scenario, as above; the axes change its fields.",
    "SweepConfig.grid": "The axes; the grid is their product.",
    "SweepConfig.zip": "Axes that move together: each mapping is one axis of the grid.",
    "SweepConfig.exclude": "Combinations to leave out: values by axis, one or a list.",
    "RangeAxis.from_": "First value.",
    "RangeAxis.to": "Last value, included.",
    "RangeAxis.step": "Distance of the values; or give `num`.",
    "RangeAxis.num": "How many values; or give `step`.",
    "RangeAxis.scale": "Equal differences or equal ratios.",
    "KernelsGroup.kv_reads": "How often decode attention reads a sequence's KV in one pass.",
    "KernelsGroup.gemm": "Matrix products, by compute data type.",
    "KernelsGroup.decode_attention": "Attention of decoding and verifying rows, by KV data type.",
    "KernelsGroup.prefill_attention": "Attention of prompt chunks, by KV data type.",
    "ElementwiseEntry.bandwidth_efficiency": "Share of the nominal memory bandwidth.",
    "ElementwiseEntry.overhead_us": "Per launch, under a captured graph.",
    "LinkGroup.max_devices": "Largest tensor-parallel degree.",
    "LinkGroup.all_reduce": "What each algorithm costs; the fastest one wins.",
    "AllReduceEntry.latency_us": "Of the smallest message between two ranks.",
    "MeasuredLayer.exit_layer": "E of these drafts.",
    "HostLinkGroup.bandwidth_gb_s": "One direction.",
    "PowerGroup.tdp_w": "At full load.",
    "PowerGroup.idle_w": "Doing nothing, an engine loaded.",
    "PriceGroup.usd_per_hour": "Of one device.",
    "HeldOutError.rows": "Measurements the error is taken over.",
    "EngineMemoryGroup.block_size_tokens": "Tokens per KV block.",
    "SchedulerGroup.max_num_seqs": "Sequences that may run at once.",
    "SchedulerGroup.max_num_batched_tokens": "Tokens one engine step may process, drafts included.",
    "SchedulerGroup.chunked_prefill": "Whether a prompt may be split over several steps.",
}
"""Meaning of fields whose source has no text of its own, by ``Model.field`` or by ``field``."""


# -- words ---------------------------------------------------------------------------------


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines
    )


def markdown(docstring: str | None) -> str:
    """Return a docstring as one Markdown paragraph: plain code marks, no Sphinx roles."""
    text = (docstring or "").replace("10**9", "10⁹").replace("10**6", "10⁶")
    text = re.sub(r":\w+:`~?\.?([^`]+)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`")


def first_paragraph(documented: object) -> str:
    """Return the first paragraph of a docstring as Markdown."""
    return markdown((inspect.getdoc(documented) or "").split("\n\n", maxsplit=1)[0])


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """Return the text that stands under each field in the source, base classes included."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not (issubclass(base, BaseModel) and base is not BaseModel):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for line, below in zip(body.body, body.body[1:], strict=False):
            if not (isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                found[line.target.id] = markdown(str(below.value.value))
    return found


def meaning(model: type[BaseModel], name: str, docs: dict[str, str]) -> str:
    """Return what a field means: its own text, or that of the group it holds."""
    said = docs.get(name) or WORDS.get(f"{model.__name__}.{name}")
    if said:
        return said
    info = model.model_fields[name]
    for option in options_of(info.annotation, info.metadata):
        if isinstance(option.annotation, type) and issubclass(option.annotation, BaseModel):
            return first_paragraph(option.annotation)
    return WORDS.get(name, "")


def unit(name: str) -> str:
    """Return the unit a field name ends in, or nothing."""
    return next((shown for end, shown in UNITS if name.endswith(end)), "")


def allowed(info: FieldInfo) -> str:
    """Return what a field may hold, in the words the error messages use."""
    words = describe(options_of(info.annotation, info.metadata)) or "anything"
    words = re.sub(r"\(the fields [^()]*\)", "(mappings, see below)", words)
    words = re.sub(r"the fields .*", "a mapping, see below", words).replace(str(2**63), "2⁶³")
    words = re.sub(r"\d{5,}(?=\D|$)", lambda m: f"{int(m[0]):,}", re.sub(r"\.0\b", "", words))
    return re.sub(r"'([^']*)'", r"`\1`", words)


def default(info: FieldInfo) -> str:
    """Return the default as it would be written in YAML."""
    if info.is_required():
        return "**required**"
    value = info.default_factory() if info.default_factory is not None else info.default  # type: ignore[call-arg]
    if value is None or isinstance(value, BaseModel) or value in ("", [], {}):
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def fields(model: type[BaseModel], *, skip: Iterable[str] = ()) -> str:
    """Return the table of a model's fields."""
    docs = field_docs(model)
    rows = [
        [
            f"`{info.validation_alias or name}`",
            allowed(info),
            unit(name),
            default(info),
            meaning(model, name, docs),
        ]
        for name, info in model.model_fields.items()
        if name not in skip
    ]
    if not rows:
        return "No fields."
    return table(["field", "value", "unit", "default", "meaning"], rows)


def plugins(registry: Registry, *, level: int = 3) -> str:
    """Return a section for each plug-in: its name, what it is, its fields."""
    parts = []
    for name in registry.names():
        parts += [
            f"{'#' * level} `{name}`",
            first_paragraph(registry.module(name)),
            fields(registry.config_class(name), skip={"name"}),
        ]
    return "\n\n".join(parts)


# -- parts of reference/config.md ----------------------------------------------------------


def hardware_schema() -> str:
    """Return every group of a hardware profile."""
    sections: dict[str, type[BaseModel]] = {
        "": schema.HardwareConfig,
        "memory": schema.MemoryGroup,
        "compute": schema.ComputeGroup,
        "kernels": schema.KernelsGroup,
        "kernels.gemm.TYPE, kernels.decode_attention.TYPE, kernels.prefill_attention.TYPE": (
            kernel_schema.KernelEntry
        ),
        "kernels.gemm.TYPE": kernel_schema.GemmEntry,
        "kernels.elementwise": kernel_schema.ElementwiseEntry,
        "link": schema.LinkGroup,
        "link.all_reduce.ALGORITHM": kernel_schema.AllReduceEntry,
        "host_link": schema.HostLinkGroup,
        "inter_node_link": schema.InterNodeLinkGroup,
        "power": schema.PowerGroup,
        "price": schema.PriceGroup,
        "held_out_error": kernel_schema.HeldOutError,
    }
    return _sections(sections)


def engine_sections() -> str:
    """Return every group of an engine profile."""
    return _sections(
        {
            "": engine_schema.EngineConfig,
            "host": engine_schema.HostGroup,
            "memory": engine_schema.EngineMemoryGroup,
            "scheduler": engine_schema.SchedulerGroup,
            "uncertainty": engine_schema.UncertaintyGroup,
        }
    )


def _sections(models: dict[str, type[BaseModel]]) -> str:
    parts = []
    for place, model in models.items():
        if place:
            shown = ", ".join(f"`{name}`" for name in place.split(", "))
            parts.append(f"{shown}: {first_paragraph(model)}")
        parts.append(fields(model))
    return "\n\n".join(parts)


def dtypes() -> str:
    """Return the data types."""
    rows = [
        [
            f"`{kind.name}`",
            f"{kind.bits_per_weight:g}",
            kind.compute_dtype,
            kind.covers,
            "yes" if kind.cache else "",
            kind.source,
        ]
        for kind in DTYPES.values()
    ]
    return table(["name", "bits per weight", "computes at", "covers", "KV cache", "source"], rows)


def packaged() -> str:
    """Return the names of everything that ships."""
    hardware = [(name, load_hardware(name).description) for name in hardware_names()]
    engines = [(name, load_engine(name).description) for name in engine_names()]
    models = [(name, load_model(name).source) for name in catalog_names()]
    profiles = [(n, load_profile(packaged_profile_path(n)).source) for n in profile_names()]
    examples = [
        (f"experiments/{path.name}", str(load_yaml(path).data["description"]))
        for path in sorted(data_dir("experiments").glob("*.yaml"))
    ]
    parts = []
    for kind, rows in (
        ("`hardware`", hardware),
        ("`engine`", engines),
        ("`model`", models),
        ("`workload.lengths.profile`", profiles),
        ("experiment", examples),
    ):
        listed = [[f"`{name}`", " ".join(text.split())] for name, text in rows]
        parts.append(table([kind, ""], listed))
    return "\n\n".join(parts)


# -- the part of trust.md ------------------------------------------------------------------

RECORDED = Path(__file__).resolve().parents[1] / "tests/validation/thresholds.yaml"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def recorded_errors() -> str:
    """Return the recorded errors of whole tables, by family; those of kernels stand apart."""
    rows = []
    for entry in recorded(RECORDED):
        if entry["file"].endswith(".parquet"):
            continue
        by_what: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
        for name, numbers in entry["families"].items():
            quantity, role, family = name.split(" | ")
            by_what.setdefault((quantity, family), {})[role] = numbers
        for (quantity, family), roles in by_what.items():
            cells = [entry["file"].rpartition("/")[2], f"`{quantity}`", family]
            for role in ("held_out", "fitted"):
                numbers = roles.get(role, {})
                cells += [
                    f"{numbers['rows']:,}" if numbers else "–",
                    _percent(numbers["median"]) if numbers else "–",
                    *([_percent(numbers["p90"]) if numbers else "–"] if role == "held_out" else []),
                ]
            rows.append(cells)
    heads = ("table", "quantity", "rows", "held out", "median %", "p90 %", "fitted", "median %")
    return table(heads, rows)


def recorded_kernels() -> str:
    """Return the recorded errors of kernels on shapes that no fit has seen."""
    kinds = [
        f"{kind} {dtype}"
        for kind in ("gemm", "decode_attention", "prefill_attention")
        for dtype in ("bfloat16", "fp8")
    ] + ["all_reduce"]
    found: dict[tuple[str, str], dict[str, str]] = {}
    for entry in recorded(RECORDED):
        for name, numbers in entry["groups"].items() if ".parquet" in entry["file"] else ():
            _, role, group = name.split(" | ")
            device, engine, kind = group.split(" / ")
            if role == "held_out" and kind in kinds:
                shown = f"{_percent(numbers['median'])} ({_percent(numbers['p90'])})"
                found.setdefault((device, engine), {})[kind] = f"{shown}, {numbers['rows']:,}"
    heads = ("device", "kernels", *(k.replace("_attention", "").replace("_", "-") for k in kinds))
    return table(
        heads,
        [(*key, *(cells.get(kind, "–") for kind in kinds)) for key, cells in sorted(found.items())],
    )


# -- the part of reference/measurements.md ------------------------------------------------


def measurement_tables() -> str:
    """Return a section for each kind of measurement table: what it holds, its columns."""
    parts = []
    for name in TABLES.names():
        reader = TABLES.module(name)
        numbers = getattr(reader, "NUMBERS", frozenset())
        rows = [
            (f"`{column}`", "number" if column in numbers else "text")
            for column in sorted(reader.COLUMNS)
        ]
        more = ", ".join(f"`{column}`" for column in sorted(numbers - reader.COLUMNS))
        parts += [
            f"## `{name}`",
            f"{reader.DESCRIPTION[:1].upper()}{reader.DESCRIPTION[1:]}.",
            table(["column", "holds"], rows),
            *([f"Read where they are there: {more}."] if more else []),
            markdown(first_paragraph(reader)),
        ]
    return "\n\n".join(parts)


# -- the parts of reference/cli.md and api.md ----------------------------------------------


def commands() -> str:
    """Return every command with its arguments and options."""
    parts = []
    for path, callback in _walk(app, "simspec"):
        parts += [f"## `{path}`", _help(callback), *_parameters(callback)]
    return "\n\n".join(parts)


def _walk(group: typer.Typer, path: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    for command in group.registered_commands:
        assert command.callback is not None
        yield f"{path} {command.name or command.callback.__name__}", command.callback
    for child in group.registered_groups:
        assert child.typer_instance is not None
        yield from _walk(child.typer_instance, f"{path} {child.name}")


def _help(callback: Callable[..., Any]) -> str:
    text, _, example = (inspect.getdoc(callback) or "").partition("\n\nExample: ")
    shown = " ".join(example.split())
    return f"{text}\n\n```text\n{shown}\n```" if shown else text


def _parameters(callback: Callable[..., Any]) -> Iterator[str]:
    rows: dict[str, list[list[str]]] = {"argument": [], "option": []}
    for name, parameter in inspect.signature(callback, eval_str=True).parameters.items():
        given = parameter.default
        assert isinstance(given, typer.models.ParameterInfo)
        kind = "argument" if isinstance(given, typer.models.ArgumentInfo) else "option"
        value = "**required**" if given.default is ... else _written(given.default)
        shown = [f"`{name.upper()}`"] if kind == "argument" else _flags(name, given)
        choices = describe(options_of(parameter.annotation)) or ""
        rows[kind].append([", ".join(shown), choices + _bounds(given), value, markdown(given.help)])
    for kind, found in rows.items():
        if found:
            yield table([kind, "value", "default", "meaning"], found)


def _flags(name: str, given: typer.models.ParameterInfo) -> list[str]:
    declared = given.param_decls or [f"--{name.replace('_', '-')}"]
    return [f"`{flag}`" for item in declared for flag in item.split("/")]


def _bounds(given: typer.models.ParameterInfo) -> str:
    if given.min is not None and given.max is not None:
        return f" from {given.min:,} to {given.max:,}"
    return "" if given.min is None else f" of at least {given.min:,}"


def _written(value: object) -> str:
    if value is None:
        return "–"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def interface() -> str:
    """Return what ``import simspec`` offers, with signatures and docstrings."""
    parts = []
    for name in sorted(simspec.__all__, key=lambda name: (name[0].isupper(), name)):
        item = getattr(simspec, name)
        if name.startswith("__"):
            continue
        if isinstance(item, type):
            parts += [f"## `{name}`", first_paragraph(item)]
            continue
        signature = str(inspect.signature(item)).replace("'", "")
        text = inspect.getdoc(item) or ""
        parts += [f"## `{name}`", f"```python\n{name}{signature}\n```", f"```text\n{text}\n```"]
    return "\n\n".join(parts)


PARTS: dict[str, Callable[[], str]] = {
    "scenario": lambda: fields(ScenarioConfig),
    "scheduler": lambda: fields(SchedulerConfig),
    "memory": lambda: fields(MemoryConfig),
    "disaggregation": lambda: fields(DisaggregationConfig),
    "kv_link": lambda: fields(KvLinkConfig),
    "slo": lambda: fields(SloConfig),
    "simulation": lambda: fields(SimulationConfig),
    "workload": lambda: fields(WorkloadConfig),
    "priority_class": lambda: fields(PriorityClass),
    "methods": lambda: plugins(METHODS),
    "acceptance": lambda: plugins(ACCEPTANCE_MODELS),
    "measured_layer": lambda: fields(MeasuredLayer),
    "confidence": lambda: fields(BetaConfidence),
    "arrivals": lambda: plugins(ARRIVALS),
    "lengths": lambda: plugins(LENGTHS),
    "lognormal": lambda: fields(LognormalSide),
    "importers": lambda: plugins(IMPORTERS),
    "schedulers": lambda: plugins(SCHEDULERS),
    "speculations": lambda: plugins(SPECULATIONS),
    "preemptions": lambda: plugins(PREEMPTIONS),
    "routers": lambda: plugins(ROUTERS),
    "sweep": lambda: fields(SweepConfig),
    "range": lambda: fields(RangeAxis),
    "execution": lambda: fields(ExecutionConfig),
    "executors": lambda: plugins(EXECUTORS),
    "hardware": hardware_schema,
    "engine": engine_sections,
    "dtypes": dtypes,
    "packaged": packaged,
    "commands": commands,
    "interface": interface,
    "measurement_tables": measurement_tables,
    "recorded_errors": recorded_errors,
    "recorded_kernels": recorded_kernels,
    "acceptance_catalog": published.acceptance_catalog,
    "published_errors": published.published_errors,
    "published_rows": published.published_rows,
    "hardware_profiles": profile_tables.hardware_profiles,
    "user_reports": report_tables.user_reports,
}


def generated(page: str) -> str:
    """Return the text of a page with its generated parts up to date."""
    return MARKER.sub(lambda m: f"{m[1]}\n{PARTS[m[2]]()}\n\n{m[3]}", page)


def main(arguments: Sequence[str]) -> int:
    """Rewrite the pages, or with ``--check`` say which are out of date."""
    stale = []
    for path in [*sorted(FOLDER.glob("*.md")), FOLDER.parent / "trust.md"]:
        page = path.read_text(encoding="utf-8")
        fresh = generated(page)
        if fresh != page:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(fresh, encoding="utf-8")
    words = "out of date" if "--check" in arguments else "rewritten"
    sys.stdout.write(f"{words}: {', '.join(stale) or 'none'}\n")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
