"""Traffic of ServeGen's clients: each window of each client a renewal process of its own.

In a window the gaps of a client are gamma or Weibull with the published shape, scaled so that
their mean is 1 over the published rate. The first gap is that of a process that has been going on
for ever (the residual gap, Cox, *Renewal Theory*, 1962, section 5.2), so that a window holds rate ×
length requests on average, whatever its burstiness. Prompt and output lengths are independent and
come from the client's distributions at that time; windows without distributions are left out.
Each window of each client has a random stream of its own: which others are drawn changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from simspec.core.errors import ConfigError
from simspec.core.rng import stream
from simspec.workloads._base import Arrivals, ArrivalsConfig, Lengths, find_folder
from simspec.workloads.describe import mean_rate_per_s
from simspec.workloads.servegen_files import WINDOW_S, Client, Law, client_files, read_client

FloatArray = npt.NDArray[np.float64]
MAX_REQUESTS = 3_000_000
"""Most requests expected of one replication."""


class Config(ArrivalsConfig):
    """Requests of a folder of ServeGen clients."""

    brings_lengths: ClassVar[bool] = True
    examples: ClassVar[tuple[Mapping[str, object], ...]] = (
        {"path": "clients"},
        {"path": "clients", "clients": [1], "start_s": 600.0, "duration_s": 900.0},
    )

    path: str = Field(min_length=1)
    """Folder with ``chunk-N-trace.csv`` and ``chunk-N-dataset.json``; a relative path starts from
    the experiment file, then from the working folder."""

    clients: tuple[int, ...] | None = Field(default=None, min_length=1, max_length=100_000)
    """Numbers N of the clients to take; None: all."""

    start_s: float = Field(default=0.0, ge=0, le=1e9)
    """Where in the published time to begin, seconds."""

    duration_s: float | None = Field(default=None, gt=0, le=1e9)
    """How long to go on, seconds; None: to the end."""

    rate_scale: float = Field(default=1.0, ge=1e-3, le=1e3)
    """Offered load relative to the published one; windows keep their length."""

    def draw(
        self, rng: np.random.Generator, num_requests: int, *, base: Path | None = None
    ) -> Arrivals:
        """Draw every window of every client.

        Raises
        ------
        ConfigError
            The folder or a client is missing, or there is no request in the time asked for, or
            there are too many.
        TraceError
            A file is wrong.
        """
        folder = find_folder(self.path, base)
        chosen = self._chosen(client_files(folder))
        clients = [_client(n, *paths, _version(*paths)) for n, paths in chosen.items()]
        self._check_number(clients)
        seed = int(rng.integers(2**62))
        parts = [part for client in clients for part in self._parts(client, seed)]
        times_s = np.concatenate([part[0] for part in parts] or [np.empty(0)])
        prompts, outputs = (
            np.concatenate([part[i] for part in parts] or [np.empty(0, np.int64)]) for i in (1, 2)
        )
        usable = (prompts > 0) & (outputs > 0)
        order = np.argsort(times_s[usable], kind="stable")
        if order.size == 0:
            raise ConfigError(
                f"{folder}: no request from {self.start_s:g} s on; choose other clients or times"
            )
        times_s = times_s[usable][order]
        return Arrivals(
            times_s=times_s,
            rate_per_s=mean_rate_per_s(times_s),
            lengths=Lengths(prompts[usable][order], outputs[usable][order]),
            num_empty=int(usable.size - usable.sum()),
            files=tuple(path for paths in chosen.values() for path in paths),
        )

    def _chosen(self, found: dict[int, tuple[Path, Path]]) -> dict[int, tuple[Path, Path]]:
        wanted = tuple(found) if self.clients is None else self.clients
        for number in wanted:
            if number not in found:
                known = ", ".join(map(str, list(found)[:20]))
                raise ConfigError(f"clients: no client {number} in the folder; choices: {known}")
        return {number: found[number] for number in dict.fromkeys(wanted)}

    @property
    def _end_s(self) -> float:
        return math.inf if self.duration_s is None else self.start_s + self.duration_s

    def _check_number(self, clients: list[Client]) -> None:
        expected = sum(
            window.rate_per_s * WINDOW_S * self.rate_scale
            for client in clients
            for window in client.windows
            if window.start_s + WINDOW_S > self.start_s and window.start_s < self._end_s
        )
        if expected > MAX_REQUESTS:
            raise ConfigError(
                f"duration_s: about {expected:,.0f} requests would come, more than "
                f"{MAX_REQUESTS:,}; shorten it, choose clients or lower rate_scale"
            )

    def _parts(
        self, client: Client, seed: int
    ) -> list[tuple[FloatArray, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Return times from the start, prompt and output lengths of each window."""
        parts = []
        for window in client.windows:
            if window.start_s + WINDOW_S <= self.start_s or window.start_s >= self._end_s:
                continue
            tables = client.lengths_at(window.start_s)
            rate_per_s = window.rate_per_s * self.rate_scale
            if tables is None or rate_per_s <= 0:
                continue
            rng = stream(seed, "servegen", client.number, repr(window.start_s))
            within_s = renewals(rng, window.law, window.shape, rate_per_s, WINDOW_S)
            uniforms = rng.random((within_s.size, 2))
            times_s = window.start_s + within_s
            keep = (times_s >= self.start_s) & (times_s < self._end_s)
            prompt, output = (t.draw(uniforms[:, i])[keep] for i, t in enumerate(tables))
            parts.append((times_s[keep] - self.start_s, prompt, output))
        return parts

    def gap_moments(self) -> None:
        """Return None: every window has a law of its own."""
        return

    def describe(self) -> str:
        """Return one clause."""
        numbers = ", ".join(map(str, self.clients or ()))
        who = f"clients {numbers}" if numbers else "all clients"
        scale = "" if self.rate_scale == 1 else f" at {self.rate_scale:g} times their rate"
        until = "on" if self.duration_s is None else f"to {self._end_s:g} s"
        return f"ServeGen {who} of {Path(self.path).name} from {self.start_s:g} s {until}{scale}"


