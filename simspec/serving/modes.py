"""When a run decoded in which mode: shares of time and the switches between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from simspec.serving.records import RunRecords


def mode_shares(records: RunRecords) -> list[dict[str, Any]]:
    """Return one row per mode of a run, in their order.

    Returns
    -------
    list of dict
        ``mode``, ``draft_in_force`` (tokens), ``share_of_time`` (of the time of all steps) and
        ``steps``.
    """
    steps = records.steps
    count = len(records.modes)
    seconds = np.bincount(steps.mode, weights=steps.duration_s, minlength=count)
    numbers = np.bincount(steps.mode, minlength=count)
    total_s = float(seconds.sum())
    return [
        {
            "mode": mode.name,
            "draft_in_force": mode.max_draft,
            "share_of_time": float(seconds[index]) / total_s if total_s else None,
            "steps": int(numbers[index]),
        }
        for index, mode in enumerate(records.modes)
    ]


def switches(records: RunRecords) -> list[dict[str, Any]]:
    """Return when each mode came into force on each replica, the first one included.

    Returns
    -------
    list of dict
        ``time_s`` and ``mode``, in order of time; of a fleet ``replica`` too.
    """
    steps = records.steps
    own = np.argsort(steps.replica, kind="stable")
    changes = (np.diff(steps.mode[own], prepend=-1) != 0) | (
        np.diff(steps.replica[own], prepend=-1) != 0
    )
    is_fleet = records.num_replicas > 1
    return [
        {
            "time_s": float(steps.start_s[step]),
            "mode": records.modes[int(steps.mode[step])].name,
            **({"replica": int(steps.replica[step])} if is_fleet else {}),
        }
        for step in np.sort(own[changes])
    ]
