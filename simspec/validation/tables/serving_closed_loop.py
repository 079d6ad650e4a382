"""Serving engines under a closed loop of users: mean TTFT and time per output token.

One row is one benchmark run. ``simspec.validation.serving_rows`` makes a deployment and a load of
it, ``simspec.scenarios.closed_loop`` predicts, and rows that perfect kernels refute or that their
neighbours contradict are left out with the arithmetic. ``role`` is ``fitted`` for the half of the
deployments that engine profiles were fitted to (``simspec.calibration.engines.is_fitted``).
Intervals are those of the profiles' errors; that of TTFT is wide, since it holds habits of the
benchmarks that no column states.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

from simspec.core.units import ms
from simspec.scenarios.closed_loop import ClosedLoopEstimate
from simspec.scenarios.uncertainty import interval_95
from simspec.validation._base import Comparison, LeftOut, MeasurementTable, Quantity
from simspec.validation.serving_rows import Group, groups

COLUMNS = frozenset(
    {"hardware", "engine", "engine_version", "model", "precision"}
    | {"gemm_quant_mode", "moe_quant_mode", "tp", "attention_dp", "moe_tp", "moe_ep"}
    | {"concurrency", "input_len", "output_len", "measured_on", "ttft_ms", "tpot_ms"}
)
DESCRIPTION = "closed loops of users on serving engines"
NUMBERS = frozenset(
    {"tp", "pp", "attention_dp", "moe_tp", "moe_ep"}
    | {"concurrency", "input_len", "output_len", "ttft_ms", "tpot_ms"}
)

_PARTS: Mapping[Quantity, tuple[str, ...]] = {
    "tpot_ms": ("decode_s", "stall_s"),
    "ttft_ms": ("prefill_s", "step_wait_s", "burst_s", "queue_s", "front_end_s"),
}


def compare(table: MeasurementTable) -> Iterator[Comparison | LeftOut]:
    """Yield TPOT and TTFT of every row, or why it is left out."""
    found: dict[int, list[Comparison | LeftOut]] = {}
    records = cast(list[dict[str, Any]], table.frame.to_dict("records"))
    for group in groups(table.frame):
        if not isinstance(group, Group):
            for index in group.index:
                found[index] = [
                    LeftOut(
                        table.line(index),
                        "unsupported",
                        group.reason,
                        _subject(records[index]),
                        group.name,
                    )
                ]
            continue
        predicted, sigma = group.predict(), dict(zip(_PARTS, group.sigma(), strict=True))
        for place, index in enumerate(group.index):
            doubt, subject = group.doubts[place], _subject(records[index])
            if doubt is not None:
                row = LeftOut(table.line(index), doubt.cause, doubt.reason, subject, group.name)
                found[index] = [row]
                continue
            found[index] = [
                _comparison(
                    group,
                    predicted,
                    place,
                    quantity,
                    line=table.line(index),
                    subject=subject,
                    sigma=float(sigma[quantity][place]),
                )
                for quantity in _PARTS
            ]
    for index in range(len(records)):
        yield from found[index]


def _comparison(
    group: Group,
    predicted: ClosedLoopEstimate,
    place: int,
    quantity: Quantity,
    *,
    line: int,
    subject: Mapping[str, str | float | int | None],
    sigma: float,
) -> Comparison:
    name = quantity.replace("_ms", "_s")
    value = ms(float(getattr(predicted, name)[place]))
    low, high = interval_95(value, sigma)
    return Comparison(
        quantity=quantity,
        measured=ms(float(getattr(group, name)[place])),
        predicted=value,
        group=group.name,
        line=line,
        subject=subject,
        role="fitted" if group.is_fitted else "held_out",
        interval=(low, high),
        breakdown={part: float(getattr(predicted, part)[place]) for part in _PARTS[quantity]},
        family=group.family,
    )


def _subject(row: Mapping[str, Any]) -> dict[str, str | float | int | None]:
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in row.items()
    }
