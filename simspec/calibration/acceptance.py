"""Fit acceptance models to captured traces, and judge them on texts they did not see.

The measure is tokens per round at every draft length: rounds are walked along each text, the next
one starting where the one before left off, so that a long draft also decides where rounds begin.

* ``constant``: alpha = the share of rounds of one draft that accept it.
* ``two_state``: the rates of rounds of the longest drafts are taken over; how much easy and hard
  stretches differ and how long they last is what brings the tokens per round at the other lengths
  closest, by least squares. The share of hard text is held at :data:`HARD_SHARE`: a trace of 300
  texts does not determine it beside the other two.
* ``lookup``: the survival of copied stretches is counted over the rounds that follow text which was
  not copied. A trace of accepted lengths does not tell a search that found nothing from one whose
  first token was wrong. Unless it records matches or the hit probability is given, the first copied
  token is assumed to be accepted as often as the second after it, r_1 = r_2 / r_1. That decides how
  many rounds verify nothing and not how many tokens they yield.
* ``per_position``: the rates of rounds of the longest drafts.
* ``beta_curve``: from round traces with confidences (:mod:`simspec.calibration.confidence`). A
  round trace does not say what rounds at other places would have accepted, so ``two_state`` has
  nothing to explain there; without confidences such a trace gives its rates, ``per_position``.

Each model is fitted to one half of the texts and judged on the other, both ways; the halves are
every second text in order of length. The printed coefficients are those of all texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import wrap
from typing import Any

import numpy as np
import numpy.typing as npt

from simspec.calibration.confidence import (
    THRESHOLDS,
    captured_rounds,
    fit_beta_curve,
    modelled_rounds,
    threshold_errors,
)
from simspec.core.errors import CalibrationError, ConfigError, nearest
from simspec.decoding._base import ACCEPTANCE_MODELS, AcceptanceProcess
from simspec.traces.accepted import AcceptedText

HARD_SHARE = 0.3
MAX_DRAFT = 10
"""Longest draft that is fitted and judged."""
MODELS = ("constant", "per_position", "two_state", "lookup", "beta_curve")
OF_ROUNDS = ("constant", "per_position", "beta_curve")
"""Models that are judged on the rounds of a round trace as they were captured."""
_LIST = 16
"""Rates of copied stretches that are kept."""

Texts = Sequence[AcceptedText]
Floats = npt.NDArray[np.float64]
Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AcceptanceFit:
    """An acceptance model with its coefficients and what stands behind them.

    Attributes
    ----------
    fields : mapping
        As in a scenario's ``acceptance``, without ``source``.
    measured : array (K,), tokens
        Per round at 1..K drafts, all texts.
    predicted : array (K,), tokens
        The same by the model.
    held_out : array (2, K)
        Relative errors on the half that a fit did not see, both ways.
    at_thresholds : array (2, 2, thresholds) or (0,)
        Of ``beta_curve``, the same errors of drafted and of yielded tokens at the longest draft
        and ``confidence.THRESHOLDS``.
    num_texts, num_positions : int
        Size of the trace.
    assumed : str
        What the trace does not tell; empty where it tells everything.
    """

    fields: Fields
    measured: Floats
    predicted: Floats
    held_out: Floats
    at_thresholds: Floats
    num_texts: int
    num_positions: int
    assumed: str = ""

    @property
    def worst_held_out(self) -> float:
        """Largest error over draft lengths and halves."""
        return float(np.abs(self.held_out).max())

    @property
    def bias(self) -> float:
        """Largest error over draft lengths when both halves are averaged.

        By how much the halves themselves differ has opposite signs in the two and cancels.
        """
        return float(np.abs(self.held_out.mean(axis=0)).max())

    def source(self, trace: str) -> str:
        """Return where the coefficients come from, as the ``source`` of the model."""
        longest = self.held_out.shape[1]
        said = (
            f"fitted to {trace} ({self.num_texts:,} texts, {self.num_positions:,} positions) by "
            f"simspec calibrate acceptance; tokens per round at 1 to {longest} drafts on the half "
            f"of the texts not fitted: within {self.worst_held_out:.1%}"
        )
        if self.at_thresholds.size:
            drafted, yielded = np.abs(self.at_thresholds).max(axis=(0, 2))
            said += (
                f"; drafted and yielded tokens at thresholds {THRESHOLDS[0]:g} to "
                f"{THRESHOLDS[-1]:g} within {drafted:.1%} and {yielded:.1%}"
            )
        return f"{said}; {self.assumed}" if self.assumed else said

    def yaml(self, trace: str) -> str:
        """Return the model as YAML that ``acceptance:`` takes as it is."""
        lines = [f"{key}: {_shown(value)}" for key, value in self.fields.items()]
        source = wrap(self.source(trace), 100, initial_indent="  ", subsequent_indent="  ")
        return "\n".join([*lines, "source: >-", *source, ""])


def accepted_of_rounds(texts: Texts, max_draft: int) -> npt.NDArray[np.int64]:
    """Return a of every round of ``max_draft`` drafts, walking each text from its beginning."""
    found = []
    for text in texts:
        accepted = np.minimum(text.accepted, max_draft).tolist()
        position, size = 0, len(accepted)
        while position < size:
            found.append(accepted[position])
            position += accepted[position] + 1
    return np.array(found, dtype=np.int64)


def tokens_per_round(texts: Texts, longest: int = MAX_DRAFT) -> Floats:
    """Return the mean tokens a round yields at 1..``longest`` drafts."""
    return np.array([1.0 + accepted_of_rounds(texts, k).mean() for k in range(1, longest + 1)])


def predicted_tokens(fields: Fields, longest: int = MAX_DRAFT) -> Floats:
    """Return the tokens per round that an acceptance model predicts at 1..``longest`` drafts."""
    process: AcceptanceProcess = ACCEPTANCE_MODELS.parse(fields).at(None)
    return np.array([process.statistics(k, 0.0).tokens_per_round for k in range(1, longest + 1)])


def halves(texts: Texts) -> tuple[list[AcceptedText], list[AcceptedText]]:
    """Return every second text in order of length, and the others."""
    order = sorted(texts, key=lambda text: text.accepted.size)
    return order[0::2], order[1::2]


def fit_acceptance(
    texts: Texts, model: str | None = None, *, hit_probability: float | None = None
) -> AcceptanceFit:
    """Fit one acceptance model.

    By default ``beta_curve`` to a round trace with confidences, ``per_position`` to one without,
    and the better of ``two_state`` and ``lookup`` to accepted lengths.

    Parameters
    ----------
    texts : sequence of AcceptedText
        At least four.
    model : str, optional
        One of :data:`MODELS`; better: of smaller :attr:`AcceptanceFit.bias`.
    hit_probability : float, optional
        Of ``lookup``, where it is known.

    Raises
    ------
    CalibrationError
        Too few texts, nothing is ever accepted, or no such model.
    """
    if len(texts) < 4:
        raise CalibrationError(
            f"{len(texts)} texts are too few to fit on one half and judge on the other; give 4"
        )
    if model is None and _has_rounds(texts):
        has_confidences = all(text.confidence is not None for text in texts)
        model = "beta_curve" if has_confidences else "per_position"
    if model is None:
        tried = [
            fit_acceptance(texts, name, hit_probability=hit_probability)
            for name in ("two_state", "lookup")
        ]
        return min(tried, key=lambda fit: fit.bias)
    if model == "two_state" and _has_rounds(texts):
        raise CalibrationError(
            "a round trace has one start per round and two_state needs all; fit beta_curve or "
            "per_position"
        )
    return _judged(texts, model, hit_probability)


def _judged(texts: Texts, model: str, hit_probability: float | None) -> AcceptanceFit:
    fit, longest = _fitter(model, hit_probability), longest_draft(texts)
    measure, predict = _measures(model, texts, longest)
    errors, at_thresholds = [], []
    for seen, unseen in (halves(texts), halves(texts)[::-1]):
        fitted = fit(seen)
        errors.append(predict(fitted) / measure(unseen) - 1.0)
        if model == "beta_curve":
            at_thresholds.append(threshold_errors(fitted, unseen, longest))
    fields = fit(texts)
    return AcceptanceFit(
        fields=fields,
        measured=measure(texts),
        predicted=predict(fields),
        held_out=np.array(errors),
        at_thresholds=np.array(at_thresholds),
        num_texts=len(texts),
        num_positions=sum(text.accepted.size for text in texts),
        assumed=_assumed(texts, model, hit_probability),
    )


def _measures(
    model: str, texts: Texts, longest: int
) -> tuple[Callable[[Texts], Floats], Callable[[Fields], Floats]]:
    """Return what gives tokens per round at 1..longest drafts, of texts and of a model."""
    if not (_has_rounds(texts) and model in OF_ROUNDS):
        return partial(tokens_per_round, longest=longest), partial(
            predicted_tokens, longest=longest
        )

    def measured(some: Texts) -> Floats:
        return np.array([captured_rounds(some, k, 0.0)[1] for k in range(1, longest + 1)])

    def predicted(fields: Fields) -> Floats:
        every = range(1, longest + 1)
        return np.array([modelled_rounds(fields, k, 0.0, longest)[1] for k in every])

    return measured, predicted


def longest_draft(texts: Texts) -> int:
    """Return the longest draft to fit and judge: :data:`MAX_DRAFT`, or what was captured."""
    drafted = [entry.drafted for text in texts for entry in text.rounds]
    return min(MAX_DRAFT, max(drafted, default=MAX_DRAFT))


def _fitter(model: str, hit_probability: float | None) -> Callable[[Texts], Fields]:
    if model not in MODELS:
        raise CalibrationError(f"no fit of an acceptance model {model!r}; {nearest(model, MODELS)}")
    if model == "constant":
        return fit_constant
    if model == "per_position":
        return fit_per_position
    if model == "two_state":
        return fit_two_state
    if model == "beta_curve":
        return fit_beta_curve
    return partial(fit_lookup, hit_probability=hit_probability)


def _assumed(texts: Texts, model: str, hit_probability: float | None) -> str:
    if model == "two_state":
        return f"the share of hard text is held at {HARD_SHARE:.0%}"
    if model != "lookup" or hit_probability is not None or _has_matches(texts):
        return ""
    return (
        "the hit probability is not in the trace: first copied tokens are assumed to be accepted "
        "as often as second ones"
    )


def fit_constant(texts: Texts) -> Fields:
    """Return a constant with the acceptance of rounds of one draft."""
    if _has_rounds(texts):
        alpha = captured_rounds(texts, 1, 0.0)[1] - 1.0
    else:
        alpha = float(accepted_of_rounds(texts, 1).mean())
    return {"name": "constant", "alpha": _rounded(alpha)}


def fit_per_position(texts: Texts) -> Fields:
    """Return the rates of rounds of the longest drafts."""
    longest = longest_draft(texts)
    accepted = accepted_of_rounds(texts, longest)
    rates = [_rounded(float((accepted >= i).mean())) for i in range(1, longest + 1)]
    return {"name": "per_position", "rates": rates}


def fit_two_state(texts: Texts) -> Fields:
    """Return rates of the longest rounds, and the clustering that explains the shorter ones."""
    from scipy.optimize import least_squares

    longest, rates = longest_draft(texts), fit_per_position(texts)["rates"]
    if not rates[0]:
        raise CalibrationError("no draft of this trace was accepted; there is nothing to fit")
    measured = tokens_per_round(texts, longest)

    def fields(log_odds_gap: float, autocorrelation: float) -> dict[str, Any]:
        return {
            "name": "two_state",
            "rates": rates,
            "hard_share": HARD_SHARE,
            "log_odds_gap": _rounded(log_odds_gap),
            "autocorrelation": _rounded(autocorrelation),
        }

    def errors(coefficients: Floats) -> Floats:
        try:
            found = predicted_tokens(fields(*coefficients.tolist()), longest)
        except ConfigError:  # no offsets: too clustered for these rates
            return np.ones(longest)
        return np.asarray(found / measured - 1.0)

    best = least_squares(
        errors, x0=[1.5, 0.6], bounds=([0.0, 0.0], [6.0, 0.98]), diff_step=[0.01, 0.01]
    )
    return fields(*best.x.tolist())


def fit_lookup(texts: Texts, hit_probability: float | None = None) -> Fields:
    """Return how often a search hits, and the survival of what it finds.

    Counted over the rounds, of :data:`_LIST` drafts, that follow text which was not copied.
    """
    fresh, matched = _fresh_rounds(texts)
    reached = np.array([(fresh >= i).mean() for i in range(1, _LIST + 1)])
    if not reached[0]:
        raise CalibrationError("no draft of this trace was accepted; there is nothing to fit")
    if hit_probability is None and _has_matches(texts):
        hit_probability = float(matched.mean())
    if hit_probability is None:
        hit_probability = min(1.0, float(reached[0] ** 2 / reached[1])) if reached[1] else 1.0
    if hit_probability < reached[0]:
        raise CalibrationError(
            f"a hit probability of {hit_probability:g} is below the {reached[0]:.4f} of searches "
            "whose first copied token was accepted; give a larger one"
        )
    rates = [_rounded(float(rate / hit_probability)) for rate in reached if rate]
    # A last step without loss is a handful of rounds, and would go on for ever beyond the list.
    while len(rates) > 1 and rates[-1] >= rates[-2]:
        rates.pop()
    return {"name": "lookup", "hit_probability": _rounded(hit_probability), "rates": rates}


def _fresh_rounds(texts: Texts) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return a and whether there was a match, of rounds after text that was not copied."""
    fresh, matched = [], []
    for text in texts:
        accepted = np.minimum(text.accepted, _LIST).tolist()
        hits = None if text.matched is None else text.matched.tolist()
        position, goes_on = 0, False
        while position < len(accepted):
            if not goes_on:
                fresh.append(accepted[position])
                matched.append(hits is None or hits[position])
            goes_on = accepted[position] == _LIST
            position += accepted[position] + 1
    return np.array(fresh, dtype=np.int64), np.array(matched, dtype=np.bool_)


def _has_rounds(texts: Texts) -> bool:
    return all(text.rounds for text in texts)


def _has_matches(texts: Texts) -> bool:
    return all(text.matched is not None for text in texts)


def _rounded(value: float) -> float:
    """Keep four significant digits: what is printed is what was judged."""
    return float(f"{value:.4g}")


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(f'{entry:g}' for entry in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {entry:g}' for key, entry in value.items())}}}"
    return str(value)
