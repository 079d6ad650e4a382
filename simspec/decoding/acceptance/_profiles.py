"""Acceptance profiles: published numbers with what they were measured on, one YAML file each."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator

from simspec.core.errors import ProfileError, nearest
from simspec.core.yamlio import load_yaml, parse
from simspec.cost.work import Stack
from simspec.decoding._base import (
    ACCEPTANCE_MODELS,
    METHODS,
    AcceptanceConfig,
    AcceptanceProcess,
)
from simspec.decoding.acceptance._shorthand import parse_acceptance
from simspec.models.hf_config import catalog_names, load_model

FOLDER = Path(__file__).parent / "profiles"

Evidence: TypeAlias = Literal[
    "raw file", "vector figure", "bar label", "read by eye", "transcribed", "abstract", "derived"
]
"""How the number was read: from best to worst. ``derived``: computed here, ``derivation`` says how.
"""

_Text: TypeAlias = Annotated[str, Field(min_length=1)]


class AcceptanceProfile(BaseModel):
    """The YAML form of a profile."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: _Text
    description: _Text
    """One line for people."""
    method: _Text
    """Decoding method the drafts were made by."""
    target: _Text
    """Model that verified."""
    drafter: _Text
    """What drafted."""
    task: _Text
    """Text it was measured on."""
    sampling: _Text
    """Greedy, or a temperature."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Fields of the method as measured; what ``simspec compare`` uses by default."""
    is_default: bool = False
    """Whether ``simspec compare`` takes it when no profile of the method fits the model."""
    evidence: Evidence
    derivation: str = ""
    """How the acceptance follows from what is published, where it is not the same number."""
    assumed: str = ""
    """What the source does not give and the profile assumes."""
    source: _Text
    acceptance: dict[str, Any]
    """An acceptance model and its fields, as in a scenario."""

    @field_validator("method")
    @classmethod
    def _known_method(cls, method: str) -> str:
        if method not in METHODS.names():
            raise ValueError(
                f"unknown decoding method {method!r}; {nearest(method, METHODS.names())}"
            )
        return method

    @property
    def provenance(self) -> str:
        """What the numbers are of, and where from, in one clause."""
        said = f"{self.description} (acceptance profile {self.name}, {self.evidence}"
        said += f"; assumed: {self.assumed}" if self.assumed else ""
        return f"{said}): {self.source}"

    def acceptance_config(self) -> AcceptanceConfig:
        """Return the acceptance model; its source is the profile's."""
        values = dict(self.acceptance)
        if "source" in ACCEPTANCE_MODELS.config_class(str(values["name"])).model_fields:
            values["source"] = self.provenance
        config: AcceptanceConfig = parse_acceptance(values)
        return config

    def process(self) -> AcceptanceProcess:
        """Return the process at the exit layer of the measurement."""
        return self.acceptance_config().at(self.options.get("exit_layer"))

    def mean_tokens_as_measured(self) -> tuple[int | None, float | None]:
        """Return the draft depth and tokens per round of the measured settings, at threshold 0.

        Of a tree whose rates are known by rank it is what the method makes of them on its target;
        None and None where that target is not in the catalog of models.
        """
        drafts = self.options.get("num_speculative_tokens")
        drafts = self.acceptance.get("num_speculative_tokens", drafts)
        if isinstance(drafts, int):
            return drafts, self.process().statistics(drafts, 0.0).tokens_per_round
        if self.target not in catalog_names():
            return None, None
        arch = load_model(self.target)
        stack = Stack("target", arch.blocks, arch.hidden_size, arch.vocab_size, "bf16", "bf16", 1)
        config = METHODS.parse({"name": self.method, **self.options})
        statistics = config.build(stack).statistics(self.process())
        return statistics.accepted_pmf.size - 1, statistics.tokens_per_round


@cache
def profile_names() -> tuple[str, ...]:
    """Return the names of the packaged profiles, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@cache
def load_profile(name: str) -> AcceptanceProfile:
    """Return a packaged profile.

    Raises
    ------
    ProfileError
        There is none of that name (the message offers the nearest), or its file is wrong.
    """
    if name not in profile_names():
        raise ProfileError(f"unknown acceptance profile {name!r}; {nearest(name, profile_names())}")
    path = FOLDER / f"{name}.yaml"
    document = load_yaml(path, error=ProfileError).with_value(["name"], name)
    return parse(document, AcceptanceProfile, error=ProfileError)


def profiles_of(method: str) -> tuple[AcceptanceProfile, ...]:
    """Return the profiles of a decoding method, by name."""
    return tuple(p for name in profile_names() if (p := load_profile(name)).method == method)


def default_profile(method: str, target: str) -> AcceptanceProfile | None:
    """Return the profile ``simspec compare`` uses: of the target, else the method's default.

    Of several profiles of the same target the default one wins, then the first by name.
    """
    found = profiles_of(method)
    of_target = [profile for profile in found if profile.target == target]
    for pool in (of_target, found):
        for profile in pool:
            if profile.is_default:
                return profile
        if pool is of_target and pool:
            return pool[0]
    return None
