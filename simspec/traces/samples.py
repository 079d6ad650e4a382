"""Timings of kernels and steps measured on one machine, and the file they are kept in.

JSON Lines: a header about the machine, then one line per timing as soon as it is taken, so that a
run that is stopped goes on from there. A kind says what was run and which keys its ``shape`` has:

=================== ===================================================================
``copy``, ``read``  ``num_bytes``, of the tensor that is copied or summed
``launch``          none; seconds the host takes to start one kernel
``gemm``            ``m`` rows times weights ``[k x n]``
``norm``            ``rows`` of ``width``, the residual added
``activation``      ``rows`` of ``width``, gate and up to their product
``rope``            ``rows``, ``heads``, ``kv_heads``, ``head_dim``: rotation and cache write
``decode_attention`` ``batch`` sequences of ``context`` tokens, each with ``new_tokens`` more;
                    ``heads``, ``kv_heads``, ``head_dim``
``prefill_attention`` ``batch`` prompts of ``tokens``, causal; ``heads``, ``kv_heads``, ``head_dim``
``all_reduce``      ``ranks``, ``num_bytes`` of the message
``step``            a pass over a stack: ``layers``, ``hidden``, ``heads``, ``kv_heads``,
                    ``head_dim``, ``ffn``, ``vocab``, ``batch``, ``new_tokens``, ``context``
=================== ===================================================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from simspec.core.errors import TraceError
from simspec.core.json_text import parse_json

SCHEMA = "simspec-samples-1"


@dataclass(frozen=True, slots=True)
class Machine:
    """What the timings were taken on; timings of another machine are never mixed in."""

    name: str
    """As the system calls the device."""
    device: str
    """``cpu``, ``cuda`` or ``mps``."""
    memory_bytes: int
    software: str
    num_threads: int
    num_devices: int
    is_quick: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """One timing."""

    kind: str
    dtype: str
    shape: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    spread: float = 0.0
    """How much longer the median repeat took than the shortest, as a share."""

    @property
    def key(self) -> tuple[object, ...]:
        """What was timed, without the result."""
        return (self.kind, self.dtype, *sorted(self.shape.items()))


def read_samples(path: Path) -> tuple[Machine, list[Sample]]:
    """Return the machine and its timings; a last line that was cut off is left out.

    Raises
    ------
    TraceError
        The file cannot be read, or holds something else.
    """
    try:
        first, *lines = path.read_text(encoding="utf-8").splitlines() or [""]
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: cannot be read ({error}); give a file of timings") from error
    try:
        header: dict[str, Any] = parse_json(first)
        if header.pop("schema") != SCHEMA:
            raise ValueError(SCHEMA)
        machine = Machine(**header)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise TraceError(
            f"{path}:1: is not the header of timings that 'simspec hardware measure' wrote"
        ) from None
    samples = []
    for number, line in enumerate(lines, start=2):
        try:
            samples.append(Sample(**parse_json(line)))
        except (ValueError, TypeError):
            if number == len(lines) + 1:
                break
            raise TraceError(f"{path}:{number}: is not a timing; delete the line") from None
    return machine, samples


class SampleWriter:
    """Appends timings to a file, each on disk before the next is taken."""

    def __init__(self, path: Path, machine: Machine, kept: list[Sample]) -> None:
        self._path = path
        lines = [json.dumps({"schema": SCHEMA, **asdict(machine)}), *map(_line, kept)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def write(self, sample: Sample) -> None:
        """Append one timing."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_line(sample) + "\n")


def _line(sample: Sample) -> str:
    return json.dumps({**asdict(sample), "shape": dict(sample.shape)})
