"""How far the numbers of a profile may be off, and the device as it is when one of them is.

Every fit has two kinds of error. What its *form* misses shows on held-out rows: the median of
``|predicted / measured - 1|`` there, read as that of a normal law, gives 1 sigma as
``ln(1 + median) / 0.6745``; it moves all times of the fit together. And each *coefficient* has the
standard error of its fit. An engine adds what whole steps miss beyond their kernels
(``model_error``), and may state the error of its host times apart from that.

A fit that was not judged on its own device borrows one more error: how far judged devices are
from each other (``hardware_profiles/defaults/errors.yaml``, whose source names the command that
computes it). So does an engine that states none.

:func:`error_groups` makes each number wrong by 1 sigma in turn: times of a fit are multiplied by
``exp(sigma)``, a latency or overhead grows by its standard error, a rate ``v`` falls to
``v exp(-error / v)``. Errors are independent of each other. Left out: correlations between the
coefficients of one fit, which profiles do not carry; errors of peaks and bandwidths of the data
sheet, which efficiencies absorb.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from simspec.core.resources import data_dir
from simspec.core.yamlio import load_yaml, parse
from simspec.hardware.profile import (
    NO_ERROR,
    AllReduceFit,
    EngineProfile,
    FitError,
    Hardware,
    KernelFit,
)

NORMAL_MEDIAN = 0.6745
"""Median of ``|x|`` of a standard normal law."""
_PROBE = 0.1
"""By how much a fit without an error of its form is slowed to see whether it is used at all."""
_LEAST = {"sharpness": 1.0, "vector_sharpness": 1.0}
"""A smooth maximum is never beyond the sum."""
_MOST = 3.0
"""Largest 1 sigma of a logarithm; a rate known no better than to a factor of 20 is not known."""

KernelKind = Literal["gemm", "decode_attention", "prefill_attention", "elementwise", "all_reduce"]
Sigma = Annotated[float, Field(ge=0.0, le=_MOST)]
_Share = Annotated[float, Field(ge=0.0, le=1.0)]
F = TypeVar("F", KernelFit, AllReduceFit)


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EngineErrors(_Group):
    """Of engines that state nothing."""

    model_error: Sigma


class SharedErrors(_Group):
    """Correlation of an error in a plain step with the same in a step that verifies drafts."""

    kernel: _Share
    """Of what the form of a kernel's fit misses."""
    borrowed: _Share
    """Of coefficients of another device."""
    step: _Share
    """Of what whole steps miss."""


class DefaultErrors(_Group):
    """1-sigma errors of what nobody judged."""

    kernels: dict[KernelKind, Sigma]
    """Of coefficients borrowed from another device."""
    engine: EngineErrors
    shared: SharedErrors
    source: Annotated[str, Field(min_length=10)]


@lru_cache(maxsize=1)
def default_errors() -> DefaultErrors:
    """Return the errors that stand where a profile states none."""
    path = data_dir("hardware_profiles") / "defaults" / "errors.yaml"
    return parse(load_yaml(path), DefaultErrors)


def fit_error(
    kind: KernelKind,
    held_out_median: float | None,
    standard_error: tuple[tuple[str, float], ...] = (),
    *,
    calibrated: bool,
) -> FitError:
    """Return how uncertain a fit is.

    Parameters
    ----------
    kind : str
        What is fitted.
    held_out_median : float or None
        Median of ``|predicted / measured - 1|`` on held-out rows; None where none were judged.
    standard_error : tuple of (str, float)
        Of coefficients, by field.
    calibrated : bool
        Whether the coefficients were fitted on this device; if not, or if they were not judged,
        the distance between devices is added.
    """
    judged = held_out_median is not None
    own = math.log1p(held_out_median) / NORMAL_MEDIAN if held_out_median is not None else 0.0
    borrowed = 0.0 if calibrated and judged else default_errors().kernels[kind]
    return FitError(own, borrowed, standard_error)


@dataclass(frozen=True, slots=True)
class Altered:
    """A device and an engine on which one number is wrong."""

    name: str
    hardware: Hardware
    """Its kernels are final: no kernel sets."""
    engine: EngineProfile


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """The errors of one fit, or of the host times of an engine."""

    slowed: Altered
    """All times longer by ``exp(log_factor)``: what this does not change, does not use the fit."""
    log_factor: float
    common: tuple[tuple[float, float], ...]
    """Errors of all times together: 1 sigma of the logarithm, and the correlation of the error in a
    plain step with that in a verify step."""
    coefficients: tuple[Altered, ...]
    """Each coefficient wrong by its standard error."""


