"""The records of a fleet from those of its replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TypeVar

import numpy as np

from simspec.serving.records import IntArray, RequestRecords, RunRecords, StepRecords

_Table = TypeVar("_Table", RequestRecords, StepRecords)


def merge(parts: Sequence[RunRecords], *, num_not_arrived: int) -> RunRecords:
    """Return one run: requests by id, steps by their start and at equal times by replica.

    Parameters
    ----------
    parts : sequence of RunRecords
        One per replica, in the order of ``replica``.
    num_not_arrived : int
        Requests of the workload the clock was stopped before.
    """
    first = parts[0]
    requests = [part.requests for part in parts]
    steps = [part.steps for part in parts]
    # Stable: what starts together stays in the order of the replicas.
    in_time = np.argsort(np.concatenate([table.start_s for table in steps]), kind="stable")
    return RunRecords(
        requests=_together(requests, np.argsort(np.concatenate([r.request_id for r in requests]))),
        steps=_together(steps, in_time),
        other_gaps_s=np.concatenate([part.other_gaps_s for part in parts]),
        other_gaps_end_s=np.concatenate([part.other_gaps_end_s for part in parts]),
        refusals={key: reason for part in parts for key, reason in part.refusals.items()},
        end_s=max(part.end_s for part in parts),
        num_not_arrived=num_not_arrived,
        concurrency=first.concurrency,
        blocks_by_replica=tuple(blocks for part in parts for blocks in part.blocks_by_replica),
        block_size_tokens=first.block_size_tokens,
        max_draft=first.max_draft,
        modes=first.modes,
        num_in_system_integral_s=sum(part.num_in_system_integral_s for part in parts),
    )


def _together(tables: Sequence[_Table], order: IntArray) -> _Table:
    columns = {
        column.name: np.concatenate([getattr(table, column.name) for table in tables])[order]
        for column in fields(tables[0])
    }
    return type(tables[0])(**columns)
