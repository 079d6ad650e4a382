"""What a run delivered, from its records: one function per metric.

Definitions, symbols first, are on ``docs/reference/metrics.md``; latencies mean what vLLM's and
GenAI-Perf's benchmark tools mean by them. A metric that a run does not define (a mean over
nobody) is NaN. Nothing here has a confidence interval: numbers within one run are correlated,
intervals come from replications.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Literal

import numpy as np

from simspec.core.units import ms
from simspec.serving import spending
from simspec.serving._metric import METRICS, Metric, metric
from simspec.serving.measured import Measured, Roofs, Slo, mean, percentile, ratio
from simspec.serving.records import Fate, FloatArray, RunRecords
from simspec.serving.window import measured_window

OWN_PAGES = (spending,)
"""Modules of metrics that register themselves."""
PERCENTILES = (50, 90, 95, 99)
LATENCIES = ("ttft", "tpot", "itl", "e2e")

__all__ = [
    "LATENCIES",
    "METRICS",
    "PERCENTILES",
    "Metric",
    "latency_quantiles_ms",
    "latency_quantiles_of",
    "metric",
    "metrics_of",
    "summarise",
]


def summarise(
    records: RunRecords,
    slo: Slo | None = None,
    *,
    roofs: Roofs | None = None,
    warmup: Literal["auto"] | float = "auto",
    cooldown: Literal["auto"] | float = "auto",
) -> dict[str, float]:
    """Return every metric of a run by its key.

    Parameters
    ----------
    records : RunRecords
        The run.
    slo : Slo, optional
        Targets for goodput and attainment; none: every finished request is good.
    roofs : Roofs, optional
        For the utilisations, which are NaN without.
    warmup, cooldown : float or "auto"
        See :func:`simspec.serving.window.measured_window`.
    """
    window = measured_window(records, warmup=warmup, cooldown=cooldown)
    return metrics_of(Measured(records, window, slo or Slo(), roofs))


def metrics_of(measured: Measured) -> dict[str, float]:
    """Return every metric of a part of a run by its key."""
    return {name: entry.compute(measured) for name, entry in METRICS.items()}


def latency_quantiles_ms(
    records: RunRecords,
    *,
    warmup: Literal["auto"] | float = "auto",
    cooldown: Literal["auto"] | float = "auto",
) -> dict[str, FloatArray]:
    """Return the quantiles at 0, 1, …, 100 % of each request latency over the measured requests.

    Returns
    -------
    dict
        ``ttft_quantiles_ms``, ``tpot_quantiles_ms``, ``e2e_quantiles_ms``: array (101,),
        milliseconds, NaN when nobody was measured.
    """
    window = measured_window(records, warmup=warmup, cooldown=cooldown)
    return latency_quantiles_of(Measured(records, window, Slo(), None))


def latency_quantiles_of(measured: Measured) -> dict[str, FloatArray]:
    """Return what :func:`latency_quantiles_ms` does for a part of a run."""
    samples = {"ttft": measured.ttft_s, "tpot": measured.tpot_s, "e2e": measured.e2e_s}
    levels = np.arange(101.0)
    return {
        f"{name}_quantiles_ms": np.asarray(
            ms(np.percentile(values, levels)) if values.size else np.full(101, nan)
        )
        for name, values in samples.items()
    }


# -- latencies -----------------------------------------------------------------------------


@metric("ms")
def ttft_ms(run: Measured) -> float:
    """Mean time from arrival to the first token."""
    return ms(mean(run.ttft_s))


@metric("ms")
def ttft_queue_ms(run: Measured) -> float:
    """Mean time from arrival to the first admission: the queueing part of TTFT."""
    return ms(mean(run.admitted_after_s))


@metric("ms")
def ttft_prefill_ms(run: Measured) -> float:
    """Mean time from the first admission to the first token: the prefill part of TTFT."""
    return ms(mean(run.ttft_s - run.admitted_after_s))


@metric("ms")
def tpot_ms(run: Measured) -> float:
    """Mean over requests of (E2E - TTFT) / (output tokens - 1): ITL per request (GenAI-Perf)."""
    return ms(mean(run.tpot_s))


@metric("ms")
def itl_ms(run: Measured) -> float:
    """Mean gap between consecutive tokens, all requests pooled; 0 within a burst."""
    return ms(ratio(run.gaps.total_s(), run.gaps.size()))


@metric("ms")
def e2e_ms(run: Measured) -> float:
    """Mean time from arrival to the last token."""
    return ms(mean(run.e2e_s))


def _register_percentiles() -> None:
    samples: dict[str, Callable[[Measured, float], float]] = {
        "ttft": lambda run, level: percentile(run.ttft_s, level),
        "tpot": lambda run, level: percentile(run.tpot_s, level),
        "itl": lambda run, level: run.gaps.percentile(level),
        "e2e": lambda run, level: percentile(run.e2e_s, level),
        "burst_gap": lambda run, level: run.gaps.percentile(level, zeros=False),
    }
    for latency, sample in samples.items():
        for level in PERCENTILES:
            name = f"{latency}_p{level}_ms"
            compute = _in_ms(sample, level)
            METRICS[name] = Metric(name, "ms", f"{level} % of {latency} lie below.", compute)


def _in_ms(sample: Callable[[Measured, float], float], level: float) -> Callable[[Measured], float]:
    return lambda run: ms(sample(run, level))


_register_percentiles()


@metric("ms")
def burst_gap_ms(run: Measured) -> float:
    """Mean gap between bursts of tokens, requests pooled: ITL as vLLM's benchmark times chunks."""
    return ms(ratio(run.gaps.total_s(), run.gaps.size(zeros=False)))


