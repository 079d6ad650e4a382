"""Several methods on one deployment: what each gives, beside plain decoding, at several batches.

A comparison is a YAML file or the options of ``simspec compare``. Every method runs on the same
target, hardware and engine at the same batch and context (an entry may name another model or
card; it is then compared with plain decoding there). All times are the closed form's
(:mod:`simspec.scenarios.closed_form`): absolute figures of the method and of plain decoding
first, the ratio after them. The acceptance of an entry is given, or it is the catalog's profile
for its method, named in every row; it is never assumed in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator
from pydantic_core import PydanticCustomError

from simspec.core.errors import Infeasible
from simspec.core.yamlio import load_yaml, parse
from simspec.decoding._base import METHODS, AcceptanceConfig, MethodConfig
from simspec.decoding.acceptance._shorthand import parse_acceptance
from simspec.scenarios.breakeven import Paying, batches_that_pay, largest_batch
from simspec.scenarios.build import Deployment, Place, build, require_room
from simspec.scenarios.claims import ClaimConfig, judged
from simspec.scenarios.closed_form import (
    calibration_sigma,
    deployment_facts,
    describe_acceptance,
    estimate_round,
)
from simspec.scenarios.compare_load import simulated
from simspec.scenarios.schema import (
    DeploymentConfig,
    MemoryConfig,
    SchedulerConfig,
    SimulationConfig,
    SloConfig,
    StrictModel,
    as_plain,
)
from simspec.scenarios.uncertainty import Errors, interval_95
from simspec.workloads.workload import WorkloadConfig

PLAIN = "autoregressive"

_Positive = Annotated[int, Field(ge=1, le=100_000_000)]


class EntryConfig(StrictModel):
    """One line of a comparison."""

    label: str = ""
    """What the line is called; the method's name when not given."""
    method: Annotated[SerializeAsAny[MethodConfig], BeforeValidator(METHODS.parse)]
    """Decoding method and its fields."""
    acceptance: Annotated[
        SerializeAsAny[AcceptanceConfig] | None, BeforeValidator(parse_acceptance)
    ] = None
    """What its drafts are accepted; required by every speculative method."""
    model: str | None = None
    """Another target than the comparison's."""
    hardware: str | None = None
    """Another card than the comparison's."""
    engine: str | None = None
    """Another engine than the comparison's."""
    tp: int | None = Field(default=None, ge=1, le=1024)
    """Another tensor-parallel degree than the comparison's."""
    dtype: str | None = None
    """Another weight data type than the comparison's."""

    @property
    def name(self) -> str:
        """The label, or the method's name."""
        return self.label or self.method.name


class ComparisonConfig(StrictModel):
    """Methods side by side on one deployment."""

    name: str = Field(default="comparison", min_length=1, max_length=200)
    description: str = ""
    model: str = Field(min_length=1)
    """Catalog name, ``config.json`` or a directory that holds one."""
    hardware: str = Field(min_length=1)
    """Profile name or YAML path."""
    engine: str = Field(default="vllm", min_length=1)
    """Engine profile name or YAML path."""
    tp: int = Field(default=1, ge=1, le=1024)
    """Tensor-parallel degree."""
    dtype: str = "bf16"
    """Weight data type."""
    kv_dtype: str = "bf16"
    """KV-cache data type."""
    batch: Annotated[tuple[_Positive, ...], Field(min_length=1, max_length=200)] = (1,)
    """Sequences decoding together; one point each."""
    context: _Positive = 1024
    """Context of each sequence, tokens."""
    methods: Annotated[tuple[EntryConfig, ...], Field(min_length=1, max_length=64)]
    """The lines; plain decoding stands beside each of them."""
    claims: tuple[ClaimConfig, ...] = ()
    """Published figures to hold the lines against."""
    scheduler: SchedulerConfig = SchedulerConfig()
    memory: MemoryConfig = MemoryConfig()
    workload: WorkloadConfig | None = None
    """A load to simulate every line under as well, on the same requests and tapes."""
    slo: SloConfig = SloConfig()
    """Latency targets of that load."""
    simulation: SimulationConfig = SimulationConfig()
    """Seed, replications and warm-up of that load."""

    @field_validator("batch")
    @classmethod
    def _each_batch_once(cls, batch: tuple[int, ...]) -> tuple[int, ...]:
        for size in batch:
            if batch.count(size) > 1:
                raise PydanticCustomError(
                    "batch_twice", "{size} is given twice; keep one", {"size": size}
                )
        return batch

    @model_validator(mode="after")
    def _fields_have_effect(self) -> Self:
        for field in ("slo", "simulation"):
            if self.workload is None and field in self.model_fields_set:
                raise PydanticCustomError(
                    "no_load",
                    "{field} says how a load is simulated and there is none; add workload, or "
                    "remove {field}",
                    {"field": field},
                )
        return self

    @model_validator(mode="after")
    def _labels_are_unique(self) -> Self:
        names = [entry.name for entry in self.methods]
        for name in names:
            if names.count(name) > 1:
                raise PydanticCustomError(
                    "label_twice",
                    "two methods are called {name}; give each a label of its own",
                    {"name": name},
                )
        return self

    def deployment(self, entry: EntryConfig) -> DeploymentConfig:
        """Return the deployment of one line."""
        return DeploymentConfig(
            model=entry.model or self.model,
            hardware=entry.hardware or self.hardware,
            engine=entry.engine or self.engine,
            tp=entry.tp or self.tp,
            dtype=entry.dtype or self.dtype,
            kv_dtype=self.kv_dtype,
            method=entry.method,
            acceptance=entry.acceptance,
            scheduler=self.scheduler,
            memory=self.memory,
        )


