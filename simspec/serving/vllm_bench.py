"""A run in the field names of the result that vLLM's ``vllm bench serve`` saves.

Like that tool it counts every request from the first to the last, without a warm-up cut, and
its gaps (ITL) are those between streamed chunks: one per burst of tokens. Standard deviations are
those of the population. Source of the names and definitions: vllm/benchmarks/serve.py of
github.com/vllm-project/vllm at 009e6d4a.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simspec.core.units import ms
from simspec.serving.measured import Gaps, Measured, Slo, percentile
from simspec.serving.records import Fate, FloatArray, RunRecords
from simspec.serving.window import Window

PERCENTILES = (50, 90, 95, 99)


def bench_result(records: RunRecords, slo: Slo, *, model: str) -> dict[str, Any]:
    """Return the fields of vLLM's benchmark result for one run.

    Parameters
    ----------
    records : RunRecords
        The run.
    slo : Slo
        Targets; without any ``request_goodput`` is None, as the tool has it.
    model : str
        For ``model_id``.
    """
    requests, steps = records.requests, records.steps
    run = Measured(records, _everything(records), slo, None)
    done = requests.fate == Fate.FINISHED
    num_done = int(done.sum())
    inputs, outputs = int(requests.prompt_len[done].sum()), int(requests.output_len[done].sum())
    has_targets = slo != Slo()
    seconds = run.window.seconds
    result = {
        "backend": "simspec",
        "model_id": model,
        "num_prompts": int(requests.request_id.size) + records.num_not_arrived,
        "max_concurrency": records.concurrency,
        "duration": seconds,
        "completed": num_done,
        "failed": int(requests.request_id.size) - num_done,
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "request_throughput": run.per_second(num_done),
        "request_goodput": run.per_second(float(run.good.sum())) if has_targets else None,
        "output_throughput": run.per_second(outputs),
        "total_token_throughput": run.per_second(inputs + outputs),
        "max_output_tokens_per_s": _peak_tokens_per_s(records),
        "max_concurrent_requests": _peak_concurrency(records, done),
        **_of_sample("ttft", run.ttft_s),
        **_of_sample("tpot", run.tpot_s),
        **_of_gaps(run.gaps),
        **_of_sample("e2el", run.e2e_s),
    }
    if drafted := int(steps.drafted.sum()):
        rounds, accepted = int(steps.num_decoding.sum()), int(steps.accepted.sum())
        result |= {
            "spec_decode_acceptance_rate": 100.0 * accepted / drafted,
            "spec_decode_acceptance_length": 1.0 + accepted / rounds,
            "spec_decode_num_drafts": rounds,
            "spec_decode_draft_tokens": drafted,
            "spec_decode_accepted_tokens": accepted,
        }
    return result


def _everything(records: RunRecords) -> Window:
    requests = records.requests
    order = np.argsort(requests.arrival_s, kind="stable")
    # Before the first step: everything that happened lies inside.
    start_s = float(requests.arrival_s.min()) if order.size else 0.0
    return Window(order, start_s, records.end_s, 0, 0)


def _of_sample(name: str, values_s: FloatArray) -> dict[str, float]:
    mean_s = float(np.mean(values_s)) if values_s.size else 0.0
    deviation_s = float(np.std(values_s)) if values_s.size else 0.0
    return _fields(name, mean_s, deviation_s, lambda level: percentile(values_s, level))


def _of_gaps(gaps: Gaps) -> dict[str, float]:
    size = gaps.size(zeros=False)
    mean_s = gaps.total_s() / size if size else 0.0
    return _fields(
        "itl",
        mean_s,
        gaps.deviation_s() if size else 0.0,
        lambda level: gaps.percentile(level, zeros=False),
    )


def _fields(
    name: str, mean_s: float, deviation_s: float, at: Callable[[float], float]
) -> dict[str, float]:
    return {
        f"mean_{name}_ms": ms(mean_s),
        f"median_{name}_ms": ms(at(50)),
        f"std_{name}_ms": ms(deviation_s),
        **{f"p{level}_{name}_ms": ms(at(level)) for level in PERCENTILES},
    }


def _peak_tokens_per_s(records: RunRecords) -> float:
    """Return the most tokens that reached clients in a whole second since the first arrival."""
    steps, arrival_s = records.steps, records.requests.arrival_s
    if not steps.start_s.size:
        return 0.0
    second = np.floor(steps.end_s - arrival_s.min()).astype(np.int64)
    # A step may be longer than the gaps between seconds with tokens: count only those.
    places = np.unique(second, return_inverse=True)[1]
    return float(np.bincount(places, weights=steps.emitted).max())


def _peak_concurrency(records: RunRecords, done: Any) -> int:
    """Return the most finished requests in flight at once; a departure comes before an arrival."""
    requests = records.requests
    times = np.concatenate([requests.last_token_s[done], requests.arrival_s[done]])
    changes = np.repeat([-1, 1], int(done.sum()))
    in_flight = np.cumsum(changes[np.argsort(times, kind="stable")])
    return int(in_flight.max()) if in_flight.size else 0
