"""Lengths of a request log, without its arrivals: in its order, or drawn at random from its rows.

For logs that say no times (vidur's), and for the lengths of a log under another load. In file
order the log is begun anew when it is used up; drawn, every row is as likely and independent of
the one before. Rows without tokens are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field, SerializeAsAny

from simspec.workloads._base import (
    IMPORTERS,
    ImporterConfig,
    Lengths,
    LengthsConfig,
    Moments,
    find_file,
)
from simspec.workloads.detect import detect
from simspec.workloads.request_log import read_log


def _format_or_none(value: Any) -> Any:
    return None if value is None else IMPORTERS.parse(value)


class Config(LengthsConfig):
    """Prompt and output lengths of a file, row by row."""

    examples: ClassVar[tuple[Mapping[str, object], ...]] = (
        {"path": "log.csv"},
        {"path": "log.csv", "format": "azure", "order": "random"},
    )

    path: str = Field(min_length=1)
    """The log; a relative path starts from the experiment file, then from the working folder."""

    format: Annotated[SerializeAsAny[ImporterConfig] | None, BeforeValidator(_format_or_none)] = (
        None
    )
    """File name in ``simspec/workloads/importers``; None: recognised by the first lines."""

    order: Literal["file", "random"] = "file"
    """``file``: row by row, and again from the first; ``random``: any row, with replacement."""

    def draw(
        self, rng: np.random.Generator, num_requests: int, *, base: Path | None = None
    ) -> Lengths:
        """Return lengths of rows of the log."""
        logged = self._lengths(base)
        size = logged.prompt_lens.size
        if self.order == "file":
            rows = np.arange(num_requests) % size
        else:
            rows = np.minimum((rng.random(num_requests) * size).astype(np.int64), size - 1)
        return Lengths(logged.prompt_lens[rows], logged.output_lens[rows])

    def moments(self, *, base: Path | None = None) -> tuple[Moments, Moments]:
        """Return the moments of the log's rows."""
        logged = self._lengths(base)
        prompt, output = (
            Moments(float(values.mean()), float(values.std()))
            for values in (logged.prompt_lens, logged.output_lens)
        )
        return prompt, output

    def files(self, *, base: Path | None = None) -> tuple[Path, ...]:
        """Return the log."""
        return (find_file(self.path, base),)

    def describe(self, *, base: Path | None = None) -> str:
        """Return one clause."""
        how = "in their order" if self.order == "file" else "drawn at random"
        return f"lengths of {Path(self.path).name}, {how}"

    def _lengths(self, base: Path | None) -> Lengths:
        path = find_file(self.path, base)
        status = path.stat()
        return _read(self.format, path, (status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=4)
def _read(importer: ImporterConfig | None, path: Path, version: tuple[int, int]) -> Lengths:
    # Read once for all replications; ``version`` notices a changed file.
    return read_log(detect(path) if importer is None else importer, path).lengths
