"""A device that torch runs on: what it is, and how long a call takes on it.

On a CPU the shortest of many repeats counts, since other programs only make a call slower, and with
one thread the time that thread was running, so that others' turns do not count at all. Between two
calls other weights are passed through, as in a step: small kernels take several times longer with
cold caches than when they are repeated in a row.

On an accelerator, which nobody else uses, it is the median. CUDA kernels are timed inside a
captured graph, where launching them costs nothing, as serving engines run them.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from simspec.core.errors import ConfigError
from simspec.traces.samples import Machine

Call = Callable[[int], Any]
"""Runs a kernel once on the i-th set of buffers."""

DTYPES: dict[str, Any] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
_GRAPH_CALLS = 10
_MOST_REPEATS = 200


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call, and by what share the median repeat was longer than the shortest."""

    seconds: float
    spread: float


class Device:
    """Where tensors live and calls are timed.

    Parameters
    ----------
    kind : str
        ``cpu``, ``cuda`` or ``mps``; empty: the best one there is.
    num_threads : int or None
        Threads of a CPU; None leaves torch's choice.
    budget_s : float
        Seconds to spend on repeats of one call.

    Raises
    ------
    ConfigError
        This machine has no such device.
    """

    def __init__(self, kind: str = "", num_threads: int | None = None, budget_s: float = 0.2):
        kinds = [name for name in ("cuda", "mps", "cpu") if _exists(name)]
        if kind and kind not in kinds:
            raise ConfigError(
                f"--device: torch {torch.__version__} finds no {kind!r} here; it has: "
                + ", ".join(kinds)
            )
        self.kind = kind or kinds[0]
        self._budget_s = budget_s
        self._others: Any = None
        if num_threads is not None:
            torch.set_num_threads(num_threads)

    def machine(self, *, is_quick: bool) -> Machine:
        """Return what the device is called, its memory and software."""
        is_cuda = self.kind == "cuda"
        return Machine(
            name=torch.cuda.get_device_name() if is_cuda else _cpu_name(),
            device=self.kind,
            memory_bytes=(
                int(torch.cuda.get_device_properties(0).total_memory)
                if is_cuda
                else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            ),
            software=f"torch {torch.__version__}",
            num_threads=torch.get_num_threads() if self.kind == "cpu" else 0,
            num_devices=torch.cuda.device_count() if is_cuda else 1,
            is_quick=is_quick,
        )

    def default_dtypes(self) -> tuple[str, ...]:
        """Return the type models are served in here."""
        if self.kind == "cuda":
            return ("bf16",)
        if self.kind == "mps":
            return ("fp16",)
        return ("bf16",) if _multiplies_bf16() else ("fp32",)

    @property
    def flush_bytes(self) -> int:
        """Bytes of different buffers after which no cache holds the first one."""
        return 2**28 if self.kind == "cpu" else 2**29

    def tensor(self, *shape: int, dtype: str) -> Any:
        """Return random numbers of the size activations have."""
        made = torch.randn(*shape, dtype=torch.float32, device=self.kind)
        return (0.02 * made).to(DTYPES[dtype])

    def synchronise(self) -> None:
        """Wait until everything that was launched is done."""
        if self.kind == "cuda":
            torch.cuda.synchronize()
        elif self.kind == "mps":
            torch.mps.synchronize()

    def seconds(self, call: Call, *, captured: bool = True) -> Timing:
        """Return how long a call takes.

        Parameters
        ----------
        call : callable
            Given 0, 1, 2, …; it chooses its buffers by that number.
        captured : bool
            On CUDA: inside a captured graph.
        """
        with torch.inference_mode():
            if self.kind == "cpu":
                return self._repeated(call, calls=1)
            if self.kind == "cuda" and captured:
                return self._replayed(call)
            return self._repeated(call, calls=_GRAPH_CALLS)

    def launch_seconds(self) -> Timing:
        """Return what the host takes to start a kernel that does next to nothing."""
        tiny = self.tensor(1, dtype="fp32")
        launches = 200

        def many(_: int) -> None:
            for _ in range(launches):
                tiny.add_(1.0)

        with torch.inference_mode():
            timing = self._repeated(many, calls=1, waits=False)
        return Timing(timing.seconds / launches, timing.spread)

    def _pass_others(self) -> None:
        """Multiply by 16 MB of other weights, about a layer of a small model."""
        if self._others is None:
            self._others = self.tensor(4096, 1024, dtype="fp32"), self.tensor(1024, dtype="fp32")
        weights, vector = self._others
        torch.mv(weights, vector)

    def _repeated(self, call: Call, *, calls: int, waits: bool = True) -> Timing:
        is_alone = self.kind == "cpu" and torch.get_num_threads() == 1
        clock = time.thread_time if is_alone else time.perf_counter
        call(0)
        self.synchronise()
        times: list[float] = []
        start = time.perf_counter()
        number = 0
        while len(times) < _MOST_REPEATS and (
            len(times) < 5 or time.perf_counter() - start < self._budget_s
        ):
            if self.kind == "cpu" and waits:
                self._pass_others()
            begin = clock()
            for _ in range(calls):
                number += 1
                call(number)
            if waits:
                self.synchronise()
            times.append((clock() - begin) / calls)
            if not waits:
                self.synchronise()
        return self._summary(times)

    def _replayed(self, call: Call) -> Timing:
        for number in range(3):
            call(number)
        self.synchronise()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for number in range(_GRAPH_CALLS):
                call(number)
        times: list[float] = []
        start = time.perf_counter()
        while len(times) < _MOST_REPEATS and (
            len(times) < 5 or time.perf_counter() - start < self._budget_s
        ):
            begin = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e-3 / _GRAPH_CALLS)
        return self._summary(times)

    def _summary(self, times: list[float]) -> Timing:
        shortest, middle = min(times), statistics.median(times)
        return Timing(shortest if self.kind == "cpu" else middle, middle / shortest - 1.0)


def _exists(kind: str) -> bool:
    if kind == "cuda":
        return bool(torch.cuda.is_available())
    if kind == "mps":
        return bool(torch.backends.mps.is_available())
    return True


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def _multiplies_bf16() -> bool:
    """Whether the CPU has instructions for 16-bit products; without them bf16 is a detour."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = file.read()
    except OSError:
        return platform.machine() == "arm64"
    return "avx512_bf16" in flags or "amx_bf16" in flags
