"""One request of a workload."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sends.

    Attributes
    ----------
    request_id : int
        Position in the workload; keys the tape.
    arrival_s : float
        Seconds from the start; 0.0 in a closed loop, where the simulator decides.
    prompt_len, output_len : int, tokens
        Both at least 1. ``output_len`` counts every generated token, the first included.
    """

    request_id: int
    arrival_s: float
    prompt_len: int
    output_len: int
