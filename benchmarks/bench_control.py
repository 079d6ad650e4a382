"""What speculation control makes of a load that rises: the table of the guide.

The first requests of the Azure conversation trace, at a quarter of their rate up to four times it;
fixed draft lengths, no drafts, and every lossless policy on the same requests and tapes.

::

    python benchmarks/bench_control.py             # print the table
    python benchmarks/bench_control.py --write     # into docs/guides/control-speculation.md

The trace is that of ``shared/traces/azure`` beside the clone (or in ``SIMSPEC_SHARED``).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from simspec.scenarios.build import build
from simspec.scenarios.schema import DeploymentConfig
from simspec.serving.metrics import summarise
from simspec.serving.modes import mode_shares
from simspec.serving.plan import ServingSetup
from simspec.serving.simulate import simulate
from simspec.workloads._base import IMPORTERS
from simspec.workloads.request import Request
from simspec.workloads.request_log import read_log

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "guides" / "control-speculation.md"
SHARED = Path(os.environ.get("SIMSPEC_SHARED", ROOT.parent / "shared"))
TRACE = SHARED / "traces/azure/AzureLLMInferenceTrace_conv.csv"
BEGIN, END = "<!-- made by benchmarks/bench_control.py -->", "<!-- end -->"
NUM_REQUESTS = 1000
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
LENGTHS = (1, 2, 3, 4, 5)
BASE = {"model": "llama-3.1-8b", "hardware": "h100_sxm", "engine": "vllm"}
EAGLE = {"name": "eagle", "version": 3, "top_k": 1}
KANGAROO = {"name": "kangaroo", "exit_layer": 2, "confidence_threshold": 0.6}
DRAFTERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "EAGLE-3, 0.7": (EAGLE, {"name": "constant", "alpha": 0.7}),
    "EAGLE-3, 0.4": (EAGLE, {"name": "constant", "alpha": 0.4}),
    "Kangaroo, 0.2": (
        KANGAROO,
        {"name": "constant", "alpha": 0.2, "confidence": {"a": 4.5, "b": 1.8}},
    ),
}
"""Drafters by name and the share of drafts that is accepted."""
POLICIES: dict[str, Any] = {
    "off_above": {"name": "off_above", "batch_size": 32, "resume_below": 24},
    "tracking": "tracking",
    "goodput": "goodput",
}


def requests(rate_scale: float) -> list[Request]:
    """Return the first requests of the trace, as fast as asked."""
    log = read_log(IMPORTERS.parse("azure"), TRACE)
    lengths = log.lengths.prompt_lens.tolist(), log.lengths.output_lens.tolist()
    rows = list(zip(log.times_s.tolist(), *lengths, strict=True))[:NUM_REQUESTS]
    return [Request(i, t / rate_scale, p, o) for i, (t, p, o) in enumerate(rows)]


def run(load: list[Request], **fields: Any) -> dict[str, Any]:
    """Return the metrics of a deployment under a load, and what its modes had of the time."""
    of = build(DeploymentConfig.model_validate({**BASE, **fields}))
    records = simulate(
        ServingSetup(
            requests=load,
            concurrency=None,
            method=of.method,
            acceptance=of.acceptance,
            seed=0,
            cost=of.cost,
            num_blocks=of.num_blocks,
            block_size_tokens=of.block_size_tokens,
            limits=of.limits,
            speculation=of.speculation,
        )
    )
    return {**summarise(records, warmup=0.1, cooldown=0.0), "modes": mode_shares(records)}


def row(drafter: str, scale: float) -> str:
    """Return one row of the table."""
    load = requests(scale)
    method, acceptance = DRAFTERS[drafter]
    plain = run(load, method="autoregressive")
    fixed = {
        k: run(load, method={**method, "num_speculative_tokens": k}, acceptance=acceptance)
        for k in LENGTHS
    }
    deepest = {**method, "num_speculative_tokens": LENGTHS[-1]}
    controlled = {
        name: run(load, method=deepest, acceptance=acceptance, speculation=policy)
        for name, policy in POLICIES.items()
    }
    best = min(fixed, key=lambda k: fixed[k]["tpot_ms"])
    ours = controlled["goodput"]
    most = sorted(ours["modes"], key=lambda mode: -mode["share_of_time"])[:2]
    shares = ", ".join(
        f"{mode['mode'].split()[0]} {mode['share_of_time']:.0%}"
        for mode in most
        if mode["share_of_time"] >= 0.01
    )
    return (
        f"| {drafter} | {scale:g} | {plain['mean_batch_size']:.0f} | {plain['tpot_ms']:.2f} "
        f"| {fixed[best]['tpot_ms']:.2f} (K={best}) | {fixed[LENGTHS[-1]]['tpot_ms']:.2f} "
        f"| {controlled['off_above']['tpot_ms']:.2f} | {controlled['tracking']['tpot_ms']:.2f} "
        f"| **{ours['tpot_ms']:.2f}** | {ours['e2e_ms'] / plain['e2e_ms'] - 1:+.1%} "
        f"| {ours['throughput_tokens_per_s'] / plain['throughput_tokens_per_s'] - 1:+.1%} "
        f"| {shares} | {ours['mode_switches']:.0f} |"
    )


def table() -> str:
    """Return the table."""
    lines = [
        "| drafter, accepted | rate | batch when off | off | best fixed | K=5 | off above 32 "
        "| tracking | goodput | E2E to off | tokens/s to off | goodput drafts | switches |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for drafter in DRAFTERS:
        for scale in SCALES:
            lines.append(row(drafter, scale))
            print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def main() -> None:
    """Print the table or write it into the guide."""
    if sys.argv[1:] != ["--write"]:
        print(table())
        return
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END, 1)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
