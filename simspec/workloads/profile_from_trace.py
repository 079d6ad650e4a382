"""Derive a workload profile from a request log: ``python -m simspec.workloads.profile_from_trace``.

::

    python -m simspec.workloads.profile_from_trace TRACE OUT.json [--format NAME]
        [--source TEXT --licence TEXT]

The same trace gives the same bytes. The source and licence of traces known by their SHA-256
are filled in; for others they must be said, because a number without a source is worth little.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simspec.core.errors import ConfigError, SimspecError
from simspec.core.provenance import write_atomic
from simspec.workloads._base import ImporterConfig
from simspec.workloads.describe import WINDOWS_S, describe_arrays, index_of_dispersion
from simspec.workloads.detect import detect, importer_of
from simspec.workloads.profile import SCHEMA_VERSION, IntArray, MarginFile, ProfileFile
from simspec.workloads.request_log import read_log

NUM_BINS = 64
"""Bins per side: 64 × 64 cells keep the rank correlation to about a thousandth in 40 kB."""

_METHOD = (
    "margins exact (values and counts); dependence as counts on a grid of bins of about equal "
    "mass, independent within a cell (checkerboard copula); derived by "
    "simspec.workloads.profile_from_trace"
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a trace comes from and on which terms."""

    text: str
    licence: str


KNOWN_SOURCES = {
    "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8": Source(
        "Azure LLM inference trace 2023, conversation, "
        "github.com/Azure/AzurePublicDataset; Patel et al., Splitwise, ISCA 2024",
        "CC-BY 4.0",
    ),
}
"""By SHA-256 of the published file."""


def margin(values: IntArray) -> MarginFile:
    """Return the exact margin of lengths (n,) in tokens, cut into bins of about equal mass."""
    distinct, counts = np.unique(values, return_counts=True)
    # The value at rank ceil(k n / bins) closes bin k; a value that is more than one bin's
    # share closes several at once, which makes fewer bins.
    ranks = -(-np.arange(1, NUM_BINS + 1) * values.size // NUM_BINS)
    uppers = np.unique(distinct[np.searchsorted(np.cumsum(counts), ranks)])
    return MarginFile(
        values_tokens=distinct.tolist(), counts=counts.tolist(), bin_upper_tokens=uppers.tolist()
    )


def derive(importer: ImporterConfig, trace: Path, *, name: str, source: Source) -> ProfileFile:
    """Return the profile of the log ``trace``.

    Raises
    ------
    TraceError
        The log cannot be read.
    """
    log = read_log(importer, trace)
    prompts, outputs = log.lengths.prompt_lens, log.lengths.output_lens
    prompt, output = margin(prompts), margin(outputs)
    rows = np.searchsorted(prompt.bin_upper_tokens, prompts)
    columns = np.searchsorted(output.bin_upper_tokens, outputs)
    shape = (len(prompt.bin_upper_tokens), len(output.bin_upper_tokens))
    table = np.zeros(shape, dtype=np.int64)
    np.add.at(table, (rows, columns), 1)
    summary = describe_arrays(log.times_s, prompts, outputs)
    return ProfileFile(
        schema_version=SCHEMA_VERSION,
        name=name,
        source=source.text,
        licence=source.licence,
        source_sha256=hashlib.sha256(trace.read_bytes()).hexdigest(),
        method=_METHOD,
        num_requests=prompts.size,
        duration_s=round(float(log.times_s[-1] - log.times_s[0]), 6),
        rate_per_s=_rounded(summary["rate_per_s"]),
        gap_cv=_rounded(summary["gap_cv"]),
        index_of_dispersion={
            str(window_s): _rounded(index_of_dispersion(log.times_s, window_s))
            for window_s in WINDOWS_S
        },
        rank_correlation=_rounded(summary["rank_correlation"]),
        prompt=prompt,
        output=output,
        cell_counts=table.tolist(),
    )


def to_json(profile: ProfileFile) -> str:
    """Return the file's text: one field a line, one row of cells a line."""

    def line(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    fields = profile.model_dump()
    cells = ",\n".join(line(row) for row in fields.pop("cell_counts"))
    parts = [f"{line(key)}: {line(value)}" for key, value in fields.items()]
    return "{\n" + ",\n".join([*parts, f'"cell_counts": [\n{cells}\n]']) + "\n}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m simspec.workloads.profile_from_trace",
        description="Derive a workload profile (JSON) from a request log.",
    )
    parser.add_argument("trace", type=Path, help="the request log")
    parser.add_argument("out", type=Path, help="the profile to write, NAME.json")
    parser.add_argument("--format", help="log format (default: its first lines tell)")
    parser.add_argument("--source", help="where the trace comes from")
    parser.add_argument("--licence", help="terms of the trace")
    given = parser.parse_args(arguments)
    try:
        importer = importer_of(given.format) if given.format else detect(given.trace)
        source = _source(given.trace, given.source, given.licence)
        profile = derive(importer, given.trace, name=given.out.stem, source=source)
        _write(given.out, to_json(profile))
    except SimspecError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _source(trace: Path, text: str | None, licence: str | None) -> Source:
    if text and licence:
        return Source(text, licence)
    if trace.is_file():
        known = KNOWN_SOURCES.get(hashlib.sha256(trace.read_bytes()).hexdigest())
        if known is not None:
            return Source(text or known.text, licence or known.licence)
        raise ConfigError(f"{trace}: source unknown; say it with --source TEXT --licence TEXT")
    # read_log words what is wrong with the file.
    return Source("", "")


def _write(out: Path, text: str) -> None:
    try:
        write_atomic(out, text.encode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written ({error.strerror})") from error


def _rounded(value: float | int | None) -> float | None:
    # Six digits: sums may differ in the last bits between processors.
    return None if value is None else float(f"{value:.6g}")


if __name__ == "__main__":
    sys.exit(main())
