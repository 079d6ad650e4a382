"""Fit a device to whole-model speeds of one sequence, where no kernels were measured.

Tokens per second of a handful of models and formats (llama-bench ``tgN`` and ``ppN``) separate
what a profile needs: large against small files give bandwidth and overhead per kernel, long
against short contexts the attention, prompts the arithmetic rate. The predictions are those of
the cost model itself, so a fit lands on coefficients that mean what they will be used for.

Metal's small-batch matrix kernels do not overlap unpacking weights with reading them, and a
verify pass of a few tokens costs nearly as many times a decode step (ggml-org/llama.cpp#25250);
the GEMM corner is therefore held additive (sharpness 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simspec.calibration.fitted import LOSS_SCALE, Fitted
from simspec.calibration.kernels import DeviceFit
from simspec.calibration.robust import Array, Coefficient, fit, held_out
from simspec.core.units import from_us
from simspec.cost.forward import CostModel
from simspec.cost.work import Pass, Rows, Stack
from simspec.hardware.load import load_engine
from simspec.hardware.profile import EngineProfile, Hardware, KernelFit
from simspec.models.arch import Architecture

MICROBATCH_TOKENS = 512
"""Tokens llama.cpp processes of a prompt at once (its default ``--ubatch-size``)."""
_COEFFICIENTS = (
    Coefficient("flop_efficiency", 0.01, 1.0, start=0.6),
    Coefficient("bandwidth_efficiency", 0.01, 1.0, start=0.8),
    Coefficient("overhead_us", 1.0, 200.0, start=10.0),
    Coefficient("decode_attention_bandwidth_efficiency", 0.01, 1.0, start=0.2),
    Coefficient("prefill_attention_flop_efficiency", 0.01, 1.0, start=0.3),
)


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
    cost = CostModel({"target": stack}, hardware, engine)
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


def with_coefficients(hardware: Hardware, values: Array) -> Hardware:
    """Return ``hardware`` with the efficiencies of one candidate of the fit."""
    e_f, e_b, overhead_us, attention_b, attention_f = (float(v) for v in values)
    overhead_s = from_us(overhead_us)
    return replace(
        hardware,
        gemm={"fp16": KernelFit(e_f, e_b, overhead_s, sharpness=1.0)},
        decode_attention={"fp16": KernelFit(e_f, attention_b, overhead_s)},
        prefill_attention={"fp16": KernelFit(attention_f, e_b, overhead_s, sharpness=1.0)},
        elementwise=KernelFit(1.0, e_b, overhead_s),
    )


def fit_speeds(
    rows: Sequence[SpeedRow], judged: Sequence[SpeedRow], hardware: Hardware
) -> DeviceFit:
    """Fit a device to the speeds of some models and judge it on those of another.

    Parameters
    ----------
    rows, judged : sequence of SpeedRow
        Fitted, and held out.
    hardware : Hardware
        Peaks and bandwidth; its efficiencies are not read.

    Raises
    ------
    CalibrationError
        Too few rows, or no convergence.
    """
    engine = load_engine("ideal")

    def predict(values: Array, chosen: Sequence[SpeedRow]) -> Array:
        candidate = with_coefficients(hardware, values)
        return np.array([seconds_per_run(row, candidate, engine) for row in chosen])

    estimate = fit(
        lambda values: predict(values, rows),
        _COEFFICIENTS,
        _measured_s_of(rows),
        groups=[f"{row.architecture.name} {row.weight_dtype} {row.is_prefill}" for row in rows],
        loss_scale=LOSS_SCALE,
        what=f"{hardware.name} single-stream speeds",
    )
    errors = held_out(predict(estimate.values, judged), _measured_s_of(judged))
    fits = with_coefficients(hardware, estimate.values)

    def fitted(kernel: KernelFit) -> Fitted:
        values = {
            "flop_efficiency": kernel.flop_efficiency,
            "bandwidth_efficiency": kernel.bandwidth_efficiency,
            "overhead_us": float(estimate.values[2]),
        }
        if np.isfinite(kernel.sharpness):
            values["sharpness"] = kernel.sharpness
        return Fitted(values, {}, len(rows), errors)

    return DeviceFit(
        device=hardware.name,
        engine="llama.cpp",
        gemm={"fp16": fitted(fits.gemm["fp16"])},
        decode_attention={"fp16": fitted(fits.decode_attention["fp16"])},
        prefill_attention={"fp16": fitted(fits.prefill_attention["fp16"])},
        all_reduce={},
    )


def _measured_s_of(rows: Sequence[SpeedRow]) -> Array:
    return np.array([row.measured_s for row in rows], dtype=np.float64)
