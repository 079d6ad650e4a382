"""A realistic sweep result directory without running a sweep.

The numbers come from a small analytic model of Kangaroo on a bandwidth-bound GPU: a step reads
the weights once and the KV once per sequence, verification adds compute that grows with the batch,
so speculation pays at small batches and loses at large ones. Tests change what they are about.
"""

from __future__ import annotations

import itertools
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

EXIT_LAYERS = (2, 4, 8)
DRAFT_LENGTHS = (1, 2, 3, 4, 6)
THRESHOLDS = (0.0, 0.2, 0.4, 0.6, 0.8)
LOADS = {"one user": 1.0, "4 requests/s": 9.0, "12 requests/s": 34.0, "20 requests/s": 130.0}
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
NUM_LAYERS = 32
ACCEPTANCE = (
    "Kangaroo's published consistent acceptance on Vicuna-7B for positions 1-6 is 0.505, 0.225, "
    "0.10, 0.045, 0.02, 0.007; confidence follows Beta(4.5, 1.8)."
)
SLO = {"ttft_ms": 500.0, "tpot_ms": 20.0}


def fake_axes() -> list[dict[str, Any]]:
    """Return the manifest's axes of the main sweep."""
    return [
        {"field": "method.exit_layer", "label": "Exit layer E", "values": list(EXIT_LAYERS)},
        {
            "field": "method.num_speculative_tokens",
            "label": "Draft length K",
            "values": list(DRAFT_LENGTHS),
        },
        {
            "field": "method.confidence_threshold",
            "label": "Confidence threshold",
            "values": list(THRESHOLDS),
        },
        {"field": "load", "label": "Load", "values": list(LOADS)},
    ]


def fake_manifest(**changes: Any) -> dict[str, Any]:
    """Return a manifest like a sweep's."""
    manifest = {
        "name": "tau_vs_K",
        "description": "Confidence threshold against draft length for Kangaroo on Vicuna-7B.",
        "simspec_version": "0.1.0",
        "command": "simspec sweep experiments/tau_vs_K.yaml",
        "seed": 20240501,
        "replications": 5,
        "hardware": {"name": "h100_sxm", "calibrated": False},
        "model": "vicuna-7b",
        "engine": "vllm",
        "calibrated": False,
        "acceptance": ACCEPTANCE,
        "assumptions": [
            "Prompt and output lengths follow the Azure 2023 conversation trace.",
            "KV is read once per pass, however many tokens a sequence verifies.",
        ],
        "slo": SLO,
        "axes": fake_axes(),
        "metrics": ["speedup", "tpot_ms", "ttft_ms", "throughput_tokens_per_s"],
        "inputs": {"experiments/tau_vs_K.yaml": "sha256:" + "0f" * 32},
        "versions": {"python": "3.11.9", "numpy": "2.1.0"},
    }
    return {**manifest, **changes}


def fake_points() -> list[dict[str, Any]]:
    """Return the rows of the main sweep: baselines first, then the grid."""
    rows = []
    for load, batch in LOADS.items():
        rows.append(fake_row({"method.name": "autoregressive", "load": load}, batch))
    grid = itertools.product(EXIT_LAYERS, DRAFT_LENGTHS, THRESHOLDS, LOADS.items())
    for exit_layer, draft_length, threshold, (load, batch) in grid:
        axes = {
            "method.name": "kangaroo",
            "method.exit_layer": exit_layer,
            "method.num_speculative_tokens": draft_length,
            "method.confidence_threshold": threshold,
            "load": load,
        }
        if batch > 60 and draft_length >= 4 and threshold < 0.3:
            rows.append(failed_row(axes, "unstable", f"offered load exceeds capacity at {load}"))
        else:
            rows.append(fake_row(axes, batch))
    return rows


def failed_row(axes: Mapping[str, Any], status: str, reason: str) -> dict[str, Any]:
    """Return a row without results."""
    return {**axes, "status": status, "reason": reason, "point_id": _identity(axes)}


