"""Which format a request log is in, from its first lines."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from simspec.core.errors import TraceError, nearest
from simspec.core.lines import read_lines
from simspec.workloads._base import IMPORTERS, ImporterConfig

_NUM_LINES = 3


def detect(path: Path) -> ImporterConfig:
    """Return the importer, with its defaults, that recognises the file.

    Raises
    ------
    TraceError
        No format recognises it, or more than one does: ``format`` must then say it.
    """
    lines = [text for _, text in islice(read_lines(path), _NUM_LINES) if text.strip()]
    if not lines:
        raise TraceError(f"{path}: the file is empty; expected a request log")
    known = [name for name in IMPORTERS.names() if _recognises(name, lines)]
    if len(known) == 1:
        return importer_of(known[0])
    start = lines[0] if len(lines[0]) <= 60 else lines[0][:60] + "…"
    if not known:
        raise TraceError(
            f"{path}:1: the first line is {start!r}, which no format begins with; "
            f"{nearest('', IMPORTERS.names())} ('simspec workload formats' shows them)"
        )
    raise TraceError(
        f"{path}:1: the first line fits the formats {' and '.join(known)}; say which with format"
    )


def importer_of(name: str) -> ImporterConfig:
    """Return the importer ``name`` with its defaults.

    Raises
    ------
    ConfigError
        There is none of that name.
    """
    importer = IMPORTERS.config_class(name)(name=name)
    assert isinstance(importer, ImporterConfig)
    return importer


def _recognises(name: str, lines: list[str]) -> bool:
    config = IMPORTERS.config_class(name)
    assert issubclass(config, ImporterConfig)
    return config.recognises(lines)
