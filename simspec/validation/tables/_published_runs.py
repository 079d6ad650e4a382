"""A row of ``published_speedups.csv`` as a deployment: model, card, engine, method, acceptance.

What a row does not say is taken from its source as a whole, and stands in ``assumed``: the engine,
the settings of the method in that code base, the length of the texts. The acceptance is the one
published with the row; where a study published it in another table (arXiv 2601.11580: accepted
lengths per model, method and task, without times), it is taken from there. A row whose acceptance,
card, model or method is unknown is no run.

Conventions: tokens per round count the target's own token; ``draft_len`` is the depth of a draft;
the acceptance rate is accepted over drafted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from simspec.core.yamlio import parse_mapping
from simspec.models.names import catalog_name_of
from simspec.scenarios.build import Deployment, build
from simspec.scenarios.closed_form import calibration_sigma
from simspec.scenarios.schema import DeploymentConfig
from simspec.validation._names import hardware_of
from simspec.validation.tables._published_settings import (
    KANGAROO_FIGURE,
    NoRun,
    Pairs,
    number,
    settings_of,
    task_of,
    text,
)

LEADERBOARD = "Spec-Bench Leaderboard.md @a5fd1a3"
"""Beginning of the source that the host times of eager PyTorch were fitted on."""


def is_fitted(row: Mapping[str, Any]) -> bool:
    """Return whether the host times of an engine were fitted on a row.

    Of Spec-Bench the older leaderboard; of vLLM's series over draft lengths the even ones; of
    SGLang's chains against trees the chains, and the trees of another source; of Kangaroo's figure
    the bar of Medusa. The other halves judge.
    """
    source = text(row, "source")
    if "vllm issue 20780" in source:
        return (number(row, "draft_len") or 1.0) % 2 == 0
    if "2601.11580 Fig.2" in source:
        return text(row, "draft").startswith("chain")
    if KANGAROO_FIGURE in source:
        return text(row, "method") == "Medusa"
    return source.startswith(LEADERBOARD) or "sglang PR 4247" in source


_TASKS = {
    "GSM8K": 180,
    "CNN/DailyMail": 1000,
    "ShareGPT": 500,
    "InstructCoder": 600,
    "MT-Bench": 400,
    "CNN/DM": 700,
}
"""Mean context of a decode step by task, tokens: prompt and half of the answer.

