"""Mooncake traces (JSON Lines): times in milliseconds, prompts as 512-token blocks.

Each line: ``timestamp`` (ms from the start), ``input_length``, ``output_length``, ``hash_ids``
(one id per prefix block of the prompt, the last usually partial; two prompts are equal up to the
first id that differs). Thousands of requests share a timestamp: they keep their order, or
``spread_ties`` of a replay draws them apart. Published at github.com/kvcache-ai/Mooncake under
Apache-2.0 (Qin et al., "Mooncake", FAST 2025).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from simspec.workloads._base import ImporterConfig, LoggedRequest, Reject
from simspec.workloads.importers._rows import (
    Rising,
    block_ids,
    json_object,
    jsonl_rows,
    tokens,
    whole,
)


class Config(ImporterConfig):
    """Reads a Mooncake trace."""

    about: ClassVar[str] = "JSON Lines in ms, hashes of 512-token blocks; kvcache-ai/Mooncake"
    sample: ClassVar[bytes] = (
        b'{"timestamp": 1000, "input_length": 1030, "output_length": 52, "hash_ids": [0, 1, 2]}\n'
        b'{"timestamp": 1000, "input_length": 600, "output_length": 26, "hash_ids": [0, 3]}\n'
        b'{"timestamp": 4001, "input_length": 7, "output_length": 3, "hash_ids": [4]}\n'
    )
    sample_rows: ClassVar[tuple[LoggedRequest, ...]] = (
        LoggedRequest(0.0, 1030, 52, (0, 1, 2), 512),
        LoggedRequest(0.0, 600, 26, (0, 3), 512),
        LoggedRequest(3.001, 7, 3, (4,), 512),
    )

    block_tokens: int = Field(default=512, ge=1, le=1_000_000)
    """Tokens of the prompt that one hash stands for."""

    @classmethod
    def recognises(cls, lines: Sequence[str]) -> bool:
        """Whether the first line has a hash list and no chat."""
        row = json_object(lines[0]) or {}
        return {"timestamp", "input_length", "hash_ids"} <= row.keys() and "chat_id" not in row

    def rows(self, path: Path, reject: Reject | None = None) -> Iterator[LoggedRequest]:
        """Yield the requests, seconds from the first row."""
        times = Rising("timestamp", 1000)

        def request(row: Mapping[str, Any]) -> LoggedRequest:
            prompt_len = tokens(row, "input_length")
            output_len = tokens(row, "output_length")
            ids = block_ids(row, "hash_ids", prompt_len, self.block_tokens)
            arrival_s = times.seconds(whole(row, "timestamp", "milliseconds"))
            return LoggedRequest(arrival_s, prompt_len, output_len, ids, self.block_tokens)

        return jsonl_rows(path, reject, request)
