"""Fit what an engine adds to the kernels to its own benchmark rows: host times and kernel shares.

Rows come as groups of one deployment each (hardware, engine, model, formats, parallel layout)
with a function that prices them for a candidate engine; what turns a row into a deployment is
``simspec.validation.serving_rows``. :func:`is_fitted` deals the groups into two halves, one to fit
and one to judge, so that no row of a judged deployment moves a coefficient.

Three stages, each a bounded robust least squares (:mod:`simspec.calibration.robust`): dense
models fix the host times and the share of kernel overheads, mixtures of experts then what grouped
products reach, and TTFT alone what requests spend in front of the scheduler. In the first two
both latencies are fitted together; TTFT also holds the benchmark's own habits (how many requests
a run makes, when the next prompt is sent), so a relative error of it counts :data:`TTFT_WEIGHT`
of one of TPOT.

The errors are what unseen deployments miss: fits of the same coefficients to three quarters of
the fitted groups are judged on the fourth. Each is the least error that, with those of the
kernels, puts 95 % of these rows inside their 95 % intervals: of whole steps and of first tokens,
of dense models and of mixtures apart, where there are :data:`GROUPS_TO_JUDGE` deployments of both.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simspec.calibration.fitted import finite_errors
from simspec.calibration.robust import Array, Coefficient, HeldOut, fit, held_out
from simspec.core.errors import CalibrationError
from simspec.core.units import from_us
from simspec.hardware.profile import EngineProfile, KernelsInSteps

TTFT_WEIGHT = 0.05
LOSS_SCALE = 0.1
"""Whole steps scatter more than kernels: versions, clocks and protocols differ."""
_Z_95 = 1.96
_FOLDS = 4

HOST = (
    Coefficient("per_step_us", 0.0, 5_000.0, start=300.0),
    Coefficient("per_sequence_us", 0.0, 100.0, start=5.0),
    Coefficient("per_prompt_us", 0.0, 20_000.0, start=1_000.0),
    Coefficient("overhead_share", 0.2, 1.5, start=0.8),
)
GROUPED = (
    Coefficient("grouped_flop_share", 0.05, 1.5, start=0.5),
    Coefficient("grouped_bandwidth_share", 0.2, 1.0, start=0.9),
    Coefficient("grouped_overhead_us", 0.0, 500.0, start=5.0),
    Coefficient("grouped_padding_rows", 0.0, 128.0, start=16.0),
    Coefficient("routing_shape", 0.3, 100.0, start=2.0),
)
FRONT_END = Coefficient("front_end_us", 0.0, 300_000.0, start=20_000.0)
ROWS_PER_COEFFICIENT = 6
"""With fewer figures of mixtures than this, their coefficients stay as the profile has them."""

COEFFICIENTS = tuple(c.name for c in (*HOST, *GROUPED, FRONT_END))
"""Everything that can be fitted, by name."""

GROUPS_TO_JUDGE = 4
"""With fewer deployments of a kind than this, the errors of all kinds together stand for it."""

_SAME_RUNS = {"deepseek-r1": "deepseek-v3"}
"""One architecture, and tables that list one run under both names."""

Price = Callable[[EngineProfile], tuple[Array, Array]]
"""From an engine to the TPOT and TTFT of every row of a group, seconds."""


@dataclass(frozen=True, slots=True)
class ServingGroup:
    """Rows of one deployment."""

    name: str
    is_moe: bool
    is_fitted: bool
    price: Price
    tpot_s: Array
    ttft_s: Array
    kernel_sigma: tuple[Array, Array]
    """1 sigma of the logarithm of each TPOT and TTFT from the errors of the kernels."""


@dataclass(frozen=True, slots=True)
class EngineFit:
    """Fitted coefficients of an engine with what stands behind them.

    Attributes
    ----------
    values, standard_error : mapping
        By coefficient, in edge units.
    groups, rows : int
        Fitted.
    judged : mapping
        Errors on the groups the fit did not see, by ``dense tpot``, ``moe ttft``, …
    errors : mapping
        1 sigma of logarithms on unseen deployments, within the fitted ones, by the names of the
        profile's YAML; empty where they are too few to judge each other.
    engine : EngineProfile
        With the fitted values in place.
    """

    values: Mapping[str, float]
    standard_error: Mapping[str, float]
    groups: int
    rows: int
    judged: Mapping[str, HeldOut]
    errors: Mapping[str, float]
    engine: EngineProfile

    def yaml(self) -> str:
        """Return the groups of the engine profile that the fit fills."""
        v = {name: f"{float(f'{value:.3g}'):g}" for name, value in self.values.items()}
        lines = ["host:"]
        names = [c.name for c in HOST if c.name != "overhead_share"]
        lines += [f"  {name}: {v[name]}" for name in (*names, FRONT_END.name)]
        lines += ["kernels_in_steps:", f"  overhead_share: {v['overhead_share']}"]
        lines += [f"  {c.name}: {v[c.name]}" for c in GROUPED if c.name in v]
        if self.errors:
            lines += ["uncertainty:", *(f"  {k}: {e:.3f}" for k, e in self.errors.items())]
        lines.append("")
        return "\n".join(lines)

    def report(self) -> list[str]:
        """Return the evidence, one line each."""
        errors = ", ".join(f"{k} {e:.2g}" for k, e in self.standard_error.items())
        lines = [f"{self.rows} rows of {self.groups} groups fitted; standard errors: {errors}"]
        lines += [
            f"held out, {name}: {judged.rows} rows, median {judged.median:.3f}, "
            f"90 % below {judged.p90:.3f}"
            for name, judged in self.judged.items()
        ]
        return lines


def is_fitted(engine: str, model: str, hardware: str, num_gpus: int) -> bool:
    """Return whether rows of a deployment belong to the half that engines are fitted to.

    Of one model under one engine on one device, every other doubling of the GPUs is fitted; a
    hash of the three names says whether that begins with one GPU. Models that share runs in
    tables share a side.
    """
    name = _SAME_RUNS.get(model, model)
    digest = hashlib.blake2b(f"{engine} / {name} / {hardware}".encode(), digest_size=1).digest()
    return (num_gpus.bit_length() - 1 + digest[0]) % 2 == 0


def with_coefficients(engine: EngineProfile, values: Mapping[str, float]) -> EngineProfile:
    """Return the engine with coefficients in edge units, by the names of the profile's YAML."""
    shares = engine.kernels_in_steps
    grouped_s = values.get("grouped_overhead_us")
    named = {c.name for c in (*HOST, *GROUPED)} & set(KernelsInSteps.__dataclass_fields__)
    kept = {name: values[name] for name in named if name in values}
    return replace(
        engine,
        host_time_per_step_s=from_us(values["per_step_us"]),
        host_time_per_sequence_s=from_us(values["per_sequence_us"]),
        host_time_per_prompt_s=from_us(values["per_prompt_us"]),
        front_end_s=from_us(values.get("front_end_us", 0.0)),
        kernels_in_steps=replace(
            shares,
            **kept,
            grouped_overhead_s=shares.grouped_overhead_s
            if grouped_s is None
            else from_us(grouped_s),
        ),
    )


