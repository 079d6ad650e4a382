"""Points over a pool of local processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from pydantic import Field

from simspec.core.errors import SimspecError
from simspec.core.registry import PluginConfig
from simspec.sweeps.work import Job, compute


class Config(PluginConfig):
    """A pool of ``workers`` processes (default: one per core)."""

    workers: int | None = Field(default=None, ge=1, le=1024)

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield ``(key, result)`` as points finish.

        Raises
        ------
        SimspecError
            A worker process died (killed, out of memory).
        """
        workers = min(self.workers or os.cpu_count() or 1, max(1, len(jobs)))
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
        try:
            yield from _drain(pool, jobs, workers)
        except BrokenProcessPool as error:
            raise SimspecError(
                "a worker process died (killed, or out of memory); finished points are kept, "
                "run the same command again, with fewer --workers if memory is short"
            ) from error
        finally:
            _stop(pool)


def _drain(
    pool: ProcessPoolExecutor, jobs: Sequence[Job], workers: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Keep a short queue per worker, so that a stop loses only points in flight."""
    waiting = iter(jobs)
    running: dict[Future[dict[str, Any]], str] = {}
    for job in waiting:
        running[pool.submit(compute, job)] = job.key
        if len(running) >= 2 * workers:
            break
    while running:
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            key = running.pop(future)
            for job in waiting:
                running[pool.submit(compute, job)] = job.key
                break
            yield key, future.result()


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, which keeps what is finished; never outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _stop(pool: ProcessPoolExecutor) -> None:
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        if process.is_alive():
            process.terminate()
    for process in processes:
        process.join(timeout=5)
