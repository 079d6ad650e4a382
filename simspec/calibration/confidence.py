"""Fit confidences and acceptance together, from round traces that record both.

The result is a ``beta_curve``. Every text position is drafted on track at most once in a trace (the
bonus positions of fully accepted rounds never), so pooled over a trace they give the marginal law:

* ``confidence``, ``off_track_confidence``: Beta by maximum likelihood, before and after the first
  rejection of a round;
* ``slope``, ``offsets``: logistic regression of acceptance on the log-odds of the confidence, with
  one intercept per draft position (Platt scaling), by Newton's method;
* ``autocorrelation``: correlation of the normal scores of confidences at neighbouring positions.

A fit is judged on texts it did not see. A trace of rounds of K drafts at threshold 0 tells what
each of its rounds would have drafted and accepted with fewer drafts or a larger threshold, and not
where later rounds would then have started; so does the model (``LatentProcess.counterfactual``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simspec.core.errors import CalibrationError
from simspec.decoding._base import ACCEPTANCE_MODELS
from simspec.decoding.acceptance._process import LatentProcess
from simspec.traces.accepted import AcceptedText
from simspec.traces.schema import Round

Floats = npt.NDArray[np.float64]

THRESHOLDS = (0.0, 0.2, 0.4, 0.6, 0.8)
"""At which a fit is judged."""
_FEWEST = 50
"""Drafts below which a position shares the intercept of the one before it."""
_EDGE = 1e-6
"""Confidences are kept this far from 0 and 1, whose log-odds are infinite."""


class Drafts(NamedTuple):
    """On-track drafts of a trace.

    ``place`` numbers text positions; two drafts follow each other in a text where it grows by 1.
    """

    confidence: Floats
    accepted: npt.NDArray[np.bool_]
    position: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]


def on_track_drafts(texts: Sequence[AcceptedText]) -> Drafts:
    """Return every draft up to and including the first rejected one of its round."""
    rows: list[tuple[float, bool, int, int]] = []
    place = 0
    for text in texts:
        for entry in text.rounds:
            seen = (entry.confidences or ())[: entry.accepted + 1]
            rows += [(c, i < entry.accepted, i, place + i) for i, c in enumerate(seen)]
            place += entry.accepted + 1
        place += 1  # texts do not follow each other
    if not rows:
        raise CalibrationError("no drafts with confidences in this trace; there is nothing to fit")
    confidence, accepted, position, places = zip(*rows, strict=True)
    return Drafts(
        np.clip(np.array(confidence), _EDGE, 1.0 - _EDGE),
        np.array(accepted),
        np.array(position),
        np.array(places),
    )


def off_track_confidences(texts: Sequence[AcceptedText]) -> Floats:
    """Return the confidences of drafts behind the first rejected one of their round."""
    rounds: list[Round] = [entry for text in texts for entry in text.rounds]
    values = [c for r in rounds for c in (r.confidences or ())[r.accepted + 1 :]]
    return np.clip(np.array(values, dtype=np.float64), _EDGE, 1.0 - _EDGE)


def fit_beta_curve(texts: Sequence[AcceptedText]) -> Mapping[str, Any]:
    """Return the fields of a ``beta_curve``.

    Raises
    ------
    CalibrationError
        No confidences, or acceptance does not rise with them.
    """
    drafts = on_track_drafts(texts)
    a, b = _beta(drafts.confidence)
    slope, offsets = _logistic(drafts)
    fields: dict[str, Any] = {
        "name": "beta_curve",
        "confidence": {"a": a, "b": b},
        "autocorrelation": _autocorrelation(drafts, a, b),
        "slope": slope,
        "offsets": offsets,
    }
    off_track = off_track_confidences(texts)
    if off_track.size >= _FEWEST:
        off_a, off_b = _beta(off_track)
        fields["off_track_confidence"] = {"a": off_a, "b": off_b}
    return fields


def captured_rounds(
    texts: Sequence[AcceptedText], max_draft: int, threshold: float
) -> tuple[float, float]:
    """Return drafted and yielded tokens per round of a trace's rounds, cut short.

    Parameters
    ----------
    max_draft : int
        Drafts after which each round stops at the latest.
    threshold : float
        Below which a confidence stops it; above 0 only with confidences.
    """
    drafted, accepted = [], []
    for text in texts:
        for entry in text.rounds:
            m = min(entry.drafted, max_draft)
            if threshold > 0.0:
                unsure = (i for i, c in enumerate(entry.confidences or ()) if c < threshold)
                m = min(m, next(unsure, m) + 1)
            drafted.append(m)
            accepted.append(min(entry.accepted, m))
    return float(np.mean(drafted)), 1.0 + float(np.mean(accepted))


def modelled_rounds(
    fields: Mapping[str, Any], max_draft: int, threshold: float, captured_draft: int
) -> tuple[float, float]:
    """Return the same of an acceptance model whose rounds start like the trace's."""
    process: LatentProcess = ACCEPTANCE_MODELS.parse(fields).at(None)
    found = process.counterfactual(max_draft, threshold, captured_draft)
    return found.drafted_per_round, found.tokens_per_round