def fit_engine(
    engine: EngineProfile,
    fitted: Sequence[ServingGroup],
    judged: Sequence[ServingGroup],
    *,
    fixed: Mapping[str, float] | None = None,
) -> EngineFit:
    """Fit an engine to some deployments and judge it on others.

    Parameters
    ----------
    engine : EngineProfile
        Scheduler and memory; its host times and shares are not read.
    fitted, judged : sequence of ServingGroup
        Of this engine; none in both.
    fixed : mapping, optional
        Coefficients that are known from elsewhere, in edge units.

    Raises
    ------
    CalibrationError
        Too few rows to fit, or no convergence.
    """
    known = fixed or {}
    values, errors = _fit(engine, fitted, known)
    altered = with_coefficients(engine, values)
    return EngineFit(
        values=values,
        standard_error=errors,
        groups=len(fitted),
        rows=sum(group.tpot_s.size for group in fitted),
        judged=judge(altered, judged),
        errors=_errors(engine, fitted, known, values),
        engine=altered,
    )


def judge(engine: EngineProfile, groups: Sequence[ServingGroup]) -> dict[str, HeldOut]:
    """Return the errors of an engine on some groups, by kind of model and latency."""
    found: dict[str, HeldOut] = {}
    for kind, is_moe in (("dense", False), ("moe", True)):
        rows = [group for group in groups if group.is_moe == is_moe]
        if not rows:
            continue
        priced = [group.price(engine) for group in rows]
        for index, name in enumerate(("tpot", "ttft")):
            predicted = np.concatenate([price[index] for price in priced])
            measured = np.concatenate([getattr(group, f"{name}_s") for group in rows])
            found[f"{kind} {name}"] = held_out(predicted, measured)
    return found


def _fit(
    engine: EngineProfile,
    groups: Sequence[ServingGroup],
    fixed: Mapping[str, float],
    near: Mapping[str, float] | None = None,
) -> tuple[dict[str, float], dict[str, float]]:
    values = dict(fixed)
    errors: dict[str, float] = {}
    stages = (
        (HOST, [g for g in groups if not g.is_moe]),
        (GROUPED, [g for g in groups if g.is_moe]),
    )
    for coefficients, rows in stages:
        free = [c for c in coefficients if c.name not in values]
        if not rows:
            if coefficients is HOST and free:
                raise CalibrationError(
                    f"engine {engine.name}: no rows of dense models to fit, and host times need "
                    "some; add rows of another deployment, or fix the coefficients"
                )
            continue
        figures = 2 * sum(group.tpot_s.size for group in rows)
        if not free or (coefficients is GROUPED and figures < ROWS_PER_COEFFICIENT * len(free)):
            continue
        found, error = _stage(engine, rows, values, _starts(free, near))
        values |= found
        errors |= error
    if FRONT_END.name not in values:
        found, error = _stage(engine, groups, values, [[FRONT_END]], tpot=False)
        values |= found
        errors |= error
    return values, errors


