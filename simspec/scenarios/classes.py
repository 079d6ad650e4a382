"""What requests of each class got, where a workload has several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from simspec.core.units import from_ms, ms
from simspec.serving.measured import Measured, Slo, mean, percentile
from simspec.serving.records import RunRecords
from simspec.serving.window import Window

COLUMNS = ("num_measured", "ttft_ms", "ttft_p95_ms", "tpot_ms", "e2e_ms", "slo_attainment")


class ClassLog:
    """Collects latencies by class over replications.

    Parameters
    ----------
    slo : Slo
        Of the scenario.
    targets_ms : mapping
        Targets of the time to first token that the scheduling policy has, by class.
    """

    def __init__(self, slo: Slo, targets_ms: Mapping[int, float]) -> None:
        self._slo = slo
        self._targets_ms = targets_ms
        self._runs: list[dict[int, dict[str, float]]] = []

    def add(self, records: RunRecords, window: Window) -> None:
        """Take note of one replication."""
        classes = np.unique(records.requests.priority)
        if classes.size < 2:
            return
        measured = Measured(records, window, self._slo, None)
        self._runs.append({int(number): self._row(measured, int(number)) for number in classes})

    def facts(self) -> dict[str, Any]:
        """Return ``classes``: one row per class, means over replications; nothing for one class."""
        if not self._runs:
            return {}
        numbers = sorted({number for run in self._runs for number in run})
        rows = []
        for number in numbers:
            runs = [run[number] for run in self._runs if number in run]
            row: dict[str, Any] = {"priority": number}
            for column in runs[0]:
                values = np.array([run[column] for run in runs])
                known = values[~np.isnan(values)]
                row[column] = float(known.mean()) if known.size else None
            rows.append(row)
        return {"classes": rows}

    def _row(self, measured: Measured, number: int) -> dict[str, float]:
        requests, window = measured.records.requests, measured.window
        is_of = requests.priority[measured.rows] == number
        ttft_s = measured.ttft_s[is_of]
        decodes = measured.rows[requests.output_len[measured.rows] > 1]
        all_of = window.requests[requests.priority[window.requests] == number]
        values = (
            float(all_of.size),
            ms(mean(ttft_s)),
            ms(percentile(ttft_s, 95)),
            ms(mean(measured.tpot_s[requests.priority[decodes] == number])),
            ms(mean(measured.e2e_s[is_of])),
            mean(measured.good[all_of].astype(np.float64)),
        )
        row = dict(zip(COLUMNS, values, strict=True))
        target_ms = self._targets_ms.get(number)
        if target_ms is not None:
            row["ttft_target_ms"] = target_ms
            # Who was refused or did not get that far has met no target.
            met = float(np.sum(ttft_s <= from_ms(target_ms)))
            row["ttft_target_met"] = met / all_of.size if all_of.size else float("nan")
        return row


def class_lines(classes: list[dict[str, Any]] | None) -> list[str]:
    """Return the lines of a report's header that say what each class got."""
    lines = []
    for row in classes or ():
        told = [f"{row['num_measured']:.0f} requests"]
        if row["ttft_ms"] is not None:
            told.append(f"TTFT {row['ttft_ms']:.1f} ms (95 % within {row['ttft_p95_ms']:.1f})")
        if row["tpot_ms"] is not None:
            told.append(f"TPOT {row['tpot_ms']:.2f} ms")
        if row.get("ttft_target_met") is not None:
            told.append(f"{row['ttft_target_met']:.1%} within {row['ttft_target_ms']:g} ms")
        lines.append(f"class {row['priority']:<6}{', '.join(told)}")
    return lines
