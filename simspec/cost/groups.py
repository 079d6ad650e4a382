"""What falls to the busiest of the groups of ranks that share experts (attention data parallel).

Sequences are dealt evenly, so the group that rules a step has ``ceil(B / groups)`` of them and,
as only sums over sequences are known, that share of every sum. One prompt stays in one group.
"""

from __future__ import annotations

import math

import numpy as np

from simspec.cost.work import Quantity, Rows


def of_busiest(num_sequences: Quantity, groups: int) -> Quantity:
    """Return the sequences of the group that has most of them: ``ceil(B / groups)``."""
    if groups == 1:
        return num_sequences
    if isinstance(num_sequences, np.ndarray):
        return np.ceil(num_sequences / groups)
    return math.ceil(num_sequences / groups)


def on_busiest(group: Rows, groups: int) -> Rows:
    """Return the share of a row group that falls to the group of ranks with most sequences."""
    num_sequences = group.num_sequences
    most = of_busiest(num_sequences, groups)
    if not isinstance(num_sequences, np.ndarray) and num_sequences == 0:
        return group

    def share(quantity: Quantity) -> Quantity:
        if isinstance(num_sequences, np.ndarray):
            whole = np.where(num_sequences > 0, num_sequences, 1.0)
            return np.asarray(quantity * most / whole)
        return quantity * most / num_sequences

    return Rows(
        kind=group.kind,
        num_sequences=most,
        num_tokens=share(group.num_tokens),
        kv_tokens=share(group.kv_tokens),
        attended_tokens=share(group.attended_tokens),
        logit_rows=share(group.logit_rows),
    )
