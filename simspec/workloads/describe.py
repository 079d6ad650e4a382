"""What a workload looks like: rate, burstiness, lengths. One function per quantity.

The CV of gaps looks at neighbours only. The index of dispersion of counts (variance over mean
of the number of arrivals per window) also sees slow swings of the rate: it is 1 at every
window for a Poisson process and tends to cv² for a renewal process (Cox and Lewis, *The
Statistical Analysis of Series of Events*, 1966, chapter 4), so growth with the window means
that no renewal process describes the traffic and a replay is the honest choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from simspec.workloads.request import Request

WINDOWS_S = (1, 10, 60)
"""Windows the index of dispersion is reported at, seconds."""

_PERCENTILES = (50, 90, 99)


def mean_rate_per_s(times_s: npt.NDArray[np.float64]) -> float | None:
    """Return gaps over the time they span; None below two requests or without a span.

    Parameters
    ----------
    times_s : array (n,), seconds
        Sorted arrival times.
    """
    if times_s.size < 2 or times_s[-1] <= times_s[0]:
        return None
    return float((times_s.size - 1) / (times_s[-1] - times_s[0]))


def gap_cv(times_s: npt.NDArray[np.float64]) -> float | None:
    """Return the coefficient of variation of the gaps; None below three requests."""
    if times_s.size < 3 or times_s[-1] <= times_s[0]:
        return None
    gaps_s = np.diff(times_s)
    return float(gaps_s.std(ddof=1) / gaps_s.mean())


def index_of_dispersion(times_s: npt.NDArray[np.float64], window_s: float) -> float | None:
    """Return variance over mean of the arrivals per window.

    Only whole windows from the first arrival on are counted.

    Parameters
    ----------
    times_s : array (n,), seconds
        Sorted arrival times.
    window_s : float, seconds
        Window length.

    Returns
    -------
    float or None
        None when fewer than ten whole windows fit.
    """
    if times_s.size == 0:
        return None
    num_windows = int((times_s[-1] - times_s[0]) // window_s)
    if num_windows < 10:
        return None
    edges_s = times_s[0] + window_s * np.arange(num_windows + 1)
    counts = np.diff(np.searchsorted(times_s, edges_s))
    return float(counts.var(ddof=1) / counts.mean()) if counts.any() else None


def rank_correlation(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> float | None:
    """Return Spearman's rank correlation, ties at their mean rank; None if one is constant."""
    if first.size < 2:
        return None
    a, b = (_mean_ranks(values) for values in (first, second))
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else None


def _mean_ranks(values: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    upper = np.cumsum(counts)
    ranks: npt.NDArray[np.float64] = (upper - (counts - 1) / 2)[inverse]
    return ranks


def describe_arrays(
    times_s: npt.NDArray[np.float64],
    prompt_lens: npt.NDArray[np.int64],
    output_lens: npt.NDArray[np.int64],
) -> dict[str, float | int | None]:
    """Return the summary of requests given as arrays (n,); seconds and tokens.

    Returns
    -------
    dict
        ``num_requests``, ``duration_s``, ``rate_per_s``, ``gap_cv``, ``dispersion_1s`` …,
        ``prompt_mean_tokens``, ``prompt_std_tokens``, ``prompt_p50_tokens`` …,
        ``prompt_max_tokens``, the same for ``output``, ``rank_correlation``. What a workload
        is too short to show, or a closed loop does not have, is None.
    """
    summary: dict[str, float | int | None] = {
        "num_requests": int(times_s.size),
        "duration_s": float(times_s[-1] - times_s[0]) if times_s.size else 0.0,
        "rate_per_s": mean_rate_per_s(times_s),
        "gap_cv": gap_cv(times_s),
    }
    for window_s in WINDOWS_S:
        summary[f"dispersion_{window_s}s"] = index_of_dispersion(times_s, window_s)
    for side, values in (("prompt", prompt_lens), ("output", output_lens)):
        has_any = values.size > 0
        summary[f"{side}_mean_tokens"] = float(values.mean()) if has_any else None
        summary[f"{side}_std_tokens"] = float(values.std()) if has_any else None
        for percent in _PERCENTILES:
            value = float(np.percentile(values, percent)) if has_any else None
            summary[f"{side}_p{percent}_tokens"] = value
        summary[f"{side}_max_tokens"] = int(values.max()) if has_any else None
    summary["rank_correlation"] = rank_correlation(prompt_lens, output_lens)
    return summary


def describe_requests(requests: Sequence[Request]) -> dict[str, float | int | None]:
    """Return the summary of requests; keys as in :func:`describe_arrays`."""
    return describe_arrays(
        np.array([r.arrival_s for r in requests], dtype=np.float64),
        np.array([r.prompt_len for r in requests], dtype=np.int64),
        np.array([r.output_len for r in requests], dtype=np.int64),
    )
