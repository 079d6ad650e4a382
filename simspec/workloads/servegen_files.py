"""ServeGen's clients: rates, burstiness and lengths by time window, as published.

A folder holds two files per client (github.com/alibaba/ServeGen, Apache-2.0; Xiang et al.,
"ServeGen", 2025). ``chunk-N-trace.csv`` has no header: window start (s), rate (requests/s), CV of
the gaps, law of the gaps (Gamma, Weibull, or nothing for an idle window), its shape and its scale;
windows are 600 s long. ``chunk-N-dataset.json`` maps a start (s) to distributions of lengths from
there on, each a string that holds a Python dictionary {tokens: probability}; an empty one means
that the client's windows from there on are left out.
"""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from simspec.core.errors import TraceError
from simspec.core.lines import read_lines
from simspec.workloads.importers._rows import shown

WINDOW_S = 600.0
"""Length of a window, seconds."""

Law = Literal["Gamma", "Weibull"]
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{0,20})?(?:[eE][+-]?\d{1,2})?", re.ASCII)
_TRACE = re.compile(r"chunk-(\d{1,9})-trace\.csv", re.ASCII)
_MAX_TEXT = 4_000_000
_MAX_TOKENS = 10_000_000


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time in which a client's requests follow one law.

    Attributes
    ----------
    start_s : float, seconds
        Where it begins.
    rate_per_s : float, requests per second
        0: idle.
    law, shape : str, float
        Of the gaps between requests; the mean gap is that of the rate.
    """

    start_s: float
    rate_per_s: float
    law: Law
    shape: float


@dataclass(frozen=True, slots=True)
class LengthTable:
    """A distribution of lengths: values (n,) in tokens, and the probability up to each."""

    tokens: npt.NDArray[np.int64]
    cumulated: npt.NDArray[np.float64]

    def draw(self, uniforms: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return a length for each uniform number (n,)."""
        index = np.searchsorted(self.cumulated, uniforms * self.cumulated[-1], side="right")
        drawn: npt.NDArray[np.int64] = self.tokens[np.minimum(index, self.tokens.size - 1)]
        return drawn


@dataclass(frozen=True, slots=True)
class Client:
    """One client: its windows, and its prompt and output lengths from given times on."""

    number: int
    windows: tuple[Window, ...]
    starts_s: tuple[float, ...]
    lengths: tuple[tuple[LengthTable, LengthTable] | None, ...]

    def lengths_at(self, time_s: float) -> tuple[LengthTable, LengthTable] | None:
        """Return the distributions in force; None where the client's windows are left out."""
        index = bisect_right(self.starts_s, time_s) - 1
        return self.lengths[index] if index >= 0 else None


def client_files(folder: Path) -> dict[int, tuple[Path, Path]]:
    """Return trace and dataset file by client number, in rising order.

    Raises
    ------
    TraceError
        The folder cannot be read or holds no client, or a client lacks its lengths.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise TraceError(f"{folder}: cannot be read as a folder ({error.strerror})") from error
    numbers = sorted(int(match[1]) for name in names if (match := _TRACE.fullmatch(name)))
    if not numbers:
        raise TraceError(f"{folder}: no file named chunk-N-trace.csv; give a folder of ServeGen's")
    found = {}
    for number in numbers:
        dataset = f"chunk-{number}-dataset.json"
        if dataset not in names:
            raise TraceError(f"{folder}: chunk-{number}-trace.csv has no {dataset} beside it")
        found[number] = (folder / f"chunk-{number}-trace.csv", folder / dataset)
    return found


def read_client(number: int, trace: Path, dataset: Path) -> Client:
    """Read one client.

    Raises
    ------
    TraceError
        A file is wrong, named with its line or window.
    """
    windows = tuple(_window(trace, line, text) for line, text in read_lines(trace) if text.strip())
    if not windows:
        raise TraceError(f"{trace}: the file is empty; expected one window per line")
    starts, lengths = _datasets(dataset)
    return Client(number, windows, starts, lengths)


def _window(path: Path, line: int, text: str) -> Window:
    fields = text.split(",")
    if len(fields) != 6:
        raise TraceError(
            f"{path}:{line}: broken line: {len(fields)} fields in {shown(text)}; expected start, "
            "rate, CV, law, shape, scale"
        )
    start, rate, _, law, shape, _ = fields
    for name, value in (("start", start), ("rate", rate), ("shape", shape)):
        if not _NUMBER.fullmatch(value):
            raise TraceError(f"{path}:{line}: {name}: {shown(value)}; expected a number from 0 up")
    if law == "":
        if float(rate) > 0:
            raise TraceError(f"{path}:{line}: rate {rate} without a law; expected Gamma or Weibull")
        return Window(float(start), 0.0, "Gamma", 1.0)
    if law not in ("Gamma", "Weibull"):
        raise TraceError(f"{path}:{line}: law: {shown(law)}; expected Gamma, Weibull or nothing")
    if not 1e-3 <= float(shape) <= 1e6:
        raise TraceError(f"{path}:{line}: shape: {shape}; expected 0.001 to 1,000,000")
    if float(rate) > 1e6:
        raise TraceError(f"{path}:{line}: rate: {rate}; expected up to 1,000,000 requests/s")
    return Window(float(start), float(rate), "Gamma" if law == "Gamma" else "Weibull", float(shape))


def _datasets(
    path: Path,
) -> tuple[tuple[float, ...], tuple[tuple[LengthTable, LengthTable] | None, ...]]:
    text = "\n".join(line for _, line in read_lines(path, max_bytes=256 * 2**20))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: is no JSON document ({type(error).__name__})") from error
    if not isinstance(document, dict) or not document:
        raise TraceError(f"{path}: expected a JSON object that maps a window to distributions")
    found: dict[float, tuple[LengthTable, LengthTable] | None] = {}
    for start, entry in document.items():
        if not _NUMBER.fullmatch(start) or not isinstance(entry, dict):
            raise TraceError(f"{path}: {shown(start)}; expected seconds with an object of lengths")
        prompt = _table(path, start, entry, "input_tokens")
        output = _table(path, start, entry, "output_tokens")
        both = prompt is not None and output is not None
        found[float(start)] = (prompt, output) if both else None  # type: ignore[assignment]
    starts = sorted(found)
    return tuple(starts), tuple(found[start] for start in starts)


def _table(path: Path, start: str, entry: dict[str, Any], key: str) -> LengthTable | None:
    where, text = f"{path}: {start}.{key}", entry.get(key)
    if not isinstance(text, str) or len(text) > _MAX_TEXT:
        raise TraceError(f"{where}: expected a text that holds {{tokens: probability}}")
    try:
        table = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise TraceError(f"{where}: {shown(text)} is no dictionary of numbers") from error
    if not isinstance(table, dict) or not all(
        type(tokens) is int and 0 <= tokens <= _MAX_TOKENS and _is_share(share)
        for tokens, share in table.items()
    ):
        raise TraceError(f"{where}: {shown(text)}; expected whole tokens with probabilities")
    if not table:
        return None
    tokens = np.array(sorted(table), dtype=np.int64)
    shares = np.array([table[one] for one in tokens.tolist()], dtype=np.float64)
    if not shares.sum() > 0:
        raise TraceError(f"{where}: the probabilities are all 0")
    return LengthTable(tokens, np.cumsum(shares))


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1e9
