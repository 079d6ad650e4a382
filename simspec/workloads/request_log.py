"""A request log in memory, whichever importer read it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from simspec.core.errors import TraceError
from simspec.workloads._base import ImporterConfig, Lengths, LoggedRequest
from simspec.workloads.describe import mean_rate_per_s
from simspec.workloads.linked import Prefixes, Rejections, Sessions


@dataclass(frozen=True, slots=True)
class RequestLog:
    """The usable requests of a log, in file order.

    Attributes
    ----------
    times_s : array (n,), seconds
        From the log's first row (used or not); never decreasing. Zeros without ``has_times``.
    lengths : Lengths
        Tokens, each at least 1.
    num_empty : int
        Rows left out because the prompt or the output has no token (failed calls).
    rejected : Rejections
        Lines left out because they are no request.
    has_times : bool
        Whether the log says when requests came.
    prefixes : Prefixes or None
        What prompts share; None where the log does not say.
    sessions : Sessions or None
        Which request waits for which; None where none does.
    """

    times_s: npt.NDArray[np.float64]
    lengths: Lengths
    num_empty: int
    rejected: Rejections
    has_times: bool = True
    prefixes: Prefixes | None = None
    sessions: Sessions | None = None

    @property
    def rate_per_s(self) -> float | None:
        """Mean arrival rate; None when the log spans no time."""
        return mean_rate_per_s(self.times_s)


class _Rows:
    """The rows of a log, column by column."""

    def __init__(self) -> None:
        self.times, self.prompts, self.outputs = array("d"), array("q"), array("q")
        self.thinks, self.follows = array("d"), array("q")
        self.hashes: list[tuple[int, ...]] = []
        self.block_tokens = 0
        self.has_times = True

    def add(self, row: LoggedRequest) -> None:
        index = len(self.times)
        if row.arrival_s is None:
            self.has_times = False
        self.times.append(row.arrival_s or 0.0)
        self.prompts.append(row.prompt_len)
        self.outputs.append(row.output_len)
        self.hashes.append(row.block_hashes)
        self.block_tokens = self.block_tokens or row.hash_block_tokens
        self.thinks.append(row.think_s)
        self.follows.append(index - 1 if row.follows_row_above else -1)

    def sessions(self) -> Sessions | None:
        follows = np.array(self.follows, dtype=np.int64)
        return Sessions(follows, np.array(self.thinks)) if np.any(follows >= 0) else None


def read_log(
    importer: ImporterConfig, path: Path, *, limit: int | None = None, skip_rejected: bool = False
) -> RequestLog:
    """Read up to ``limit`` rows of a log.

    Parameters
    ----------
    skip_rejected : bool
        Whether a line that is no request is left out and counted; otherwise it is an error.

    Raises
    ------
    TraceError
        The file cannot be read, or no row of it is a request that can be simulated.
    """
    rejected, rows = Rejections(path), _Rows()
    for row in islice(importer.rows(path, rejected if skip_rejected else None), limit):
        rows.add(row)
    prompt_lens, output_lens = (np.array(a, dtype=np.int64) for a in (rows.prompts, rows.outputs))
    keep = (prompt_lens > 0) & (output_lens > 0)
    if not keep.any():
        first = f"; {rejected.sentences[0]}" if rejected.count else ""
        raise TraceError(
            f"{path}: no request among the {keep.size} rows read has prompt and output tokens; "
            f"a workload needs at least one{first}"
        )
    times_s = np.array(rows.times)[keep]
    assert bool(np.all(np.diff(times_s) >= 0)), f"importer {importer.name!r} let time go back"
    # Shared between the replications of a sweep.
    times_s.flags.writeable = False
    prefixes, sessions = None, rows.sessions()
    if rows.block_tokens:
        prefixes = Prefixes(tuple(rows.hashes), rows.block_tokens).take(keep)
    return RequestLog(
        times_s,
        Lengths(prompt_lens[keep], output_lens[keep]),
        num_empty=int(keep.size - keep.sum()),
        rejected=rejected,
        has_times=rows.has_times,
        prefixes=prefixes,
        sessions=None if sessions is None else sessions.take(keep),
    )
