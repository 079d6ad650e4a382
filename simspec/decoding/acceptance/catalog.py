"""Published acceptance by name: ``acceptance: NAME`` or ``{name: catalog, profile: NAME}``.

A profile is a file of ``simspec/decoding/acceptance/profiles``: an acceptance model with its
numbers, and where they were measured (method, target, drafter, task, settings, source and how good
the evidence is). Its provenance is part of the sentence that every report prints, so a profile
that was measured on another model or task than the one at hand can be seen.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, field_validator

from simspec.core.errors import nearest
from simspec.decoding._base import AcceptanceConfig, AcceptanceProcess
from simspec.decoding.acceptance._profiles import load_profile, profile_names


class Config(AcceptanceConfig):
    """The name of a packaged acceptance profile (``simspec acceptance list``)."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "catalog", "profile": "kangaroo-vicuna-7b-math"}]}
    )

    name: Literal["catalog"] = "catalog"
    profile: str
    """File name in ``simspec/decoding/acceptance/profiles``."""

    @field_validator("profile")
    @classmethod
    def _known(cls, profile: str) -> str:
        if profile not in profile_names():
            raise ValueError(
                f"unknown acceptance profile {profile!r}; {nearest(profile, profile_names())}"
            )
        return profile

    @property
    def confidence(self) -> object:
        """The profile's confidence distribution, None if it has none."""
        return getattr(load_profile(self.profile).acceptance_config(), "confidence", None)

    def at(self, exit_layer: int | None) -> AcceptanceProcess:
        """Return the profile's process for drafts made at ``exit_layer``."""
        return load_profile(self.profile).acceptance_config().at(exit_layer)
