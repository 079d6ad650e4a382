"""Points over a pool of local processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from pydantic import Field

from simspec.core.errors import SimspecError
from simspec.sweeps.executors._base import ExecutorConfig, Results
from simspec.sweeps.work import Job, compute

_BLAS_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Config(ExecutorConfig):
    """A pool of ``workers`` processes (default: one per core)."""

    workers: int | None = Field(default=None, ge=1, le=1024)

    def run(self, jobs: Sequence[Job]) -> Results:
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


def _drain(pool: ProcessPoolExecutor, jobs: Sequence[Job], workers: int) -> Results:
    """Keep a short queue per worker, so that a stop loses only points in flight."""
    waiting = iter(jobs)
    running: dict[Future[dict[str, Any]], str] = {}

    def submit_next() -> None:
        for job in waiting:
            with _worker_surroundings():
                running[pool.submit(compute, job)] = job.key
            return

    for _ in range(2 * workers):
        submit_next()
    while running:
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        failed = [future for future in done if future.exception() is not None]
        for future in done.difference(failed):
            # First hand out what is finished: an error below ends the sweep.
            yield running.pop(future), future.result()
            if not failed:
                submit_next()
        for future in failed:
            future.result()


@contextmanager
def _worker_surroundings() -> Iterator[None]:
    """Let processes started inside inherit one BLAS thread each and a blocked Ctrl-C.

    A terminal sends Ctrl-C to the workers too, and one that has not reached its initializer yet
    would die with a traceback. One thread each, because there is a process for every core.
    """
    missing = [name for name in _BLAS_THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(missing, "1"))
    try:
        with _interrupt_later():
            yield
    finally:
        for name in missing:
            del os.environ[name]


@contextmanager
def _interrupt_later() -> Iterator[None]:
    """Hold Ctrl-C back until the end, also when another thread's mask lets it through.

    Interrupted in the middle of starting a worker, this process would leave it with half of its
    instructions, and the worker would print a traceback about that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    can_block = hasattr(signal, "pthread_sigmask")  # not on Windows
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if can_block else set()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)
        if can_block:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if held:
            signal.raise_signal(signal.SIGINT)


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
        if process.is_alive():
            process.kill()