def threshold_errors(
    fields: Mapping[str, Any], texts: Sequence[AcceptedText], captured_draft: int
) -> Floats:
    """Return the relative errors of drafted and yielded tokens per round at thresholds.

    Returns
    -------
    array (2, thresholds)
        Drafted, then yielded; at :data:`THRESHOLDS`, of rounds of ``captured_draft`` drafts.
    """
    errors = []
    for tau in THRESHOLDS:
        found = modelled_rounds(fields, captured_draft, tau, captured_draft)
        seen = captured_rounds(texts, captured_draft, tau)
        errors.append([found[0] / seen[0] - 1.0, found[1] / seen[1] - 1.0])
    return np.array(errors).T


def _beta(values: Floats) -> tuple[float, float]:
    from scipy.stats import beta

    a, b, _, _ = beta.fit(values, floc=0.0, fscale=1.0)
    return _rounded(a), _rounded(b)


def _logistic(drafts: Drafts) -> tuple[float, list[float]]:
    """Return slope and intercepts by position; rare positions share the one before them."""
    num_own = int(np.argmax([*(np.bincount(drafts.position) < _FEWEST), True])) or 1
    score = np.log(drafts.confidence) - np.log1p(-drafts.confidence)
    design = np.zeros((score.size, num_own + 1))
    design[:, 0] = score
    design[np.arange(score.size), 1 + np.minimum(drafts.position, num_own - 1)] = 1.0
    wanted = drafts.accepted.astype(np.float64)
    weights = np.zeros(num_own + 1)
    # One pseudo-observation per coefficient keeps separable positions finite.
    ridge = np.full(num_own + 1, 1e-3)
    for _ in range(100):
        chance = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -30.0, 30.0)))
        gradient = design.T @ (wanted - chance) - ridge * weights
        curvature = (design * (chance * (1.0 - chance))[:, None]).T @ design + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        weights = weights + np.clip(step, -2.0, 2.0)
        if float(np.abs(step).max()) < 1e-9:
            break
    slope = float(weights[0])
    if not 0.0 < slope <= 20.0:
        raise CalibrationError(
            f"acceptance does not rise with the confidence in this trace (slope {slope:.3g}); fit "
            "two_state, which needs no confidences"
        )
    return _rounded(slope), [_rounded(float(np.clip(w, -50.0, 50.0))) for w in weights[1:]]


def _autocorrelation(drafts: Drafts, a: float, b: float) -> float:
    from scipy.special import betainc, ndtri

    score = ndtri(np.clip(betainc(a, b, drafts.confidence), _EDGE, 1.0 - _EDGE))
    follows = np.diff(drafts.place) == 1
    if np.count_nonzero(follows) < _FEWEST:
        return 0.0
    found = float(np.corrcoef(score[:-1][follows], score[1:][follows])[0, 1])
    return _rounded(min(max(found, 0.0), 0.98))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