@metric("ms")
def longest_gap_ms(run: Measured) -> float:
    """Mean over requests of the longest gap between two of its tokens."""
    rows = run.rows[run.records.requests.output_len[run.rows] > 1]
    return ms(mean(run.records.requests.max_gap_s[rows]))


@metric("ms")
def queue_ms(run: Measured) -> float:
    """Mean time in the waiting queue, after preemptions included."""
    return ms(mean(run.queue_s))


@metric("ms")
def kv_transfer_ms(run: Measured) -> float:
    """Mean time from the first token to the arrival of the prompt's KV at the decode replica."""
    requests = run.records.requests
    taken_s = (requests.landed_s - requests.first_token_s)[run.rows]
    return ms(mean(taken_s[~np.isnan(taken_s)]))


@metric("1")
def queueing_share(run: Measured) -> float:
    """Time in the waiting queue as a share of end-to-end latency, sum over sum."""
    return ratio(float(run.queue_s.sum()), float(run.e2e_s.sum()))


# -- rates ---------------------------------------------------------------------------------


@metric("tokens/s")
def throughput_tokens_per_s(run: Measured) -> float:
    """Output tokens per second over the window."""
    return run.per_second(run.step_sum(run.records.steps.emitted))


@metric("1/s")
def requests_per_s(run: Measured) -> float:
    """Requests finished per second over the window."""
    return run.per_second(float(run.left_in_window.sum()))


@metric("1/s")
def goodput_requests_per_s(run: Measured) -> float:
    """Requests finished per second, times the share of the measured ones that met every target."""
    # Requests of the warm-up finish inside the window too; how long they took does not count.
    return requests_per_s(run) * mean(run.good[run.rows].astype(np.float64))


@metric("1")
def slo_attainment(run: Measured) -> float:
    """Share of the measured requests that met every target; refused and unfinished ones did not."""
    return mean(run.good[run.window.requests].astype(np.float64))


# -- speculation ---------------------------------------------------------------------------


