"""Qwen-Bailian usage traces (JSON Lines): times in float seconds, blocks of 16 tokens, chat turns.

Each line: ``chat_id``, ``parent_chat_id`` (-1: the first turn), ``timestamp`` (s),
``input_length``, ``output_length``, ``type``, ``turn``, ``hash_ids`` (one per
16-token block of the prompt, the last possibly partial). A turn has its own time, so it waits
for no parent. Published at
github.com/alibaba-edu/qwen-bailian-usagetraces-anon under Apache-2.0.
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
    block_ids,
    json_object,
    jsonl_rows,
    seconds,
    shown,
    tokens,
)


class Config(ImporterConfig):
    """Reads a Qwen-Bailian trace."""

    about: ClassVar[str] = (
        "JSON Lines in s, hashes of 16-token blocks, chat turns; "
        "alibaba-edu/qwen-bailian-usagetraces-anon"
    )
    sample: ClassVar[bytes] = (
        b'{"chat_id": 0, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 20, '
        b'"output_length": 9, "type": "text", "turn": 1, "hash_ids": [0, 1]}\n'
        b'{"chat_id": 7, "parent_chat_id": 0, "timestamp": 3.75, "input_length": 40, '
        b'"output_length": 12, "type": "search", "turn": 2, "hash_ids": [0, 2, 3]}\n'
    )
    sample_rows: ClassVar[tuple[LoggedRequest, ...]] = (
        LoggedRequest(0.0, 20, 9, (0, 1), 16),
        LoggedRequest(3.25, 40, 12, (0, 2, 3), 16),
    )

    block_tokens: int = Field(default=16, ge=1, le=1_000_000)
    """Tokens of the prompt that one hash stands for."""

    request_type: str | None = None
    """Only requests of this ``type`` (text, search, image, file, thinking, coder); None: all."""

    @classmethod
    def recognises(cls, lines: Sequence[str]) -> bool:
        """Whether the first line belongs to a chat."""
        row = json_object(lines[0]) or {}
        return {"chat_id", "parent_chat_id", "input_length", "hash_ids"} <= row.keys()

    def rows(self, path: Path, reject: Reject | None = None) -> Iterator[LoggedRequest]:
        """Yield the requests, seconds from the first row."""
        times = Rising("timestamp")

        def request(row: Mapping[str, Any]) -> Iterator[LoggedRequest]:
            prompt_len = tokens(row, "input_length")
            output_len = tokens(row, "output_length")
            ids = block_ids(row, "hash_ids", prompt_len, self.block_tokens)
            if not isinstance(kind := row.get("type"), str):
                raise BadRow(f"type: {shown(kind)}; expected a text such as 'search'")
            arrival_s = times.seconds(seconds(row, "timestamp"))
            if self.request_type in (None, kind):
                yield LoggedRequest(arrival_s, prompt_len, output_len, ids, self.block_tokens)

        return jsonl_rows(path, reject, request)
