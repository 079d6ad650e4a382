"""What every result rests on beside the model and the method, in sentences for its report.

Defaults that nobody wrote down (the engine's limits, its share of the memory, the warm-up) move
the numbers as much as what a scenario says, so the values in force are stated. Results about
several deployments state the range of what differs between them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from simspec.core.units import ms, us
from simspec.hardware.profile import EngineProfile
from simspec.scenarios.build import Deployment
from simspec.scenarios.fleets import fleet_sentences
from simspec.scenarios.schema import ScenarioConfig


def assumptions(
    deployments: Collection[Deployment], scenarios: Collection[ScenarioConfig]
) -> list[str]:
    """Return one sentence each on scheduler, KV cache, engine, measured requests and speedup.

    Parameters
    ----------
    deployments : collection of Deployment
        All that the result is about, the baseline's included.
    scenarios : collection of ScenarioConfig
        Those that were simulated on them.
    """
    return [
        _scheduler(deployments),
        _kv_cache(deployments),
        *dict.fromkeys(_engine(deployment.engine) for deployment in deployments),
        *fleet_sentences(scenarios),
        _measured(scenarios),
        _speedup(scenarios),
    ]


def _scheduler(deployments: Collection[Deployment]) -> str:
    limits = [deployment.limits for deployment in deployments]
    chunked = _either("on" if limit.chunked_prefill else "off" for limit in limits)
    return (
        f"Scheduler {_either(limit.policy_name for limit in limits)}: at most "
        f"{_span((limit.max_num_seqs for limit in limits), ',')} sequences and "
        f"{_span((limit.max_num_batched_tokens for limit in limits), ',')} tokens per step, "
        f"chunked prefill {chunked}."
    )


def _kv_cache(deployments: Collection[Deployment]) -> str:
    given = [d for d in deployments if d.config.memory.num_kv_blocks is not None]
    sized = [d for d in deployments if d.config.memory.num_kv_blocks is None]
    how = ["as given"] if given else []
    if sized:
        fraction = _span((d.engine.memory_fraction for d in sized), ".0%")
        how.append(f"{fraction} of the device memory less weights, activations and reserve")
    return (
        f"KV cache: {_span((d.num_blocks for d in deployments), ',')} blocks of "
        f"{_span((d.block_size_tokens for d in deployments), ',')} tokens per GPU "
        f"({', or '.join(how)}), KV in {_either(d.target.kv_dtype for d in deployments)}."
    )


def _engine(engine: EngineProfile) -> str:
    of_round, of_tree = ms(engine.host_time_per_round_s), ms(engine.host_time_per_tree_s)
    per_round = f"{of_round:.3g} ms per verification, " if of_round else ""
    per_round += f"{of_tree:.3g} ms more per verification of a tree, " if of_tree else ""
    return (
        f"Engine {engine.name}: {ms(engine.host_time_per_step_s):.3g} ms host time per step, "
        f"{us(engine.host_time_per_sequence_s):.3g} µs per sequence, "
        f"{ms(engine.host_time_per_draft_step_s):.3g} ms per draft step, {per_round}"
        f"{'captured graphs' if engine.graph_capture else 'eager launches'}."
    )


def _measured(scenarios: Collection[ScenarioConfig]) -> str:
    kinds = {scenario.workload.arrivals.name for scenario in scenarios}
    drained = " and, in a closed loop, without the last ones in flight"
    return (
        f"Measured: requests in order of arrival, without {', or '.join(_warmups(scenarios))} "
        f"(warm-up){drained if 'closed_loop' in kinds else ''}."
    )


def _speedup(scenarios: Collection[ScenarioConfig]) -> str:
    sentence = (
        "Speedup: time per output token of autoregression over that of the method, on the same "
        "requests, arrivals and tapes, replication by replication"
    )
    if any(scenario.simulation.warmup == "auto" for scenario in scenarios):
        sentence += (
            "; MSER-5 may end the warm-up of the two runs at different requests, "
            "a given simulation.warmup ends it at the same one"
        )
    return f"{sentence}."


def _warmups(scenarios: Collection[ScenarioConfig]) -> Iterator[str]:
    warmups = {scenario.simulation.warmup for scenario in scenarios}
    if shares := [100.0 * warmup for warmup in warmups if isinstance(warmup, float)]:
        yield f"the first {_span(shares, '.3g')}%"
    if "auto" in warmups:
        yield "those that MSER-5 finds in each run"


def _span(values: Iterable[float], form: str) -> str:
    """Return the values as one text: ``5``, or ``2 to 5`` where they differ."""
    found = sorted(set(values))
    low, high = format(found[0], form), format(found[-1], form)
    return low if low == high else f"{low} to {high}"


def _either(words: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(words))
