"""How a method runs in a comparison when it is given by its name alone.

Its settings are those its acceptance was measured with, and the acceptance is the catalog's: the
profile measured on the same target if there is one, else the method's default profile. What does
not match is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simspec.core.errors import ConfigError
from simspec.core.yamlio import parse_mapping
from simspec.cost.work import Stack
from simspec.decoding._base import METHODS, Method, MethodConfig
from simspec.decoding.acceptance._profiles import default_profile
from simspec.decoding.dual_model import MAX_VOCABULARY_DIFFERENCE
from simspec.models.arch import Architecture
from simspec.models.counts import model_params
from simspec.models.hf_config import catalog_names, load_model

PLAIN = "autoregressive"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A method with its default settings and the acceptance published for it."""

    method: Mapping[str, Any]
    drafts: bool
    """Whether it needs an acceptance."""
    acceptance: str | None
    cautions: tuple[str, ...] = ()


def propose(
    name: str, target: str, draft_model: str | None = None, *, needs_profile: bool = True
) -> Proposal:
    """Return how ``simspec compare`` runs a method that is given by its name alone.

    Settings are those its acceptance was measured with, the method's own defaults otherwise.

    Parameters
    ----------
    name : str
        Decoding method.
    target : str
        Catalog name or path of the target.
    draft_model : str, optional
        Model that drafts, for methods that need one; the smallest of the catalog with the
        target's vocabulary when not given.
    needs_profile : bool
        Whether the catalog's acceptance is wanted; False when another one is given.

    Raises
    ------
    ConfigError
        Nothing is published for the method, or no model of the catalog can draft for the target.
    """
    fields = METHODS.config_class(name).model_fields
    settings: dict[str, Any] = {"name": name}
    cautions: list[str] = []
    takes_model = "draft_model" in fields and fields["draft_model"].is_required()
    if takes_model:
        settings["draft_model"] = draft_model or smallest_draft(target)
    architecture = load_model(target)
    profile = default_profile(name, architecture.name)
    if profile is not None:
        settings = {**{k: v for k, v in profile.options.items() if k in fields}, **settings}
    if not _needs_acceptance(settings, architecture):
        return Proposal(settings, drafts=False, acceptance=None)
    if not needs_profile:
        return Proposal(settings, drafts=True, acceptance=None)
    if profile is None:
        raise ConfigError(
            f"no acceptance of method {name} is in the catalog; give one with --acceptance"
        )
    if profile.target != architecture.name:
        cautions.append(
            f"the acceptance of {name} was measured on {profile.target}, not on {architecture.name}"
        )
    if takes_model and settings["draft_model"] != profile.options.get("draft_model"):
        cautions.append(
            f"the acceptance of {name} was measured with drafts of {profile.drafter}, not of "
            f"{settings['draft_model']}"
        )
    return Proposal(settings, True, profile.name, tuple(cautions))


def _needs_acceptance(settings: Mapping[str, Any], target: Architecture) -> bool:
    """Return whether the method drafts on this target, or replaces the target's own choices."""
    stack = Stack("target", target.blocks, target.hidden_size, target.vocab_size, "bf16", "bf16", 1)
    name = str(settings["name"])
    config = parse_mapping(settings, METHODS.config_class(name), f"method {name}")
    parsed: MethodConfig = METHODS.parse(config)
    method: Method = parsed.build(stack)
    return method.max_draft > 0 or not parsed.lossless


def smallest_draft(target: str) -> str:
    """Return the smallest model of the catalog that speaks the target's vocabulary.

    Raises
    ------
    ConfigError
        No smaller model does.
    """
    big = load_model(target)
    found = [
        (model_params(small), name)
        for name in catalog_names()
        if (small := load_model(name)).draft_head is None
        and model_params(small) < model_params(big)
        and abs(small.vocab_size - big.vocab_size) <= MAX_VOCABULARY_DIFFERENCE
    ]
    if not found:
        raise ConfigError(
            f"no model of the catalog is smaller than {target} and has its vocabulary of "
            f"{big.vocab_size:,} tokens; give one with --draft-model"
        )
    return min(found)[1]