GSM8K and CNN/DailyMail from the lengths in the traces of arXiv 2601.11580 (94 + 166/2 and
838 + 323/2), the others assumed.
"""
_SPEC_BENCH_CONTEXT = 700
"""Assumed; on eager engines, bound by the host, the context hardly counts."""

_CARDS = {
    "A100": "a100_sxm_80gb",
    "A100 80GB": "a100_sxm_80gb",
    "A100 40GB": "a100_sxm_40gb",
}
"""Names that say less than a profile: A100 in a server, by size."""

_UNSUPPORTED = {
    "REST": "retrieval from a data store",
    "Lookahead": "Jacobi iterations with an n-gram pool",
    "Hydra": "heads that read each other's drafts",
    "Hydra++": "heads that read each other's drafts",
    "Token Recycling": "a matrix of recycled candidates",
    "SAM-Decoding[EAGLE-2]": "a suffix automaton before EAGLE-2",
    "SPACE": "semi-autoregressive tuning",
    "BASS": "ragged batches of its own kernels",
    "SpecDec++": "a learnt stop",
    "DistillSpec": "a distilled draft without acceptance",
    "DFlash (block diffusion)": "block diffusion",
    "DFly": "block diffusion",
    "P-EAGLE": "parallel EAGLE heads",
    "EAGLE-3.1": "heads of another shape",
    "EAGLE-2 ablation": "parts of the published method switched off",
    "EAGLE-3 ablation": "parts of the published method switched off",
}
"""Methods of the table that simspec does not have, and what they are."""


@dataclass(frozen=True, slots=True)
class Run:
    """A published run in simspec's words.

    ``tokens_per_round`` is published, or 1 + rate times K; ``family`` is what a threshold is set
    on; ``assumed`` what the row does not say.
    """

    model: str
    hardware: str
    engine: str
    dtype: str
    method: Mapping[str, Any]
    acceptance: Mapping[str, Any]
    batch: int
    context: int
    tokens_per_round: float
    family: str
    assumed: tuple[str, ...] = ()


_MOST_SEQUENCES = 1e6
_MOST_DRAFTS = 1000


def run_of(row: Mapping[str, Any], pairs: Pairs) -> Run | NoRun:
    """Return the run of a row, or why it is none."""
    method, source = text(row, "method"), text(row, "source")
    if "SUSPECT" in source or "suspect" in source:
        return NoRun("suspect", "its publisher's figures contradict each other")
    if method in _UNSUPPORTED:
        return NoRun("unsupported", f"no method {method}: {_UNSUPPORTED[method]}")
    if number(row, "speedup") is None and number(row, "spec_tok_s") is None:
        return NoRun("unsupported", "an acceptance without a time: nothing to compare")
    model = _architecture(text(row, "target_model"))
    if model is None:
        return NoRun("unsupported", f"no architecture of {text(row, 'target_model')!r}")
    where = _where(row, source)
    if isinstance(where, NoRun):
        return where
    hardware, engine, dtype, family, assumed = where
    if number(row, "num_gpus") not in (None, 1.0):
        return NoRun("unsupported", "how the model is spread over the GPUs is not stated")
    batch = number(row, "batch") or 1.0
    if not 1 <= batch <= _MOST_SEQUENCES or batch % 1:
        return NoRun("unsupported", f"batch {batch:g} is no number of sequences")
    drafts = number(row, "draft_len")
    if drafts is not None and (not 1 <= drafts <= _MOST_DRAFTS or drafts % 1):
        return NoRun("unsupported", f"draft_len {drafts:g} is no number of tokens")
    settings = settings_of(row, method, model, pairs)
    if isinstance(settings, NoRun):
        return settings
    tokens, decoding, acceptance, more = settings
    return Run(
        model=model,
        hardware=hardware,
        engine=engine,
        dtype=dtype,
        method=decoding,
        acceptance=acceptance,
        batch=int(batch),
        context=_TASKS.get(task_of(row), _SPEC_BENCH_CONTEXT),
        tokens_per_round=tokens,
        family=family,
        assumed=(*assumed, *more),
    )


def _architecture(published: str) -> str | None:
    name = published.partition(" (")[0]
    return "llama-2-7b" if name == "Llama1-7B" else catalog_name_of(name)


def _where(
    row: Mapping[str, Any], source: str
) -> NoRun | tuple[str, str, str, str, tuple[str, ...]]:
    """Return card, engine, data type, family and what of it is assumed."""
    published = text(row, "hardware")
    card = _CARDS.get(published) or (hardware_of(published) if published else None)
    if "Spec-Bench Leaderboard" in source and card is not None:
        if card == "rtx_3090":
            return card, "pytorch_desktop", "fp16", "spec_bench_rtx_3090", ()
        return card, "pytorch", "fp16", "spec_bench_a100", ()
    if "facebookresearch/LayerSkip README" in source:
        why = "an A100: plain decoding takes as long as on the A100 of the Hugging Face blog"
        return "a100_sxm_80gb", "pytorch", "fp16", "layerskip", (why,)
    if KANGAROO_FIGURE in source:
        why = "an A100: no card is named"
        return "a100_sxm_80gb", "pytorch_kangaroo", "fp16", "kangaroo", (why,)
    if "vllm issue 20780" in source:
        why = "an H100: plain decoding takes as long as vLLM on one"
        return "h100_sxm", "vllm", "bf16", "vllm_k_series", (why,)
    if "sglang PR 4247" in source:
        why = "an H100: EAGLE-3 is as fast as in SGLang's documentation on one"
        return "h100_sxm", "sglang", "bf16", "sglang_pr_4247", (why,)
    if not published:
        return NoRun("unsupported", "the card is not stated")
    if card is None:
        return NoRun("unsupported", f"no hardware profile of {published!r}")
    if "2309.08168" in source:
        return card, "pytorch", "fp16", "draft_and_verify", ()
    if "2404.16710" in source:
        return card, "pytorch", "fp16", "layerskip", ()
    if "FasterDecoding/Medusa medusa-vicuna" in source:
        return card, "pytorch", "fp16", "medusa_logs", ()
    if "2401.15077 Table 7" in source:
        return card, "pytorch_desktop", "fp16", "eagle_paper", ()
    if '2601.11580 "Spec' in source:
        return card, "vllm", "bf16", "vllm_h100", ()
    if "2601.11580 Fig.2" in source:
        return card, "sglang", "bf16", "sglang_h100", ()
    if "vllm PR 16937" in source:
        return card, "vllm", "bf16", "vllm_pr_16937", ()
    return NoRun("unsupported", "no engine profile of the code that was run")


def deployment_of(run: Run) -> Deployment:
    """Return the run's deployment, built once.

    Raises
    ------
    SimspecError
        A name is unknown or the method does not fit the model.
    """
    return _built(_key(run))


def sigma_of(run: Run) -> Mapping[str, float]:
    """Return how far the errors of the profiles let the prediction be off, computed once.

    As :func:`simspec.scenarios.closed_form.calibration_sigma`: of the logarithm, by quantity.
    """
    return _sigma(_key(run), run.batch, run.context)


def _key(run: Run) -> str:
    fields = {
        "model": run.model,
        "hardware": run.hardware,
        "engine": run.engine,
        "dtype": run.dtype,
        "method": run.method,
        "acceptance": run.acceptance or None,
    }
    return json.dumps(fields, sort_keys=True)


@lru_cache(maxsize=512)
def _built(key: str) -> Deployment:
    return build(parse_mapping(json.loads(key), DeploymentConfig, "published run"))


@lru_cache(maxsize=1024)
def _sigma(key: str, batch: int, context: int) -> Mapping[str, float]:
    found = calibration_sigma(_built(key), batch, context)
    return {name: float(sigma) for name, sigma in found.items()}
