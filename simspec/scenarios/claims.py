"""Published claims about methods, held against a comparison.

A claim names a line of the comparison, a quantity and the range that a text gives for it. The
verdict of a speedup is taken at every batch of the comparison, since that is where most claims
end; memory does not depend on the batch. A claim without a quantity is about something the model
does not compute (training, code), and says why it is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from simspec.core.errors import ConfigError, nearest
from simspec.scenarios.build import Place, blame
from simspec.scenarios.schema import StrictModel

ClaimQuantity: TypeAlias = Literal["speedup", "extra_weights_gb", "extra_kv_gb", "kv_caches"]
"""``extra_weights_gb``, ``extra_kv_gb``: 10^9 bytes over all ranks, the latter of ``tokens``.
``kv_caches``: KV bytes per token of target and method together over those of the target alone: 1 is
a shared cache, 2 would be a full copy."""


class ClaimConfig(StrictModel):
    """One cell of a published table."""

    says: str = Field(min_length=1)
    """The claim in words."""
    source: str = Field(min_length=1)
    """Text and table it stands in."""
    method: str = Field(min_length=1)
    """Label of the line it is about."""
    quantity: ClaimQuantity | None = None
    """What is claimed; nothing simspec computes when not given."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens that ``extra_kv_gb`` is of."""
    low: float | None = Field(default=None, ge=0)
    """Least value that fits the claim."""
    high: float | None = Field(default=None, ge=0)
    """Largest value that fits the claim."""
    because: str = ""
    """Why it holds, or does not, in words."""

    @model_validator(mode="after")
    def _has_bounds(self) -> Self:
        bounds = self.low is not None or self.high is not None
        if bounds != (self.quantity is not None):
            raise ValueError("a claim with a quantity needs low, high or both, and only such a one")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        if (self.tokens is not None) != (self.quantity == "extra_kv_gb"):
            raise ValueError("extra_kv_gb needs tokens, and only that quantity has them")
        if self.quantity is None and not self.because:
            raise ValueError("a claim without a quantity says why it is not judged; add because")
        return self

    def verdict(self, value: float) -> str:
        """Return ``holds``, ``lower`` or ``higher`` than claimed."""
        if self.low is not None and value < self.low:
            return "lower"
        if self.high is not None and value > self.high:
            return "higher"
        return "holds"


def judged(
    claims: Sequence[ClaimConfig],
    rows: Sequence[Mapping[str, Any]],
    summaries: Sequence[Mapping[str, Any]],
    place: Place | None = None,
) -> list[dict[str, Any]]:
    """Return every claim with what the comparison gives and a verdict.

    Parameters
    ----------
    rows, summaries : sequences
        Of :func:`simspec.scenarios.compare.compare`: by line and batch, and by line.

    Raises
    ------
    ConfigError
        A claim names no line of the comparison.
    """
    by_label = {str(summary["label"]): summary for summary in summaries}
    result = []
    for index, claim in enumerate(claims):
        with blame(place, "claims", index, "method"):
            if claim.method not in by_label:
                raise ConfigError(
                    f"no line is called {claim.method!r}; {nearest(claim.method, by_label)}"
                )
        mine = [row for row in rows if row["label"] == claim.method]
        result.append(_judged(claim, mine, by_label[claim.method]))
    return result


def _judged(
    claim: ClaimConfig, rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> dict[str, Any]:
    values = _values(claim, rows, summary)
    verdicts = [(batch, value, claim.verdict(value)) for batch, value in values]
    holds = [batch for batch, _, verdict in verdicts if verdict == "holds"]
    distinct = {verdict for _, _, verdict in verdicts}
    if claim.quantity is None:
        overall = "not judged"
    elif not verdicts:
        overall = "does not fit"
    else:
        overall = distinct.pop() if len(distinct) == 1 else "holds in part"
    return {
        **claim.model_dump(mode="json"),
        "model": summary["model"],
        "hardware": summary["hardware"],
        "values": [
            {"batch": batch, "value": value, "verdict": verdict}
            for batch, value, verdict in verdicts
        ],
        "holds_at_batches": holds if claim.quantity == "speedup" else None,
        "verdict": overall,
        "acceptance": summary["acceptance"],
    }


def _values(
    claim: ClaimConfig,
    rows: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
) -> list[tuple[int | None, float]]:
    quantity, tp = claim.quantity, summary["tp"]
    if quantity is None:
        return []
    if quantity == "speedup":
        return [(row["batch"], row["speedup"]) for row in rows if row["status"] == "ok"]
    if quantity == "extra_weights_gb":
        return [(None, summary["extra_weights_bytes_all_ranks"] / 1e9)]
    if quantity == "extra_kv_gb":
        per_token = summary["extra_kv_bytes_per_token"] * tp
        return [(None, per_token * (claim.tokens or 0) / 1e9)]
    own = summary["kv_bytes_per_token"]
    return [(None, own / (own - summary["extra_kv_bytes_per_token"]))]
