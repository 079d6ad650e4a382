"""How a profile's YAML writes the fit of a kernel or a collective, and what stands behind it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from simspec.core.errors import nearest

ComputeDtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4"]
"""Data types a device may multiply in."""
KvDtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "q8_0", "q4_0"]
"""Data types attention kernels may read their KV cache in."""
GemmKey = Literal[
    "fp32", "bf16", "fp16", "fp8", "fp8_static", "int8", "fp4", "weight_only",
    "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q6_k", "q4_k_m", "q5_k_m",
    "mlx_4bit", "mlx_8bit", "mxfp4", "int4_g128",
]  # fmt: skip
"""What matrix products are told apart by: the type they multiply in; for weights that are unpacked
first, all of them together or one format."""
Algorithm = Literal["one_shot", "ring", "nccl_low_latency", "nccl_simple"]
"""Collective algorithms, by their file name in ``simspec/cost/collectives``."""

Efficiency = Annotated[float, Field(gt=0.0, le=1.0)]
Microseconds = Annotated[float, Field(ge=0.0, le=10_000.0)]
LinkGbS = Annotated[float, Field(ge=0.1, le=10_000.0)]
TileRows = Annotated[int, Field(ge=1, le=256)]
Source = Annotated[str, Field(min_length=10, max_length=2000)]


class ProfileGroup(BaseModel):
    """Base of every part of a profile: frozen, no unknown keys, finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SourcedGroup(ProfileGroup):
    """A group of numbers that share a source."""

    source: Source
    """Where the numbers come from, for somebody who wants to check them."""


class HeldOutError(ProfileGroup):
    """How far a fit is from measurements it did not see."""

    rows: Annotated[int, Field(ge=1)]
    median: Annotated[float, Field(ge=0.0, le=10.0)]
    """Median of ``|predicted / measured - 1|``."""
    p90: Annotated[float, Field(ge=0.0, le=100.0)]
    """90th percentile of the same."""


class Evidence(ProfileGroup):
    """What stands behind the coefficients of one fit; absent where they were not fitted."""

    rows: Annotated[int, Field(ge=1)] | None = None
    """Measurements the fit used."""
    standard_error: dict[str, Annotated[float, Field(ge=0.0)]] = Field(default_factory=dict)
    """By coefficient, in its unit; a coefficient at a bound or held fixed has none."""
    held_out_error: HeldOutError | None = None

    @model_validator(mode="after")
    def _errors_are_of_coefficients(self) -> Self:
        known = type(self).model_fields.keys() - Evidence.model_fields.keys()
        known |= {"vector_flop_efficiency", "vector_sharpness"} if "vector" in known else set()
        for name in self.standard_error:
            if name not in known:
                raise PydanticCustomError(
                    "error_of_nothing",
                    "standard_error.{name}: there is no such coefficient; {choices}",
                    {"name": name, "choices": nearest(name, sorted(known))},
                )
        return self


class VectorEntry(ProfileGroup):
    """The matrix-vector kernels that serve products of few rows."""

    max_rows: Annotated[int, Field(ge=1, le=256)]
    """Most rows they serve."""
    flop_efficiency: Efficiency
    """Share of the dense peak, unpacking weights again for each row included."""
    sharpness: Annotated[float, Field(ge=1.0, le=100.0)] = 1.0
    """Exponent of the smooth maximum; 1: unpacking and reading do not overlap."""


class KernelEntry(Evidence):
    """Roofline coefficients of one kind of kernel at one data type."""

    flop_efficiency: Efficiency
    """Share of the dense peak of the compute data type."""
    bandwidth_efficiency: Efficiency
    """Share of the nominal memory bandwidth."""
    overhead_us: Microseconds
    """Per launch, under a captured graph."""
    sharpness: Annotated[float, Field(ge=1.0, le=100.0)] | None = None
    """Exponent of the smooth maximum; absent: the plain maximum."""


class GemmEntry(KernelEntry):
    """Roofline coefficients of matrix products, and what few rows cost."""

    vector: VectorEntry | None = None
    """Absent: one kernel for any number of rows."""
    tile_rows: TileRows | Annotated[list[TileRows], Field(min_length=2)] | None = None
    """Rows the matrix kernel computes at once; absent: as many as there are. A rising list: the
    smallest that holds all rows, above the last its multiples."""
    padding_cost: Annotated[float, Field(ge=0.0, le=10.0)] | None = None
    """What a row that only fills a tile costs, in rows; absent: 1."""
    depth_ns: Annotated[float, Field(ge=0.0, le=100.0)] | None = None
    """Per input feature: a tile adds up its products in steps. Absent: 0."""
    quantise_ns: Annotated[float, Field(ge=0.0, le=10.0)] | None = None
    """Per activation brought into the format of the product before it; absent: 0."""
    tile_columns: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Columns one multiprocessor computes at once; absent: waves of tiles are not counted."""
    idle_cost: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """What a multiprocessor without a tile costs, in busy ones; absent: 0."""
    wave_us: Microseconds | None = None
    """Per wave of tiles; absent: 0."""

    @model_validator(mode="after")
    def _waves_are_of_tiles(self) -> Self:
        if self.tile_columns is not None and self.tile_rows is None:
            raise PydanticCustomError(
                "columns_without_rows",
                "tile_columns {columns} without tile_rows; give the rows of a tile too",
                {"columns": self.tile_columns},
            )
        if self.tile_columns is None and (self.idle_cost or self.wave_us):
            raise PydanticCustomError(
                "waves_without_tiles",
                "idle_cost and wave_us are costs of waves of tiles; give tile_columns too",
                {},
            )
        return self


class DecodeEntry(KernelEntry):
    """Roofline coefficients of attention with few new tokens per sequence."""

    sequence_ns: Annotated[float, Field(ge=0.0, le=10_000.0)] | None = None
    """Per sequence and KV head, the set-up of a piece of work; absent: 0."""


class PrefillEntry(KernelEntry):
    """Roofline coefficients of attention over prompts."""

    token_ns: Annotated[float, Field(ge=0.0, le=1000.0)] | None = None
    """Per prompt token and KV head, whose keys and values are new; absent: 0."""


class ElementwiseEntry(Evidence):
    """Norms, rotary embedding, activation, gather: memory traffic and an overhead."""

    bandwidth_efficiency: Efficiency
    overhead_us: Microseconds


class AllReduceEntry(Evidence):
    """One all-reduce algorithm over the link."""

    latency_us: Microseconds
    latency_per_peer_us: Microseconds
    """Added for each rank beyond the first; with NCCL's algorithms for each step of the ring."""
    bandwidth_gb_s: LinkGbS
    """Wire bytes per second of one rank, one direction."""
    sharing_per_rank: Annotated[float, Field(ge=0.0, le=10.0)] | None = None
    """By how much each rank beyond a pair slows the bytes of all, where they share a bridge."""