def error_groups(hardware: Hardware, engine: EngineProfile) -> Iterator[ErrorGroup]:
    """Return the errors of every fit of a device and of the host times of an engine.

    Parameters
    ----------
    hardware : Hardware
        With the kernels of the engine.
    engine : EngineProfile
        Its ``model_error`` moves every step alike and is not among them.
    """
    device = replace(hardware, kernel_sets={})
    for name, fit, put in _kernel_fits(device):
        if fit.error != NO_ERROR:
            common, log_factor = _common([fit.error])
            yield ErrorGroup(
                slowed=Altered(name, put(_slower(fit, math.exp(log_factor))), engine),
                log_factor=log_factor,
                common=common,
                coefficients=tuple(
                    Altered(f"{name}.{field}", put(altered), engine)
                    for field, altered in _altered(fit)
                ),
            )
    yield from _of_link(device, engine)
    if engine.host_error:
        slow = Altered("engine.host", device, _slower_host(engine, math.exp(engine.host_error)))
        yield ErrorGroup(slow, engine.host_error, ((engine.host_error, 1.0),), ())


def _common(errors: Sequence[FitError]) -> tuple[tuple[tuple[float, float], ...], float]:
    """Return the errors that move all times together, the largest of several fits, and their size.

    The size is what the fit is slowed by, and a probe where there are none.
    """
    shared = default_errors().shared
    form = max(error.relative for error in errors)
    borrowed = max(error.borrowed for error in errors)
    common = tuple(
        (sigma, rho) for sigma, rho in ((form, shared.kernel), (borrowed, shared.borrowed)) if sigma
    )
    return common, math.hypot(form, borrowed) or _PROBE


def _kernel_fits(
    device: Hardware,
) -> Iterator[tuple[str, KernelFit, Callable[[KernelFit], Hardware]]]:
    """Return the name of each fit, the fit, and what puts another in its place."""
    kinds: dict[str, Mapping[str, KernelFit]] = {
        "gemm": device.gemm,
        "decode_attention": device.decode_attention,
        "prefill_attention": device.prefill_attention,
    }
    for kind, fits in kinds.items():
        for dtype, fit in fits.items():
            yield f"kernels.{kind}.{dtype}", fit, partial(_with_fit, device, kind, dtype)
    elementwise = partial(_with_elementwise, device)
    yield "kernels.elementwise", device.elementwise, elementwise


def _with_fit(device: Hardware, kind: str, dtype: str, fit: KernelFit) -> Hardware:
    changed: dict[str, Any] = {kind: {**getattr(device, kind), dtype: fit}}
    return replace(device, **changed)


def _with_elementwise(device: Hardware, fit: KernelFit) -> Hardware:
    return replace(device, elementwise=fit)


def _of_link(device: Hardware, engine: EngineProfile) -> Iterator[ErrorGroup]:
    link = device.link
    if link is None or all(fit.error == NO_ERROR for fit in link.all_reduce.values()):
        return
    fits = link.all_reduce

    def put(changes: Mapping[str, AllReduceFit]) -> Hardware:
        return replace(device, link=replace(link, all_reduce={**fits, **changes}))

    # The algorithms of a link are fitted and judged together: the faster one explains a row.
    common, log_factor = _common([fit.error for fit in fits.values()])
    slower = {name: _slower(fit, math.exp(log_factor)) for name, fit in fits.items()}
    yield ErrorGroup(
        slowed=Altered("link.all_reduce", put(slower), engine),
        log_factor=log_factor,
        common=common,
        coefficients=tuple(
            Altered(f"link.all_reduce.{name}.{field}", put({name: altered}), engine)
            for name, fit in fits.items()
            for field, altered in _altered(fit)
        ),
    )


def _altered(fit: F) -> Iterator[tuple[str, F]]:
    """Return the fit once for each coefficient that has an error, slower by that error."""
    for name, error in fit.error.standard_error:
        value = getattr(fit, name)
        if _is_time(name):
            changed = value + error
        else:
            slower = value * math.exp(-min(error / value, _MOST))
            changed = max(slower, _LEAST.get(name, 0.0))
        changes: dict[str, Any] = {name: changed}
        yield name, replace(fit, **changes)


def _slower(fit: F, factor: float) -> F:
    """Return the fit with all times longer by a factor."""
    changes: dict[str, Any] = {}
    for name in (field.name for field in fields(fit)):
        if _is_time(name):
            changes[name] = getattr(fit, name) * factor
        elif name.endswith(("efficiency", "_per_s")):
            changes[name] = getattr(fit, name) / factor
    return replace(fit, **changes)


def _slower_host(engine: EngineProfile, factor: float) -> EngineProfile:
    names = [field.name for field in fields(engine)]
    times = [name for name in names if name.startswith("host_time_") or name == "launch_time_s"]
    changes: dict[str, Any] = {name: getattr(engine, name) * factor for name in times}
    return replace(engine, **changes)


def _is_time(name: str) -> bool:
    return name.endswith("_s") and not name.endswith("_per_s")
