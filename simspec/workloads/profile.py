"""A workload profile: the joint distribution of prompt and output lengths of a trace, compact.

Each margin is kept exactly, as values and counts. Their dependence is kept on a grid: both
margins are cut into at most 64 bins of about equal mass, the table holds the number of requests
in each cell, and within a cell prompt and output are independent, each with its margin's own
law inside the bin. This is a checkerboard copula (Li, Mikusiński and Taylor, *Strong
approximation of copulas*, J. Math. Anal. Appl. 225, 1998) on the margins of the data, with bins
cut between values so that ties stay together. Means, percentiles and extremes are therefore
those of the trace, and so is every dependence that a 64 × 64 grid can see. Left out: how
requests that follow each other resemble each other.

The file is JSON (:class:`ProfileFile`), written by ``simspec.workloads.profile_from_trace``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from simspec.core.errors import ProfileError, nearest

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]

SCHEMA_VERSION = 1
_FOLDER = Path(__file__).parent / "profiles"
_MAX_FILE_BYTES = 16 * 2**20

_Count: TypeAlias = Annotated[int, Field(ge=0, le=10**12)]
_Tokens: TypeAlias = Annotated[int, Field(ge=1, le=10_000_000)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class MarginFile(_Strict):
    """One side: its distinct lengths in rising order, how often each occurs, and the bins."""

    values_tokens: list[_Tokens] = Field(min_length=1)
    counts: list[_Count]
    bin_upper_tokens: list[_Tokens] = Field(min_length=1)
    """Largest length of each bin, rising; the last is the largest length of all."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        values, uppers = self.values_tokens, self.bin_upper_tokens
        if len(self.counts) != len(values):
            raise PydanticCustomError("margin", "counts and values_tokens differ in length")
        for name, numbers in (("values_tokens", values), ("bin_upper_tokens", uppers)):
            if any(b <= a for a, b in pairwise(numbers)):
                raise PydanticCustomError("margin", f"{name} must rise")
        if not set(uppers) <= set(values) or uppers[-1] != values[-1]:
            raise PydanticCustomError(
                "margin", "bin_upper_tokens must be among values_tokens and end with the largest"
            )
        return self


