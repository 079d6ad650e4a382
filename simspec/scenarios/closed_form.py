"""Scenario to result in milliseconds of computing: steady decoding of one batch.

What it covers: B sequences at one context, all decoding, one round after another. What it
leaves out, and the simulation has: queueing, prefill sharing steps with decoding, contexts that
grow, batches that change. With one sequence both agree (``tests/theory``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from simspec.core.errors import ConfigError, DoesNotFit, Infeasible
from simspec.core.units import format_bytes
from simspec.cost.forward import CostModel
from simspec.cost.work import Quantity, Rows
from simspec.decoding._base import METHODS, Method
from simspec.decoding.tape import RoundStatistics
from simspec.scenarios.build import Deployment, memory_facts, require_room
from simspec.scenarios.uncertainty import Errors, interval_95, sigma_of, sigma_of_ratio


@dataclass(frozen=True, slots=True)
class RoundEstimate:
    """One round of a batch and the plain step it replaces; seconds, tokens per sequence."""

    step_time_s: Quantity
    round_time_s: Quantity
    draft_s: Quantity
    verify_s: Quantity
    host_s: Quantity
    network_s: Quantity
    flop: Quantity
    bytes_moved: Quantity
    statistics: RoundStatistics

    @property
    def tpot_s(self) -> Quantity:
        """Time per output token of one sequence, seconds."""
        return self.round_time_s / self.statistics.tokens_per_round

    @property
    def speedup(self) -> Quantity:
        """Plain TPOT over speculative TPOT at the same batch and context."""
        return self.step_time_s / self.tpot_s


def autoregressive_method(deployment: Deployment) -> Method:
    """Return plain decoding bound to the same target."""
    method: Method = METHODS.parse("autoregressive").build(deployment.target)
    return method


def estimate_round(
    deployment: Deployment, batch_size: Quantity, context_len: Quantity
) -> RoundEstimate:
    """Return the expected round of ``batch_size`` sequences at ``context_len`` tokens each.

    Both may be arrays that broadcast; so are then the result's fields.
    """
    method = deployment.method
    statistics = method.statistics(deployment.acceptance)
    weighted = method.expected_passes(batch_size, context_len, statistics)
    step = deployment.cost.expected_step(weighted, batch_size)
    plain = autoregressive_method(deployment)
    nothing = plain.statistics(None)
    baseline = deployment.cost.expected_step(
        plain.expected_passes(batch_size, context_len, nothing), batch_size
    )
    phase = step.by_phase
    return RoundEstimate(
        step_time_s=baseline.total_s,
        round_time_s=step.total_s,
        draft_s=phase.get("draft", 0.0) + phase.get("catch_up", 0.0),
        verify_s=phase.get("verify", 0.0) + phase.get("decode", 0.0),
        host_s=step.host_s,
        network_s=step.network_s,
        flop=step.flop,
        bytes_moved=step.bytes,
        statistics=statistics,
    )


def prefill_time_s(deployment: Deployment, prompt_len: int, *, tabulated: bool = True) -> float:
    """Return the time to first token of one prompt on an idle replica, seconds.

    The prompt is cut into chunks of ``max_num_batched_tokens`` when chunked prefill is on.
    A cost model that is asked only once is faster without its tables.
    """
    chunk = deployment.limits.max_num_batched_tokens
    if not deployment.limits.chunked_prefill:
        chunk = prompt_len
    done, total = 0, 0.0
    while done < prompt_len:
        new = min(chunk, prompt_len - done)
        last = done + new == prompt_len
        rows = Rows(
            kind="prefill",
            num_sequences=1,
            num_tokens=new if tabulated else np.array(float(new)),
            kv_tokens=done + new,
            attended_tokens=new * (done + (new + 1) / 2),
            logit_rows=int(last),
        )
        passes = deployment.method.round_passes([], [], [], rows)
        total += float(deployment.cost.step(passes, 1).total_s)
        done += new
    return total


SIGMAS = ("step_time", "round_time", "tpot", "ttft", "throughput", "speedup")
"""What :func:`calibration_sigma` says."""


def calibration_sigma(
    deployment: Deployment,
    batch_size: Quantity,
    context_len: Quantity,
    prompt_len: int | None = None,
    *,
    errors: Errors | None = None,
) -> dict[str, Quantity]:
    """Return how far the errors of the profiles let a prediction be off, by quantity.

    Parameters
    ----------
    batch_size, context_len : number or array
        As for :func:`estimate_round`; arrays give arrays.
    prompt_len : int, tokens, optional
        Prompt of ``ttft``, which is absent without one.
    errors : Errors, optional
        Of ``deployment.cost``, to ask several times without building its models again.

    Returns
    -------
    dict
        1 sigma of the logarithm of each of :data:`SIGMAS`: 0.1 is 10 %, and 95 % intervals are
        :func:`simspec.scenarios.uncertainty.interval_95`.
    """

    # As arrays, for which no tables are built: each altered model is asked a few times only.
    batches = np.asarray(batch_size, dtype=np.float64)
    contexts = np.asarray(context_len, dtype=np.float64)

    def times(cost: CostModel) -> dict[str, Quantity]:
        altered = replace(deployment, cost=cost)
        result = estimate_round(altered, batches, contexts)
        found = {"step_time": result.step_time_s, "round_time": result.round_time_s}
        if prompt_len is not None:
            found["ttft"] = prefill_time_s(altered, prompt_len, tabulated=False)
        return found

    effects = (errors or Errors(deployment.cost)).effects(times)
    sigma = {name: sigma_of(effects, name) for name in ("step_time", "round_time")}
    # The tokens of a round are acceptance, which calibration does not touch.
    sigma["tpot"] = sigma["throughput"] = sigma["round_time"]
    if prompt_len is not None:
        sigma["ttft"] = sigma_of(effects, "ttft")
    is_plain = deployment.method.max_draft == 0
    sigma["speedup"] = 0.0 if is_plain else sigma_of_ratio(effects, "step_time", "round_time")
    return sigma


_INTERVALS = {
    "ttft_ms": "ttft",
    "tpot_ms": "tpot",
    "step_time_ms": "step_time",
    "round_time_ms": "round_time",
    "speedup": "speedup",
    "throughput_tokens_per_s": "throughput",
}
"""Keys of an estimate that get an interval, and whose sigma it is."""


def estimate(
    deployment: Deployment, batch_size: int, context_len: int, prompt_len: int | None = None
) -> dict[str, object]:
    """Return one point as the dictionary every command prints.

    Parameters
    ----------
    batch_size : int
        Sequences decoding together.
    context_len : int, tokens
        Context of each.
    prompt_len : int, tokens, optional
        Prompt of the TTFT figure; ``context_len`` when not given.
    """
    prompt_len = prompt_len or context_len
    _refuse_control(deployment)
    _require_room(deployment, batch_size, context_len, prompt_len)
    result = estimate_round(deployment, batch_size, context_len)
    stats = result.statistics
    tpot_s = float(result.tpot_s)
    hardware = deployment.hardware
    seconds = float(result.round_time_s)
    peak = deployment.peak_flop_per_s
    drafted = stats.drafted_per_round
    values = {
        **_facts(deployment, batch_size, context_len),
        "prompt": prompt_len,
        "ttft_ms": prefill_time_s(deployment, prompt_len) * 1e3,
        "tpot_ms": tpot_s * 1e3,
        "step_time_ms": float(result.step_time_s) * 1e3,
        "round_time_ms": seconds * 1e3,
        "time_draft_ms": float(result.draft_s) * 1e3,
        "time_verify_ms": float(result.verify_s) * 1e3,
        "time_host_ms": float(result.host_s) * 1e3,
        "network_share": float(result.network_s) / seconds,
        "drafted_per_round": drafted,
        "accepted_per_round": stats.accepted_per_round,
        "tokens_per_round": stats.tokens_per_round,
        "acceptance_rate": stats.accepted_per_round / drafted if drafted else None,
        "speedup": float(result.speedup),
        "throughput_tokens_per_s": batch_size / tpot_s,
        "compute_utilisation": float(result.flop) / (seconds * peak),
        "bandwidth_utilisation": float(result.bytes_moved)
        / (seconds * hardware.memory_bandwidth_bytes_per_s),
        **memory_facts(deployment),
        "status": "ok",
        "reason": None,
    }
    sigma = calibration_sigma(deployment, batch_size, context_len, prompt_len)
    return with_intervals(values, sigma)


def with_intervals(
    values: Mapping[str, object], sigma: Mapping[str, Quantity]
) -> dict[str, object]:
    """Return ``values`` with ``KEY_interval`` behind each key that has one."""
    result: dict[str, object] = {}
    for key, value in values.items():
        result[key] = value
        if key in _INTERVALS and isinstance(value, float):
            result[f"{key}_interval"] = interval_95(value, float(sigma[_INTERVALS[key]]))
    return result


def refusal_document(
    deployment: Deployment, batch_size: int, context_len: int, error: Infeasible
) -> dict[str, object]:
    """Return what is known of a point that cannot be: its facts, its memory and why."""
    does_not_fit = isinstance(error, DoesNotFit)
    return {
        **_facts(deployment, batch_size, context_len),
        **memory_facts(deployment),
        "fits": deployment.fits and not does_not_fit,
        "status": "does_not_fit" if does_not_fit else "refused",
        "reason": str(error),
    }


def _facts(deployment: Deployment, batch_size: int, context_len: int) -> dict[str, object]:
    return {
        **deployment_facts(deployment),
        "batch": batch_size,
        "context": context_len,
        "acceptance": describe_acceptance(deployment),
    }


def deployment_facts(deployment: Deployment) -> dict[str, object]:
    """Return what a deployment is, under the keys of every result."""
    config, target = deployment.config, deployment.target
    return {
        "hardware": deployment.hardware.name,
        **deployment.hardware.calibration,
        "engine": deployment.engine.name,
        "model": deployment.architecture.name,
        "method": deployment.method.name,
        "method_options": config.method.model_dump(mode="json", exclude={"name"}),
        "tp": target.tp,
        "dtype": target.weight_dtype,
        "kv_dtype": target.kv_dtype,
    }


def describe_acceptance(deployment: Deployment) -> str:
    """Return the acceptance assumption as a sentence, for every report."""
    if deployment.acceptance is None:
        return "none: the method drafts nothing"
    return deployment.config.method.acceptance_sentence(deployment.acceptance)


def cautions(deployment: Deployment, batch_size: int, context_len: int) -> list[str]:
    """Return what the engine or the model would not do as asked, one clause each.

    These do not change a number of the closed form, so they are said and not refused.
    """
    said = []
    limits, architecture = deployment.limits, deployment.architecture
    if not deployment.config.method.lossless:
        said.append(f"the output of {deployment.method.name} is not the model's: see acceptance")
    added, own = deployment.budget.extra_weights_bytes, deployment.budget.weights_bytes
    if added >= own:
        said.append(
            f"{deployment.method.name} drafts with {format_bytes(added)} of weights beside the "
            f"{format_bytes(own)} of {architecture.name}; a draft is meant to be the smaller one"
        )
    if batch_size > limits.max_num_seqs:
        said.append(
            f"batch {batch_size:,} is above the {limits.max_num_seqs:,} sequences that engine "
            f"{deployment.engine.name} runs at once"
        )
    if architecture.max_context_len and context_len > architecture.max_context_len:
        said.append(
            f"context {context_len:,} is beyond the {architecture.max_context_len:,} tokens of "
            f"{architecture.name}"
        )
    return said


def _refuse_control(deployment: Deployment) -> None:
    if deployment.speculation is not None:
        raise ConfigError(
            f"speculation: {deployment.config.speculation.name} follows a load that changes, and "
            "an estimate is of one steady batch; remove it, or use simulate"
        )


def _require_room(
    deployment: Deployment, batch_size: int, context_len: int, prompt_len: int
) -> None:
    reserved = deployment.method.footprint().reserved_slots
    require_room(deployment, max(context_len, prompt_len) + reserved)
    most = deployment.max_sequences(context_len)
    if batch_size > most:
        size = deployment.block_size_tokens
        blocks = -(-(context_len + reserved) // size)
        raise DoesNotFit(
            f"batch: {batch_size:,} sequences of {context_len + reserved:,} KV slots need "
            f"{batch_size * blocks:,} blocks of {size} tokens and the KV cache of each GPU has "
            f"{deployment.num_blocks:,}; at this context at most {most:,} fit"
        )
    limits = deployment.limits
    if prompt_len > limits.max_num_batched_tokens and not limits.chunked_prefill:
        raise Infeasible(
            f"prompt: {prompt_len:,} tokens exceed the {limits.max_num_batched_tokens:,} that "
            f"engine {deployment.engine.name} processes in one step, and it does not split "
            "prompts; give a shorter prompt"
        )
