"""Whole-model speeds of one sequence, or of some in step, as the cost model predicts them.

Tokens per second of a handful of models and formats (llama-bench ``tgN`` and ``ppN``) are what
most devices are known by. Large against small files give bandwidth and overhead per kernel, long
against short contexts the attention, prompts the arithmetic rate; the fit of all of them is
:mod:`simspec.calibration.families`.
"""

from __future__ import annotations

from dataclasses import dataclass

from simspec.cost.forward import CostModel
from simspec.cost.work import Pass, Rows, Stack
from simspec.hardware.profile import EngineProfile, Hardware
from simspec.models.arch import Architecture

MICROBATCH_TOKENS = 512
"""Tokens llama.cpp processes of a prompt at once (its default ``--ubatch-size``)."""


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One measured speed: of a single sequence, or of some that decode in step.

    Attributes
    ----------
    architecture : Architecture
        The model.
    weight_dtype : str
        A name of :data:`simspec.models.dtypes.DTYPES`.
    is_prefill : bool
        Prompt processing of ``tokens`` tokens; otherwise generation of as many from an empty
        cache.
    tokens : int
        Prompt length, or tokens generated.
    tokens_per_s : float
        Measured, over all sequences.
    batch : int
        Sequences that decode in step.
    context : int
        Tokens cached before.
    kv_dtype : str
        Format of the cache.
    microbatch : int
        Tokens of a prompt that the engine processes at once.
    verified : int
        Tokens of each sequence that a decode step processes: 1, or those it verifies.
    """

    architecture: Architecture
    weight_dtype: str
    is_prefill: bool
    tokens: int
    tokens_per_s: float
    batch: int = 1
    context: int = 0
    kv_dtype: str = "fp16"
    microbatch: int = MICROBATCH_TOKENS
    verified: int = 1

    @property
    def measured_s(self) -> float:
        """Seconds of the whole prompt, or of one step of all sequences."""
        return (self.tokens if self.is_prefill else self.batch * self.verified) / self.tokens_per_s


def seconds_per_run(row: SpeedRow, hardware: Hardware, engine: EngineProfile) -> float:
    """Return the predicted seconds of the whole prompt, or of one step at the mean context."""
    architecture = row.architecture
    stack = Stack(
        name="target",
        blocks=architecture.blocks,
        hidden_size=architecture.hidden_size,
        vocab_size=architecture.vocab_size,
        weight_dtype=row.weight_dtype,
        kv_dtype=row.kv_dtype,
        tp=1,
        activation_dtype="fp16",
    )
    return run_seconds(row, CostModel({"target": stack}, hardware, engine), stack)


def run_seconds(row: SpeedRow, cost: CostModel, stack: Stack) -> float:
    """Return what :func:`seconds_per_run` does, of a model that is priced already.

    Parameters
    ----------
    row : SpeedRow
        Of the model of ``stack``.
    cost : CostModel
        Knows ``stack`` as ``"target"``.
    stack : Stack
        The model.
    """
    if not row.is_prefill:
        batch, n = row.batch, row.verified
        context = row.context + (row.tokens - 1) / 2.0
        pairs = batch * n * (context + (n + 1) / 2.0)
        rows = Rows("decode", batch, batch * n, batch * (context + n), pairs, batch * n)
        return float(cost.step([_whole(stack, rows, "decode")], batch).total_s)
    total_s = 0.0
    for start in range(0, row.tokens, row.microbatch):
        n = min(row.microbatch, row.tokens - start)
        is_last = start + n >= row.tokens
        context = row.context + start
        rows = Rows("prefill", 1, n, context + n, n * (context + (n + 1) / 2.0), int(is_last))
        total_s += float(cost.step([_whole(stack, rows, "prefill")], 1).total_s)
    return total_s


def _whole(stack: Stack, rows: Rows, phase: str) -> Pass:
    return Pass(
        stack="target",
        first_layer=0,
        last_layer=len(stack.blocks),
        phase="prefill" if phase == "prefill" else "decode",
        rows=(rows,),
        embeds=True,
    )
