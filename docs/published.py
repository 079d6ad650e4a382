"""The generated parts about published figures: the acceptance catalog and the judged runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from simspec.decoding.acceptance._profiles import load_profile, profile_names
from simspec.validation._base import Comparison
from simspec.validation._read import read_rows
from simspec.validation.api import DATA
from simspec.validation.tables import published_speedups

FAMILIES = {
    "vllm_h100": "vLLM on an H100, batch 1 to 128, four tasks (arXiv 2601.11580)",
    "vllm_k_series": "vLLM on an H100, 2 to 7 drafts (vllm-project/vllm#20780)",
    "vllm_pr_16937": "vLLM on an H100, an early version (vllm-project/vllm#16937)",
    "sglang_h100": "SGLang on an H100, chains and trees (arXiv 2601.11580)",
    "sglang_pr_4247": "SGLang on an H100, trees (sgl-project/sglang#4247)",
    "spec_bench_a100": "Spec-Bench on an A100, eager, batch 1",
    "spec_bench_rtx_3090": "Spec-Bench on an RTX 3090, eager, batch 1",
    "layerskip": "LayerSkip: the authors' runs and paper",
    "draft_and_verify": "Draft & Verify, fixed draft lengths",
    "kangaroo": "Kangaroo and, fitted, Medusa beside it on Spec-Bench maths",
    "eagle_paper": "EAGLE-1, the paper's RTX 3090",
    "medusa_logs": "Medusa's own logs on an A100",
}
"""Families of runs in the order of the page, and what they are."""
_TIMED = {"medusa_logs", "vllm_k_series", "sglang_pr_4247"}
"""Families whose times are compared too."""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines
    )


def acceptance_catalog() -> str:
    """Return one row per acceptance profile."""
    rows = []
    for name in profile_names():
        profile = load_profile(name)
        drafts, tokens = profile.mean_tokens_as_measured()
        mean = "–" if tokens is None else f"{tokens:.2f} at {drafts}"
        rows.append(
            (
                f"`{name}`",
                f"`{profile.method}`",
                profile.target,
                profile.task,
                mean,
                profile.evidence,
                profile.source,
            )
        )
    heads = ("profile", "method", "target", "task", "tokens per round at K", "evidence", "source")
    return _table(heads, rows)


@cache
def _runs() -> list[Comparison]:
    table = read_rows(DATA / "published_speedups.csv", published_speedups)
    return [row for row in published_speedups.compare(table) if isinstance(row, Comparison)]


def published_errors() -> str:
    """Return the errors by family, fitted and held-out rows apart."""
    rows = []
    runs = _runs()
    for family, words in FAMILIES.items():
        for role in ("held_out", "fitted"):
            for quantity in ("step_cost_ratio", "speedup", "tpot_ms"):
                chosen = [
                    run
                    for run in runs
                    if (run.family, run.role, run.quantity) == (family, role, quantity)
                ]
                errors = [abs(run.error) for run in chosen]
                if errors and (
                    quantity != "tpot_ms"
                    or family in {"medusa_logs", "vllm_k_series", "sglang_pr_4247"}
                ):
                    rows.append(
                        (
                            words,
                            role.replace("_", " "),
                            quantity,
                            str(len(errors)),
                            f"{100 * np.median(errors):.0f} %",
                            f"{100 * np.quantile(errors, 0.9):.0f} %",
                            f"{sum(_holds(run) for run in chosen)} of {len(chosen)}",
                        )
                    )
    heads = ("runs", "rows", "quantity", "number", "median error", "90th percentile", "in 95 %")
    return _table(heads, rows)


def _holds(run: Comparison) -> bool:
    low, high = run.interval or (0.0, 0.0)
    return low <= run.measured <= high


def published_rows() -> str:
    """Return every judged run: measured, predicted, error and the parts of the round."""
    parts = []
    runs = _runs()
    for family, words in FAMILIES.items():
        chosen = [run for run in runs if run.family == family]
        rows = [_row(run) for run in chosen if run.quantity in {"step_cost_ratio"}]
        rows = rows or [_row(run) for run in chosen]
        if not rows:
            continue
        heads = (
            "method", "model", "task", "batch", "K", "tokens per round", "measured", "predicted",
            "error", "draft + verify + host / plain step, ms", "rows",
        )  # fmt: skip
        sources = dict.fromkeys(str(run.subject["source"]) for run in chosen)
        assumed = dict.fromkeys(
            text
            for run in chosen
            for text in str(run.subject["assumed"]).split("; ")
            if text and not text.startswith("given a match")
        )
        said = f"Sources: {'; '.join(sources)}."
        if assumed:
            said += f" Assumed: {'; '.join(assumed)}."
        what = "time per token, ms" if chosen[0].quantity == "tpot_ms" else "step-cost ratio"
        parts += [f"### {words}", f"Measured and predicted: {what}. {said}", _table(heads, rows)]
    return "\n\n".join(parts)


def _row(run: Comparison) -> tuple[str, ...]:
    subject, made_of = run.subject, run.breakdown
    parts = " + ".join(f"{1e3 * made_of[key]:.1f}" for key in ("draft", "verify", "host"))
    drafts, task = subject["draft_len"], subject["dataset"]
    return (
        str(subject["method"]),
        str(subject["target_model"]),
        "–" if task is None else str(task),
        "1" if subject["batch"] is None else f"{subject['batch']:.0f}",
        "–" if drafts is None else f"{drafts:.0f}",
        f"{subject['tokens_per_round']:.2f}",
        f"{run.measured:.2f}",
        f"{run.predicted:.2f}",
        f"{100 * run.error:+.0f} %",
        f"{parts} / {1e3 * made_of['plain_step']:.1f}",
        run.role.replace("_", " "),
    )
