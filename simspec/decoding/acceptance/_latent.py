"""The latent text: a Gaussian per text position that drives the draft confidences.

Position ``t`` has a latent ``z_t`` (how easy the text is there) that follows a stationary
AR(1) process, ``z_t = rho z_{t-1} + sqrt(1 - rho^2) e_t``, so that easy and hard stretches last.
The confidence is its image under a Gaussian copula, ``c_t = F^-1(Phi(z_t))`` with ``F`` a Beta
distribution: every position has exactly that Beta, whatever ``rho``.

The closed forms integrate over ``z`` on a composite Gauss-Legendre grid with a panel edge at the
confidence threshold, where the integrands jump.

Left out: a second, slower time scale of difficulty, and confidences that fall with the draft
position (a position has one on-track confidence, however deep in a round it is drafted).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf, log, log1p, sqrt

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

Z_MAX = 8.5
"""Standard deviations kept on either side; the mass beyond is 2e-17."""
_TABLE_SIZE = 4097
_NODES_PER_PANEL = 8


@dataclass(frozen=True, slots=True)
class Confidence:
    """Beta-distributed confidence, its log-odds moved by a constant.

    Attributes
    ----------
    a, b : float
        Shape parameters of the Beta distribution before the shift.
    shift : float
        Added to ``logit(c)``; 0 at the exit layer the Beta was measured at.
    """

    a: float
    b: float
    shift: float = 0.0

    def logit(self, z: Array) -> Array:
        """Return ``logit(c)`` at latent ``z``, interpolated in a table to about 1e-6."""
        grid, values = _beta_logit_table(self.a, self.b)
        return np.interp(z, grid, values) + self.shift

    def latent_at(self, threshold: float) -> float:
        """Return the ``z`` at which the confidence crosses ``threshold``.

        Minus infinity for a threshold of 0 (never below it), infinity for 1 (always below it).
        """
        from scipy.special import betainc, betaincc, ndtri

        original = expit(logit(threshold) - self.shift)
        below = float(betainc(self.a, self.b, original))
        if below <= 0.5:
            return float(ndtri(below))
        return -float(ndtri(betaincc(self.a, self.b, original)))

    def describe(self) -> str:
        """Return the distribution in words."""
        text = f"Beta({self.a:g}, {self.b:g})"
        return f"{text} with log-odds {self.shift:+g}" if self.shift else text


@lru_cache(maxsize=64)
def _beta_logit_table(a: float, b: float) -> tuple[Array, Array]:
    """Return ``z`` and ``logit(F^-1(Phi(z)))``; both tails keep their relative precision."""
    from scipy.special import ndtr

    z = np.linspace(-Z_MAX, Z_MAX, _TABLE_SIZE)
    return z, np.log(_beta_quantile(a, b, ndtr(z))) - np.log(_beta_quantile(b, a, ndtr(-z)))


def _beta_quantile(a: float, b: float, probability: Array) -> Array:
    """Return the quantiles of Beta(a, b), positive also where the exact value underflows.

    For a and b near 1, SciPy 1.17 gives NaN for probabilities below about 1e-14. There the lower
    tail ``F(x) = x**a / (a B(a, b)) (1 + O(x))`` is exact to double precision.
    """
    from scipy.special import betaincinv, betaln

    quantile = np.asarray(betaincinv(a, b, probability))
    lost = np.isnan(quantile)
    if lost.any():
        log_mass = np.log(probability[lost]) + np.log(a) + betaln(a, b)
        quantile[lost] = np.exp(log_mass / a)
    return np.maximum(quantile, np.finfo(np.float64).tiny)


def logit(probability: float) -> float:
    """Return ``log(p / (1 - p))``, infinite at 0 and 1."""
    if probability <= 0.0:
        return -inf
    if probability >= 1.0:
        return inf
    return log(probability) - log1p(-probability)


def expit(log_odds: float) -> float:
    """Return ``1 / (1 + exp(-x))``."""
    return 1.0 / (1.0 + exp(-log_odds)) if log_odds > -700.0 else 0.0


def expit_array(log_odds: Array) -> Array:
    """Return ``1 / (1 + exp(-x))`` of an array; overflow gives the right limit, 0."""
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-log_odds)))


def autoregressive_path(noise: Array, autocorrelation: float) -> Array:
    """Return the stationary AR(1) paths driven by unit normals.

    Parameters
    ----------
    noise : array (n, paths)
        Independent standard normals; row ``t`` enters at position ``t``.
    autocorrelation : float
        ``rho``, correlation of neighbours, 0 <= rho < 1.

    Returns
    -------
    array (n, paths)
        Standard normal at every position. Entries do not change when ``n`` grows.
    """
    if autocorrelation == 0.0:
        return noise
    path = noise * sqrt(1.0 - autocorrelation**2)
    path[0] = noise[0]
    # Doubling scan: after the pass with this lag, entry t holds the sum over 2 * lag terms.
    lag, factor = 1, autocorrelation
    while lag < path.shape[0] and factor > 1e-18:
        shifted = factor * path[:-lag]
        path[lag:] += shifted
        lag, factor = 2 * lag, factor * factor
    return path


@dataclass(frozen=True, slots=True)
class Grid:
    """Quadrature over the latent.

    Attributes
    ----------
    z : array (N,)
        Nodes.
    stationary : array (N,)
        Probability of each node under the standard normal; sums to 1.
    autocorrelation : float
        ``rho`` of the text.
    transition : array (N, N) or None
        Row ``i``: distribution of ``z_{t+1}`` given ``z_t = z[i]``; None when ``rho = 0``.
    """

    z: Array
    stationary: Array
    autocorrelation: float
    transition: Array | None

    def advance(self, mass: Array) -> Array:
        """Return the mass over the latent of the next text position.

        Parameters
        ----------
        mass : array (..., N)
            Mass over the latent at one position; its sum is kept.
        """
        if self.transition is None:
            return np.asarray(mass.sum(axis=-1, keepdims=True) * self.stationary)
        return np.asarray(mass @ self.transition)


def single_point() -> Grid:
    """Return the grid of a text without a latent: one state."""
    return Grid(np.zeros(1), np.ones(1), 0.0, None)


@lru_cache(maxsize=32)
def latent_grid(autocorrelation: float, edge: float = inf) -> Grid:
    """Return a grid for an AR(1) latent with a panel edge at ``edge``.

    Panels are no wider than 2.5 conditional standard deviations, so that the transition
    density is resolved; with eight nodes each the means of a round are off by about 1e-8, and
    by 5e-4 at slope 20, where the acceptance is almost a step.
    """
    step_sd = sqrt(1.0 - autocorrelation**2)
    num_panels = int(np.ceil(2 * Z_MAX / min(1.0, 2.5 * step_sd)))
    edges = np.linspace(-Z_MAX, Z_MAX, num_panels + 1)
    if -Z_MAX < edge < Z_MAX:
        edges = np.unique(np.append(edges, edge))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES_PER_PANEL)
    half = np.diff(edges)[:, None] / 2
    z = ((edges[:-1, None] + edges[1:, None]) / 2 + half * nodes).ravel()
    width = (half * weights).ravel()
    stationary = width * np.exp(-(z**2) / 2)
    stationary /= stationary.sum()
    if autocorrelation == 0.0:
        return Grid(z, stationary, autocorrelation, None)
    distance = (z[None, :] - autocorrelation * z[:, None]) / step_sd
    transition = width * np.exp(-(distance**2) / 2)
    transition /= transition.sum(axis=1, keepdims=True)
    return Grid(z, stationary, autocorrelation, transition)
