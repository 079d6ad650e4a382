"""Rows and stacks that the draft heads share: Medusa, EAGLE, MTP.

A head with a KV of its own (EAGLE, MTP) makes an entry for each token of the text from the token
and the target's state before it, and its candidates for the next one. After a round it has not
seen the a + 1 tokens the round yielded. It reads them in one pass, the first draft pass of the
next round, which costs a + 1 rows instead of one. SGLang runs that pass at the end of the round
(``draft_extend``), vLLM at the start of the next: the round that yields the tokens is charged.

Formats: heads are published in 16 bit, also for quantised targets, so that is the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simspec.core.errors import ConfigError
from simspec.cost.work import Quantity, Rows, Stack
from simspec.decoding._chain import WeightedRows, plain_rows
from simspec.decoding._quadrature import sum_nodes
from simspec.decoding.tape import RoundStatistics
from simspec.models.counts import check_tensor_parallel
from simspec.models.dtypes import dtype


class Drafting(NamedTuple):
    """The sequences of a batch that draft, and how many tokens they yield.

    ``yielded`` are the rows of the pass in which a head reads the a + 1 tokens of each.
    """

    num_sequences: Quantity
    total_context: Quantity
    yielded: list[WeightedRows]


@dataclass(frozen=True, slots=True)
class HeadRound:
    """Who adds how many tokens in a round with a draft head: the drafters, and verification."""

    drafting: Drafting
    verification: Rows


def observed_head_round(
    context_lens: Sequence[int],
    drafted: Sequence[int],
    accepted: Sequence[int],
    depth_sums: Sequence[float],
) -> HeadRound:
    """Return the rows of a round whose outcome is known.

    Parameters
    ----------
    context_lens, drafted, accepted : sequences (B,), tokens
        c, m and a of each sequence; m = 0 takes no part in drafting.
    depth_sums : sequence
        Sum of the depths of a tree's first m nodes, m = 0..N; a node at depth d sees the context,
        the root, the d - 1 nodes above it and itself: c + d + 1 tokens.
    """
    drafting = [(c, a) for c, m, a in zip(context_lens, drafted, accepted, strict=True) if m]
    new = [a + 1 for _, a in drafting]
    total_context = sum(c for c, _ in drafting)
    yielded = Rows(
        kind="decode",
        num_sequences=len(drafting),
        num_tokens=sum(new),
        kv_tokens=total_context + sum(new),
        attended_tokens=sum(n * (c + (n + 1) / 2) for (c, _), n in zip(drafting, new, strict=True)),
        logit_rows=len(drafting),
    )
    num_tokens = sum(drafted) + len(drafted)
    verification = Rows(
        kind="decode",
        num_sequences=len(drafted),
        num_tokens=num_tokens,
        kv_tokens=sum(context_lens) + num_tokens,
        attended_tokens=sum(
            (m + 1) * (c + 1) + depth_sums[m] for c, m in zip(context_lens, drafted, strict=True)
        ),
        logit_rows=num_tokens,
    )
    reading = [WeightedRows(1.0, yielded)]
    return HeadRound(Drafting(len(drafting), total_context, reading), verification)


def expected_head_round(
    batch_size: Quantity,
    context_len: Quantity,
    statistics: RoundStatistics,
    depth_sums: Sequence[float],
) -> HeadRound:
    """Return the rows of a round in expectation: all draft N, a + 1 follows its law.

    Parameters
    ----------
    batch_size, context_len : numbers or arrays
        B and c.
    statistics : RoundStatistics
        Of one sequence; its m is N.
    depth_sums : sequence
        As for :func:`observed_head_round`.
    """
    num_nodes = len(depth_sums) - 1
    total_context = batch_size * context_len
    tokens = batch_size * (num_nodes + 1)
    verification = Rows(
        kind="decode",
        num_sequences=batch_size,
        num_tokens=tokens,
        kv_tokens=total_context + tokens,
        attended_tokens=tokens * (context_len + 1) + batch_size * depth_sums[num_nodes],
        logit_rows=tokens,
    )
    new = np.concatenate(([0.0], statistics.accepted_pmf))
    count = np.arange(new.size)
    # E[sum n^2 | sum n = T] is taken as T E[n^2] / E[n]; next to c T it hardly counts.
    square_per_token = float((count**2 @ new) / (count @ new))
    yielded = []
    for total, weight in zip(*sum_nodes(new, batch_size), strict=True):
        if not np.any(weight):
            continue
        rows = Rows(
            kind="decode",
            num_sequences=batch_size,
            num_tokens=total,
            kv_tokens=total_context + total,
            attended_tokens=total * (context_len + (square_per_token + 1.0) / 2.0),
            logit_rows=batch_size,
        )
        yielded.append(WeightedRows(weight, rows))
    return HeadRound(Drafting(batch_size, total_context, yielded), verification)


def level_rows(drafting: Drafting, depth: int, num_nodes: int, nodes_so_far: int) -> Rows:
    """Return the rows of a pass over the nodes of one depth that a head continues.

    The head has read the text up to its newest token. A node at depth d sees that, the d - 1
    nodes above it and itself; the kernel reads the entries of all nodes so far.

    Parameters
    ----------
    drafting : Drafting
        The sequences.
    depth : int
        d, from 1.
    num_nodes : int
        Nodes each sequence reads in this pass; each needs logits for its children.
    nodes_so_far : int
        Those of this pass and the passes before it.
    """
    batch, context = drafting.num_sequences, drafting.total_context
    tokens = batch * num_nodes
    return Rows(
        kind="decode",
        num_sequences=batch,
        num_tokens=tokens,
        kv_tokens=context + batch * nodes_so_far,
        attended_tokens=(context + batch * depth) * num_nodes,
        logit_rows=tokens,
    )


def state_rows(drafting: Drafting) -> Rows:
    """Return the rows of a head that reads the last verified state of each sequence."""
    return plain_rows(drafting.num_sequences, drafting.total_context)


def head_format(target: Stack, head_dtype: str | None) -> str:
    """Return the format of a head's weights: as given, or the 16 (or 32) bit of the activations.

    Raises
    ------
    ConfigError
        Unknown format.
    """
    if head_dtype is None:
        return target.activation_dtype
    try:
        return dtype(head_dtype).name
    except ConfigError as error:
        raise ConfigError(f"draft_dtype: {error}", field="draft_dtype") from error


def check_draft_tp(stack: Stack, target: Stack, given: int | None) -> Stack:
    """Return the head's stack if its ``draft_tp`` can shard it and is at most the target's.

    Raises
    ------
    ConfigError
        It cannot.
    """
    if given is not None and target.tp % given:
        raise ConfigError(
            f"draft_tp: {given} does not divide the target's tp = {target.tp}", field="draft_tp"
        )
    try:
        check_tensor_parallel(stack.blocks, stack.tp)
    except ConfigError as error:
        raise ConfigError(f"draft head: {error}", field="draft_tp") from error
    return stack
