"""Acceptance given short: numbers, or the name of a published profile.

In a scenario a number means ``constant``, a list ``per_position`` and a text that is no model's
name a profile of the catalog (:func:`parse_acceptance`).

On the command line bare numbers can meet a method that exits on confidence. A number says how often
drafts are accepted and nothing about the drafter's confidence, on which an exit threshold acts. The
least that can be assumed is a *calibrated* drafter: it is right as often as it says, so the mean
confidence is the acceptance itself. What remains is the spread, one number, :data:`SPREAD`. EAGLE-2
(arXiv 2406.16858, figure 6) shows acceptance close to the diagonal of confidence. The assumption is
part of the sentence that every report prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import PydanticCustomError

from simspec.core.errors import nearest
from simspec.decoding._base import ACCEPTANCE_MODELS

SPREAD = 2.0
"""a + b of the Beta distribution: at a mean of 0.5 every confidence is equally likely."""
_EDGE = 0.02
"""Mean confidences are kept this far from 0 and 1, where no distribution is left."""


def parse_acceptance(value: Any) -> Any:
    """Turn what stands behind ``acceptance:`` into a configuration; None stays None.

    Meant as a pydantic ``BeforeValidator``, like :meth:`Registry.parse`.
    """
    value = long_form(value)
    if isinstance(value, str) and value not in ACCEPTANCE_MODELS.names():
        value = known_profile(value)  # which refuses it
    return value if value is None else ACCEPTANCE_MODELS.parse(value)


def long_form(value: Any) -> Any:
    """Return the mapping that a short form stands for; anything else as it is."""
    from simspec.decoding.acceptance._profiles import profile_names

    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"name": "constant", "alpha": value}
    if isinstance(value, list | tuple):
        return {"name": "per_position", "rates": value}
    if isinstance(value, str) and value in profile_names():
        return {"name": "catalog", "profile": value}
    return value


def known_profile(name: str) -> str:
    """Return ``name`` if the catalog has such a profile."""
    from simspec.decoding.acceptance._profiles import profile_names

    choices = (*profile_names(), *ACCEPTANCE_MODELS.names())
    if name not in profile_names():
        raise PydanticCustomError(
            "acceptance_unknown",
            "{name} is neither an acceptance model nor a profile of the catalog; {choices}",
            {"name": repr(name[:80]), "choices": nearest(name[:80], choices)},
        )
    return name


def calibrated_beta(numbers: Sequence[float]) -> Mapping[str, Any]:
    """Return the ``beta_curve`` of a calibrated drafter.

    Parameters
    ----------
    numbers : sequence (1,) or (K,)
        One acceptance probability, or unconditional rates of draft positions 1, 2, ….
    """
    mean = min(max(numbers[0], _EDGE), 1.0 - _EDGE)
    on, off = _beta(mean), _beta(mean / 2.0)
    law = {"alpha": numbers[0]} if len(numbers) == 1 else {"rates": list(numbers)}
    return {
        "name": "beta_curve",
        **law,
        "confidence": on,
        "off_track_confidence": off,
        "slope": 1.0,
        "source": (
            "numbers without confidences, so the drafter is assumed to be calibrated (right as "
            "often as it says) and half as confident after a wrong draft"
        ),
    }


def _beta(mean: float) -> dict[str, float]:
    return {"a": round(SPREAD * mean, 6), "b": round(SPREAD * (1.0 - mean), 6)}
