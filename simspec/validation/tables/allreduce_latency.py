"""All-reduces of single nodes by message size, as microbenchmarks of NCCL print them.

Tables of eager calls (``mode`` says so) contain the launch, which captured graphs do not have:
of those only messages of 4 MiB and more are compared, which take several times as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from simspec.core.errors import SimspecError
from simspec.core.units import ms
from simspec.cost.collectives._base import collective
from simspec.hardware.load import hardware_names, load_hardware
from simspec.validation._base import Comparison, LeftOut, MeasurementTable, unknown
from simspec.validation._names import hardware_of

COLUMNS = frozenset({"system", "num_gpus", "gpus_per_node", "message_bytes", "latency_us", "mode"})
DESCRIPTION = "all-reduces of one node by message size"
NUMBERS = frozenset({"num_gpus", "gpus_per_node", "message_bytes", "latency_us", "latency_min_us"})

_SYSTEMS = {"h100_dgx": "h100_sxm", "a100_dgx": "a100_sxm_80gb"}
_SMALLEST_EAGER_BYTES = 4 * 2**20


def compare(table: MeasurementTable) -> Iterator[Comparison | LeftOut]:
    """Yield every all-reduce within a node."""
    for index, row in enumerate(table.frame.to_dict("records")):
        cells = {str(key): _cell(value) for key, value in row.items()}
        yield _judged(cells, table.line(index))


def _cell(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _judged(row: dict[str, Any], line: int) -> Comparison | LeftOut:
    system = str(row["system"])
    group = f"{system} / {row['num_gpus']} ranks"
    if None in (row["num_gpus"], row["message_bytes"], row["latency_us"]):
        return LeftOut(line, "unsupported", "ranks, message or latency are missing", row, group)
    if not (row["num_gpus"] >= 1 and row["num_gpus"] % 1 == 0 and row["message_bytes"] > 0):
        return LeftOut(line, "unsupported", "no number of ranks or no message", row, group)
    profile = _SYSTEMS.get(system) or hardware_of(system)
    if profile is None:
        return LeftOut(
            line, "unsupported", unknown("hardware profile", system, hardware_names()), row, group
        )
    ranks = int(row["num_gpus"])
    if ranks > (row["gpus_per_node"] or ranks):
        reason = "the ranks stand in several nodes, and there is no network between nodes"
        return LeftOut(line, "unsupported", reason, row, group)
    if "eager" in str(row["mode"]) and row["message_bytes"] < _SMALLEST_EAGER_BYTES:
        reason = "an eager call of a small message: most of it is the launch"
        return LeftOut(line, "suspect", reason, row, group)
    try:
        kernel = collective(
            "all_reduce",
            "all_reduce",
            bytes_per_row=1.0,
            tp=ranks,
            hardware=load_hardware(profile).with_kernels("nccl"),
        )
    except SimspecError as error:
        return LeftOut(line, "unsupported", str(error), row, group)
    seconds = float(kernel.seconds(float(row["message_bytes"])))
    return Comparison(
        quantity="latency_ms",
        measured=float(row["latency_us"]) / 1e3,
        predicted=ms(seconds),
        group=f"{profile} / nccl / {ranks} ranks",
        line=line,
        subject=row,
        breakdown={"latency_s": float(kernel.seconds(0.0)), "total_s": seconds},
        family="all_reduce, nccl",
    )