@metric("tokens")
def drafted_per_round(run: Measured) -> float:
    """Mean m, tokens drafted per sequence and round."""
    steps = run.records.steps
    return ratio(run.step_sum(steps.drafted), run.step_sum(steps.num_decoding))


@metric("tokens")
def accepted_per_round(run: Measured) -> float:
    """Mean a, drafted tokens accepted per sequence and round."""
    steps = run.records.steps
    return ratio(run.step_sum(steps.accepted), run.step_sum(steps.num_decoding))


@metric("tokens")
def tokens_per_round(run: Measured) -> float:
    """Mean a + 1, the target's own token counted: SGLang's accept length, vLLM's mean length."""
    return accepted_per_round(run) + 1.0


@metric("1")
def acceptance_rate(run: Measured) -> float:
    """Accepted / drafted, the target's own token left out: vLLM's draft acceptance rate."""
    steps = run.records.steps
    return ratio(run.step_sum(steps.accepted), run.step_sum(steps.drafted))


@metric("1")
def wasted_draft_share(run: Measured) -> float:
    """Rejected / drafted."""
    return 1.0 - acceptance_rate(run)


@metric("tokens")
def draft_in_force(run: Measured) -> float:
    """Most tokens a round may draft, averaged over the time of the steps that decode."""
    steps = run.records.steps
    seconds = steps.duration_s[run.is_round]
    return ratio(float(steps.draft_in_force[run.is_round] @ seconds), float(seconds.sum()))


@metric("1")
def mode_switches(run: Measured) -> float:
    """How often speculation control put another draft length, or none, in force."""
    steps = run.records.steps
    # Sorted by replica, the steps of each stay in order; between two replicas nobody switches.
    own = np.flatnonzero(run.in_window)
    own = own[np.argsort(steps.replica[own], kind="stable")]
    same = np.diff(steps.replica[own]) == 0
    return float(np.count_nonzero(same & (np.diff(steps.mode[own]) != 0)))


@metric("1")
def unverified_share(run: Measured) -> float:
    """Output tokens of decode rounds that nothing verified / all output tokens."""
    steps = run.records.steps
    unverified = [index for index, mode in enumerate(run.records.modes) if not mode.is_verified]
    here = np.isin(steps.mode, unverified)
    tokens = run.step_sum(np.where(here, steps.emitted - steps.num_prefilled, 0))
    return ratio(tokens, run.step_sum(steps.emitted))


# -- time and work per step ----------------------------------------------------------------


@metric("ms")
def round_time_ms(run: Measured) -> float:
    """Mean duration of the engine steps in which somebody decodes, prompt chunks included."""
    return ms(mean(run.records.steps.duration_s[run.is_round]))


@metric("ms")
def engine_step_time_ms(run: Measured) -> float:
    """Mean duration of all engine steps, those without a decode round included."""
    return ms(mean(run.records.steps.duration_s[run.in_window]))


@metric("ms")
def time_draft_ms(run: Measured) -> float:
    """Mean time of draft and catch-up passes in a step that decodes."""
    return ms(run.phase_per_round_s("draft", "catch_up"))


@metric("ms")
def time_verify_ms(run: Measured) -> float:
    """Mean time of verification, or of plain decoding, in a step that decodes."""
    return ms(run.phase_per_round_s("verify", "decode"))


@metric("ms")
def time_prefill_ms(run: Measured) -> float:
    """Mean time that prompt chunks add to a step that decodes."""
    return ms(run.phase_per_round_s("prefill"))


@metric("ms")
def time_host_ms(run: Measured) -> float:
    """Mean time the device waits for the host in a step that decodes."""
    return ms(mean(run.records.steps.host_s[run.is_round]))


@metric("1")
def network_share(run: Measured) -> float:
    """Time in collectives as a share of the time of all steps."""
    steps = run.records.steps
    return ratio(run.step_sum(steps.network_s), run.step_sum(steps.duration_s))


