"""Published runs of speculative decoding: cost of a round and speedup, beside the closed form.

Each row with a known card, model, method and acceptance is predicted *with the published
acceptance*, so that what is judged is the cost model: ``step_cost_ratio`` is the time of a round
over that of a plain step, published as mean tokens per round over speedup. Only host times of
engines were fitted on such rows (:mod:`simspec.calibration.speculation_overheads`); those rows have
the role ``fitted``. Rows with times have them compared too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simspec.core.errors import SimspecError
from simspec.scenarios.build import Deployment
from simspec.scenarios.closed_form import RoundEstimate, estimate_round
from simspec.scenarios.uncertainty import interval_95
from simspec.validation._base import Comparison, LeftOut, MeasurementTable, Role
from simspec.validation._physics import not_positive
from simspec.validation.tables._published_runs import (
    Run,
    deployment_of,
    is_fitted,
    run_of,
    sigma_of,
)
from simspec.validation.tables._published_settings import NoRun, Pairs, number

COLUMNS = frozenset(
    {
        "method",
        "target_model",
        "draft",
        "hardware",
        "num_gpus",
        "batch",
        "dataset",
        "draft_len",
        "mean_tokens_per_step",
        "acceptance_rate",
        "baseline_tok_s",
        "spec_tok_s",
        "speedup",
        "source",
    }
)
NUMBERS = frozenset(
    {"num_gpus", "batch", "draft_len", "mean_tokens_per_step", "acceptance_rate"}
    | {"baseline_tok_s", "spec_tok_s", "speedup", "params_b", "temperature", "tau"}
)
DESCRIPTION = "published runs of speculative decoding"
_SUBJECT = (
    "method",
    "target_model",
    "draft",
    "hardware",
    "batch",
    "dataset",
    "draft_len",
    "mean_tokens_per_step",
    "acceptance_rate",
    "source",
)
_FASTEST = 0.95
"""A round that is published as this much cheaper than a plain step, or more, cannot be."""


def compare(table: MeasurementTable) -> Iterator[Comparison | LeftOut]:
    """Yield every row: compared (up to three quantities), or left out with the reason."""
    rows: list[dict[str, Any]] = [
        {str(key): value for key, value in row.items()} for row in table.frame.to_dict("records")
    ]
    pairs = Pairs(rows)
    for index, row in enumerate(rows):
        line, subject = table.line(index), _subject(row)
        run = run_of(row, pairs)
        if isinstance(run, NoRun):
            yield LeftOut(line, run.cause, run.reason, subject)
            continue
        speedup, rate = number(row, "speedup"), number(row, "spec_tok_s")
        published = (("speedup", speedup), ("spec_tok_s", rate))
        impossible = [not_positive(name, v) for name, v in published if v is not None]
        if refuted := next((reason for reason in impossible if reason), None):
            yield LeftOut(line, "refuted", refuted, subject)
            continue
        if speedup is None and run.batch > 1:
            reason = "the speed of a batch without a speedup: whose speed it is, is not stated"
            yield LeftOut(line, "unsupported", reason, subject)
            continue
        if speedup is not None and run.tokens_per_round / speedup < _FASTEST:
            ratio = run.tokens_per_round / speedup
            reason = (
                f"{run.tokens_per_round:.2f} tokens per round at {speedup:.2f} times the speed "
                f"leave {ratio:.2f} plain steps for a round that contains one"
            )
            yield LeftOut(line, "refuted", reason, subject)
            continue
        try:
            deployment = deployment_of(run)
        except SimspecError as error:
            yield LeftOut(line, "unsupported", str(error), subject)
            continue
        yield from _compared(row, run, deployment, line, subject)


def _compared(
    row: Mapping[str, Any],
    run: Run,
    deployment: Deployment,
    line: int,
    subject: Mapping[str, str | float | int | None],
) -> Iterator[Comparison]:
    result = estimate_round(deployment, run.batch, run.context)
    step_s, round_s = float(result.step_time_s), float(result.round_time_s)
    role: Role = "fitted" if is_fitted(row) else "held_out"
    group = f"{run.hardware} / {run.engine} / {run.model} / {row['method']}"
    sigma = sigma_of(run)
    found: list[tuple[Any, float, float]] = []
    speedup, tokens = number(row, "speedup"), run.tokens_per_round
    if speedup is not None:
        found.append(("step_cost_ratio", tokens / speedup, round_s / step_s))
        found.append(("speedup", speedup, tokens * step_s / round_s))
    rate = number(row, "spec_tok_s")
    if rate is not None and run.batch == 1:
        found.append(("tpot_ms", 1e3 / rate, round_s * 1e3 / tokens))
    for quantity, measured, predicted in found:
        yield Comparison(
            quantity=quantity,
            measured=measured,
            predicted=predicted,
            group=group,
            line=line,
            subject={
                **subject,
                "tokens_per_round": tokens,
                "context": run.context,
                "assumed": "; ".join(run.assumed),
            },
            role=role,
            interval=_interval(predicted, sigma, quantity),
            breakdown=_breakdown(result, step_s),
            family=run.family,
        )


def _interval(predicted: float, sigma: Mapping[str, float], quantity: str) -> tuple[float, float]:
    """Return 95 % by the errors of the profiles; a ratio of times errs less than the times."""
    name = "tpot" if quantity == "tpot_ms" else "speedup"
    low, high = interval_95(predicted, sigma[name])
    return low, high


def _breakdown(result: RoundEstimate, step_s: float) -> dict[str, float]:
    """Return the parts of the round in seconds, and the plain step beside them."""
    return {
        "draft": float(result.draft_s),
        "verify": float(result.verify_s),
        "host": float(result.host_s),
        "plain_step": step_s,
    }


def _subject(row: Mapping[str, Any]) -> dict[str, str | float | int | None]:
    return {key: None if row[key] != row[key] else row[key] for key in _SUBJECT}
