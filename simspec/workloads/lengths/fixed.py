"""Every request alike: for benchmarks of one shape and for comparison with theory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from simspec.workloads._base import Lengths, LengthsConfig, Moments, NumTokens


class Config(LengthsConfig):
    """Fixed prompt and output length."""

    examples: ClassVar[tuple[Mapping[str, object], ...]] = (
        {"prompt_len": 1024, "output_len": 128},
        {"prompt_len": 1, "output_len": 1},
    )

    prompt_len: NumTokens
    """Tokens of each prompt."""

    output_len: NumTokens
    """Tokens of each answer, the first included."""

    def draw(
        self, rng: np.random.Generator, num_requests: int, *, base: Path | None = None
    ) -> Lengths:
        """Return constant arrays."""
        return Lengths(
            np.full(num_requests, self.prompt_len, dtype=np.int64),
            np.full(num_requests, self.output_len, dtype=np.int64),
        )

    def moments(self, *, base: Path | None = None) -> tuple[Moments, Moments]:
        """Return the lengths themselves, without spread."""
        return Moments(self.prompt_len, 0.0), Moments(self.output_len, 0.0)

    def describe(self, *, base: Path | None = None) -> str:
        """Return one clause."""
        return f"{self.prompt_len} prompt and {self.output_len} output tokens each"
