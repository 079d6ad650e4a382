"""Nodes and weights for the number of tokens or sequences in a lock-step batch.

The cost of a pass is not linear in its tokens (a roofline has a corner, experts saturate), so
its expectation needs more than the mean. The count is a sum of independent draws, one per
sequence; its exact distribution is reduced to a few Gauss nodes, which integrate every
polynomial up to degree 7 exactly (Golub and Welsch, Math. Comp. 23, 1969).
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, floor

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MAX_EXACT_SUPPORT = 8
"""Distributions on this many values or fewer are kept as they are."""
NUM_NODES = 4
"""Gauss nodes of the wider ones: within 0.8 % for a roofline without any smoothing."""


def sum_nodes(pmf: Array, batch_size: float | Array) -> tuple[Array, Array]:
    """Return nodes and weights of the positive part of a sum of iid counts.

    Parameters
    ----------
    pmf : array (k + 1,)
        Distribution of one sequence's count over 0..k.
    batch_size : number or array
        B, sequences; a fractional B is a mixture of its two neighbours.

    Returns
    -------
    values, weights : arrays (nodes, *B.shape)
        ``weights.sum(axis=0)`` is P(sum > 0); unused nodes have weight 0 and value 1.
    """
    key = tuple(pmf.tolist())
    if not isinstance(batch_size, np.ndarray):
        return _rule(key, float(batch_size))
    sizes, inverse = np.unique(batch_size, return_inverse=True)
    rules = [_rule(key, float(size)) for size in sizes]
    width = max(len(values) for values, _ in rules)
    table = np.zeros((2, width, sizes.size))
    table[0] = 1.0
    for column, rule in enumerate(rules):
        table[:, : len(rule[0]), column] = rule
    values, weights = table[:, :, inverse.reshape(batch_size.shape)]
    return values, weights


@lru_cache(maxsize=8192)
def _rule(pmf: tuple[float, ...], batch_size: float) -> tuple[Array, Array]:
    low, high = floor(batch_size), ceil(batch_size)
    weights = np.zeros(high * (len(pmf) - 1) + 1)
    weights += (1.0 - (batch_size - low)) * sum_pmf(np.array(pmf), low, weights.size)
    if high > low:
        weights += (batch_size - low) * sum_pmf(np.array(pmf), high, weights.size)
    values = np.arange(weights.size, dtype=np.float64)
    keep = (values > 0) & (weights > 1e-15)
    values, weights = values[keep], weights[keep]
    if values.size <= MAX_EXACT_SUPPORT:
        return values, weights
    return gauss_nodes(values, weights, NUM_NODES)


def sum_pmf(pmf: Array, num_terms: int, size: int) -> Array:
    """Return the distribution over 0..size-1 of a sum of iid counts, by FFT.

    Parameters
    ----------
    pmf : array (k + 1,)
        Distribution of one count.
    num_terms : int
        Number of independent counts.
    size : int
        At least ``num_terms * k + 1``.
    """
    length = 1 << (size - 1).bit_length()
    transform = np.fft.rfft(pmf, length) ** num_terms
    return np.clip(np.fft.irfft(transform, length)[:size], 0.0, None) if length > 1 else np.ones(1)


def gauss_nodes(values: Array, weights: Array, num_nodes: int) -> tuple[Array, Array]:
    """Return the Gauss rule of a discrete measure, by the Stieltjes recurrence.

    Parameters
    ----------
    values, weights : arrays (n,)
        Support and mass; ``n >= num_nodes``.
    num_nodes : int
        Nodes of the rule, exact for polynomials up to degree ``2 num_nodes - 1``.
    """
    mass = float(weights.sum())
    density = weights / mass
    centre = float(density @ values)
    scale = float(np.abs(values - centre).max())
    x = (values - centre) / scale
    diagonal, coupling = np.zeros(num_nodes), np.zeros(num_nodes)
    previous, current = np.zeros_like(x), np.ones_like(x)
    for k in range(num_nodes):
        diagonal[k] = density @ (x * current**2)
        following = (x - diagonal[k]) * current - coupling[k] * previous
        if k + 1 < num_nodes:
            coupling[k + 1] = np.sqrt(density @ following**2)
            previous, current = current, following / coupling[k + 1]
    jacobi = np.diag(diagonal) + np.diag(coupling[1:], 1) + np.diag(coupling[1:], -1)
    nodes, vectors = np.linalg.eigh(jacobi)
    return centre + scale * nodes, mass * vectors[0] ** 2
