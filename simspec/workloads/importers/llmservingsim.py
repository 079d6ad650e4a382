"""LLMServingSim traces (JSON Lines): times in nanoseconds, optional token ids, agent sessions.

Each line is a request, ``input_toks``, ``output_toks``, ``arrival_time_ns`` and perhaps
``input_tok_ids``, or a session: ``session_id``, ``arrival_time_ns`` and ``sub_requests``, each
with ``input_toks``, ``output_toks`` and ``tool_duration_ns``. A sub-request is sent when the one
before has been answered and its tool has run. Where token ids are given, prompts are cut into
blocks of ``block_tokens`` and equal prefixes get equal ids. Published at
github.com/casys-kaist/LLMServingSim under MIT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from simspec.workloads._base import ImporterConfig, LoggedRequest, Reject
from simspec.workloads.importers._rows import (
    BadRow,
    Rising,
    json_object,
    jsonl_rows,
    shown,
    tokens,
    whole,
)


class Config(ImporterConfig):
    """Reads an LLMServingSim trace."""

    about: ClassVar[str] = (
        "JSON Lines in ns, token ids or agent sessions; casys-kaist/LLMServingSim"
    )
    sample: ClassVar[bytes] = (
        b'{"input_toks": 18, "output_toks": 7, "arrival_time_ns": 46926808}\n'
        b'{"input_toks": 22, "output_toks": 10, "arrival_time_ns": 347938952}\n'
    )
    sample_rows: ClassVar[tuple[LoggedRequest, ...]] = (
        LoggedRequest(0.0, 18, 7),
        LoggedRequest(0.301012144, 22, 10),
    )

    block_tokens: int = Field(default=16, ge=1, le=1_000_000)
    """Tokens per block when prefixes are found from token ids."""

    @classmethod
    def recognises(cls, lines: Sequence[str]) -> bool:
        """Whether the first line has its time in nanoseconds."""
        row = json_object(lines[0]) or {}
        return "arrival_time_ns" in row and ("input_toks" in row or "sub_requests" in row)

    def rows(self, path: Path, reject: Reject | None = None) -> Iterator[LoggedRequest]:
        """Yield the requests, seconds from the first row; sub-requests of a session in turn."""
        times = Rising("arrival_time_ns", 10**9)
        known: dict[tuple[int, tuple[int, ...]], int] = {}

        def request(row: Mapping[str, Any]) -> Iterator[LoggedRequest]:
            time_ns = whole(row, "arrival_time_ns", "nanoseconds")
            parts, tools_ns = _parts(row)
            sizes = [(tokens(part, "input_toks"), tokens(part, "output_toks")) for part in parts]
            ids = [
                _blocks(part, prompt_len, self.block_tokens, known)
                for part, (prompt_len, _) in zip(parts, sizes, strict=True)
            ]
            arrival_s = times.seconds(time_ns)
            for i, ((prompt_len, output_len), own) in enumerate(zip(sizes, ids, strict=True)):
                yield LoggedRequest(
                    arrival_s,
                    prompt_len,
                    output_len,
                    own,
                    self.block_tokens if own else 0,
                    follows_row_above=i > 0,
                    think_s=tools_ns[i - 1] / 1e9 if i > 0 else 0.0,
                )

        return jsonl_rows(path, reject, request)


def _parts(row: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], list[int]]:
    """Return the requests of a line, and how long the tool runs after each."""
    if "sub_requests" not in row:
        return [row], [0]
    parts = row["sub_requests"]
    if not isinstance(parts, list) or not parts or not all(isinstance(p, dict) for p in parts):
        raise BadRow(f"sub_requests: {shown(parts)}; expected a list of JSON objects")
    return parts, [
        whole(part, "tool_duration_ns", "nanoseconds") if "tool_duration_ns" in part else 0
        for part in parts
    ]


def _blocks(
    row: Mapping[str, Any],
    prompt_len: int,
    block_tokens: int,
    known: dict[tuple[int, tuple[int, ...]], int],
) -> tuple[int, ...]:
    """Return ids of the prompt's blocks: equal prefixes of the log have equal ids."""
    if "input_tok_ids" not in row:
        return ()
    given = row["input_tok_ids"]
    if not isinstance(given, list) or not all(type(one) is int for one in given):
        raise BadRow(f"input_tok_ids: {shown(given)}; expected a list of whole numbers")
    if len(given) != prompt_len:
        raise BadRow(
            f"input_tok_ids: {len(given):,} ids for {prompt_len:,} input_toks; expected as many"
        )
    ids: list[int] = []
    before = -1
    for start in range(0, prompt_len, block_tokens):
        key = (before, tuple(given[start : start + block_tokens]))
        before = known.setdefault(key, len(known))
        ids.append(before)
    return tuple(ids)
