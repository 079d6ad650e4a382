"""What arithmetic says about a measured figure, before any model is asked.

Every function returns one sentence that refutes the figure, with the arithmetic in it, or None
when nothing speaks against it. A refuted row is left out of every mean and shown with its
sentence. The bounds are those no engine can beat: a weight that is not read cannot be multiplied,
a peak is a peak, and what all users see together is what the server sends. They are loose on
purpose: a figure that passes may still be wrong.
"""

from __future__ import annotations

import math

from simspec.core.units import format_bytes, format_seconds

_ROUNDING = 0.02
"""Published figures are rounded; a bound must be missed by more than this share."""


def not_positive(name: str, value: float) -> str | None:
    """Refute a time, rate or size that is zero, negative or no number at all.

    Parameters
    ----------
    name : str
        Column, with its unit: ``"ttft_ms"``.
    value : float
        What it holds.
    """
    if math.isfinite(value) and value > 0.0:
        return None
    if math.isnan(value):
        return f"{name} is missing"
    return f"{name} is {value:g}, which no measurement can be"


def below_weight_floor(
    tpot_s: float,
    *,
    weight_bytes: float,
    bandwidth_bytes_per_s: float,
    tokens_per_pass: float = 1.0,
    device: str = "the device",
) -> str | None:
    """Refute a time per token in which the weights cannot be read.

    A pass reads every weight it uses once, and yields ``tokens_per_pass`` tokens of one
    sequence: ``tpot >= weight_bytes / (bandwidth tokens_per_pass)``.

    Parameters
    ----------
    tpot_s : float, seconds
        Time per output token of one sequence.
    weight_bytes : float, bytes
        Weights one GPU reads in a pass: of a mixture of experts only those of the experts that
        one token hits; without the embedding, which is gathered.
    bandwidth_bytes_per_s : float
        Of one GPU, as its data sheet states it.
    tokens_per_pass : float
        1 without speculation, at most K + 1 with it.
    device : str
        For the sentence.
    """
    floor_s = weight_bytes / (bandwidth_bytes_per_s * tokens_per_pass)
    if tpot_s >= floor_s * (1.0 - _ROUNDING):
        return None
    rate = weight_bytes / (tpot_s * tokens_per_pass)
    per_pass = "" if tokens_per_pass == 1.0 else f" once every {tokens_per_pass:.3g} tokens"
    return (
        f"reading {format_bytes(weight_bytes)} of weights{per_pass} at "
        f"{format_seconds(tpot_s)} per token takes {format_bytes(rate)}/s, and {device} has "
        f"{format_bytes(bandwidth_bytes_per_s)}/s"
    )


def below_bandwidth_floor(
    seconds: float, *, num_bytes: float, bandwidth_bytes_per_s: float, device: str = "the device"
) -> str | None:
    """Refute a time in which the bytes cannot be moved: ``seconds >= bytes / bandwidth``.

    Parameters
    ----------
    seconds : float, seconds
        Time of a kernel or a pass.
    num_bytes : float, bytes
        What it must read and write on one GPU.
    bandwidth_bytes_per_s : float
        Of one GPU, as its data sheet states it.
    device : str
        For the sentence.
    """
    if seconds >= num_bytes / bandwidth_bytes_per_s * (1.0 - _ROUNDING):
        return None
    return (
        f"{format_bytes(num_bytes)} in {format_seconds(seconds)} are "
        f"{format_bytes(num_bytes / seconds)}/s, and {device} has "
        f"{format_bytes(bandwidth_bytes_per_s)}/s"
    )


def below_compute_floor(
    seconds: float, *, flop: float, peak_flop_per_s: float, device: str = "the device"
) -> str | None:
    """Refute a time in which the operations cannot be done: ``seconds >= flop / peak``.

    Parameters
    ----------
    seconds : float, seconds
        TTFT of a prompt, or the time of a pass.
    flop : float
        On one GPU; ``2 N T / tp`` for N parameters and T tokens is a lower bound.
    peak_flop_per_s : float
        Dense peak of one GPU in the type of the products.
    device : str
        For the sentence.
    """
    if seconds >= flop / peak_flop_per_s * (1.0 - _ROUNDING):
        return None
    return (
        f"{flop / 1e12:.3g} TFLOP in {format_seconds(seconds)} are "
        f"{flop / seconds / 1e12:,.0f} TFLOP/s, and {device} has {peak_flop_per_s / 1e12:,.0f}"
    )


def users_times_speed(
    *, users: float, tokens_per_s_per_user: float, tokens_per_s: float
) -> str | None:
    """Refute a total that is more than all users together receive.

    ``tokens_per_s <= users tokens_per_s_per_user``. It may be less, and is when users wait for
    their prompts or in a queue.
    """
    together = users * tokens_per_s_per_user
    if tokens_per_s <= together * (1.0 + _ROUNDING):
        return None
    return (
        f"{users:g} users at {tokens_per_s_per_user:.4g} tokens/s receive {together:,.0f} "
        f"tokens/s together, and the total is given as {tokens_per_s:,.0f}"
    )


def beyond_draft(speedup: float, *, max_draft: float) -> str | None:
    """Refute a speedup above the K + 1 tokens that one round can yield.

    A round costs at least one pass of the target, so it is at most K + 1 times faster than as
    many plain passes.

    Parameters
    ----------
    speedup : float
        Time per token without speculation over the time with it.
    max_draft : float
        K: draft tokens on the longest path of a round.
    """
    if speedup <= (max_draft + 1.0) * (1.0 + _ROUNDING):
        return None
    return (
        f"a round of at most {max_draft:g} draft tokens yields at most {max_draft + 1:g}, and the "
        f"speedup is given as {speedup:.3g}"
    )


def latency_contradiction(
    *, e2e_s: float, ttft_s: float, tpot_s: float, output_len: float, tolerance: float = 0.1
) -> str | None:
    """Refute a TPOT that its own end-to-end latency contradicts.

    ``tpot = (e2e - ttft) / (output_len - 1)`` by definition.
    """
    if output_len <= 1:
        return None
    expected_s = (e2e_s - ttft_s) / (output_len - 1.0)
    if abs(tpot_s - expected_s) <= tolerance * abs(expected_s):
        return None
    return (
        f"({format_seconds(e2e_s)} - {format_seconds(ttft_s)}) over {output_len - 1:g} tokens is "
        f"{format_seconds(expected_s)} per token, and TPOT is given as {format_seconds(tpot_s)}"
    )
