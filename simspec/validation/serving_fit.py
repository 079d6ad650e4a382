"""``simspec calibrate engine``: an engine profile fitted to a table of closed-loop benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from simspec.calibration.engines import COEFFICIENTS, EngineFit, fit_engine
from simspec.core.errors import CalibrationError, ConfigError, nearest
from simspec.hardware.load import load_engine
from simspec.validation._read import read_rows, recognise
from simspec.validation.serving_rows import Group, groups

KIND = "serving_closed_loop"


def fit_profile(
    path: Path,
    engine: str,
    *,
    leave_out: Sequence[str] = (),
    every: bool = False,
    fixed: Mapping[str, float] | None = None,
) -> EngineFit:
    """Fit the host times and kernel shares of an engine profile to benchmark rows.

    Parameters
    ----------
    path : Path
        Table of kind ``serving_closed_loop``.
    engine : str
        Name of the profile, and of the rows used.
    leave_out : sequence of str
        Deployments whose name holds one of these texts are judged and not fitted.
    every : bool
        Fit all other deployments, not only the published half.
    fixed : mapping, optional
        Coefficients that are not fitted, in edge units.

    Raises
    ------
    ConfigError
        The table is of another kind, or a coefficient is unknown.
    CalibrationError
        No row is left to fit or to judge.
    """
    for name in fixed or {}:
        if name not in COEFFICIENTS:
            raise ConfigError(f"--fix: no coefficient {name!r}; {nearest(name, COEFFICIENTS)}")
    kind, reader = recognise(path)
    if kind != KIND:
        raise ConfigError(f"{path}: a table of kind {kind}, and engines are fitted to {KIND}")
    found = [
        group
        for group in groups(read_rows(path, reader).frame)
        if isinstance(group, Group) and group.deployment.engine.name == engine
    ]
    if not found:
        raise CalibrationError(f"{path}: no row of engine {engine!r} that simspec can price")
    fitted, judged = [], []
    for group in found:
        rows = group.serving_group()
        if not rows.tpot_s.size:
            continue
        if any(text in group.name for text in leave_out):
            judged.append(rows)
        elif every or group.is_fitted:
            fitted.append(rows)
        elif not leave_out:
            judged.append(rows)
    return fit_engine(load_engine(engine), fitted, judged, fixed=fixed)
