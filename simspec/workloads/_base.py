"""The contracts of arrival processes, length distributions and request-log importers.

One file per plug-in, found by its name, with one class ``Config``. A plug-in carries its own
theory (moments) and its own examples, so the contract tests cover it before anybody writes a
test for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from simspec.core.errors import ConfigError, nearest
from simspec.core.registry import PluginConfig, Registry
from simspec.core.resources import is_file
from simspec.workloads.linked import Prefixes, Rejections, Sessions

ARRIVALS = Registry("simspec.workloads.arrivals", "arrival process")
LENGTHS = Registry("simspec.workloads.lengths", "length distribution")
IMPORTERS = Registry("simspec.workloads.importers", "request-log format")

_MAX_SHOWN_NAME = 200
"""A longer file name is somebody's mistake, not something to repeat in full."""

NumTokens: TypeAlias = Annotated[int, Field(ge=1, le=10_000_000)]
"""A length in tokens."""

RatePerS: TypeAlias = Annotated[float, Field(ge=1e-6, le=1e6)]
"""Requests per second; the bounds keep a clock in seconds exact enough."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Prompt and output lengths of requests ``0..n-1``.

    Attributes
    ----------
    prompt_lens, output_lens : array (n,), tokens
        Each at least 1.
    """

    prompt_lens: npt.NDArray[np.int64]
    output_lens: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When requests ``0..n-1`` arrive, and their lengths where the source says them.

    Attributes
    ----------
    times_s : array (n,), seconds
        Never decreasing; requests at equal times keep their order.
    rate_per_s : float or None
        Offered load; None in a closed loop and for a log that spans no time.
    concurrency : int or None
        Requests in flight of a closed loop.
    lengths : Lengths or None
        Given by a log, None for a stochastic process.
    prefixes : Prefixes or None
        What prompts share, where the source says it.
    sessions : Sessions or None
        Which request waits for which, and think times; None where all are independent.
    num_empty : int
        Logged requests left out because their prompt or output has no token.
    rejected : Rejections or None
        Lines of a log that are no request; None where there was no log.
    files : tuple of Path
        Files that were read, for the manifest of a run.
    """

    times_s: npt.NDArray[np.float64]
    rate_per_s: float | None
    concurrency: int | None = None
    lengths: Lengths | None = None
    prefixes: Prefixes | None = None
    sessions: Sessions | None = None
    num_empty: int = 0
    rejected: Rejections | None = None
    files: tuple[Path, ...] = ()


class Moments(NamedTuple):
    """Mean and standard deviation of one quantity, in its own unit."""

    mean: float
    std: float


class ArrivalsConfig(PluginConfig):
    """Base of every arrival process's ``Config``."""

    brings_lengths: ClassVar[bool] = False
    """Whether the source also says the lengths and the number of requests."""

    examples: ClassVar[tuple[Mapping[str, object], ...]] = ()
    """Typical settings, used by the contract tests."""

    def draw(
        self, rng: np.random.Generator, num_requests: int, *, base: Path | None = None
    ) -> Arrivals:
        """Return the arrivals of the first ``num_requests`` requests.

        The first ``n`` of them do not depend on ``num_requests``, and a process with a rate
        is the same unit-rate process at every rate, only stretched: two loads are then
        compared on common random numbers.

        Parameters
        ----------
        rng : Generator
            Its stream belongs to this call alone.
        num_requests : int
            Ignored where ``brings_lengths``: the source has its own number.
        base : Path or None
            Folder that relative file names start from.
        """
        raise TypeError(f"{type(self).__module__}.Config must define draw()")

    def gap_moments(self) -> Moments | None:
        """Return mean and standard deviation of the gaps in seconds; None without a law."""
        raise TypeError(f"{type(self).__module__}.Config must define gap_moments()")

    def describe(self) -> str:
        """Return one clause that states the process, for reports."""
        raise TypeError(f"{type(self).__module__}.Config must define describe()")