def renewals(
    rng: np.random.Generator, law: Law, shape: float, rate_per_s: float, length_s: float
) -> FloatArray:
    """Return the times (n,) of a stationary renewal process in ``[0, length_s)``, seconds.

    Parameters
    ----------
    law, shape : str, float
        Of the gaps, whose mean is ``1 / rate_per_s``.
    """
    mean = 1.0 if law == "Gamma" else math.gamma(1 + 1 / shape)
    scale_s = 1 / (rate_per_s * (shape if law == "Gamma" else mean))
    # The gap that covers a point chosen at random is longer than others, in proportion to its
    # length: a gamma shape one larger, for Weibull gaps as their power is exponential.
    covering = rng.standard_gamma(shape + 1 if law == "Gamma" else 1 + 1 / shape)
    if law == "Weibull":
        covering = covering ** (1 / shape)
    last_s = float(rng.random() * covering * scale_s)
    parts = []
    count = max(16, int(1.1 * rate_per_s * length_s) + 16)
    while last_s < length_s:
        gaps = rng.standard_gamma(shape, count) if law == "Gamma" else rng.weibull(shape, count)
        times_s = last_s + np.concatenate([[0.0], np.cumsum(gaps * scale_s)])
        parts.append(times_s[:-1])
        last_s = float(times_s[-1])
    if not parts:
        return np.empty(0)
    times_s = np.concatenate(parts)
    return times_s[times_s < length_s]


def _version(*paths: Path) -> tuple[int, ...]:
    return tuple(path.stat().st_mtime_ns for path in paths)


@lru_cache(maxsize=512)
def _client(number: int, trace: Path, dataset: Path, version: tuple[int, ...]) -> Client:
    # Read once for all replications; ``version`` notices a changed file.
    return read_client(number, trace, dataset)
