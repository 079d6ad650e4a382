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
    block_hashes : tuple of int
        One id per prefix block of ``hash_block_tokens`` tokens of the prompt, the last block
        possibly partial; two requests share their text up to the first id that differs. Empty
        where the source says nothing about content.
    hash_block_tokens : int, tokens
        Tokens that each of ``block_hashes`` stands for; 0 where there are none.
    priority : int
        Class for schedulers that look at it: smaller is more urgent.
    follows : int or None
        Id of the request of the same session that must have been answered before this one is
        sent, a smaller one; ``arrival_s`` is then that of the session. None: sent at its own time.
    think_s : float, seconds
        Time between that answer and this request; in a closed loop, between the answer its client
        got last and this request.
    """

    request_id: int
    arrival_s: float
    prompt_len: int
    output_len: int
    block_hashes: tuple[int, ...] = ()
    hash_block_tokens: int = 0
    priority: int = 0
    follows: int | None = None
    think_s: float = 0.0
