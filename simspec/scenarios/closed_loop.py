"""A closed loop in closed form: so many users, each sending its next prompt when an answer ends.

What a benchmark of a serving engine at a concurrency measures, without simulating it. Prompts
share steps with the decoding of the others (``continuous``) or stop it (``prefill_first``);
contexts grow over a request; the KV cache and ``max_num_seqs`` limit how many are served at once.
Everything vectorises over loads: one call prices a whole sweep of concurrencies and lengths.

With ``s`` sequences in service, prompts of ``I`` and answers of ``O`` tokens, a cycle of one seat
holds ``O - 1`` decode steps, and all ``s`` prompts of a cycle are computed meanwhile, ``p`` tokens
in each step that computes any::

    decode window = (O - 1) t_decode(s) + (s I / p - own) dt_prefill(p)
    TTFT          = wait for the step under way + own steps + burst + queue

``dt_prefill`` is what ``p`` prompt tokens add to a step, ``own`` the steps of the request's own
prompt. Formulas and their derivation: ``docs/theory/closed-loop.md``. Left out: preemption, and
the order in which prompts of one step finish.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simspec.core.errors import ConfigError
from simspec.cost.forward import CostModel
from simspec.cost.work import Quantity, Rows
from simspec.decoding._chain import plain_pass, plain_rows
from simspec.scenarios.build import Deployment

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """A load, or many: numbers or arrays that broadcast."""

    concurrency: Quantity
    """Requests in flight, of the whole deployment."""
    prompt_len: Quantity
    """Tokens; the longest where lengths vary."""
    output_len: Quantity
    """Tokens, the first included; the longest where lengths vary."""
    length_spread: Quantity = 0.0
    """Lengths are uniform between ``1 - length_spread`` and 1 of the longest; 0: all alike."""
    out_of_step: Quantity = False
    """Whether requests of equal length finish one by one all the same, as those of different
    lengths do."""
    requests_per_user: Quantity = np.inf
    """How many requests a run makes of each seat. The first ones all arrive together, and their
    longer wait is in the mean; infinite: the steady state alone."""
    prompts_together: Quantity = np.inf
    """Most prompts of equal requests that stay in step with each other. Infinite: as many as fit
    into a step, since requests that start together end together and their successors start
    together again; a client whose answers return one by one breaks such groups up."""
    turnaround_steps: Quantity = 0.0
    """Steps that begin between the end of an answer and the engine's sight of the next prompt:
    1 over a network or with a scheduler that runs ahead, 0 in the simulation."""
    front_end_s: Quantity = 0.0
    """Of every request between client and scheduler, both ways, before its first token is seen."""


@dataclass(frozen=True, slots=True)
class ClosedLoopEstimate:
    """Means over the requests of a closed loop; seconds, arrays like the load."""

    tpot_s: Array
    ttft_s: Array
    in_service: Array
    """Sequences that are decoded or prefilled at once; the others queue."""
    decode_s: Array
    """A step without prompts; part of ``tpot_s``."""
    stall_s: Array
    """What the prompts of the others add to each output token; the rest of ``tpot_s``."""
    prefill_s: Array
    """Steps of a request's own prompt; part of ``ttft_s``."""
    step_wait_s: Array
    """Wait for the step under way; part of ``ttft_s``."""
    burst_s: Array
    """Share of the start, where all prompts queue at once; part of ``ttft_s``."""
    queue_s: Array
    """Wait for a seat, where the memory or the engine has fewer than users; part of ``ttft_s``."""
    front_end_s: Array
    """On the way between client and scheduler; part of ``ttft_s``."""

    @property
    def throughput_requests_per_s(self) -> Array:
        """Requests per second in the steady state: one cycle of every seat."""
        return self.in_service / self.cycle_s

    cycle_s: Array
    """Time of a seat for one request: prefill and decoding, without the queue."""


