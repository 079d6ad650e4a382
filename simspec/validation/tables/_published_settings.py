"""How the code bases of published runs set a method up, and the acceptance that goes with a row.

Where a row gives no settings they are those of the code that was run: EAGLE's published trees,
Medusa's tree of 63 nodes, ten copied tokens of prompt lookup, Kangaroo's defaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isnan
from typing import Any, TypeAlias

from simspec.decoding.acceptance._shorthand import calibrated_beta, parse_acceptance
from simspec.decoding.acceptance.lookup import LookupProcess
from simspec.validation._base import Cause

FIRST_COPIED, GOES_ON = 0.3, 0.72
"""Prompt lookup, given a match: the first copied token is right, and the next ones each.

The first is assumed: many matches of short n-grams are chance. The second is the median conditional
rate of drafts 2 to 10 in the n-gram traces of arXiv 2601.11580 (GSM8K and CNN/DailyMail, 0.56 to
0.85). With them the published mean gives the share of rounds that find a match, hence the tokens
verified.
"""

KANGAROO_FIGURE = "2404.18911v1 Fig.1"
"""Speedups of one chain at a time on Spec-Bench, and the rates of its maths part."""
_KANGAROO_RATES = (0.505, 0.225, 0.10, 0.045, 0.02, 0.007)
_MEDUSA_RATES = (0.425, 0.12, 0.025)
"""Share of rounds that yield more than 1, 2, … tokens on maths, read off that figure."""

_EAGLE2_NODES = {"vicuna-7b": 59, "vicuna-13b": 49, "vicuna-33b": 47}
"""Verified nodes beside the root: 60, 50 and 48 tokens (arXiv 2406.16858, section 5)."""


@dataclass(frozen=True, slots=True)
class NoRun:
    """Why a row is none."""

    cause: Cause
    reason: str


class Pairs:
    """Accepted lengths that a study published without times, by model, method, task and K."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._means: dict[tuple[str, str, str], dict[int, float]] = {}
        for row in rows:
            source = str(row["source"])
            is_trace = "acceptance traces" in source
            is_series = "vllm issue 20780" in source
            mean, drafts = number(row, "mean_tokens_per_step"), number(row, "draft_len")
            if (is_trace or is_series) and mean is not None and drafts is not None:
                key = (str(row["target_model"]), str(row["method"]), task_of(row))
                self._means.setdefault(key, {})[int(drafts)] = mean

    def mean(self, row: Mapping[str, Any], drafts: int) -> tuple[float, int] | None:
        """Return tokens per round and the K they were published for; None where there are none.

        Another K than the row's stands in for prompt lookup alone, whose law is known.
        """
        key = (str(row["target_model"]), str(row["method"]), task_of(row))
        known = self._means.get(key, {})
        if drafts in known:
            return known[drafts], drafts
        if row["method"] == "n-gram/PLD" and known:
            nearest = min(known, key=lambda k: abs(k - drafts))
            return known[nearest], nearest
        return None


def number(row: Mapping[str, Any], column: str) -> float | None:
    """Return a cell as a number; None for an empty one."""
    value = row.get(column)
    if value is None or value == "":
        return None
    value = float(value)
    return None if isnan(value) else value


def text(row: Mapping[str, Any], column: str) -> str:
    """Return a cell as text; an empty one is the empty text."""
    value = row.get(column)
    return value if isinstance(value, str) else ""


def task_of(row: Mapping[str, Any]) -> str:
    """Return the task of a row without its variants."""
    return re.split(r" \(| summar| language| 1-shot", text(row, "dataset"))[0]


Settings: TypeAlias = tuple[float, dict[str, Any], dict[str, Any], tuple[str, ...]]
"""Tokens per round, method, acceptance, and what is assumed."""


