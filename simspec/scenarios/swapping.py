"""When preemption by swap costs less than preemption by recompute.

A sequence with ``c`` tokens in the KV is preempted while ``B`` others decode, and comes back later.

    swap:       S(c) = 2 c b / beta                          out and back over the host link
    recompute:  R(c) = sum over chunks of F(B rounds + chunk) - F(B rounds)

``b`` is the KV of a token on one rank, ``beta`` the rate of the link, ``F`` the time of a step. S
is a straight line through the origin. R is flat at first, since a step that waits for its weights
computes some prompt tokens for nothing, then rises by the compute time of a token, and in the end
with the square of ``c``, as every token attends to all before it. So R - S starts below zero or at
it, and once it is above zero it stays there: swap pays beyond one context length, which is zero
where a token is computed more slowly than copied both ways from the start (vLLM's paper measures
the same trade for block sizes, arXiv:2309.06180, section 7.3).

Left out: the wait for room, which is the same for both; that a recomputed sequence gets its next
token from the end of its prefill; copies that overlap with computing.
"""

from __future__ import annotations

from dataclasses import dataclass

from simspec.core.errors import ConfigError
from simspec.cost.work import Rows
from simspec.scenarios.build import Deployment

_GRID = 1.2
"""Ratio of neighbouring context lengths in the search for the last crossing."""


@dataclass(frozen=True, slots=True)
class Others:
    """The sequences that go on decoding meanwhile."""

    batch_size: int
    context_len: int
    """KV tokens of each."""


def swap_s(deployment: Deployment, context_len: int) -> float:
    """Return the seconds that copying a sequence out and back adds to the steps.

    Raises
    ------
    ConfigError
        The deployment does not preempt by swap.
    """
    if deployment.host is None:
        raise ConfigError(
            "this deployment recomputes what it preempts; set scheduler.preemption to swap",
            field="scheduler.preemption",
        )
    return 2.0 * deployment.host.copy_s(context_len)


def recompute_s(deployment: Deployment, context_len: int, others: Others) -> float:
    """Return the seconds that prefilling a sequence again adds to the others' decode steps."""
    limits, method = deployment.limits, deployment.method
    reserved = others.batch_size * (method.max_draft + 1)
    budget = max(1, limits.max_num_batched_tokens - reserved)
    if not limits.chunked_prefill:
        budget = context_len
    alone_s = _step_s(deployment, others, None) if others.batch_size else 0.0
    total_s, done = 0.0, 0
    while done < context_len:
        chunk = min(budget, context_len - done)
        attended = chunk * (done + (chunk + 1) / 2)
        last = int(done + chunk == context_len)
        prompt = Rows("prefill", 1, chunk, done + chunk, attended, last)
        total_s += _step_s(deployment, others, prompt) - alone_s
        done += chunk
    return total_s


def break_even_context(deployment: Deployment, others: Others, longest: int) -> int | None:
    """Return the context length from which on swap costs less than recompute.

    Parameters
    ----------
    deployment : Deployment
        One that preempts by swap.
    others : Others
        Who decodes meanwhile.
    longest : int, tokens
        The longest context to look at, at least 1.

    Returns
    -------
    int or None
        Tokens; 1 where swap costs less for every sequence, None where it does for none.
    """

    def swap_wins(context_len: int) -> bool:
        return swap_s(deployment, context_len) < recompute_s(deployment, context_len, others)

    if not swap_wins(longest):
        return None
    high = longest
    while high > 1:
        low = min(high - 1, int(high / _GRID))
        if low < 1 or not swap_wins(low):
            break
        high = low
    else:
        return 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if swap_wins(middle) else (middle, high)
    return high


def _step_s(deployment: Deployment, others: Others, prompt: Rows | None) -> float:
    method, n = deployment.method, others.batch_size
    drafted = [method.max_draft] * n
    passes = method.round_passes([others.context_len] * n, drafted, [0] * n, prompt)
    num_sequences = n + (prompt is not None)
    return float(deployment.cost.step(passes, num_sequences).total_s)