class ProfileFile(_Strict):
    """The JSON form of a profile. Seconds and tokens."""

    schema_version: Annotated[int, Field(ge=1, le=SCHEMA_VERSION)]
    name: str
    source: str
    licence: str
    source_sha256: str
    method: str
    num_requests: Annotated[int, Field(ge=1)]
    duration_s: Annotated[float, Field(ge=0)]
    rate_per_s: float | None
    gap_cv: float | None
    index_of_dispersion: dict[str, float | None]
    """Variance over mean of arrivals per window, keyed by the window in seconds."""
    rank_correlation: float | None
    prompt: MarginFile
    output: MarginFile
    cell_counts: list[list[_Count]]
    """Requests per (prompt bin, output bin)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        sides = (self.prompt, self.output)
        num_rows, num_columns = (len(side.bin_upper_tokens) for side in sides)
        cells = self.cell_counts
        if len(cells) != num_rows or any(len(row) != num_columns for row in cells):
            raise PydanticCustomError(
                "cells", f"cell_counts must have {num_rows} rows of {num_columns} numbers"
            )
        table = np.array(cells, dtype=np.int64)
        for axis, (name, side) in enumerate(zip(("prompt", "output"), sides, strict=True)):
            if not np.array_equal(table.sum(axis=1 - axis), _Margin.of(side).bin_mass):
                raise PydanticCustomError("cells", f"cell_counts do not add up to {name}.counts")
        if table.sum() != self.num_requests:
            raise PydanticCustomError("cells", "cell_counts do not add up to num_requests")
        return self


@dataclass(frozen=True, slots=True)
class _Margin:
    """One side, ready to draw from."""

    values: IntArray
    cumulated: IntArray
    """Requests with at most this length, (values,)."""
    bin_start: IntArray
    """Index of the first value of each bin, (bins,)."""
    bin_end: IntArray
    """One past the index of the last."""

    @staticmethod
    def of(side: MarginFile) -> _Margin:
        values = np.array(side.values_tokens, dtype=np.int64)
        end = np.searchsorted(values, side.bin_upper_tokens, side="right").astype(np.int64)
        start = np.concatenate([[0], end[:-1]]).astype(np.int64)
        return _Margin(values, np.cumsum(np.array(side.counts, dtype=np.int64)), start, end)

    @property
    def mass_below_bin(self) -> IntArray:
        """Requests shorter than each bin, (bins,)."""
        return np.concatenate([[0], self.cumulated])[self.bin_start]

    @property
    def bin_mass(self) -> IntArray:
        """Requests in each bin, (bins,)."""
        mass: IntArray = self.cumulated[self.bin_end - 1] - self.mass_below_bin
        return mass

    def quantile_in_bin(self, bins: IntArray, u: FloatArray) -> IntArray:
        """Return the ``u``-quantile (n,) of the margin inside ``bins`` (n,), in tokens."""
        rank = self.mass_below_bin[bins] + u * self.bin_mass[bins]
        index = np.searchsorted(self.cumulated, rank, side="right")
        # Rounding can lift the rank of u just below 1 to the next bin's first.
        return self.values[np.minimum(index, self.bin_end[bins] - 1)]

    def moments(self) -> tuple[float, float]:
        """Return mean and standard deviation in tokens."""
        counts = np.diff(self.cumulated, prepend=0)
        mean = float(self.values @ counts / counts.sum())
        return mean, float(np.sqrt((self.values - mean) ** 2 @ counts / counts.sum()))


@dataclass(frozen=True, slots=True)
class LengthProfile:
    """A profile, ready to draw from.

    Attributes
    ----------
    name, source, licence : str
        What the data are, where they come from, on which terms.
    num_requests : int
        Requests behind it.
    rate_per_s, gap_cv : float or None
        Mean rate and burstiness of the trace's arrivals, for choosing an arrival process.
    """

    name: str
    source: str
    licence: str
    num_requests: int
    rate_per_s: float | None
    gap_cv: float | None
    prompt: _Margin
    output: _Margin
    cells: IntArray
    """Flat indices of the non-empty cells."""
    cells_cumulated: IntArray
    """Requests up to and including each of them."""

    @staticmethod
    def of(file: ProfileFile) -> LengthProfile:
        """Return the profile of a checked file."""
        table = np.array(file.cell_counts, dtype=np.int64).ravel()
        cells = np.flatnonzero(table).astype(np.int64)
        return LengthProfile(
            name=file.name,
            source=file.source,
            licence=file.licence,
            num_requests=file.num_requests,
            rate_per_s=file.rate_per_s,
            gap_cv=file.gap_cv,
            prompt=_Margin.of(file.prompt),
            output=_Margin.of(file.output),
            cells=cells,
            cells_cumulated=np.cumsum(table[cells]),
        )

    def lengths(self, uniforms: FloatArray) -> tuple[IntArray, IntArray]:
        """Return prompt and output lengths (n,) in tokens.

        Parameters
        ----------
        uniforms : array (n, 3), 0 <= u < 1
            Choose the cell, the prompt within it, the output within it.
        """
        rank = uniforms[:, 0] * self.cells_cumulated[-1]
        chosen = np.searchsorted(self.cells_cumulated, rank, side="right")
        cell = self.cells[np.minimum(chosen, self.cells.size - 1)]
        row, column = np.divmod(cell, self.output.bin_end.size)
        return (
            self.prompt.quantile_in_bin(row, uniforms[:, 1]),
            self.output.quantile_in_bin(column, uniforms[:, 2]),
        )


def profile_names() -> tuple[str, ...]:
    """Return the names of the packaged profiles."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def packaged_profile_path(name: str) -> Path:
    """Return the file of a packaged profile.

    Raises
    ------
    ProfileError
        The name is unknown; the message offers the nearest one.
    """
    if name not in profile_names():
        raise ProfileError(f"unknown workload profile {name!r}; {nearest(name, profile_names())}")
    return _FOLDER / f"{name}.json"


def load_profile(path: Path) -> LengthProfile:
    """Read and check a profile.

    Raises
    ------
    ProfileError
        The file cannot be read or contradicts itself.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ProfileError(
                f"{path}: larger than {_MAX_FILE_BYTES:,} bytes; expected a workload profile"
            )
        data = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({error.strerror})") from error
    return _parse(str(path), data)


@lru_cache(maxsize=8)
def _parse(where: str, data: bytes) -> LengthProfile:
    try:
        return LengthProfile.of(ProfileFile.model_validate_json(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "file"
        raise ProfileError(
            f"{where}: {field}: {first['msg']}; make the profile anew with "
            "'python -m simspec.workloads.profile_from_trace TRACE OUT'"
        ) from error