def settings_of(row: Mapping[str, Any], method: str, model: str, pairs: Pairs) -> Settings | NoRun:
    drafts, mean = number(row, "draft_len"), number(row, "mean_tokens_per_step")
    rate = number(row, "acceptance_rate")
    if mean is None and rate is not None and drafts is not None:
        mean = 1.0 + rate * drafts
    assumed: tuple[str, ...] = ()
    if mean is None and drafts is not None and (paired := pairs.mean(row, int(drafts))):
        mean, at = paired
        assumed = ("accepted length of the same study and task, published apart",)
        if at != int(drafts):
            return _lookup(mean, at, int(drafts), assumed)
    if KANGAROO_FIGURE in text(row, "source") and text(row, "dataset") == "Spec-Bench/Math":
        if method == "Kangaroo":
            return _kangaroo()
        if method == "Medusa":
            return _medusa_chain()
    if mean is None:
        return NoRun("unsupported", "no acceptance is published with it")
    if method in {"PLD", "n-gram/PLD"}:
        return _lookup(mean, int(drafts or 10), int(drafts or 10), assumed)
    decoding = _decoding(row, method, model, drafts)
    if isinstance(decoding, NoRun):
        return decoding
    settings, depth, more = decoding
    acceptance = {
        "name": "tokens_per_round",
        "tokens_per_round": mean,
        "num_speculative_tokens": depth,
    }
    return mean, settings, acceptance, (*assumed, *more)


def _decoding(
    row: Mapping[str, Any], method: str, model: str, drafts: float | None
) -> NoRun | tuple[dict[str, Any], int, tuple[str, ...]]:
    """Return the method as that code base runs it, its depth and what is assumed."""
    if method in {"EAGLE-1", "EAGLE-2", "EAGLE-3"}:
        found = re.search(r"tree, (\d+) draft tokens", text(row, "draft"))
        if text(row, "draft").startswith("tree, steps="):
            eagle, depth, more = _eagle(method, model, drafts, (64, 8))
            return eagle, depth, (*more, "64 verified tokens and eight candidates per node")
        # How many candidates a node has is not stated.
        shape = (int(found[1]), 4) if found else None
        eagle, depth, more = _eagle(method, model, drafts, shape)
        return eagle, depth, (*more, "four candidates per node") if found else more
    if method in {"Medusa", "Medusa-1"}:
        return {"name": "medusa"}, 4, ()
    if method == "dual-model SD (SpS)":
        why = "three drafts a round, the mean of Hugging Face's schedule at this acceptance"
        settings: dict[str, Any] = {
            "name": "dual_model",
            "draft_model": "llama-68m",
            "catch_up": "first_step",
        }
        return {**settings, "num_speculative_tokens": 3}, 3, (why,)
    if method == "LayerSkip" and drafts is not None:
        found = re.search(r"exit_layer=(\d+)", text(row, "draft"))
        if found is not None:
            settings = {"name": "layerskip", "exit_layer": int(found[1])}
            return {**settings, "num_speculative_tokens": int(drafts)}, int(drafts), ()
    if method == "Draft&Verify" and drafts is not None and "fixed K" in text(row, "draft"):
        settings = {"name": "draft_and_verify", "skipped_attention": 24, "skipped_mlp": 10}
        chain = {"num_speculative_tokens": int(drafts), "confidence_threshold": 0}
        why = "24 attentions and 10 MLPs left out, as in the paper's adaptive run"
        return {**settings, **chain}, int(drafts), (why,)
    return NoRun("unsupported", f"the settings of {method} are not stated")


def _eagle(
    method: str, model: str, drafts: float | None, shape: tuple[int, int] | None
) -> tuple[dict[str, Any], int, tuple[str, ...]]:
    """Return EAGLE with so many drafts; ``shape``: tokens verified and candidates per node."""
    version = int(method[-1])
    settings: dict[str, Any] = {"name": "eagle", "version": version}
    assumed: tuple[str, ...] = ()
    if version == 3:
        settings["draft_vocab_size"] = 32_000
        assumed = ("a head with 32,000 tokens, as the published ones for Llama",)
    if drafts is not None and shape is not None:
        verified, top_k = shape
        # SGLang counts the root among its draft tokens.
        tree = {"num_speculative_tokens": int(drafts), "top_k": top_k, "num_nodes": verified - 1}
        return {**settings, **tree}, int(drafts), assumed
    if drafts is not None:
        depth = int(drafts)
        chain = {} if version == 1 else {"top_k": 1}
        return {**settings, **chain, "num_speculative_tokens": depth}, depth, assumed
    if version == 1:
        return settings, 5, ()
    nodes = _EAGLE2_NODES.get(model, 59)
    if version == 2:
        return {**settings, "num_nodes": nodes}, 6, assumed
    why = "the tree of EAGLE-2 with 8 levels"
    return {**settings, "num_nodes": nodes, "num_speculative_tokens": 8}, 8, (*assumed, why)


