"""Acceptance given as bare numbers to a method that exits on confidence.

A number says how often drafts are accepted and nothing about the drafter's confidence, on which
an exit threshold acts. The least that can be assumed is a *calibrated* drafter: it is right as
often as it says, so the mean confidence is the acceptance itself. What remains is the spread, one
number, :data:`SPREAD`. EAGLE-2 (arXiv 2406.16858, figure 6) shows acceptance close to the diagonal
of confidence. The assumption is part of the sentence that every report prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SPREAD = 2.0
"""a + b of the Beta distribution: at a mean of 0.5 every confidence is equally likely."""
_EDGE = 0.02
"""Mean confidences are kept this far from 0 and 1, where no distribution is left."""


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
