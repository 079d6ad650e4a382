"""Prefill and decode on replicas of their own, and the KV that goes from one to the other.

A prompt is computed on a prefill replica, where its first token comes out. Then the KV of the
prompt goes over that replica's link, one copy after the other in the order of the first tokens,
and the decode replica with the fewest requests takes it in when its blocks are free. Copies from
several prefill replicas to one decode replica do not slow each other down.

Left out: a copy that begins before the prompt is complete, and the blocks that a prefill replica
keeps until the copy is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import simpy

from simspec.cost.transfers import transfer_s, wire_s
from simspec.serving.admission import refusal
from simspec.serving.merging import merge
from simspec.serving.plan import SequenceState, ServingSetup
from simspec.serving.records import RunRecords
from simspec.serving.replica import Replica
from simspec.serving.routing._base import Load, RouterFacts, least_loaded
from simspec.workloads.request import Request


class Disaggregated:
    """Prefill replicas behind a router, their links, and decode replicas.

    Parameters
    ----------
    env : simpy.Environment
        The clock of all.
    setup : ServingSetup
        What a decode replica is and how many there are; ``prefill`` says the same of the others.
    on_leave : callable, optional
        Called with each request that has finished, at that time; None: nobody needs to know then.
    check : bool
        Check the numbered laws after every step.
    """

    def __init__(
        self,
        env: simpy.Environment,
        setup: ServingSetup,
        on_leave: Callable[[SequenceState], None] | None,
        *,
        check: bool,
    ) -> None:
        side = setup.prefill
        assert side is not None
        assert setup.router is not None
        self._env, self._setup, self._side = env, setup, side
        self._on_leave = on_leave
        self._prompts = replace(
            setup,
            method=side.method,
            cost=side.cost,
            num_blocks=side.num_blocks,
            limits=side.limits,
            speculation=None,
        )
        self._router = setup.router.build(
            RouterFacts(side.num_replicas, side.num_blocks * setup.block_size_tokens, setup.seed)
        )
        self._prefill_loads = [Load() for _ in range(side.num_replicas)]
        self._decode_loads = [Load() for _ in range(setup.num_replicas)]
        self._link_free_s = [0.0] * side.num_replicas
        self._prefill = [
            Replica(
                env,
                self._prompts,
                partial(self._prompt_done, index),
                check=check,
                index=index,
                leaves_on_time=True,
                refuses=self._refusal,
                hands_over=True,
            )
            for index in range(side.num_replicas)
        ]
        self._decode = [
            Replica(
                env,
                # What others have computed is not looked up again.
                replace(setup, prefix_caching=False),
                partial(self._left, load),
                check=check,
                index=side.num_replicas + index,
                leaves_on_time=on_leave is not None,
            )
            for index, load in enumerate(self._decode_loads)
        ]

    def start(self) -> None:
        """Let every replica run."""
        for replica in (*self._prefill, *self._decode):
            replica.start()

    def submit(self, request: Request) -> bool:
        """Send a request to a prefill replica; return whether it was taken."""
        chosen = self._router.choose(request, self._prefill_loads)
        taken = self._prefill[chosen].submit(request)
        if taken:
            self._prefill_loads[chosen].add(request.prompt_len)
        return taken

    def _refusal(self, request: Request) -> str | None:
        return refusal(replace(request, output_len=1), self._prompts) or refusal(
            request, self._setup
        )

    def _prompt_done(self, index: int, sequence: SequenceState) -> None:
        self._prefill_loads[index].remove(sequence.prompt_len)
        if sequence.emitted == sequence.output_len:
            self._gone(sequence)
            return
        chosen = least_loaded(self._decode_loads)
        self._decode_loads[chosen].add(sequence.prompt_len)
        self._decode[chosen].expect(sequence)
        env, link = self._env, self._side.kv_link
        num_bytes = sequence.prompt_len * self._side.kv_bytes_per_token
        start_s = max(env.now, self._link_free_s[index])
        self._link_free_s[index] = start_s + float(wire_s(num_bytes, link))
        there_s = start_s + float(transfer_s(num_bytes, link))
        arrival = env.timeout(there_s - env.now)
        assert arrival.callbacks is not None
        arrival.callbacks.append(lambda _: self._decode[chosen].land(sequence))

    def _left(self, load: Load, sequence: SequenceState) -> None:
        load.remove(sequence.prompt_len)
        self._gone(sequence)

    def _gone(self, sequence: SequenceState) -> None:
        if self._on_leave is not None:
            self._on_leave(sequence)

    def close(self, num_not_arrived: int) -> RunRecords:
        """Record those still present and return the run of all."""
        parts = [replica.close(num_not_arrived) for replica in (*self._prefill, *self._decode)]
        return merge(parts, num_not_arrived=num_not_arrived)
