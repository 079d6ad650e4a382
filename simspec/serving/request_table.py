"""One row per request that arrived: what a spreadsheet of the run holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from simspec.core.units import ms
from simspec.serving.measured import Measured
from simspec.serving.records import Fate, RunRecords

FATES: dict[int, str] = {fate.value: fate.name.lower() for fate in Fate}


def request_table(records: RunRecords, measured: Measured) -> dict[str, Any]:
    """Return the columns of the requests of one run, in order of ``request_id``.

    Times that did not happen are NaN: no TTFT of a request that still waits, no TPOT of a single
    token, no E2E latency of one that did not finish.

    Parameters
    ----------
    records : RunRecords
        The run.
    measured : Measured
        Its measured part, for which requests count and which met every target.

    Returns
    -------
    dict
        Array (requests,) per column, units in the names.
    """
    requests = records.requests
    finished = requests.fate == Fate.FINISHED
    is_measured = np.zeros(finished.size, dtype=bool)
    is_measured[measured.window.requests] = True
    decode_s = requests.last_token_s - requests.first_token_s
    several = finished & (requests.output_len > 1)
    nothing = np.nan
    reasons = [records.refusals.get(i) for i in requests.request_id.tolist()]
    return {
        "request_id": requests.request_id,
        "replica": requests.replica,
        "priority": requests.priority,
        "fate": [FATES[fate] for fate in requests.fate.tolist()],
        "reason": reasons,
        "is_measured": is_measured,
        "is_within_slo": measured.good,
        "prompt_tokens": requests.prompt_len,
        "output_tokens": requests.output_len,
        "emitted_tokens": requests.emitted,
        "arrival_s": requests.arrival_s,
        "last_token_s": requests.last_token_s,
        "queueing_ms": ms(requests.queue_s),
        "ttft_ms": ms(requests.first_token_s - requests.arrival_s),
        "ttft_queue_ms": ms(requests.admission_s - requests.arrival_s),
        "ttft_prefill_ms": ms(requests.first_token_s - requests.admission_s),
        "tpot_ms": ms(
            np.where(several, decode_s / np.maximum(requests.output_len - 1, 1), nothing)
        ),
        "max_itl_ms": ms(np.where(requests.emitted > 1, requests.max_gap_s, nothing)),
        "e2e_ms": ms(np.where(finished, requests.last_token_s - requests.arrival_s, nothing)),
        "rounds": requests.num_rounds,
        "drafted_tokens": requests.drafted,
        "accepted_tokens": requests.accepted,
        "preemptions": requests.num_preemptions,
        "recomputed_tokens": requests.recomputed_tokens,
        "swapped_tokens": requests.swapped_tokens,
        "cached_tokens": requests.cached_tokens,
    }
