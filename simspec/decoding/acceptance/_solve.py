"""Offsets of the acceptance curve that give wanted rates, on any discrete text."""

from __future__ import annotations

import numpy as np

from simspec.core.errors import ConfigError
from simspec.decoding.acceptance._common import conditional_rates
from simspec.decoding.acceptance._latent import Array, Grid, expit_array
from simspec.decoding.acceptance._process import (
    TAPE_DEPTH,
    DiscreteText,
    round_start,
    solve_offset,
)

_MAX_ITERATIONS = 200


def offsets_on_grid(grid: Grid, curve: Array, rates: tuple[float, ...]) -> tuple[float, ...]:
    """Return offsets with which P(first i accepted) is ``rates[i-1]``, at threshold 0.

    Fixed point between the offsets and the law of the latent at round starts, which depends on
    them; on a grid without memory the first pass is exact.

    Parameters
    ----------
    grid : Grid
        The latent text.
    curve : array (N,)
        Log-odds of acceptance at each node before the offset.
    rates : tuple (K,)
        Unconditional, in rounds of K drafts in steady state.

    Returns
    -------
    tuple (TAPE_DEPTH,)
        The last one repeats.

    Raises
    ------
    ConfigError
        The iteration does not settle.
    """
    conditional = conditional_rates(rates)
    start = grid.stationary
    for _ in range(_MAX_ITERATIONS):
        alive, offsets = start, []
        for rate in conditional[: len(rates)]:
            offsets.append(solve_offset(curve, alive, rate))
            alive = grid.advance(alive * expit_array(curve + offsets[-1]))
        accept = expit_array(curve + np.array(offsets)[:, None])
        text = DiscreteText(grid, accept, np.ones_like(grid.z))
        previous, start = start, round_start(text, len(rates))
        if float(np.abs(start - previous).sum()) < 1e-12:
            return to_depth(tuple(offsets))
    raise ConfigError(
        f"no offsets give the rates {list(rates)} under autocorrelation "
        f"{grid.autocorrelation:g}; give offsets, or a smaller autocorrelation",
        field="rates",
    )


def to_depth(offsets: tuple[float, ...]) -> tuple[float, ...]:
    """Return ``offsets`` with the last one repeated to the depth of a tape."""
    return (*offsets, *[offsets[-1]] * (TAPE_DEPTH - len(offsets)))
