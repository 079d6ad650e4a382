"""A workload described: rates, burstiness, lengths, shared prefixes, and what was left out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simspec.workloads._base import ImporterConfig
from simspec.workloads.describe import WINDOWS_S, describe_arrays
from simspec.workloads.linked import Prefixes
from simspec.workloads.prefix_reuse import PrefixReuse, cache_for, prefix_reuse
from simspec.workloads.request_log import read_log
from simspec.workloads.workload import WorkloadRun

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_HIT_PERCENTILES = (50, 90)


@dataclass(frozen=True, slots=True)
class WorkloadDescription:
    """Requests as arrays, and where they come from.

    Attributes
    ----------
    name : str
        File or scenario.
    source : str
        One sentence.
    times_s : array (n,) or None, seconds
        Arrivals, rising; None where the server decides them (closed loop) or nobody says them.
    prompt_lens, output_lens : array (n,), tokens
        Lengths.
    reuse : PrefixReuse or None
        What prompts share, where the source says it.
    num_following : int
        Requests of a session that wait for the one before.
    left_out : dict
        Number of requests or lines by reason.
    rejected : tuple of str
        A sentence for each of the first rejected lines.
    files : tuple of Path
        What was read.
    """

    name: str
    source: str
    times_s: FloatArray | None
    prompt_lens: IntArray
    output_lens: IntArray
    reuse: PrefixReuse | None
    num_following: int
    left_out: dict[str, int]
    rejected: tuple[str, ...]
    files: tuple[Path, ...]

    def summary(self) -> dict[str, Any]:
        """Return the figures of the description; those that do not exist are None.

        Returns
        -------
        dict
            Keys as in :func:`~simspec.workloads.describe.describe_arrays`, with
            ``peak_rate_per_s`` (busiest whole window of 10 s), ``tied_share`` (requests that
            share their time with another), ``following_requests``, ``prefix_reuse``,
            ``left_out`` and ``rejected``.
        """
        times_s = self.times_s
        known = np.zeros(self.prompt_lens.size) if times_s is None else times_s
        found: dict[str, Any] = describe_arrays(known, self.prompt_lens, self.output_lens)
        if times_s is None:
            found["duration_s"] = None
        return {
            "name": self.name,
            "source": self.source,
            **found,
            "peak_rate_per_s": None if times_s is None else peak_rate_per_s(times_s, 10.0),
            "tied_share": None if times_s is None else tied_share(times_s),
            "following_requests": self.num_following,
            "prefix_reuse": None if self.reuse is None else _reuse_figures(self.reuse),
            "left_out": self.left_out,
            "rejected": list(self.rejected),
        }


def peak_rate_per_s(times_s: FloatArray, window_s: float) -> float | None:
    """Return the rate of the busiest window from the first arrival on; None without a whole one."""
    num_windows = int((times_s[-1] - times_s[0]) // window_s) if times_s.size else 0
    if num_windows < 1:
        return None
    edges_s = times_s[0] + window_s * np.arange(num_windows + 1)
    return float(np.diff(np.searchsorted(times_s, edges_s)).max() / window_s)


def tied_share(times_s: FloatArray) -> float | None:
    """Return the share of requests that arrive at the same time as another one."""
    if times_s.size == 0:
        return None
    _, counts = np.unique(times_s, return_counts=True)
    return float(counts[counts > 1].sum() / times_s.size)


def _reuse_figures(reuse: PrefixReuse) -> dict[str, float | int | None]:
    figures: dict[str, float | int | None] = {
        "block_tokens": reuse.block_tokens,
        "blocks": reuse.num_blocks,
        "distinct_blocks": reuse.num_distinct,
        "hit_share": reuse.hit_share,
    }
    for percent in _HIT_PERCENTILES:
        size = cache_for(reuse, percent / 100)
        age_s = float(np.percentile(reuse.ages_s, percent)) if reuse.ages_s.size else None
        figures[f"cache_tokens_for_{percent}_percent_of_hits"] = (
            None if size is None else size * reuse.block_tokens
        )
        figures[f"reuse_age_p{percent}_s"] = age_s
    return figures


def describe_log(importer: ImporterConfig, path: Path) -> WorkloadDescription:
    """Return the description of a request log; lines that are no request are counted.

    Raises
    ------
    TraceError
        The file cannot be read, or holds no usable request.
    """
    log = read_log(importer, path, skip_rejected=True)
    kind = "log" if log.has_times else "lengths without arrivals"
    sessions = log.sessions
    return WorkloadDescription(
        name=path.name,
        source=f"{kind} in {importer.name} format",
        times_s=log.times_s if log.has_times else None,
        prompt_lens=log.lengths.prompt_lens,
        output_lens=log.lengths.output_lens,
        reuse=None if log.prefixes is None else prefix_reuse(log.prefixes, log.times_s),
        num_following=0 if sessions is None else int((sessions.follows >= 0).sum()),
        left_out={"without_tokens": log.num_empty, "rejected_lines": log.rejected.count},
        rejected=tuple(log.rejected.sentences),
        files=(path,),
    )


def describe_run(name: str, run: WorkloadRun) -> WorkloadDescription:
    """Return the description of the requests that a scenario sends."""
    requests = run.requests
    times_s = np.array([r.arrival_s for r in requests], dtype=np.float64)
    counts = run.counts()
    block_tokens = max((r.hash_block_tokens for r in requests), default=0)
    reuse = None
    if block_tokens:
        prefixes = Prefixes(tuple(r.block_hashes for r in requests), block_tokens)
        reuse = prefix_reuse(prefixes, times_s)
    return WorkloadDescription(
        name=name,
        source=run.source,
        times_s=times_s if run.concurrency is None else None,
        prompt_lens=np.array([r.prompt_len for r in requests], dtype=np.int64),
        output_lens=np.array([r.output_len for r in requests], dtype=np.int64),
        reuse=reuse,
        num_following=sum(r.follows is not None for r in requests),
        left_out={key: counts[key] for key in counts if key != "requests"},
        rejected=run.rejected,
        files=run.files,
    )


def table_rows(summary: dict[str, Any]) -> dict[str, object]:
    """Return the figures on arrivals by the words a table shows."""
    named: dict[str, object] = {
        "requests": summary["num_requests"],
        "duration (s)": summary["duration_s"],
        "rate (requests/s)": summary["rate_per_s"],
        "busiest 10 s (requests/s)": summary["peak_rate_per_s"],
        "CV of gaps": summary["gap_cv"],
    }
    for window_s in WINDOWS_S:
        named[f"index of dispersion, {window_s} s"] = summary[f"dispersion_{window_s}s"]
    share = summary["tied_share"]
    named["arrive with another (%)"] = None if share is None else 100.0 * share
    if summary["following_requests"]:
        named["wait for one before"] = summary["following_requests"]
    named["rank correlation of lengths"] = summary["rank_correlation"]
    for reason, number in summary["left_out"].items():
        named[f"{reason.replace('_', ' ')}"] = number
    return named
