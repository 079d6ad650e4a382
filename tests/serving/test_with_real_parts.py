"""The engine with the real methods, cost model, profiles and trace."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from simspec.core.rng import stream
from simspec.decoding._base import ACCEPTANCE_MODELS, METHODS
from simspec.scenarios.build import Deployment, build
from simspec.scenarios.schema import DeploymentConfig
from simspec.serving.invariants import within_roofs
from simspec.serving.plan import ServingSetup
from simspec.serving.records import Fate
from simspec.serving.simulate import simulate
from simspec.workloads.request import Request
from tests.helpers.shared import REPO_ROOT, shared

KANGAROO = {
    "name": "kangaroo",
    "exit_layer": 2,
    "num_speculative_tokens": 6,
    "confidence_threshold": 0.6,
}
ACCEPTANCE = {"name": "constant", "alpha": 0.7, "confidence": {"a": 4.5, "b": 1.8}}
NEEDED = {
    "draft_and_verify": {"skipped_attention": 12, "skipped_mlp": 6},
    "dual_model": {"draft_model": "llama-3.2-1b"},
}
METHOD_OF = {
    name: {"name": name, **NEEDED[name]} if name in NEEDED else name for name in METHODS.names()
}
"""Each method with what it has to be told."""
BASE = {"model": "llama-3.1-8b", "hardware": "h100_sxm", "engine": "vllm"}


def deployment(method: object, **given: object) -> Deployment:
    acceptance = None if method == "autoregressive" else ACCEPTANCE
    return build(
        DeploymentConfig.model_validate(
            {**BASE, "method": method, "acceptance": acceptance, **given}
        )
    )


def serving(of: Deployment, requests: list[Request], **given: object) -> ServingSetup:
    setup = ServingSetup(
        requests=requests,
        concurrency=None,
        method=of.method,
        acceptance=of.acceptance,
        seed=0,
        cost=of.cost,
        num_blocks=of.num_blocks,
        block_size_tokens=of.block_size_tokens,
        limits=of.limits,
    )
    return replace(setup, **given)  # type: ignore[arg-type]


def mixed(num_requests: int, rate_per_s: float) -> list[Request]:
    rng = stream(11, "mixed")
    arrivals = np.cumsum(rng.exponential(1 / rate_per_s, num_requests)).tolist()
    prompts = rng.integers(1, 900, num_requests).tolist()
    outputs = rng.integers(1, 120, num_requests).tolist()
    # Every other prompt begins with the same 256 tokens.
    own = [tuple(range(1000 * i, 1000 * i + 16)) for i in range(num_requests)]
    ids = [(1, 2, 3, 4, *each) if i % 2 else each for i, each in enumerate(own)]
    return [
        Request(i, *each, ids[i][: each[1] // 64], 64)
        for i, each in enumerate(zip(arrivals, prompts, outputs, strict=True))
    ]


@pytest.mark.parametrize("method", ["autoregressive", KANGAROO], ids=["autoregressive", "kangaroo"])
@pytest.mark.parametrize("num_blocks", [120, 10_000])
def test_laws_hold_with_real_prices(method: object, num_blocks: int):
    """Every law after every step, with and without preemption, and no step beats the roofs."""
    of = deployment(method)
    run = simulate(serving(of, mixed(80, 40.0), num_blocks=num_blocks), check=True)
    within_roofs(run, of.peak_flop_per_s, of.hardware.memory_bandwidth_bytes_per_s)
    assert (run.requests.num_preemptions.sum() > 0) == (num_blocks == 120)


def test_phases_and_host_add_up_to_the_step():
    """What a step takes is the time of its phases plus the host's."""
    run = simulate(serving(deployment(KANGAROO), mixed(30, 20.0)))
    total = run.steps.phase_s.sum(axis=1) + run.steps.host_s
    # Durations are differences of clock readings of some seconds.
    assert total == pytest.approx(run.steps.duration_s, rel=1e-9, abs=1e-12)


def test_a_method_given_what_cannot_be_accepted_draws_level_tokens():
    """Kangaroo and autoregression emit the same texts: same lengths, whatever is accepted."""
    load = mixed(30, 20.0)
    plain = simulate(serving(deployment("autoregressive"), load))
    kangaroo = simulate(serving(deployment(KANGAROO), load))
    assert plain.requests.emitted.tolist() == kangaroo.requests.emitted.tolist()
    assert kangaroo.requests.num_rounds.sum() < plain.requests.num_rounds.sum()


def test_autoregression_does_not_look_at_acceptance():
    """With an acceptance process at hand the bytes are the same: nothing is drafted."""
    of = deployment("autoregressive")
    load = mixed(30, 20.0)
    process = ACCEPTANCE_MODELS.parse(ACCEPTANCE).at(None)
    digests = {simulate(serving(of, load, acceptance=given)).digest() for given in (None, process)}
    assert len(digests) == 1


def test_every_method_can_be_simulated():
    """Each plug-in obeys the laws with its defaults and drafts at most its K."""
    for name, method in METHOD_OF.items():
        of = deployment(method)
        run = simulate(serving(of, mixed(10, 20.0)), check=True)
        assert set(run.requests.fate.tolist()) == {Fate.FINISHED}, name
        assert run.max_draft == of.method.max_draft


REPLAY = """
import json, time
from tests.helpers.peak import peak_bytes
from pathlib import Path
from tests.serving.test_with_real_parts import deployment, serving
from simspec.serving.simulate import simulate
from simspec.workloads._base import IMPORTERS
from simspec.workloads.request import Request
from simspec.workloads.request_log import read_log
began = time.perf_counter()
log = read_log(IMPORTERS.parse("azure"), Path({path!r}))
rows = zip(log.times_s.tolist(), log.lengths.prompt_lens.tolist(), log.lengths.output_lens.tolist())
requests = [Request(i, *row) for i, row in enumerate(rows)]
run = simulate(serving(deployment("autoregressive"), requests))
wall_s = time.perf_counter() - began
print(json.dumps(dict(
    wall_s=wall_s, peak_bytes=peak_bytes(),
    finished=int((run.requests.fate == 0).sum()), emitted=int(run.steps.emitted.sum()),
    steps=int(run.steps.start_s.size), asked=sum(r.output_len for r in requests),
    arrived=len(requests))))
"""


@pytest.mark.slow
def test_the_azure_conversation_trace_replays_in_a_minute():
    """19,366 requests, about 4.1 million tokens, on one replica: under 60 s and below 1 GB."""
    path = shared("traces/azure/AzureLLMInferenceTrace_conv.csv")
    done = subprocess.run(
        [sys.executable, "-c", REPLAY.format(path=str(path))],
        cwd=REPO_ROOT, capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    facts = json.loads(done.stdout)
    assert facts["arrived"] == 19_366
    assert facts["finished"] == 19_366
    assert facts["emitted"] == facts["asked"]
    assert facts["wall_s"] < 60.0, facts
    assert facts["peak_bytes"] < 1e9, facts
