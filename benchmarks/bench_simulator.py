"""How fast simspec is: the simulator against itself step by step, the closed form, the start.

Each scenario is simulated as usual and step by step (``ServingSetup.step_by_step``), in turns in
one process of its own, and both must leave the same records. Times are CPU seconds of the process
(``time.process_time``), the best of two, so that other programs count little; they still slow each
other down through shared caches, so the ratios of one run say more than its seconds.

::

    python benchmarks/bench_simulator.py             # print the page
    python benchmarks/bench_simulator.py --write     # into docs/benchmarks.md

The trace is that of ``shared/traces/azure`` beside the clone (or in ``SIMSPEC_SHARED``); without it
its rows are left out.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
TRACE = "traces/azure/AzureLLMInferenceTrace_conv.csv"
REPEATS = 2
KANGAROO = {
    "name": "kangaroo",
    "exit_layer": 2,
    "num_speculative_tokens": 6,
    "confidence_threshold": 0.6,
}
ACCEPTANCE = {"name": "constant", "alpha": 0.7, "confidence": {"a": 4.5, "b": 1.8}}
METHODS: dict[str, object] = {"autoregressive": "autoregressive", "kangaroo": KANGAROO}
LOADS = {
    "made": "10,000 requests, 512 in, 256 out, Poisson 18/s; Llama-2-70B, 8 H100, batch up to 128",
    "azure": "Azure conversations, 19,366 requests; Llama-3.1-8B, one H100",
}


def shared(path: str) -> Path | None:
    """Return a file of the folder of public data, None where it is not there."""
    found = Path(os.environ.get("SIMSPEC_SHARED", ROOT.parent / "shared")) / path
    return found if found.is_file() else None


def built(load: str, method: str) -> tuple[Any, list[Any]]:
    """Return a deployment and the requests it is to serve."""
    import numpy as np

    from simspec.core.rng import stream
    from simspec.scenarios.build import build
    from simspec.scenarios.schema import DeploymentConfig
    from simspec.workloads._base import IMPORTERS
    from simspec.workloads.request import Request
    from simspec.workloads.request_log import read_log

    model = {"model": "llama-3.1-8b"} if load == "azure" else {"model": "llama-2-70b", "tp": 8}
    deployment = build(
        DeploymentConfig.model_validate(
            {
                **model,
                "hardware": "h100_sxm",
                "engine": "vllm",
                "method": METHODS[method],
                "acceptance": None if method == "autoregressive" else ACCEPTANCE,
            }
        )
    )
    if load == "made":
        gaps_s = stream(0, "arrivals").exponential(1 / 18, 10_000)
        return deployment, [
            Request(i, arrival_s, 512, 256)
            for i, arrival_s in enumerate(np.cumsum(gaps_s).tolist())
        ]
    path = shared(TRACE)
    assert path is not None
    log = read_log(IMPORTERS.parse("azure"), path)
    lengths = log.lengths
    rows = zip(
        log.times_s.tolist(),
        lengths.prompt_lens.tolist(),
        lengths.output_lens.tolist(),
        strict=True,
    )
    return deployment, [Request(i, *row) for i, row in enumerate(rows)]


def cpu_s(run: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    began = time.process_time()
    run()
    return time.process_time() - began


def simulated(load: str, method: str) -> dict[str, float]:
    """Simulate one scenario both ways; return what the page shows of it."""
    from simspec.serving.plan import ServingSetup
    from simspec.serving.simulate import simulate

    deployment, requests = built(load, method)
    limits = deployment.limits
    setup = ServingSetup(
        requests=requests,
        concurrency=None,
        method=deployment.method,
        acceptance=deployment.acceptance,
        seed=0,
        cost=deployment.cost,
        num_blocks=deployment.num_blocks,
        block_size_tokens=deployment.block_size_tokens,
        limits=replace(limits, max_num_seqs=128) if load == "made" else limits,
    )
    by_step = replace(setup, step_by_step=True)
    few = requests[: len(requests) // 2]
    simulate(replace(setup, requests=few[:100]))  # builds the tables of the cost model
    simulate(replace(setup, requests=few))
    half = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = simulate(setup)
    whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    digests = {run.digest()}
    fast, slow = [], []
    for _ in range(REPEATS):
        fast.append(cpu_s(lambda: simulate(setup)))
        slow.append(cpu_s(lambda: digests.add(simulate(by_step).digest())))
    assert len(digests) == 1, digests
    unit = 1024 if sys.platform != "darwin" else 1
    return {
        "requests": len(requests),
        "steps": int(run.steps.start_s.size),
        "tokens": int(run.steps.emitted.sum()),
        "batch": float(run.steps.num_decoding.mean()),
        "fast_s": min(fast),
        "slow_s": min(slow),
        "peak_bytes": whole * unit,
        "half_bytes": half * unit,
    }


def closed_form() -> dict[str, float]:
    """Return the CPU seconds of the closed form over a grid, and its points."""
    import numpy as np

    from simspec.scenarios.closed_form import estimate_round

    deployment, _ = built("made", "kangaroo")
    batch, context = np.meshgrid(np.arange(1.0, 129.0), np.linspace(100.0, 32_000.0, 100))
    estimate_round(deployment, batch, context)
    times = [cpu_s(lambda: estimate_round(deployment, batch, context)) for _ in range(5)]
    return {"points": batch.size, "cpu_s": min(times)}


def child_cpu_s(*command: str) -> float:
    """Return the user and system seconds of a process, the least of five."""
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def case(*arguments: str) -> dict[str, float]:
    """Run one case in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--case", *arguments]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def page() -> str:
    """Return the page of a fresh run."""
    from simspec.serving.records import NUM_REQUEST_COLUMNS, NUM_STEP_COLUMNS

    lines = [
        "# Benchmarks",
        "",
        "How long simspec itself computes.",
        "This page is what `python benchmarks/bench_simulator.py --write` found on "
        f"{os.cpu_count()} cores ({platform.machine()}, Python {platform.python_version()}).",
        "Times are CPU seconds, the best of two; other programs on the machine still slow caches "
        "down, so ratios say more than seconds.",
        "",
        "## Simulation",
        "",
        "Between two events that change the batch every decoding sequence takes part in every "
        "step, so a step is priced from sums and needs no event on the clock.",
        "*Step by step* is the same simulation looking at every sequence in every step "
        "(`ServingSetup.step_by_step`); both leave the same records, to the last bit "
        "(`tests/serving/test_step_by_step.py`).",
        "",
    ]
    for load, words in LOADS.items():
        if load == "azure" and shared(TRACE) is None:
            continue
        lines += [
            f"{words}:",
            "",
            "| method | steps | mean batch | CPU seconds | step by step | ratio | requests/s "
            "| steps/s | tokens/s | peak memory | with half the requests |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        for method in METHODS:
            found = case(load, method)
            fast_s = found["fast_s"]
            lines.append(
                f"| {method} | {found['steps']:,} | {found['batch']:.1f} | {fast_s:.2f} "
                f"| {found['slow_s']:.2f} | {found['slow_s'] / fast_s:.1f} "
                f"| {found['requests'] / fast_s:,.0f} | {found['steps'] / fast_s:,.0f} "
                f"| {found['tokens'] / fast_s:,.0f} | {found['peak_bytes'] / 1e6:.0f} MB "
                f"| {found['half_bytes'] / 1e6:.0f} MB |"
            )
        lines.append("")

    found = case("closed_form")
    help_s = child_cpu_s("-m", "simspec", "--help")
    import_s = child_cpu_s("-c", "import simspec")
    bare_s = child_cpu_s("-c", "pass")
    lines += [
        f"Memory grows with the records alone: {NUM_STEP_COLUMNS} numbers for every step and "
        f"{NUM_REQUEST_COLUMNS} for every request.",
        "",
        "## Closed form",
        "",
        f"Kangaroo on the first deployment, {found['points']:,.0f} points of batch and context in "
        f"one call: {found['cpu_s']:.2f} s, {found['points'] / found['cpu_s']:,.0f} points/s.",
        "",
        "## Start",
        "",
        f"`import simspec` takes {import_s:.2f} CPU seconds and `simspec --help` {help_s:.2f}, of "
        f"which Python itself {bare_s:.2f}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the page, write it, or run one of its cases."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--case"]:
        found = closed_form() if arguments[1] == "closed_form" else simulated(*arguments[1:])
        print(json.dumps(found))
    elif arguments == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()
