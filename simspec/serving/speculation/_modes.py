"""Variants of a decoding method: shorter drafts, other thresholds, none, unverified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simspec.core.errors import ConfigError
from simspec.cost.work import Pass, Rows, Stack
from simspec.decoding._base import METHODS, Method, MethodConfig
from simspec.serving.speculation._base import Mode

_PROBE = Rows("prefill", 1, 1, 1, 1.0, 0)


def given_mode(config: MethodConfig, target: Stack) -> Mode:
    """Return the method as the scenario says it."""
    method: Method = config.build(target)
    return _mode(config, method)


def off_mode(config: MethodConfig, target: Stack) -> Mode:
    """Return autoregression; a drafter with KV of its own misses the tokens made meanwhile."""
    plain: Method = METHODS.parse("autoregressive").build(target)
    has_kv = bool(drafter_passes(config.build(target), _PROBE))
    return Mode("off", plain, 0, leaves_debt=has_kv)


def shorter_modes(
    config: MethodConfig, target: Stack, lengths: Sequence[int] | None = None
) -> Iterator[Mode]:
    """Yield the variants that draft less deep than the method, deepest first.

    Depths that the method cannot be built with are left out: fewer drafts than MTP modules, fewer
    levels than the nodes of a tree need.

    Parameters
    ----------
    lengths : sequence of int, optional
        Depths to take; every one when not given.
    """
    for length in range((config.draft_depth or 1) - 1, 0, -1):
        if lengths is None or length in lengths:
            shorter = config.model_copy(update={"num_speculative_tokens": length})
            try:
                yield _mode(shorter, shorter.build(target))
            except ConfigError:
                continue


def drafter_passes(method: Method, rows: Rows) -> list[Pass]:
    """Return the passes that give a drafter's own KV the tokens of ``rows``, if it has one."""
    return [work for work in method.round_passes([], [], [], rows) if work.stack != "target"]


def _mode(config: MethodConfig, method: Method) -> Mode:
    threshold = float(getattr(config, "confidence_threshold", 0.0))
    depth = config.draft_depth or method.max_draft
    return Mode(f"K={depth}", method, depth, threshold)
