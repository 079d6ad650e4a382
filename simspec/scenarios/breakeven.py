"""Where a method stops paying: the batch, context or acceptance at which its speedup crosses 1.

The closed form (:mod:`simspec.scenarios.closed_form`) is evaluated on a grid over the whole range,
every change of sign of ``speedup - 1`` is narrowed by bisection, and what is reported is the list
of ranges that pay: it may be everything, nothing, or several pieces. Two crossings between
neighbouring grid points would be missed; the grid is fine beside the curves it scans.

* ``batch``: whole numbers from 1 to the largest batch that fits at the context.
* ``context``: whole numbers from 1 to the model's longest, or what fits at the batch.
* ``acceptance``: a constant alpha from 0 to 1 at every draft position. A method that exits on
  confidence is given a calibrated drafter of that acceptance
  (:mod:`simspec.decoding.acceptance._shorthand`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from simspec.core.errors import ConfigError, Infeasible
from simspec.decoding._base import AcceptanceConfig
from simspec.decoding.acceptance._shorthand import calibrated_beta, parse_acceptance
from simspec.scenarios.build import Deployment, require_room
from simspec.scenarios.closed_form import (
    RoundEstimate,
    deployment_facts,
    describe_acceptance,
    estimate_round,
)

Over: TypeAlias = Literal["acceptance", "batch", "context"]
OVER: tuple[str, ...] = get_args(Over)

_GRID = 240
_LONGEST_CONTEXT = 131_072
"""Where the scan of a model without a limit of its own ends, tokens."""
_MOST_SEQUENCES = 65_536

Array: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Paying:
    """Where a speedup is above 1.

    Attributes
    ----------
    first, last : float
        The range looked at.
    ranges : tuple of (float, float)
        The parts of it that pay, from low to high, ends included.
    best_at, best_speedup : float
        The largest speedup of the scan and where it is.
    """

    first: float
    last: float
    ranges: tuple[tuple[float, float], ...]
    best_at: float
    best_speedup: float

    def verdict(self, noun: str) -> str:
        """Return the answer in words, for example ``pays up to batch 37``."""
        low, high = _text(self.first), _text(self.last)
        if not self.ranges:
            return f"never pays, {noun} {low} to {high}"
        if self.ranges == ((self.first, self.last),):
            return f"pays everywhere, {noun} {low} to {high}"
        pieces = []
        for start, end in self.ranges:
            if start == end:
                pieces.append(f"at {noun} {_text(start)}")
            elif start == self.first:
                pieces.append(f"up to {noun} {_text(end)}")
            elif end == self.last:
                pieces.append(f"from {noun} {_text(start)}")
            else:
                pieces.append(f"from {noun} {_text(start)} to {_text(end)}")
        alone = " only" if len(pieces) == 1 and pieces[0].startswith("at ") else ""
        return "pays " + " and ".join(pieces) + alone


def _text(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and value >= 2 else f"{value:.4g}"


def paying(
    speedup: Callable[[Array], Array], grid: Array, *, whole: bool, tolerance: float = 1e-4
) -> Paying:
    """Return where ``speedup`` is above 1 between the ends of ``grid``.

    Parameters
    ----------
    speedup : function
        Of an array of places; vectorised.
    grid : array (n,)
        Rising places; whole numbers when ``whole``.
    whole : bool
        Whether only whole numbers count; a range then ends at the last one that pays.
    tolerance : float
        Width at which a bisection between other numbers ends.
    """
    values = speedup(grid)
    pays = values > 1.0
    edges: list[float] = []
    for index in np.flatnonzero(pays[1:] != pays[:-1]):
        low, high = float(grid[index]), float(grid[index + 1])
        low_pays = bool(pays[index])
        while high - low > (1.0 if whole else tolerance):
            middle = float(np.floor((low + high) / 2)) if whole else (low + high) / 2
            same = bool(speedup(np.array([middle]))[0] > 1.0) == low_pays
            low, high = (middle, high) if same else (low, middle)
        edges.append(low if low_pays else high)
    if pays[0]:
        edges.insert(0, float(grid[0]))
    if pays[-1]:
        edges.append(float(grid[-1]))
    best = int(np.argmax(values))
    return Paying(
        first=float(grid[0]),
        last=float(grid[-1]),
        ranges=tuple(zip(edges[::2], edges[1::2], strict=True)),
        best_at=float(grid[best]),
        best_speedup=float(values[best]),
    )


def whole_grid(last: int) -> Array:
    """Return rising whole numbers from 1 to ``last``: all of the first, then equal ratios."""
    spread = np.geomspace(1.0, last, _GRID)
    return np.unique(np.concatenate((np.arange(1, min(last, 32) + 1), np.rint(spread)))).astype(
        np.float64
    )


def largest_context(deployment: Deployment, batch: int) -> int:
    """Return the longest context that ``batch`` sequences can have together.

    At most what the model was made for, or 131,072 tokens where it names no limit.
    """
    slots = deployment.num_blocks // batch * deployment.block_size_tokens
    fits = slots - deployment.method.footprint().reserved_slots
    limit = deployment.architecture.max_context_len or _LONGEST_CONTEXT
    return max(0, min(fits, limit))


def largest_batch(deployment: Deployment, context: int) -> int:
    """Return how many sequences of ``context`` tokens fit together."""
    return max(0, deployment.max_sequences(context)) if deployment.fits else 0


def batches_that_pay(deployment: Deployment, context: int) -> Paying | None:
    """Return the batches that pay at ``context``; None if not even one sequence fits."""
    most = min(largest_batch(deployment, context), _MOST_SEQUENCES)
    if most < 1:
        return None
    return paying(_over_batch(deployment, context), whole_grid(most), whole=True)


def break_even(deployment: Deployment, over: Over, batch: int, context: int) -> dict[str, object]:
    """Return one row: where the method pays, and what it gives at its best place and at the ends.

    Parameters
    ----------
    over : "acceptance", "batch" or "context"
        What varies; the other two stay.
    batch : int
        Sequences decoding together, unless they vary.
    context : int, tokens
        Context of each, unless it varies.

    Raises
    ------
    ConfigError
        The method drafts nothing, or takes no constant acceptance.
    DoesNotFit
        There is no place to look at.
    """
    at: Callable[[float], RoundEstimate]
    if deployment.method.max_draft == 0 and deployment.config.method.lossless:
        raise ConfigError(
            f"method {deployment.method.name} drafts nothing: it is what others are held against"
        )
    if over == "acceptance":
        if deployment.method.max_draft == 0:
            raise ConfigError(
                f"method {deployment.method.name} drafts nothing, so no acceptance makes it pay; "
                "choose --over batch or context"
            )
        _require(deployment, batch, context)
        grid = np.linspace(0.0, 1.0, 41)
        found = paying(_over_acceptance(deployment, batch, context), grid, whole=False)
        at = lambda x: estimate_round(_at_alpha(deployment, x), batch, context)  # noqa: E731
    elif over == "batch":
        _require(deployment, 1, context)
        most = min(largest_batch(deployment, context), _MOST_SEQUENCES)
        found = paying(_over_batch(deployment, context), whole_grid(most), whole=True)
        at = lambda x: estimate_round(deployment, x, context)  # noqa: E731
    else:
        _require(deployment, batch, 1)
        longest = largest_context(deployment, batch)
        found = paying(_over_context(deployment, batch), whole_grid(longest), whole=True)
        at = lambda x: estimate_round(deployment, batch, x)  # noqa: E731
    return {
        **deployment_facts(deployment),
        "over": over,
        "batch": None if over == "batch" else batch,
        "context": None if over == "context" else context,
        "acceptance": _acceptance_text(deployment, over),
        "from": found.first,
        "to": found.last,
        "pays": [list(pair) for pair in found.ranges],
        "verdict": found.verdict(over),
        "best": _point(found.best_at, at(found.best_at)),
        "ends": [_point(x, at(x)) for x in (found.first, found.last)],
        "status": "ok",
        "reason": None,
    }


def _point(place: float, result: RoundEstimate) -> dict[str, float]:
    return {
        "at": place,
        "speedup": float(result.speedup),
        "tpot_ms": float(result.tpot_s) * 1e3,
        "autoregressive_tpot_ms": float(result.step_time_s) * 1e3,
        "tokens_per_round": result.statistics.tokens_per_round,
    }


def _require(deployment: Deployment, batch: int, context: int) -> None:
    reserved = deployment.method.footprint().reserved_slots
    require_room(deployment, context + reserved)
    most = largest_batch(deployment, context)
    if batch > most:
        raise Infeasible(
            f"batch: {batch:,} sequences of {context:,} tokens do not fit; at this context at "
            f"most {most:,} do"
        )


def _acceptance_text(deployment: Deployment, over: Over) -> str:
    if over != "acceptance":
        return describe_acceptance(deployment)
    if _threshold(deployment):
        return (
            "varied: a calibrated drafter whose mean confidence is its acceptance, half as "
            "confident after a wrong draft"
        )
    return "varied: the same at every draft position"


def _threshold(deployment: Deployment) -> float:
    return float(getattr(deployment.config.method, "confidence_threshold", 0.0))


def _at_alpha(deployment: Deployment, alpha: float) -> Deployment:
    value: float | Mapping[str, object] = alpha
    if _threshold(deployment):
        value = calibrated_beta([alpha])
    config: AcceptanceConfig = parse_acceptance(value)
    exit_layer = deployment.config.method.acceptance_exit_layer
    return replace(deployment, acceptance=config.at(exit_layer))


def _over_acceptance(deployment: Deployment, batch: int, context: int) -> Callable[[Array], Array]:
    def speedup(alphas: Array) -> Array:
        found = [
            estimate_round(_at_alpha(deployment, alpha), batch, context).speedup
            for alpha in alphas.tolist()
        ]
        return np.array(found, dtype=np.float64)

    return speedup


def _over_batch(deployment: Deployment, context: int) -> Callable[[Array], Array]:
    def speedup(batches: Array) -> Array:
        return np.asarray(estimate_round(deployment, batches, context).speedup, dtype=np.float64)

    return speedup


def _over_context(deployment: Deployment, batch: int) -> Callable[[Array], Array]:
    def speedup(contexts: Array) -> Array:
        return np.asarray(estimate_round(deployment, batch, contexts).speedup, dtype=np.float64)

    return speedup
