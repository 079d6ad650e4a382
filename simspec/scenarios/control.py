"""What speculation control did in the replications of a scenario, for its report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simspec.decoding.unverified_exit import expected_disagreement
from simspec.scenarios.build import Deployment
from simspec.serving.modes import mode_shares, switches
from simspec.serving.records import RunRecords


class ControlLog:
    """Collects the modes of replications.

    Parameters
    ----------
    deployment : Deployment
        Whose runs they are.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._shares: list[list[dict[str, Any]]] = []
        self._switches: list[list[dict[str, Any]]] = []

    def add(self, records: RunRecords) -> None:
        """Take note of one replication."""
        if self._deployment.speculation is not None:
            self._shares.append(mode_shares(records))
            self._switches.append(switches(records))

    def summary(self) -> dict[str, Any] | None:
        """Return the facts of all replications; None where nothing was controlled.

        Returns
        -------
        dict or None
            ``policy`` and ``options``; ``modes``, whose shares of time are means over
            replications; ``num_switches`` of each replication; ``switches`` of the first one, the
            start included; ``expected_disagreement``, the share of unverified tokens that are
            expected not to be the target's choice, None where all are verified.
        """
        deployment = self._deployment
        if deployment.speculation is None:
            return None
        config = deployment.config.speculation
        has_exit = not all(mode.is_verified for mode in deployment.speculation.modes)
        quality = None
        if has_exit and deployment.acceptance is not None:
            quality = expected_disagreement(deployment.acceptance)
        return {
            "policy": config.name,
            "options": config.model_dump(mode="json", exclude={"name"}),
            "modes": [_averaged(rows) for rows in zip(*self._shares, strict=True)],
            "num_switches": [_num_switches(times) for times in self._switches],
            "switches": self._switches[0],
            "expected_disagreement": quality,
        }


def _num_switches(times: list[dict[str, Any]]) -> int:
    """Return how often a mode changed: the first mode of each replica is none."""
    return len(times) - len({change.get("replica") for change in times})


def _averaged(rows: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    known = [row["share_of_time"] for row in rows if row["share_of_time"] is not None]
    return {
        "mode": rows[0]["mode"],
        "draft_in_force": rows[0]["draft_in_force"],
        "share_of_time": sum(known) / len(known) if known else None,
    }


def control_lines(speculation: Mapping[str, Any] | None) -> list[str]:
    """Return the lines of a report's header that say which modes were in force."""
    if speculation is None:
        return []
    used = [mode for mode in speculation["modes"] if mode["share_of_time"]]
    shares = ", ".join(f"{mode['mode']} {mode['share_of_time']:.1%}" for mode in used)
    counts = speculation["num_switches"]
    mean = sum(counts) / len(counts)
    lines = [
        f"speculation {speculation['policy']}: {shares} of the time, {mean:.4g} switches a run"
    ]
    if (quality := speculation["expected_disagreement"]) is not None:
        lines.append(
            f"            not lossless: {quality:.1%} of the unverified tokens are expected not "
            "to be the target's choice"
        )
    return lines