def fake_row(axes: Mapping[str, Any], batch: float) -> dict[str, Any]:
    """Return a row with results, intervals and quantiles."""
    exit_layer = axes.get("method.exit_layer")
    draft_length = axes.get("method.num_speculative_tokens") or 0
    threshold = axes.get("method.confidence_threshold") or 0.0
    found = closed_form(exit_layer, draft_length, threshold, batch)
    identity = _identity(axes)
    noise = np.random.default_rng(zlib.crc32(identity.encode()))
    wobble = 1 + 0.006 * noise.standard_normal()
    tpot = found["round_time_ms"] / found["tokens_per_round"] * (1 + 0.08 * math.log1p(batch))
    baseline = found["step_time_ms"] * (1 + 0.08 * math.log1p(batch))
    ttft = 28 + 3.1 * batch**0.8 + 0.4 * found["round_time_ms"]
    tokens = 210.0
    metrics = {
        "speedup": baseline / tpot * wobble,
        "tpot_ms": tpot / wobble,
        "ttft_ms": ttft,
        "itl_ms": found["round_time_ms"],
        "e2e_ms": ttft + tokens * tpot,
        "throughput_tokens_per_s": batch / tpot * 1000,
        "requests_per_s": batch / (ttft + tokens * tpot) * 1000,
        "goodput_requests_per_s": 0.97 * batch / (ttft + tokens * tpot) * 1000,
        "slo_attainment": 1 / (1 + math.exp((tpot - 19) / 2)),
        "mean_batch_size": batch,
        "kv_utilisation": min(0.98, batch / 110),
        "compute_utilisation": min(0.9, 0.02 + batch / 200),
        "bandwidth_utilisation": max(0.1, 0.86 - batch / 400),
        "preemptions": 0.0,
        **found,
    }
    row: dict[str, Any] = {**axes, "status": "ok", "reason": "", "point_id": identity}
    for key, value in metrics.items():
        row[key] = float(value)
        half = abs(value) * (0.004 + 0.0004 * batch)
        row[f"{key}_ci95_low"] = float(value - half)
        row[f"{key}_ci95_high"] = float(value + half)
    if not draft_length:
        for suffix in ("", "_ci95_low", "_ci95_high"):
            row[f"speedup{suffix}"] = 1.0
    for key, mean, sigma in (
        ("ttft", ttft, 0.7),
        ("tpot", tpot, 0.16),
        ("e2e", ttft + 210 * tpot, 0.8),
    ):
        row[f"{key}_quantiles_ms"] = lognormal_quantiles(mean, sigma)
    return row


def closed_form(
    exit_layer: int | None, draft_length: int, threshold: float, batch: float
) -> dict[str, float]:
    """Return round and step time, tokens and parts for one configuration."""
    weights, kv, compute, host = 4.4, 0.012, 0.05, 0.6
    compute *= 1 + 0.012 * batch
    step = weights + kv * batch + compute * batch + host
    if not draft_length or exit_layer is None:
        parts = {"draft": 0.0, "verify": step - host, "prefill": 0.15 * batch**0.5, "host": host}
        drafted, accepted = 0.0, 0.0
    else:
        keep = 1 - 0.75 * threshold**2
        skill = 0.40 + 0.09 * math.log2(exit_layer) + 0.12 * threshold
        drafted = sum(keep**i for i in range(draft_length))
        accepted = sum(skill ** (i + 1) * keep**i for i in range(draft_length))
        share = exit_layer / NUM_LAYERS
        shallow = share * (weights + kv * batch + compute * batch) + 0.12
        parts = {
            "draft": (drafted + 1) * shallow,
            "verify": (1 - share) * (weights + kv * batch + compute * batch * (drafted + 1)),
            "prefill": 0.18 * batch**0.5,
            "host": host + 0.07 * drafted,
        }
    found = {f"time_{name}_ms": value for name, value in parts.items()}
    return {
        **found,
        "round_time_ms": sum(parts.values()),
        "step_time_ms": step + 0.15 * batch**0.5,
        "tokens_per_round": 1 + accepted,
        "drafted_per_round": drafted,
        "accepted_per_round": accepted,
        "acceptance_rate": accepted / drafted if drafted else float("nan"),
        "wasted_draft_share": 1 - accepted / drafted if drafted else float("nan"),
    }