def _stage(
    engine: EngineProfile,
    groups: Sequence[ServingGroup],
    known: Mapping[str, float],
    starts: Sequence[Sequence[Coefficient]],
    *,
    tpot: bool = True,
) -> tuple[dict[str, float], dict[str, float]]:
    names = [c.name for c in starts[0]]

    def stacked(tpot_s: Array, ttft_s: Array) -> Array:
        # A power below 1 scales the logarithm, hence the weight of the residual.
        return np.concatenate([tpot_s, ttft_s**TTFT_WEIGHT]) if tpot else ttft_s

    def predict(candidate: Array) -> Array:
        values = {**known, **dict(zip(names, (float(v) for v in candidate), strict=True))}
        altered = with_coefficients(engine, values)
        return np.concatenate([stacked(*group.price(altered)) for group in groups])

    measured = np.concatenate([stacked(group.tpot_s, group.ttft_s) for group in groups])
    names_of_rows = [group.name for group in groups for _ in range((1 + tpot) * group.tpot_s.size)]
    estimates = [
        fit(
            predict,
            starting,
            measured,
            groups=names_of_rows,
            loss_scale=LOSS_SCALE,
            what=f"engine {engine.name}",
        )
        for starting in starts
    ]
    estimate = min(estimates, key=lambda found: _loss(np.log(predict(found.values) / measured)))
    values = dict(zip(names, (float(v) for v in estimate.values), strict=True))
    return values, finite_errors(names, estimate.standard_error)


def _starts(
    coefficients: Sequence[Coefficient], near: Mapping[str, float] | None
) -> list[Sequence[Coefficient]]:
    """Return where the search starts: near a known answer, or from two places.

    Rates and routing of experts trade against each other, so one start may end in a hollow.
    """
    if near is not None:
        return [[replace(c, start=_inside(c, near.get(c.name, c.start))) for c in coefficients]]
    elsewhere = {"grouped_flop_share": 0.25, "grouped_bandwidth_share": 0.5, "routing_shape": 0.5}
    if not any(c.name in elsewhere for c in coefficients):
        return [coefficients]
    other = [replace(c, start=elsewhere.get(c.name, c.start)) for c in coefficients]
    return [coefficients, other]


def _inside(coefficient: Coefficient, value: float) -> float:
    margin = 1e-3 * (coefficient.high - coefficient.low)
    return min(max(value, coefficient.low + margin), coefficient.high - margin)


def _loss(residual: Array) -> float:
    """Return the soft-L1 loss that :func:`simspec.calibration.robust.fit` minimises."""
    return float(np.sum(np.sqrt(1.0 + (residual / LOSS_SCALE) ** 2) - 1.0))


def _errors(
    engine: EngineProfile,
    groups: Sequence[ServingGroup],
    fixed: Mapping[str, float],
    near: Mapping[str, float],
) -> dict[str, float]:
    """Return 1 sigma on deployments unseen by the fit, from the fitted half alone."""
    squares: dict[bool, list[tuple[Array, Array]]] = {False: [], True: []}
    names = sorted({(group.is_moe, group.name) for group in groups})
    fold_of = {name: index % _FOLDS for index, (_, name) in enumerate(names)}
    for fold in range(_FOLDS):
        seen = [group for group in groups if fold_of[group.name] != fold]
        unseen = [group for group in groups if fold_of[group.name] == fold]
        try:
            altered = with_coefficients(engine, _fit(engine, seen, fixed, near)[0])
        except CalibrationError:
            # What is left is too little; the other folds judge.
            continue
        for group in unseen:
            priced, measured = group.price(altered), (group.tpot_s, group.ttft_s)
            tpot, ttft = (
                (np.log(priced[which] / measured[which]) / _Z_95) ** 2
                - group.kernel_sigma[which] ** 2
                for which in (0, 1)
            )
            squares[group.is_moe].append((tpot, ttft))
    kinds = [is_moe for is_moe, _ in names]
    is_apart = min(kinds.count(False), kinds.count(True)) >= GROUPS_TO_JUDGE
    return _by_kind(squares, is_apart=is_apart)


def _by_kind(
    squares: Mapping[bool, Sequence[tuple[Array, Array]]], *, is_apart: bool
) -> dict[str, float]:
    both = [*squares[False], *squares[True]]
    if not both:
        return {}
    found: dict[str, float] = {}
    names = {False: ("model_error", "first_token_error")}
    names[True] = ("mixture_error", "mixture_first_token_error")
    for is_moe, of_kind in squares.items():
        if is_moe and not is_apart:
            break
        for which, name in enumerate(names[is_moe]):
            rows = np.concatenate([group[which] for group in (of_kind if is_apart else both)])
            found[name] = math.sqrt(max(float(np.quantile(rows, 0.95)), 0.0))
    return found
