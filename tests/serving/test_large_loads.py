"""A hundred thousand requests above capacity: bounded memory, and the same bytes twice."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.helpers.shared import REPO_ROOT

RUN = """
import json
from tests.helpers.peak import peak_bytes
from dataclasses import replace
import numpy as np
from simspec.core.rng import stream
from simspec.serving.plan import HostMemory
from simspec.serving.simulate import simulate
from simspec.workloads.request import Request
from tests.serving.test_with_real_parts import deployment, serving
count, policy = 100_000, {policy!r}
rng = stream(5, "large")
arrivals = np.cumsum(rng.exponential(1 / 250, count)).tolist()
prompts, outputs = rng.integers(20, 700, count).tolist(), rng.integers(1, 60, count).tolist()
classes, texts = rng.integers(0, 2, count).tolist(), rng.integers(0, 300, count).tolist()
load = []
for i in range(count):
    blocks = prompts[i] // 128
    ids = [4 * texts[i] + k for k in range(min(3, blocks))]
    ids += [10_000 + 10 * i + k for k in range(blocks - len(ids))]
    load.append(
        Request(i, arrivals[i], prompts[i], outputs[i], tuple(ids), 128, priority=classes[i])
    )
of = deployment("autoregressive")
setup = serving(of, load)
if policy == "priority":
    setup = replace(
        setup, num_blocks=4000, prefix_caching=True, host=HostMemory(2000, 131072.0, 63e9),
        limits=replace(of.limits, policy="priority", preemption="swap"),
    )
runs = [simulate(setup) for _ in range({repeats})]
run = runs[0]
print(json.dumps(dict(
    peak_bytes=peak_bytes(),
    finished=int((run.requests.fate == 0).sum()), waiting=int(run.steps.num_waiting.max()),
    preemptions=int(run.requests.num_preemptions.sum()),
    cached=int(run.requests.cached_tokens.sum()),
    digests=len({{each.digest() for each in runs}}))))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "repeats"), [("continuous", 1), ("priority", 2)])
def test_a_hundred_thousand_requests_above_capacity(policy: str, repeats: int):
    """Below 1 GB with tens of thousands waiting, under priorities, copies and caching too."""
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(policy=policy, repeats=repeats)],
        cwd=REPO_ROOT, capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    facts = json.loads(done.stdout)
    assert facts["finished"] == 100_000
    assert facts["digests"] == 1
    assert facts["waiting"] > 20_000
    assert facts["peak_bytes"] < 1e9, facts
    if policy == "priority":
        assert facts["preemptions"] > 100
        assert facts["cached"] > 10**6
