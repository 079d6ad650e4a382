"""What arithmetic says about closed-loop rows: perfect kernels on the same device as the floor.

Perfect kernels reach every peak of the data sheet, cost nothing to launch and need no host;
collectives send at the link's full rate. What a row reports in less time than they take did not
happen as the row says.

* *The cycle.* With ``c`` users always in flight, ``c`` requests are served per mean sojourn
  ``E = TTFT + (O - 1) TPOT`` (Little's law): in ``E`` the device computes ``c`` prompts and reads
  its weights ``O - 1`` times and every cached token once for each token that follows it. In a
  finite run the users at its end are fewer, which lengthens it by at most one sojourn in
  ``requests_per_user``; that much is allowed.
* *The step.* Of the ``c`` users ``c (O - 1) TPOT / E`` decode at a time, and a step of as many
  takes at least the reading of the weights they use and of their caches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from simspec.calibration.robust import Array
from simspec.core.units import format_seconds
from simspec.cost.forward import CostModel
from simspec.cost.work import Rows
from simspec.decoding._chain import plain_pass, plain_rows
from simspec.hardware.load import load_engine
from simspec.hardware.profile import AllReduceFit, Hardware, KernelFit
from simspec.scenarios.build import Deployment
from simspec.scenarios.closed_loop import ClosedLoop

_PERFECT = KernelFit(flop_efficiency=1.0, bandwidth_efficiency=1.0, overhead_s=0.0)
FEWEST_REQUESTS = 10.0
"""Of each user that a run makes at least, also one said to be of the steady state alone."""
ROUTING_SLACK = 0.25
"""Texts of one kind hit fewer experts than independent routing; a step of a mixture may be this
much below the floor of independent routing."""


def perfect(hardware: Hardware) -> Hardware:
    """Return the device with kernels that reach every peak of its data sheet."""
    link = hardware.link
    if link is not None:
        rate = link.bandwidth_bytes_per_s
        link = replace(link, all_reduce={"ring": AllReduceFit(0.0, 0.0, rate)})
    return replace(
        hardware,
        gemm=dict.fromkeys(hardware.gemm, _PERFECT),
        decode_attention=dict.fromkeys(hardware.decode_attention, _PERFECT),
        prefill_attention=dict.fromkeys(hardware.prefill_attention, _PERFECT),
        elementwise=_PERFECT,
        link=link,
        kernel_sets={},
    )


def refutations(
    deployment: Deployment,
    load: ClosedLoop,
    tpot_s: Array,
    ttft_s: Array,
) -> Iterator[str | None]:
    """Yield for each row the sentence that refutes it, or None.

    Parameters
    ----------
    deployment : Deployment
        Its KV cache counts in one byte per value, the smallest an engine may have used.
    load : ClosedLoop
        Arrays of the rows.
    tpot_s, ttft_s : array, seconds
        As reported.
    """
    cost = _perfect_cost(deployment)
    users, prompt, output = _mean_loads(load)
    steps = np.maximum(output - 1.0, 1.0)
    tpot, ttft = tpot_s, ttft_s
    sojourn = ttft + steps * tpot
    context = prompt + output / 2.0
    whole = Rows(
        "prefill", 1.0 + 0 * prompt, prompt, prompt, prompt * (prompt + 1) / 2, 1 + 0 * prompt
    )
    target = deployment.target

    def step_s(sequences: Array) -> Array:
        rows = plain_rows(sequences, sequences * context)
        return np.asarray(
            cost.step([plain_pass(target, rows, None)], sequences).total_s, np.float64
        )

    prompt_s = np.asarray(cost.step([plain_pass(target, None, whole)], 1.0 + 0 * prompt).total_s)
    alone_s = step_s(np.ones_like(users))
    # A prompt in a step shares the reading of its weights.
    cycle = users * np.maximum(prompt_s - alone_s, 0.0) + steps * step_s(users)
    allowed = sojourn * (1.0 + 1.0 / np.minimum(load.requests_per_user, FEWEST_REQUESTS))
    decoding = np.maximum(users * steps * tpot / sojourn, 1.0)
    floor = step_s(decoding)
    is_moe = any(block.moe is not None for block in target.blocks)
    loosest = floor * ((1.0 - ROUTING_SLACK) if is_moe else 1.0)
    device = f"perfect kernels on {deployment.hardware.name}"
    for index in range(users.size):
        if loosest[index] > tpot[index]:
            yield (
                f"{decoding[index]:.0f} of {users[index]:.0f} users decode at a time, and {device} "
                f"take {format_seconds(float(floor[index]))} for their step, not "
                f"{format_seconds(float(tpot[index]))}"
            )
        elif cycle[index] > allowed[index]:
            share = float(cycle[index] / sojourn[index])
            yield (
                f"in the {format_seconds(float(sojourn[index]))} of a request, {users[index]:.0f} "
                f"prompts of {prompt[index]:.0f} tokens and {steps[index]:.0f} steps of all users "
                f"take {device} {format_seconds(float(cycle[index]))} ({share:.0%} of it)"
            )
        else:
            yield None


def _mean_loads(load: ClosedLoop) -> tuple[Array, Array, Array]:
    """Return users and mean lengths of every row."""
    fields = (load.concurrency, load.prompt_len, load.output_len, load.length_spread)
    users, prompt, output, spread = (
        np.asarray(a, dtype=np.float64) for a in np.broadcast_arrays(*fields)
    )
    return users, prompt * (1.0 - spread / 2.0), output * (1.0 - spread / 2.0)


def _perfect_cost(deployment: Deployment) -> CostModel:
    stack = replace(deployment.target, kv_dtype="fp8")
    return CostModel({stack.name: stack}, perfect(deployment.hardware), load_engine("ideal"))
