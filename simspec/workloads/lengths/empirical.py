"""Lengths drawn from the joint distribution of a real trace, as a compact profile.

Requests are independent of each other: what neighbours in the trace have in common (the
conversation they belong to) is lost; a replay keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import field_validator
from pydantic_core import PydanticCustomError

from simspec.core.errors import nearest
from simspec.workloads._base import Lengths, LengthsConfig, Moments, find_file
from simspec.workloads.profile import (
    LengthProfile,
    load_profile,
    packaged_profile_path,
    profile_names,
)


class Config(LengthsConfig):
    """Joint prompt and output lengths of a profile."""

    examples: ClassVar[tuple[Mapping[str, object], ...]] = ({"profile": "azure_conv_2023"},)

    profile: str
    """Name of a packaged profile, or path of a ``.json`` made by
    ``python -m simspec.workloads.profile_from_trace``."""

    @field_validator("profile")
    @classmethod
    def _known_or_path(cls, value: str) -> str:
        if not value.endswith(".json") and value not in profile_names():
            raise PydanticCustomError(
                "profile_unknown",
                "unknown workload profile '{name}'; {choices}; own profiles end in .json",
                {"name": value, "choices": nearest(value, profile_names())},
            )
        return value

    def _path(self, base: Path | None) -> Path:
        if self.profile.endswith(".json"):
            return find_file(self.profile, base)
        return packaged_profile_path(self.profile)

    def load(self, *, base: Path | None = None) -> LengthProfile:
        """Return the profile."""
        return load_profile(self._path(base))

    def draw(
        self, rng: np.random.Generator, num_requests: int, *, base: Path | None = None
    ) -> Lengths:
        """Return lengths of three uniform numbers per request."""
        prompt_lens, output_lens = self.load(base=base).lengths(rng.random((num_requests, 3)))
        return Lengths(prompt_lens, output_lens)

    def moments(self, *, base: Path | None = None) -> tuple[Moments, Moments]:
        """Return the moments of the trace, which the profile keeps exactly."""
        profile = self.load(base=base)
        return Moments(*profile.prompt.moments()), Moments(*profile.output.moments())

    def files(self, *, base: Path | None = None) -> tuple[Path, ...]:
        """Return the profile's file, also when it is a packaged one."""
        return (self._path(base),)

    def describe(self, *, base: Path | None = None) -> str:
        """Return one clause with the source of the data."""
        profile = self.load(base=base)
        return (
            f"lengths drawn from profile {profile.name} ({profile.num_requests:,} requests; "
            f"{profile.source}; {profile.licence})"
        )
