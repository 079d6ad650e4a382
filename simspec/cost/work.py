"""What work a step does, as numbers: the only thing a decoding method hands to the cost model.

Every quantity may be a Python number (the simulator) or a NumPy array (the closed form over a
grid); arrays of one ``Pass`` broadcast against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from simspec.models.stack import Stack

__all__ = ["Pass", "Phase", "Quantity", "RowKind", "Rows", "Stack"]

Quantity: TypeAlias = float | int | npt.NDArray[np.float64]
Phase: TypeAlias = Literal["prefill", "decode", "draft", "verify", "catch_up"]
RowKind: TypeAlias = Literal["decode", "prefill"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Sequences that add tokens in one pass, summed over the sequences.

    Sequence ``i`` adds ``n_i`` tokens to a context of ``c_i`` tokens.
    """

    kind: RowKind
    """``decode``: few new tokens each (decode and verify kernels); ``prefill``: a prompt chunk."""
    num_sequences: Quantity
    num_tokens: Quantity
    """sum n_i"""
    kv_tokens: Quantity
    """sum (c_i + n_i): KV entries each sequence's attention can see, read once per pass."""
    attended_tokens: Quantity
    """sum n_i (c_i + (n_i + 1) / 2): query-key pairs under the causal mask."""
    logit_rows: Quantity
    """Positions that go through the LM head of this pass's stack."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass over layers ``[first_layer, last_layer)`` of one stack."""

    stack: str
    first_layer: int
    last_layer: int
    phase: Phase
    rows: tuple[Rows, ...]
    embeds: bool = False
    """Whether the pass begins with the embedding gather."""
    host_lookups: Quantity = 0.0
    """Texts the host searches for a continuation before the pass can start (prompt lookup)."""
    has_tree: bool = False
    """Whether a sequence's drafts branch: a verification that has to choose a path."""