def closed_loop(
    deployment: Deployment, load: ClosedLoop, cost: CostModel | None = None
) -> ClosedLoopEstimate:
    """Return the latencies of plain decoding in a closed loop.

    Parameters
    ----------
    deployment : Deployment
        Of the autoregressive method.
    load : ClosedLoop
        One load or arrays of them.
    cost : CostModel, optional
        Another price of the same passes, such as a candidate of a fit or perfect kernels.

    Raises
    ------
    ConfigError
        The method drafts: its rounds in a closed loop are the simulation's business.
    """
    if deployment.method.max_draft:
        raise ConfigError(
            f"method {deployment.method.name}: the closed form of a closed loop covers plain "
            "decoding; use simulate, or method autoregressive",
            field="method",
        )
    loop = _Loop(deployment, cost or deployment.cost, load)
    if deployment.limits.policy_name == "prefill_first":
        return loop.alternating()
    return loop.mixed()


class _Loop:
    """One load in arrays; lengths are their means from here on."""

    def __init__(self, deployment: Deployment, cost: CostModel, load: ClosedLoop) -> None:
        self.deployment, self.cost = deployment, cost
        fields = (
            load.concurrency, load.prompt_len, load.output_len, load.length_spread,
            load.out_of_step, load.requests_per_user, load.prompts_together, load.turnaround_steps,
            load.front_end_s,
        )  # fmt: skip
        users, prompt, output, spread, apart, rounds, together, turnaround, self.front_end = (
            np.asarray(a, dtype=np.float64) for a in np.broadcast_arrays(*fields)
        )
        self.users, self.rounds, self.turnaround = users, rounds, turnaround
        self.varies = (spread > 0.0) | (apart > 0.0)
        self.prompt = prompt * (1.0 - spread / 2.0)
        self.output = np.maximum(output * (1.0 - spread / 2.0), 1.0)
        self.decode_steps = np.maximum(self.output - 1.0, 1e-9)
        self.in_service = self._seats()
        self.context = self.prompt + self.output / 2.0
        groups = deployment.target.attention_dp
        self.budget = np.maximum(
            deployment.limits.max_num_batched_tokens
            - (self.in_service if deployment.limits.policy_name != "prefill_first" else 0.0),
            float(groups),
        )
        self.together = np.minimum(together, self.in_service)

    def _seats(self) -> Array:
        """Return how many requests are served at once: by users, engine and KV cache.

        An engine that reserves the whole request holds ``P / (I + O)``, one that grows as it goes
        about ``P / (I + O / 2)``, requests being half done on average.
        """
        deployment = self.deployment
        pool = deployment.num_blocks * deployment.block_size_tokens
        share = 1.0 if deployment.engine.reserves_output else 0.5
        most = np.minimum(
            pool / (self.prompt + share * self.output), deployment.limits.max_num_seqs
        )
        return np.maximum(np.minimum(self.users, most), 1.0)

    # -- what steps cost -------------------------------------------------------------------

    def _decode_s(self) -> Array:
        s = self.in_service
        rows = plain_rows(s, s * self.context)
        return self._price([rows], None, s)

    def _price(self, decode: list[Rows], prefill: Rows | None, sequences: Array) -> Array:
        work = plain_pass(self.deployment.target, decode[0] if decode else None, prefill)
        return np.asarray(self.cost.step([work], sequences).total_s, dtype=np.float64)

    def _prefill_rows(self, tokens: Array) -> Rows:
        """Return ``tokens`` of prompts: of whole ones, or the mean chunk of a longer one."""
        whole = np.maximum(tokens / self.prompt, 1.0)
        seen = np.where(tokens < self.prompt, (tokens + self.prompt) / 2.0, tokens)
        pairs = tokens * (self.prompt + 1.0) / 2.0
        return Rows("prefill", whole, tokens, seen, pairs, tokens / self.prompt)

    # -- two ways to schedule --------------------------------------------------------------

    def mixed(self) -> ClosedLoopEstimate:
        """Prompts ride in decode steps, up to the token budget.

        Where lengths vary, prompts arrive one by one, and now and then several in a step: Poisson
        of mean ``s / O``. Where they do not, the groups of the start persist.
        """
        s = self.in_service
        fit = self.budget / self.prompt
        fit = np.where(fit >= 2.0, np.floor(fit), fit)
        random = 1.0 + s / self.output
        group = np.where(self.varies, random, self.together)
        tokens = np.minimum(group * self.prompt, self.budget)
        # A step of one prompt and a part of the next cuts one in each step. Of more prompts, whole
        # ones stay together.
        is_cut = (group > fit) & (fit >= 1.0) & (fit % 1.0 > 0.0)
        own = np.maximum(self.prompt / tokens, 1.0) + np.where(is_cut, 1.0 / fit, 0.0)
        steps = np.maximum(s * self.prompt / tokens, own)
        decode_s = self._decode_s()
        step_s = self._price(
            [plain_rows(s, s * self.context)], self._prefill_rows(tokens), s + tokens / self.prompt
        )
        added_s = step_s - decode_s
        others = np.minimum(steps - own, self.decode_steps)
        busy = np.where(self.varies, others / self.decode_steps, np.minimum(others, 1.0))
        # More prompt steps than decode steps: every step computes prompts, and prompts queue.
        backlog_s = np.maximum(steps - own - self.decode_steps, 0.0) * step_s
        return self._estimate(
            decode_s=decode_s,
            stall_s=others * added_s / self.decode_steps,
            prefill_s=own * step_s,
            step_wait_s=self.turnaround * (decode_s + busy * added_s),
            whole_burst_s=self._burst(step_s) - (own * step_s + self.turnaround * decode_s),
            backlog_s=backlog_s,
        )

    def _burst(self, step_s: Array) -> Array:
        """Return the mean first token of ``s`` prompts at once, a budget's worth in each step."""
        s = self.in_service
        tokens = np.minimum(s * self.prompt, self.budget)
        full_s = self._price([], self._prefill_rows(tokens), np.maximum(tokens / self.prompt, 1.0))
        return (s * self.prompt / tokens + 1.0) / 2.0 * full_s

    def alternating(self) -> ClosedLoopEstimate:
        """Prompts stop the decoding of the others until all that wait are computed.

        Requests of equal length start together, so they all end together: every cycle is a burst
        of ``n`` full steps, in which the average request waits for half the others before its
        first token and for the other half after it.
        """
        s = self.in_service
        random = np.minimum(1.0 + s / self.output, s)
        group = np.where(self.varies, random, self.together)
        tokens = np.minimum(group * self.prompt, self.budget)
        step_s = self._price([], self._prefill_rows(tokens), np.maximum(tokens / self.prompt, 1.0))
        decode_s = self._decode_s()
        of_group = np.maximum(group * self.prompt / tokens, 1.0)
        steps = np.maximum(s * self.prompt / tokens, of_group)
        own_s = (of_group + 1.0) / 2.0 * step_s
        others = steps - (of_group + 1.0) / 2.0
        busy = np.where(self.varies, np.minimum(steps / self.decode_steps, 1.0), 1.0)
        waits = np.where(group < s, self.turnaround, 0.0)
        return self._estimate(
            decode_s=decode_s,
            stall_s=others * step_s / self.decode_steps,
            prefill_s=own_s,
            step_wait_s=waits * (decode_s + busy * step_s),
            whole_burst_s=self._burst(step_s) - own_s,
            backlog_s=np.zeros_like(s),
        )

    def _estimate(
        self,
        *,
        decode_s: Array,
        stall_s: Array,
        prefill_s: Array,
        step_wait_s: Array,
        whole_burst_s: Array,
        backlog_s: Array,
    ) -> ClosedLoopEstimate:
        burst_s = np.maximum(whole_burst_s, 0.0) / self.rounds
        # Of a finite run the first requests meet half the prompts of a cycle after their own
        # first token, and the last ones those of half the users.
        stall_s = stall_s * (1.0 - 1.0 / self.rounds)
        tpot_s = decode_s + stall_s
        cycle_s = prefill_s + step_wait_s + backlog_s + (self.output - 1.0) * tpot_s
        # Little: the users without a seat wait for one, s of them leave it per cycle.
        queue_s = backlog_s + cycle_s * (self.users / self.in_service - 1.0)
        return ClosedLoopEstimate(
            tpot_s=tpot_s,
            ttft_s=prefill_s + step_wait_s + burst_s + queue_s + self.front_end,
            in_service=self.in_service,
            decode_s=decode_s,
            stall_s=stall_s,
            prefill_s=prefill_s,
            step_wait_s=step_wait_s,
            burst_s=burst_s,
            queue_s=queue_s,
            front_end_s=self.front_end,
            cycle_s=cycle_s,
        )