def lognormal_quantiles(mean: float, sigma: float) -> list[float]:
    """Return the 0..100 % quantiles of a log-normal with this mean (ends at 0.2 and 99.8 %)."""
    from scipy.stats import norm

    shares = np.clip(np.linspace(0, 1, 101), 0.002, 0.998)
    return list(mean * np.exp(sigma * norm.ppf(shares) - sigma**2 / 2))


def fake_curves(context: int = 1024) -> list[dict[str, Any]]:
    """Return the rows of ``curves.parquet``."""
    rows = []
    for e, k, tau, b in itertools.product(EXIT_LAYERS, DRAFT_LENGTHS, THRESHOLDS, BATCHES):
        found = closed_form(e, k, tau, b)
        kept = (
            "round_time_ms", "step_time_ms", "tokens_per_round",
            "time_draft_ms", "time_verify_ms", "time_host_ms",
        )  # fmt: skip
        per_token = found["round_time_ms"] / found["tokens_per_round"]
        rows.append(
            {
                "method.exit_layer": e,
                "method.num_speculative_tokens": k,
                "method.confidence_threshold": tau,
                "batch": b,
                "context": context,
                "speedup": found["step_time_ms"] / per_token,
                **{key: found[key] for key in kept},
            }
        )
    return rows


def write_fake_results(
    directory: Path,
    *,
    manifest: Mapping[str, Any] | None = None,
    points: Sequence[Mapping[str, Any]] | None = None,
    curves: Sequence[Mapping[str, Any]] | None = None,
    with_curves: bool = True,
) -> Path:
    """Write a result directory and return it; everything not given is the main sweep's."""
    directory.mkdir(parents=True, exist_ok=True)
    document = fake_manifest() if manifest is None else manifest
    (directory / "manifest.json").write_text(json.dumps(document), encoding="utf-8")
    _write(fake_points() if points is None else points, directory / "points.parquet")
    if with_curves:
        _write(fake_curves() if curves is None else curves, directory / "curves.parquet")
    return directory


def _write(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    full = [{key: row.get(key) for key in columns} for row in rows]
    parquet.write_table(pa.Table.from_pylist(full), path)


def _identity(axes: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(repr(sorted(axes.items())).encode()):08x}"


HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "🚀 %{z} @ink &lt;b&gt;",
    "שלום \u202eעולם",
    "x" * 300,
    "@high",
    "=cmd()|\"'`{{ 7*7 }}",
)
"""Names that would break a page that does not escape them."""


def write_hostile_results(directory: Path) -> Path:
    """Write a sweep in which every name a user can choose is hostile."""
    loads = ("<i>idle</i>", '"><svg onload=alert(3)>')
    rows = []
    for hardware, load in itertools.product(HOSTILE_NAMES, loads):
        axes = {"hardware": hardware, "load": load}
        rows.append(fake_row({"method.name": "autoregressive", **axes}, 4))
        for exit_layer in (2, 4):
            found = fake_row(
                {
                    "method.name": "kangaroo",
                    "method.exit_layer": exit_layer,
                    "method.num_speculative_tokens": 3,
                    **axes,
                },
                4,
            )
            found.pop("method.num_speculative_tokens")
            rows.append(found)
    rows[-1] = failed_row(
        {"method.name": "kangaroo", "method.exit_layer": 4, **axes},
        "does_not_fit",
        "needs 90 GB <script>alert(4)</script> " + "y" * 400,
    )
    manifest = fake_manifest(
        name='<script>alert("name")</script> ☃ ' + "long " * 40,
        description="</title><script>alert(5)</script>",
        command='simspec sweep "<b>.yaml" && echo',
        acceptance="</script><script>alert(6)</script>",
        assumptions=["<b>bold</b>"],
        inputs={"<img src=x onerror=alert(7)>": {"sha256": "00"}},
        axes=[
            {"field": "hardware", "label": "<b>HW</b>", "values": list(HOSTILE_NAMES)},
            {"field": "load", "label": "Load", "values": list(loads)},
            {"field": "method.exit_layer", "label": "E", "values": [2, 4]},
        ],
    )
    return write_fake_results(directory, manifest=manifest, points=rows, with_curves=False)
