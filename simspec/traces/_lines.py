"""The lines of a round-trace file: what each may hold, in milliseconds, and its record.

Unknown keys are refused, because a misspelt optional key would silently lose data; a new key
therefore needs a new schema version.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from pydantic_core import PydanticCustomError

from simspec.core.units import from_ms, ms
from simspec.traces.schema import (
    SCHEMA_VERSION,
    Prefill,
    Round,
    Step,
    TraceHeader,
    TraceRecord,
    accepted_run,
)

_MS_DECIMALS = 6
"""A nanosecond: finer than any clock that makes a trace, and stable under rewriting."""

_Id: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
_Tokens: TypeAlias = Annotated[int, Field(ge=0, le=10**9)]
_Batch: TypeAlias = Annotated[int, Field(ge=1, le=10**6)]
_Probability: TypeAlias = Annotated[float, Field(ge=0, le=1)]
_Ms: TypeAlias = Annotated[float, Field(ge=0, le=1e12)]
_Drafts: TypeAlias = Annotated[int, Field(ge=0, le=10_000)]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class HeaderLine(_Line):
    """The first line."""

    kind: Literal["header"]
    schema_version: Annotated[int, Field(ge=1, le=SCHEMA_VERSION)]
    model: str
    method: str
    device: str
    dtype: str
    engine: str
    tp: Annotated[int, Field(ge=1, le=1024)] = 1
    exit_layer: Annotated[int, Field(ge=1)] | None = None
    num_speculative_tokens: _Drafts | None = None
    confidence_threshold: _Probability | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    software: dict[str, str] = {}
    dataset: str | None = None
    source: str | None = None
    licence: str | None = None

    def header(self) -> TraceHeader:
        """Return the header."""
        fields = {k: getattr(self, k) for k in type(self).model_fields}
        return TraceHeader(
            **{k: v for k, v in fields.items() if k not in {"kind", "schema_version"}}
        )


class VersionLine(BaseModel):
    """The one key that every version of the header has."""

    schema_version: int


class PrefillLine(_Line):
    """A prompt or a chunk of one."""

    kind: Literal["prefill"] = "prefill"
    sequence_id: _Id
    step_id: _Id
    context_len: _Tokens
    batch_size: _Batch
    num_tokens: Annotated[int, Field(ge=1, le=10**9)]
    total_ms: _Ms | None = None

    def record(self) -> TraceRecord:
        """Return the record, in seconds."""
        return Prefill(
            self.sequence_id,
            self.step_id,
            self.context_len,
            self.batch_size,
            self.num_tokens,
            _seconds(self.total_ms),
        )


class RoundLine(_Line):
    """A speculative round."""

    kind: Literal["round"] = "round"
    sequence_id: _Id
    step_id: _Id
    context_len: _Tokens
    batch_size: _Batch
    drafted: _Drafts
    accepted: _Drafts
    confidences: Annotated[list[_Probability], Field(max_length=10_000)] | None = None
    agreements: Annotated[list[bool], Field(max_length=10_000)] | None = None
    draft_ms: _Ms | None = None
    verify_ms: _Ms | None = None
    total_ms: _Ms | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.accepted > self.drafted:
            raise PydanticCustomError(
                "round",
                "accepted is {a} but drafted is {m}; the target's own token is not counted "
                "as accepted",
                {"a": self.accepted, "m": self.drafted},
            )
        for name, values in (("confidences", self.confidences), ("agreements", self.agreements)):
            if values is not None and len(values) != self.drafted:
                raise PydanticCustomError(
                    "round",
                    "{name} has {n} values but drafted is {m}",
                    {"name": name, "n": len(values), "m": self.drafted},
                )
        if self.agreements is not None and accepted_run(tuple(self.agreements)) != self.accepted:
            raise PydanticCustomError(
                "round",
                "accepted is {a} but agreements begin with {n} true",
                {"a": self.accepted, "n": accepted_run(tuple(self.agreements))},
            )
        parts_ms = (self.draft_ms or 0.0) + (self.verify_ms or 0.0)
        # Three roundings to a nanosecond may add up to a little more than the sum.
        if self.total_ms is not None and parts_ms > self.total_ms * (1 + 1e-9) + 2e-6:
            raise PydanticCustomError(
                "round",
                "draft_ms and verify_ms add up to {parts}, more than total_ms {total}",
                {"parts": parts_ms, "total": self.total_ms},
            )
        return self

    def record(self) -> TraceRecord:
        """Return the record, in seconds."""
        return Round(
            self.sequence_id,
            self.step_id,
            self.context_len,
            self.batch_size,
            self.drafted,
            self.accepted,
            None if self.confidences is None else tuple(self.confidences),
            None if self.agreements is None else tuple(self.agreements),
            _seconds(self.draft_ms),
            _seconds(self.verify_ms),
            _seconds(self.total_ms),
        )


class StepLine(_Line):
    """An autoregressive step."""

    kind: Literal["step"] = "step"
    sequence_id: _Id
    step_id: _Id
    context_len: _Tokens
    batch_size: _Batch
    total_ms: _Ms | None = None

    def record(self) -> TraceRecord:
        """Return the record, in seconds."""
        return Step(
            self.sequence_id,
            self.step_id,
            self.context_len,
            self.batch_size,
            _seconds(self.total_ms),
        )


RecordLine: TypeAlias = PrefillLine | RoundLine | StepLine
LINE_OF: dict[str, type[RecordLine]] = {
    "prefill": PrefillLine,
    "round": RoundLine,
    "step": StepLine,
}
RECORD_LINES: TypeAdapter[RecordLine] = TypeAdapter(
    Annotated[RecordLine, Field(discriminator="kind")]
)


def header_line(header: TraceHeader) -> HeaderLine:
    """Return the checked line of a header."""
    names = [name for name in HeaderLine.model_fields if name not in {"kind", "schema_version"}]
    fields = {name: getattr(header, name) for name in names}
    fixed = {"kind": "header", "schema_version": SCHEMA_VERSION}
    return HeaderLine.model_validate(fixed | fields | {"software": dict(header.software)})


def record_line(record: TraceRecord) -> RecordLine:
    """Return the checked line of a record, in milliseconds."""
    place = {
        "sequence_id": record.sequence_id,
        "step_id": record.step_id,
        "context_len": record.context_len,
        "batch_size": record.batch_size,
        "total_ms": _milliseconds(record.total_s),
    }
    match record:
        case Prefill():
            return PrefillLine.model_validate(place | {"num_tokens": record.num_tokens})
        case Step():
            return StepLine.model_validate(place)
        case Round():
            drafts = {
                "drafted": record.drafted,
                "accepted": record.accepted,
                "confidences": _listed(record.confidences),
                "agreements": _listed(record.agreements),
                "draft_ms": _milliseconds(record.draft_s),
                "verify_ms": _milliseconds(record.verify_s),
            }
            return RoundLine.model_validate(place | drafts)


def _listed(values: tuple[float, ...] | tuple[bool, ...] | None) -> list[float] | None:
    return None if values is None else list(values)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else from_ms(milliseconds)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(ms(seconds), _MS_DECIMALS)
