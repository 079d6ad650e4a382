"""How far calibration lets a prediction be off: errors of profiles, carried through any formula.

Each error of a profile (:mod:`simspec.hardware.uncertainty`) is made 1 sigma large in turn, the
quantity is computed again, and ``d_i = ln(changed / unchanged)`` is what that error does to it.
Errors are independent, so their squares add: ``sigma = sqrt(sum d_i**2)`` (first-order propagation
of uncertainty, JCGM 100:2008, section 5.1.2, on logarithms, in steps of 1 sigma). The 95 % interval
is ``value * exp(-+1.96 sigma)``.

A ratio of two steps is surer than both, because what moves them alike cancels: an error with the
correlation ``rho`` between them adds ``(d_top - d_bottom)**2 + 2 (1 - rho) d_top d_bottom``.
A wrong coefficient is the same number in both, ``rho = 1``; what the form of a fit misses is
another number for other shapes, and ``rho`` is measured, as it is for borrowed coefficients
(``hardware_profiles/defaults/errors.yaml``).

Left out here: chance between replications, which the simulation reports beside this, and the
acceptance, which is stated and not calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simspec.cost.forward import CostModel
from simspec.cost.work import Quantity
from simspec.hardware.uncertainty import Altered, ErrorGroup, default_errors, error_groups

Z_95 = 1.96
"""Standard deviations of a normal law that hold 95 % of it on both sides."""

Evaluate = Callable[[CostModel], Mapping[str, Quantity]]
"""From a cost model to the seconds of some quantities; arrays broadcast."""

_Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Effect:
    """What one error of a profile does."""

    name: str
    shared: float
    """Correlation of the error between two steps of other shapes."""
    log_ratio: Mapping[str, _Array]
    """``ln(changed / unchanged)`` by quantity."""


class Errors:
    """Every error of a device and an engine, ready to be carried through many questions.

    Parameters
    ----------
    cost : CostModel
        Of the deployment; its stacks are kept, and so are the models of each altered device.
    """

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost
        self._groups = tuple(error_groups(cost.hardware, cost.engine))
        self._models: dict[str, CostModel] = {}

    def effects(self, evaluate: Evaluate) -> list[Effect]:
        """Return what each error does to the quantities of ``evaluate``; those of no effect not."""
        base = {name: np.asarray(v, np.float64) for name, v in evaluate(self._cost).items()}
        found: list[Effect] = []
        for group in self._groups:
            found += self._of_group(group, evaluate, base)
        stacks = self._cost.stacks.values()
        has_experts = any(block.moe is not None for stack in stacks for block in stack.blocks)
        if step := self._cost.engine.error_of_steps(has_experts=has_experts):
            shared = default_errors().shared.step
            found.append(Effect("engine.model", shared, dict.fromkeys(base, np.asarray(step))))
        return found

    def _of_group(
        self, group: ErrorGroup, evaluate: Evaluate, base: Mapping[str, _Array]
    ) -> list[Effect]:
        changed = self._changes(group.slowed, evaluate, base)
        if not any(np.any(change) for change in changed.values()):
            return []
        common = [
            # Of the two that move all times together, each its share of the whole.
            Effect(group.slowed.name, shared, _scaled(changed, sigma / group.log_factor))
            for sigma, shared in group.common
        ]
        return common + [
            Effect(altered.name, 1.0, self._changes(altered, evaluate, base))
            for altered in group.coefficients
        ]

    def _changes(
        self, altered: Altered, evaluate: Evaluate, base: Mapping[str, _Array]
    ) -> dict[str, _Array]:
        model = self._models.get(altered.name)
        if model is None:
            model = CostModel(self._cost.stacks, altered.hardware, altered.engine)
            self._models[altered.name] = model
        times = evaluate(model)
        return {
            name: np.log(np.asarray(times[name], np.float64) / before)
            for name, before in base.items()
        }


def _scaled(changes: Mapping[str, _Array], share: float) -> dict[str, _Array]:
    return {name: share * change for name, change in changes.items()}


def sigma_of(effects: list[Effect], name: str) -> Quantity:
    """Return 1 sigma of the logarithm of a quantity."""
    return _root(sum((effect.log_ratio[name] ** 2 for effect in effects), start=np.zeros(())))


def sigma_of_ratio(effects: list[Effect], top: str, bottom: str) -> Quantity:
    """Return 1 sigma of the logarithm of a ratio of two steps of other shapes."""
    total: _Array = np.zeros(())
    for effect in effects:
        above, below = effect.log_ratio[top], effect.log_ratio[bottom]
        own = 2.0 * (1.0 - effect.shared) * above * below
        total = total + np.maximum((above - below) ** 2 + own, 0.0)
    return _root(total)


def interval_95(value: float, sigma: float) -> list[float]:
    """Return ``[low, high]`` of a value with 1 sigma of its logarithm."""
    return [value * math.exp(-Z_95 * sigma), value * math.exp(Z_95 * sigma)]


def _root(squares: _Array) -> Quantity:
    return float(math.sqrt(squares)) if squares.ndim == 0 else np.sqrt(squares)
