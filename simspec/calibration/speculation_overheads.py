"""Fit an engine's host times to rounds of speculative decoding that were measured elsewhere.

What the kernels of a round cost is known from the hardware profile; what the host adds is a
property of the engine and its machine: per step, per draft step, per verification and, in eager
mode, per launch. A published run tells it through the step-cost ratio ``r = round / plain step``
(mean tokens per round over speedup), or through absolute step times. The fit minimises the robust
squares of ``log(predicted / measured)``, and nothing else of the prediction is free: no kernel
efficiency, no acceptance, no step count.

A run on another host machine (a desktop beside a server) has all host times multiplied by one
speed factor of that machine, which is fitted too. A run that was fitted is never one that judges:
whoever calls this keeps whole sources apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from simspec.core.errors import CalibrationError
from simspec.cost.forward import CostModel
from simspec.decoding._base import METHODS, Method
from simspec.decoding.tape import RoundStatistics
from simspec.hardware.profile import EngineProfile, Hardware

LOSS_SCALE = 0.05
"""Where a relative error stops counting as a square and starts counting as itself."""
_BOUNDS_US = {
    "per_step": (0.0, 20_000.0),
    "per_draft_step": (0.0, 10_000.0),
    "per_round": (0.0, 20_000.0),
    "per_tree": (0.0, 20_000.0),
    "per_launch": (5.0, 150.0),
}
_MACHINE = (0.1, 2.0)

Array: TypeAlias = npt.NDArray[np.float64]
Kind: TypeAlias = Literal["ratio", "step_s", "round_s"]


@dataclass(frozen=True, slots=True)
class MeasuredRound:
    """One published run.

    Attributes
    ----------
    name : str
        For the report.
    method : Method
        Bound to its target.
    statistics : RoundStatistics
        With the published tokens per round.
    hardware : Hardware
        The card.
    kind : "ratio", "step_s" or "round_s"
        What was measured: round over plain step, or seconds of either.
    measured : float
        In that unit.
    batch, context : int
        Sequences, and tokens of each.
    machine : str
        Host machine; the empty one has a speed factor of 1.
    """

    name: str
    method: Method
    statistics: RoundStatistics
    hardware: Hardware
    kind: Kind
    measured: float
    batch: int = 1
    context: int = 1024
    machine: str = ""


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Result of a fit.

    Attributes
    ----------
    microseconds : mapping
        Fitted host times by name; those held fixed are not in it.
    machines : mapping
        Speed factor of each machine but the first: below 1 its host is faster.
    errors : sequence of (str, float)
        ``predicted / measured - 1`` of every run that was fitted.
    """

    microseconds: Mapping[str, float]
    machines: Mapping[str, float]
    errors: Sequence[tuple[str, float]]

    def of(self, machine: str) -> dict[str, float]:
        """Return the host times of a machine, µs."""
        factor = self.machines.get(machine, 1.0)
        return {name: value * factor for name, value in self.microseconds.items()}

    def yaml(self, machine: str = "") -> str:
        """Return the lines of an engine profile's ``host`` group."""
        return "".join(f"  {name}_us: {value:.4g}\n" for name, value in self.of(machine).items())


def fit_host_times(
    runs: Sequence[MeasuredRound], engine: EngineProfile, free: Sequence[str]
) -> HostTimes:
    """Return the host times with which the closed form comes nearest to the runs.

    Parameters
    ----------
    runs : sequence of MeasuredRound
        Of the fitted sources alone.
    engine : EngineProfile
        Where the fit starts, and the host times that stay.
    free : sequence of str
        Of ``per_step``, ``per_draft_step``, ``per_round``, ``per_tree`` and ``per_launch``.

    Raises
    ------
    CalibrationError
        Fewer runs than coefficients.
    """
    from scipy.optimize import least_squares

    machines = sorted({run.machine for run in runs} - {""})
    if len(runs) < len(free) + len(machines):
        raise CalibrationError(
            f"{len(runs)} runs do not determine {len(free) + len(machines)} host times; give more "
            "runs, or keep some times fixed"
        )
    start = [_in_us(engine, name) for name in free] + [0.7] * len(machines)
    low = [_BOUNDS_US[name][0] for name in free] + [_MACHINE[0]] * len(machines)
    high = [_BOUNDS_US[name][1] for name in free] + [_MACHINE[1]] * len(machines)
    inside = np.clip(start, np.array(low) + 1e-3, np.array(high) - 1e-3)

    def residuals(values: Array) -> Array:
        times = dict(zip(free, values[: len(free)].tolist(), strict=True))
        factors = dict(zip(machines, values[len(free) :].tolist(), strict=True))
        errors = [
            np.log(predicted(run, with_times(engine, times, factors.get(run.machine, 1.0))))
            - np.log(run.measured)
            for run in runs
        ]
        return np.array(errors, dtype=np.float64)

    found = least_squares(
        residuals,
        inside,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=LOSS_SCALE,
        diff_step=np.array([0.02] * len(start)),
        x_scale=np.maximum(np.abs(inside), 1.0),
    )
    errors = np.expm1(residuals(found.x)).tolist()
    return HostTimes(
        microseconds=dict(zip(free, found.x[: len(free)].tolist(), strict=True)),
        machines=dict(zip(machines, found.x[len(free) :].tolist(), strict=True)),
        errors=list(zip([run.name for run in runs], errors, strict=True)),
    )


def with_times(
    engine: EngineProfile, microseconds: Mapping[str, float], factor: float = 1.0
) -> EngineProfile:
    """Return an engine with other host times, those of a machine ``factor`` times as slow."""
    times = {name: _in_us(engine, name) for name in _BOUNDS_US} | dict(microseconds)
    seconds = {name: value * factor * 1e-6 for name, value in times.items()}
    return replace(
        engine,
        host_time_per_step_s=seconds["per_step"],
        host_time_per_draft_step_s=seconds["per_draft_step"],
        host_time_per_round_s=seconds["per_round"],
        host_time_per_tree_s=seconds["per_tree"],
        launch_time_s=seconds["per_launch"],
    )


def predicted(run: MeasuredRound, engine: EngineProfile) -> float:
    """Return what the closed form says of a run under an engine, in the run's unit."""
    plain: Method = METHODS.parse("autoregressive").build(run.method.stacks()["target"])
    step_s = _seconds(run, plain, plain.statistics(None), engine)
    if run.kind == "step_s":
        return step_s
    round_s = _seconds(run, run.method, run.statistics, engine)
    return round_s if run.kind == "round_s" else round_s / step_s


def _seconds(
    run: MeasuredRound, method: Method, statistics: RoundStatistics, engine: EngineProfile
) -> float:
    cost = CostModel(stacks=method.stacks(), hardware=run.hardware, engine=engine)
    passes = method.expected_passes(run.batch, run.context, statistics)
    return float(cost.expected_step(passes, run.batch).total_s)


def _in_us(engine: EngineProfile, name: str) -> float:
    seconds = {
        "per_step": engine.host_time_per_step_s,
        "per_draft_step": engine.host_time_per_draft_step_s,
        "per_round": engine.host_time_per_round_s,
        "per_tree": engine.host_time_per_tree_s,
        "per_launch": engine.launch_time_s,
    }
    return seconds[name] * 1e6