@metric("sequences")
def mean_batch_size(run: Measured) -> float:
    """Mean number of sequences in an engine step, decoding or prefilling."""
    return mean(run.records.steps.batch_size[run.in_window])


# -- use of the machine --------------------------------------------------------------------


@metric("1")
def busy_share(run: Measured) -> float:
    """Share of the window in which a step was running, averaged over replicas."""
    busy_s = run.step_sum(run.records.steps.duration_s) / run.records.num_replicas
    return min(1.0, run.per_second(busy_s))


@metric("1")
def kv_utilisation(run: Measured) -> float:
    """Share of the KV blocks that is held, averaged over the window's time, idle time included."""
    steps = run.records.steps
    held = run.step_sum(steps.kv_blocks_used * steps.duration_s)
    return ratio(run.per_second(held), run.records.num_blocks)


@metric("1")
def compute_utilisation(run: Measured) -> float:
    """FLOP done / FLOP at peak over the window, idle time included."""
    peak = run.roofs.peak_flop_per_s * run.records.num_replicas if run.roofs else nan
    return ratio(run.per_second(run.step_sum(run.records.steps.flop)), peak)


@metric("1")
def bandwidth_utilisation(run: Measured) -> float:
    """Bytes moved / bytes at full bandwidth over the window, idle time included."""
    peak = run.roofs.bandwidth_bytes_per_s * run.records.num_replicas if run.roofs else nan
    return ratio(run.per_second(run.step_sum(run.records.steps.bytes)), peak)


# -- counts --------------------------------------------------------------------------------


@metric("requests")
def num_measured(run: Measured) -> float:
    """Requests inside the window, whatever became of them."""
    return float(run.window.requests.size)


@metric("requests")
def num_censored(run: Measured) -> float:
    """Measured requests still waiting or running when the clock stopped; in no mean latency."""
    fate = run.records.requests.fate[run.window.requests]
    return float(((fate == Fate.RUNNING) | (fate == Fate.WAITING)).sum())


@metric("requests")
def num_refused(run: Measured) -> float:
    """Measured requests that could never fit and were turned away."""
    return float((run.records.requests.fate[run.window.requests] == Fate.REFUSED).sum())


@metric("requests")
def num_still_running(run: Measured) -> float:
    """Requests of the whole run that were admitted and not done when the clock stopped."""
    return float((run.records.requests.fate == Fate.RUNNING).sum())


@metric("requests")
def num_still_waiting(run: Measured) -> float:
    """Requests of the whole run that were in the waiting queue when the clock stopped."""
    return float((run.records.requests.fate == Fate.WAITING).sum())


@metric("requests")
def num_not_arrived(run: Measured) -> float:
    """Requests of the workload that had not arrived when the clock stopped."""
    return float(run.records.num_not_arrived)


@metric("1")
def preemptions(run: Measured) -> float:
    """Preemptions of the measured requests."""
    return float(run.records.requests.num_preemptions[run.window.requests].sum())


@metric("1")
def recomputed_share(run: Measured) -> float:
    """KV tokens thrown away by preemption / prompt tokens prefilled, measured requests."""
    requests, rows = run.records.requests, run.window.requests
    lost = float(requests.recomputed_tokens[rows].sum())
    return ratio(lost, float(requests.prompt_len[rows].sum()))


@metric("1")
def prefix_cache_hit_rate(run: Measured) -> float:
    """Prompt tokens whose KV was found in the cache / prompt tokens, admitted measured requests."""
    requests, rows = run.records.requests, run.window.requests
    rows = rows[~np.isnan(requests.admission_s[rows])]
    found = float(requests.cached_tokens[rows].sum())
    return ratio(found, float(requests.prompt_len[rows].sum()))


@metric("1")
def swap_time_share(run: Measured) -> float:
    """Time in which KV went to the host or came back as a share of the time of all steps."""
    steps = run.records.steps
    return ratio(run.step_sum(steps.swap_s), run.step_sum(steps.duration_s))
