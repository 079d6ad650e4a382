"""A request log in memory, whichever importer read it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from simspec.core.errors import TraceError
from simspec.workloads._base import ImporterConfig, Lengths
from simspec.workloads.describe import mean_rate_per_s


@dataclass(frozen=True, slots=True)
class RequestLog:
    """The usable requests of a log, in file order.

    Attributes
    ----------
    times_s : array (n,), seconds
        From the log's first row (used or not); never decreasing.
    lengths : Lengths
        Tokens, each at least 1.
    num_empty : int
        Rows left out because the prompt or the output has no token (failed calls).
    """

    times_s: npt.NDArray[np.float64]
    lengths: Lengths
    num_empty: int

    @property
    def rate_per_s(self) -> float | None:
        """Mean arrival rate; None when the log spans no time."""
        return mean_rate_per_s(self.times_s)


def read_log(importer: ImporterConfig, path: Path, *, limit: int | None = None) -> RequestLog:
    """Read up to ``limit`` rows of a log.

    Raises
    ------
    TraceError
        The file cannot be read, or no row of it is a request that can be simulated.
    """
    times, prompts, outputs = array("d"), array("q"), array("q")
    num_rows = 0
    for arrival_s, prompt_len, output_len in islice(importer.rows(path), limit):
        num_rows += 1
        if prompt_len > 0 and output_len > 0:
            times.append(arrival_s)
            prompts.append(prompt_len)
            outputs.append(output_len)
    if not times:
        raise TraceError(
            f"{path}: no request among the {num_rows} rows read has prompt and output tokens; "
            "a workload needs at least one"
        )
    times_s = np.array(times)
    assert bool(np.all(np.diff(times_s) >= 0)), f"importer {importer.name!r} let time go back"
    # Shared between the replications of a sweep.
    times_s.flags.writeable = False
    lengths = Lengths(np.array(prompts, dtype=np.int64), np.array(outputs, dtype=np.int64))
    return RequestLog(times_s, lengths, num_empty=num_rows - len(times))