def _medusa_chain() -> Settings:
    """Return Medusa on Spec-Bench maths in Kangaroo's figure: each head's first guess, no tree."""
    tokens = 1.0 + sum(_MEDUSA_RATES)
    depth = len(_MEDUSA_RATES)
    chain = [[0] * length for length in range(1, depth + 1)]
    acceptance = {
        "name": "tokens_per_round",
        "tokens_per_round": tokens,
        "num_speculative_tokens": depth,
    }
    why = "one chain of each head's first guess: the paper compares single-sequence verification"
    return tokens, {"name": "medusa", "tree": chain}, acceptance, (why,)


def _kangaroo() -> Settings:
    """Return Kangaroo on Spec-Bench maths: 1 + the published rates, all of them."""
    tokens = 1.0 + sum(_KANGAROO_RATES)
    settings = {
        "name": "kangaroo",
        "exit_layer": 2,
        "num_speculative_tokens": 6,
        "confidence_threshold": 0.6,
    }
    why = "a calibrated drafter whose rounds yield the published tokens under the threshold"
    return tokens, settings, dict(calibrated_beta([_kangaroo_alpha(tokens)])), (why,)


@lru_cache(maxsize=4)
def _kangaroo_alpha(tokens: float) -> float:
    """Return the mean confidence with which K = 6 and a threshold of 0.6 yield ``tokens``."""
    low, high = 0.3, 0.8
    for _ in range(30):
        middle = (low + high) / 2
        process = parse_acceptance(dict(calibrated_beta([middle]))).at(2)
        below = process.statistics(6, 0.6).tokens_per_round < tokens
        low, high = (middle, high) if below else (low, middle)
    return (low + high) / 2


def _lookup(mean: float, published_at: int, drafts: int, assumed: tuple[str, ...]) -> Settings:
    hit, first = _hits(mean, published_at)
    process = LookupProcess("", hit, (first, first * GOES_ON))
    tokens = process.statistics(drafts, 0.0).tokens_per_round
    why = (
        f"given a match the first copied token is right with {first:.2f} and each next one with "
        f"{GOES_ON:g}; a search then finds a match with {hit:.2f} outside copies"
    )
    acceptance = {
        "name": "lookup",
        "hit_probability": hit,
        "rates": [first, first * GOES_ON],
    }
    method = {"name": "prompt_lookup", "num_speculative_tokens": drafts}
    return tokens, method, acceptance, (*assumed, why)


@lru_cache(maxsize=64)
def _hits(mean: float, drafts: int) -> tuple[float, float]:
    """Return hit probability and first rate with which K drafts yield ``mean`` tokens.

    The first rate is :data:`FIRST_COPIED` as long as a hit probability up to 1 is enough.
    """

    def tokens(hit: float, first: float) -> float:
        process = LookupProcess("", hit, (first, first * GOES_ON))
        return process.statistics(drafts, 0.0).tokens_per_round

    low, high = (0.0, 1.0) if tokens(1.0, FIRST_COPIED) >= mean else (FIRST_COPIED, 0.999)
    solves_hit = high == 1.0
    for _ in range(50):
        middle = (low + high) / 2
        value = tokens(middle, FIRST_COPIED) if solves_hit else tokens(1.0, middle)
        low, high = (middle, high) if value < mean else (low, middle)
    found = (low + high) / 2
    return (found, FIRST_COPIED) if solves_hit else (1.0, found)