@dataclass(frozen=True, slots=True)
class Line:
    """One method of a comparison, built."""

    name: str
    deployment: Deployment
    plain: Deployment
    """Plain decoding on the same model, hardware and engine."""
    context: int
    errors: Errors
    """Of the deployment's profiles."""

    def row(self, batch: int) -> dict[str, Any]:
        """Return the result of one batch; a refusal says so in ``status`` and ``reason``."""
        deployment = self.deployment
        row: dict[str, Any] = {"label": self.name, "batch": batch, "context": self.context}
        result = estimate_round(deployment, batch, self.context)
        stats = result.statistics
        row["autoregressive_tpot_ms"] = self._plain_ms(batch, float(result.step_time_s))
        reason = self._refusal(batch)
        if reason is not None:
            return {**row, "status": "does_not_fit", "reason": reason}
        tpot_s = float(result.tpot_s)
        sigma = calibration_sigma(deployment, batch, self.context, errors=self.errors)
        return {
            **row,
            "drafted_per_round": stats.drafted_per_round,
            "tokens_per_round": stats.tokens_per_round,
            "round_time_ms": float(result.round_time_s) * 1e3,
            "time_draft_ms": float(result.draft_s) * 1e3,
            "time_verify_ms": float(result.verify_s) * 1e3,
            "time_host_ms": float(result.host_s) * 1e3,
            "tpot_ms": tpot_s * 1e3,
            "tpot_ms_interval": interval_95(tpot_s * 1e3, float(sigma["tpot"])),
            "speedup": float(result.speedup),
            "speedup_interval": interval_95(float(result.speedup), float(sigma["speedup"])),
            "throughput_tokens_per_s": batch / tpot_s,
            "status": "ok",
            "reason": None,
        }

    def _plain_ms(self, batch: int, step_s: float) -> float | None:
        return step_s * 1e3 if batch <= largest_batch(self.plain, self.context) else None

    def _refusal(self, batch: int) -> str | None:
        most = largest_batch(self.deployment, self.context)
        if most >= batch:
            return None
        try:
            require_room(self.deployment, self.context)
        except Infeasible as error:
            return str(error)
        return (
            f"{batch:,} sequences of {self.context:,} tokens do not fit beside it; at this "
            f"context at most {most:,} do"
        )

    def summary(self) -> dict[str, Any]:
        """Return what does not depend on the batch: memory, limits, break-even, acceptance."""
        deployment = self.deployment
        footprint, tp = deployment.method.footprint(), deployment.target.tp
        pays = batches_that_pay(deployment, self.context)
        return {
            "label": self.name,
            **deployment_facts(deployment),
            "hardware_reference": deployment.config.hardware,
            "is_lossless": deployment.config.method.lossless,
            "acceptance": describe_acceptance(deployment),
            "extra_weights_bytes": footprint.extra_weights_bytes,
            "extra_weights_bytes_all_ranks": footprint.extra_weights_bytes * tp,
            "extra_kv_bytes_per_token": footprint.extra_kv_bytes_per_token,
            "extra_kv_bytes_per_sequence": footprint.extra_kv_bytes_per_sequence,
            "kv_bytes_per_token": deployment.budget.kv_bytes_per_token,
            "max_batch": largest_batch(deployment, self.context),
            "autoregressive_max_batch": largest_batch(self.plain, self.context),
            "pays": [] if pays is None else [list(pair) for pair in pays.ranges],
            "break_even": _break_even(pays),
        }


def _break_even(pays: Paying | None) -> str:
    return "does not fit" if pays is None else pays.verdict("batch")


def compare(config: ComparisonConfig, place: Place | None = None) -> dict[str, Any]:
    """Return a comparison as the document every command prints.

    Parameters
    ----------
    config : ComparisonConfig
        What to compare.
    place : Place, optional
        The YAML it came from, for messages and for files named beside it.

    Raises
    ------
    ConfigError
        A field is wrong, or a speculative method has no acceptance.
    """
    lines = [_line(config, index, place) for index in range(len(config.methods))]
    rows = [line.row(batch) for line in lines for batch in config.batch]
    plain = _plain_rows(lines[0], config.batch)
    document: dict[str, Any] = {
        "name": config.name,
        "description": config.description,
        "model": lines[0].plain.architecture.name,
        "hardware": lines[0].plain.hardware.name,
        "engine": config.engine,
        "tp": config.tp,
        "dtype": config.dtype,
        "kv_dtype": config.kv_dtype,
        "context": config.context,
        "batches": list(config.batch),
        "autoregressive": plain,
        "methods": [line.summary() for line in lines],
        "rows": rows,
    }
    if config.workload is not None:
        document["simulated"] = simulated(config, place)
    if config.claims:
        document["claims"] = judged(config.claims, rows, document["methods"], place)
    return document


def _plain_rows(line: Line, batches: Sequence[int]) -> list[dict[str, Any]]:
    plain = Line(PLAIN, line.plain, line.plain, line.context, Errors(line.plain.cost))
    return [plain.row(batch) for batch in batches]


def _line(config: ComparisonConfig, index: int, place: Place | None) -> Line:
    entry = config.methods[index]
    deployment = config.deployment(entry)
    base = () if place is None else place.base
    here = None if place is None else Place(place.document, (*base, "methods", index))
    plain = as_plain(deployment)
    own = entry.model_fields_set & {"model", "hardware", "engine", "tp", "dtype"}
    built = build(plain, here if own else place)
    method = build(deployment, here)
    return Line(entry.name, method, built, config.context, Errors(method.cost))


def load_comparison(path: Path) -> tuple[ComparisonConfig, Place]:
    """Return a comparison file, validated, and its place for messages."""
    document = load_yaml(path)
    return parse(document, ComparisonConfig), Place(document)
