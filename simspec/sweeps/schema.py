"""The YAML form of a sweep: a scenario and the axes to vary.

An axis is a dotted scenario field with a list of values, a range, or — under any name — a mapping
from a label to the fields it sets together::

    grid:
      method.exit_layer: [2, 4]
      method.num_speculative_tokens: {from: 1, to: 6, step: 1}
      load:
        one user: {workload.arrivals: {name: closed_loop, concurrency: 1}}
        busy: {workload.arrivals: {name: poisson, rate_per_s: 8}}
    zip:
      - {hardware: [h100_sxm, l40s], dtype: [bf16, fp8]}
    exclude:
      - {method.exit_layer: 4, method.num_speculative_tokens: [5, 6]}
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from simspec.core.yamlio import nested
from simspec.scenarios.schema import StrictModel

MAX_POINTS = 100_000
"""Planning takes about a millisecond per point, computing a thousand times as long."""


class RangeAxis(StrictModel):
    """Evenly spaced values from ``from`` on; ``to`` is included where a step ends on it."""

    from_: float = Field(alias="from")
    to: float
    step: float | None = Field(default=None, gt=0)
    num: int | None = Field(default=None, ge=2, le=100_000)
    scale: Literal["linear", "log"] = "linear"

    @model_validator(mode="after")
    def _one_spacing(self) -> RangeAxis:
        if (self.step is None) == (self.num is None):
            raise PydanticCustomError(
                "range_spacing", "a range needs exactly one of 'step' and 'num'"
            )
        if self.to < self.from_:
            raise PydanticCustomError("range_order", "'to' must not be smaller than 'from'")
        if self.scale == "log" and (self.from_ <= 0 or self.num is None):
            raise PydanticCustomError(
                "range_log", "a log range needs 'num' and 'from' greater than 0"
            )
        is_log = self.scale == "log"
        if not math.isfinite(self.to / self.from_ if is_log else self.to - self.from_):
            raise PydanticCustomError(
                "range_wide", "'from' and 'to' are too far apart; bring them nearer to each other"
            )
        if self.step is not None and (self.to - self.from_) / self.step > MAX_POINTS:
            raise PydanticCustomError(
                "range_size",
                "the range has more than {limit} values; use a larger 'step'",
                {"limit": f"{MAX_POINTS:,}"},
            )
        return self

    def values(self) -> list[float | int]:
        """Return the values; integers where ``from`` and ``step`` are whole."""
        if self.num is not None:
            return _spaced(self.from_, self.to, self.num, self.scale)
        assert self.step is not None
        count = int((self.to - self.from_) / self.step + 1e-9) + 1
        return [_tidy(self.from_ + i * self.step) for i in range(count)]


def _spaced(low: float, high: float, num: int, scale: str) -> list[float | int]:
    if scale == "log":
        ratio = (high / low) ** (1 / (num - 1))
        return [_tidy(low * ratio**i) for i in range(num)]
    return [_tidy(low + (high - low) * i / (num - 1)) for i in range(num)]


def _tidy(value: float) -> float | int:
    """Return 0.3 for 0.30000000000000004, and whole numbers as such."""
    rounded = float(f"{value:.12g}")
    return int(rounded) if rounded == int(rounded) else rounded


AxisValues: TypeAlias = list[Any] | dict[str, dict[str, Any]]


def _axis(value: Any) -> Any:
    if isinstance(value, dict) and not isinstance(value.get("from", {}), dict):
        return nested(RangeAxis, value).values()
    if isinstance(value, dict):
        bad = [label for label, fields in value.items() if not isinstance(fields, dict)]
        if bad or not value:
            raise PydanticCustomError(
                "axis_label",
                "a labelled axis maps each label to the fields it sets, as in "
                "'label: {tp: 2}'; {label} does not",
                {"label": repr(bad[0]) if bad else "an empty one"},
            )
        return value
    if not isinstance(value, list) or not value:
        raise PydanticCustomError(
            "axis_values",
            "an axis is a non-empty list, a range {from, to, step} or a mapping from label to "
            "fields",
        )
    return value


Axis: TypeAlias = Annotated[AxisValues, BeforeValidator(_axis)]


def _equally_long(group: dict[str, list[Any]]) -> dict[str, list[Any]]:
    lengths = {name: len(values) for name, values in group.items()}
    if len(set(lengths.values())) > 1:
        raise PydanticCustomError(
            "zip_length",
            "zipped axes need equally many values, these have {lengths}",
            {"lengths": ", ".join(f"{name}: {length}" for name, length in lengths.items())},
        )
    return group


ZippedAxes: TypeAlias = Annotated[
    dict[str, Annotated[list[Any], Field(min_length=1)]],
    Field(min_length=1),
    AfterValidator(_equally_long),
]


class ExecutionConfig(StrictModel):
    """What a sweep computes beside its grid."""

    baseline: bool = True
    """Run plain autoregression at every load on the same tapes, and report speedups."""
    curve_batches: tuple[Annotated[int, Field(ge=1, le=100_000)], ...] = (
        1, 2, 4, 8, 16, 32, 64, 128, 256,
    )  # fmt: skip
    """Batch sizes of the closed-form curves."""
    curve_context: int = Field(default=1024, ge=1, le=10_000_000)
    """Context of the closed-form curves, tokens."""


class SweepConfig(StrictModel):
    """A scenario and its grid."""

    name: str = Field(min_length=1, max_length=200)
    description: str = ""
    scenario: dict[str, Any]
    grid: dict[str, Axis] = Field(default_factory=dict)
    zip: list[ZippedAxes] = Field(default_factory=list)
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    sweep: ExecutionConfig = ExecutionConfig()

    @model_validator(mode="after")
    def _has_an_axis(self) -> Self:
        if not self.grid and not self.zip:
            raise PydanticCustomError(
                "no_axis",
                "nothing varies; give at least one axis under 'grid', as in "
                "'grid: {{method.exit_layer: [2, 4]}}'",
                {},
            )
        return self