class LengthsConfig(PluginConfig):
    """Base of every length distribution's ``Config``."""

    examples: ClassVar[tuple[Mapping[str, object], ...]] = ()
    """Typical settings, used by the contract tests."""

    def draw(
        self, rng: np.random.Generator, num_requests: int, *, base: Path | None = None
    ) -> Lengths:
        """Return the lengths of the first ``num_requests`` requests.

        The first ``n`` of them do not depend on ``num_requests``.
        """
        raise TypeError(f"{type(self).__module__}.Config must define draw()")

    def moments(self, *, base: Path | None = None) -> tuple[Moments, Moments]:
        """Return mean and standard deviation of prompt and output lengths, in tokens."""
        raise TypeError(f"{type(self).__module__}.Config must define moments()")

    def files(self, *, base: Path | None = None) -> tuple[Path, ...]:
        """Return the user's files that are read, for the manifest of a run."""
        return ()

    def describe(self, *, base: Path | None = None) -> str:
        """Return one clause that states the distribution and its source, for reports."""
        raise TypeError(f"{type(self).__module__}.Config must define describe()")


class LoggedRequest(NamedTuple):
    """One row of a request log.

    Attributes
    ----------
    arrival_s : float or None
        Seconds since the first row; None in a log of lengths alone.
    prompt_len, output_len : int, tokens
        0 is allowed here: a failed call.
    block_hashes : tuple of int
        As in :class:`~simspec.workloads.request.Request`.
    hash_block_tokens : int, tokens
        Tokens of one block; 0 without hashes.
    follows_row_above : bool
        Whether it is sent only once the request of the row above has been answered.
    think_s : float, seconds
        How long after that.
    """

    arrival_s: float | None
    prompt_len: int
    output_len: int
    block_hashes: tuple[int, ...] = ()
    hash_block_tokens: int = 0
    follows_row_above: bool = False
    think_s: float = 0.0


Reject: TypeAlias = Callable[[int, str], None]
"""Called with the number of a line that is no request, and what is wrong with it."""


class ImporterConfig(PluginConfig):
    """Base of every request-log importer's ``Config``."""

    about: ClassVar[str] = ""
    """One clause on the format and where such files are published."""

    sample: ClassVar[bytes] = b""
    """A few lines in this format: its documentation, and what the contract tests read."""

    sample_rows: ClassVar[tuple[LoggedRequest, ...]] = ()
    """What ``rows`` must make of ``sample``."""

    @classmethod
    def recognises(cls, lines: Sequence[str]) -> bool:
        """Whether a file that begins with these lines is in this format.

        Parameters
        ----------
        lines : sequence of str
            The first lines of the file that are not blank, at most three; never empty.
        """
        raise TypeError(f"{cls.__module__}.Config must define recognises()")

    def rows(self, path: Path, reject: Reject | None = None) -> Iterator[LoggedRequest]:
        """Yield the logged requests in file order, reading no further than asked.

        Parameters
        ----------
        path : Path
            The log.
        reject : callable, optional
            Told of every line that is no request, which is then left out; by default such a
            line ends the reading.

        Raises
        ------
        TraceError
            The file is wrong as a whole or, without ``reject``, in a line; named by file and
            line.
        """
        raise TypeError(f"{type(self).__module__}.Config must define rows()")


def find_file(name: str, base: Path | None) -> Path:
    """Return the file ``name``, looked up in ``base`` and then in the working folder.

    Raises
    ------
    ConfigError
        It is in neither; the message says where it was looked for.
    """
    wanted = Path(name).expanduser()
    places = [wanted] if base is None else [base / wanted, wanted]
    for place in places:
        if is_file(place):
            return place
    folder = places[0].parent
    names = _files_in(folder)
    looked = " and ".join(dict.fromkeys(str(place.parent.resolve()) for place in places))
    hint = nearest(wanted.name, names) if 0 < len(names) <= 20 else "check the path"
    if len(name) > _MAX_SHOWN_NAME:
        raise ConfigError(f"file '{name[:_MAX_SHOWN_NAME]}…' not found; {hint}")
    raise ConfigError(f"file {name!r} not found in {looked}; {hint}")


def find_folder(name: str, base: Path | None) -> Path:
    """Return the folder ``name``, looked up in ``base`` and then in the working folder.

    Raises
    ------
    ConfigError
        It is in neither.
    """
    wanted = Path(name).expanduser()
    places = [wanted] if base is None else [base / wanted, wanted]
    for place in places:
        try:
            if place.is_dir():
                return place
        except (OSError, ValueError):
            break
    shown = name if len(name) <= _MAX_SHOWN_NAME else name[:_MAX_SHOWN_NAME] + "…"
    raise ConfigError(f"folder {shown!r} not found; check the path")


def _files_in(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir() if is_file(path)]
    except OSError:
        return []
