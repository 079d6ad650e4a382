"""What the engine did over time: a row per step, or per interval when steps are many.

Each replica has rows of its own. A step belongs to the interval in which it ends, so sums over the
rows are sums over the steps. States (queue, batch, KV, K in force) are means over the time of an
interval's steps; rates and roof shares are over the whole interval, idle time included.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simspec.core.units import ms
from simspec.serving.measured import Roofs
from simspec.serving.records import PHASES, FloatArray, IntArray, RunRecords

STATES = {
    "waiting_requests": "num_waiting",
    "running_requests": "num_running",
    "decoding_sequences": "num_decoding",
    "prefilling_sequences": "num_prefilling",
    "kv_blocks_used": "kv_blocks_used",
    "draft_in_force_tokens": "draft_in_force",
}
"""Column of a state: the column of the steps it is the mean of."""
SUMS = {
    "output_tokens": "emitted",
    "prefill_tokens": "prefill_tokens",
    "drafted_tokens": "drafted",
    "accepted_tokens": "accepted",
    "preemptions": "num_preempted",
}
"""Column of a count: the column of the steps it is the sum of."""


def time_series(records: RunRecords, roofs: Roofs, max_rows: int) -> dict[str, Any]:
    """Return the columns of the time series of one run, units in the names.

    Parameters
    ----------
    records : RunRecords
        The run.
    roofs : Roofs
        Of one rank, for the roof shares.
    max_rows : int
        Up to so many steps have a row each, longer runs about as many intervals of equal length,
        divided among the replicas.
    """
    steps = records.steps
    rows, start_s, length_s, replica = _rows(records, max_rows)
    num_rows = start_s.size

    def total(values: FloatArray | IntArray) -> FloatArray:
        return np.asarray(np.bincount(rows, weights=values, minlength=num_rows), dtype=np.float64)

    busy_s = total(steps.duration_s)
    per_s = np.where(length_s > 0, length_s, np.inf)
    weights = np.where(busy_s > 0, busy_s, np.inf)
    states = {
        name: total(getattr(steps, column) * steps.duration_s) / weights
        for name, column in STATES.items()
    }
    sums = {name: total(getattr(steps, column)).astype(np.int64) for name, column in SUMS.items()}
    pool = np.array(records.blocks_by_replica)[replica]
    return {
        "replica": replica,
        "start_s": start_s,
        "duration_s": length_s,
        "steps": np.bincount(rows, minlength=num_rows),
        "busy_ms": ms(busy_s),
        **states,
        "kv_used_share": states["kv_blocks_used"] / pool,
        "compute_roof_share": total(steps.flop) / (per_s * roofs.peak_flop_per_s),
        "bandwidth_roof_share": total(steps.bytes) / (per_s * roofs.bandwidth_bytes_per_s),
        **sums,
        "output_tokens_per_s": total(steps.emitted) / per_s,
        **{f"{phase}_ms": ms(total(steps.phase_s[:, i])) for i, phase in enumerate(PHASES)},
        "host_ms": ms(total(steps.host_s)),
        "swap_ms": ms(total(steps.swap_s)),
    }


def _rows(records: RunRecords, max_rows: int) -> tuple[IntArray, FloatArray, FloatArray, IntArray]:
    """Return the row of each step, and start, length and replica of each row."""
    steps = records.steps
    num_steps = steps.start_s.size
    if num_steps <= max_rows:
        return np.arange(num_steps), steps.start_s, steps.duration_s, steps.replica
    num_replicas = records.num_replicas
    per_replica = max(1, max_rows // num_replicas)
    first_s, last_s = float(steps.start_s.min()), float(steps.end_s.max())
    width_s = (last_s - first_s) / per_replica
    place = np.ceil((steps.end_s - first_s) / width_s).astype(np.int64) - 1
    rows = steps.replica * per_replica + np.clip(place, 0, per_replica - 1)
    starts_s = np.asarray(first_s + width_s * np.arange(per_replica), dtype=np.float64)
    return (
        rows,
        np.tile(starts_s, num_replicas),
        np.full(per_replica * num_replicas, width_s),
        np.repeat(np.arange(num_replicas), per_replica),
    )
