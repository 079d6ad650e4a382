"""The numbered laws of the simulator (``docs/invariants.md``), as checks.

``after_step`` runs after every engine step of ``simulate(..., check=True)`` and ``at_end`` on
its records; laws about pairs of runs (same seed, more acceptance) live in the tests. A broken
law is a bug in simspec, so it is an ``AssertionError`` that begins with the law's number.
"""

from __future__ import annotations

import numpy as np

from simspec.memory.blocks import BlockPool
from simspec.serving.plan import EngineState, SchedulerLimits, SequenceState, StepPlan
from simspec.serving.records import Fate, RunRecords


def after_step(
    state: EngineState, plan: StepPlan, limits: SchedulerLimits, round_slots: int
) -> None:
    """Check what must hold between two engine steps.

    Parameters
    ----------
    state : EngineState
        After the step has settled.
    plan : StepPlan
        The step.
    limits : SchedulerLimits
        What a step may hold.
    round_slots : int, tokens
        K + 1.
    """
    _blocks_add_up(state)
    tokens = sum(plan.chunks) + round_slots * len(plan.decoding)
    _law(13, tokens <= limits.max_num_batched_tokens, f"{tokens} tokens in one step")
    _law(13, len(state.running) <= limits.max_num_seqs, f"{len(state.running)} sequences run")
    _law(13, all(chunk > 0 for chunk in plan.chunks), f"empty prompt chunk in {plan.chunks}")
    for sequence in state.running:
        _kv_matches_text(sequence)
        _no_spare_blocks(sequence, state.blocks)
    for sequence in state.waiting:
        held = sequence.context_len + sequence.capacity_tokens
        _law(14, held == 0, f"waiting request {sequence.request_id} holds KV")
        target = sequence.prompt_len + sequence.emitted
        if sequence.swapped_tokens >= sequence.prefill_target:
            kept = sequence.swapped_tokens
            _law(16, kept == target - 1, f"request {sequence.request_id} has {kept} tokens in host "
                 f"memory, not {target - 1}")  # fmt: skip
        else:
            _law(14, sequence.prefill_target == target, f"request {sequence.request_id} re-prefills"
                 f" {sequence.prefill_target} tokens, not {target}")  # fmt: skip
    _host_adds_up(state)


def when_idle(state: EngineState, num_landed: int = 0) -> None:
    """Check that the engine is idle only because nobody is in it."""
    # Alone in the pool every request fits, since the others are refused on arrival.
    nobody = not state.running and not state.waiting and not num_landed
    _law(11, nobody, "the engine idles while somebody waits")


def nobody_is_lost(records: RunRecords, num_requests: int) -> None:
    """Check that each of the workload's requests has a fate or has not arrived."""
    found = records.requests.request_id.size + records.num_not_arrived
    _law(1, found == num_requests, f"{num_requests} requests, {found} are accounted for")


def at_end(records: RunRecords) -> None:
    """Check what must hold for the records of a whole run."""
    _tokens_add_up(records)
    _prefills_add_up(records)
    _times_in_order(records)
    _little(records)


def within_roofs(records: RunRecords, peak_flop_per_s: float, bandwidth_bytes_per_s: float) -> None:
    """Check law 9: no step is faster than its FLOP at peak or its bytes at full bandwidth.

    Parameters
    ----------
    records : RunRecords
        Steps of a run.
    peak_flop_per_s, bandwidth_bytes_per_s : float
        Of one rank; the highest peak of any data type in use.
    """
    steps = records.steps
    slack = 1.0 + 1e-9
    _law(9, bool(np.all(steps.flop <= slack * peak_flop_per_s * steps.duration_s)), "FLOP")
    _law(9, bool(np.all(steps.bytes <= slack * bandwidth_bytes_per_s * steps.duration_s)), "bytes")


def little_gap(records: RunRecords) -> float:
    """Return how far L T and the sum of sojourns are apart, as a share of their sum.

    L T is the time integral of the number in the system; the sojourns come from the arrival
    and departure times of each request, those still present cut at the end of the run.
    """
    requests = records.requests
    left = requests.fate == Fate.FINISHED
    present = (requests.fate == Fate.RUNNING) | (requests.fate == Fate.WAITING)
    sojourns = float(np.sum(requests.last_token_s[left] - requests.arrival_s[left]))
    sojourns += float(np.sum(records.end_s - requests.arrival_s[present]))
    scale = abs(records.num_in_system_integral_s) + abs(sojourns)
    return abs(records.num_in_system_integral_s - sojourns) / scale if scale > 0 else 0.0


def _law(number: int, holds: bool, text: str) -> None:
    assert holds, f"law {number}: {text}"


def _blocks_add_up(state: EngineState) -> None:
    blocks = state.blocks
    blocks.check()
    size = blocks.block_size_tokens
    for sequence in state.running:
        held = blocks.held_blocks(sequence.request_id)
        _law(4, held * size == sequence.capacity_tokens, f"request {sequence.request_id} holds"
             f" {held} blocks for {sequence.capacity_tokens} tokens")  # fmt: skip
    if state.prefixes is not None:
        # Blocks with several owners; the pool has checked its own counts of them.
        return
    owned = sum(sequence.capacity_tokens for sequence in state.running)
    _law(4, owned == blocks.num_used_blocks * size, f"{owned} tokens of capacity are owned, "
         f"{blocks.num_used_blocks} blocks are used")  # fmt: skip


def _host_adds_up(state: EngineState) -> None:
    host, away = state.host, [s for s in state.waiting if s.swapped_tokens]
    if host is None:
        _law(16, not away, "KV is in host memory that is not there")
        return
    host.check()
    for sequence in away:
        held, due = host.held_blocks(sequence.request_id), host.blocks_for(sequence.swapped_tokens)
        _law(16, held == due, f"request {sequence.request_id} has {held} blocks in host memory, "
             f"{due} are due")  # fmt: skip
    _law(16, host.num_requests == len(away), "host memory is kept for somebody who runs or left")


def _kv_matches_text(sequence: SequenceState) -> None:
    name = f"request {sequence.request_id}"
    kept = sequence.context_len
    _law(12, kept <= sequence.capacity_tokens, f"{name} keeps {kept} tokens in too few blocks")
    if kept >= sequence.prefill_target:
        text = sequence.prompt_len + sequence.emitted - 1
        _law(12, kept == text, f"{name} keeps {kept} KV tokens of {text}")


def _no_spare_blocks(sequence: SequenceState, blocks: BlockPool) -> None:
    kept = max(sequence.context_len, sequence.prefill_target)
    due = blocks.blocks_for(kept) * blocks.block_size_tokens
    _law(12, sequence.capacity_tokens == due, f"request {sequence.request_id} keeps blocks for"
         f" {sequence.capacity_tokens} tokens, {due} are due")  # fmt: skip


def _tokens_add_up(records: RunRecords) -> None:
    requests, steps = records.requests, records.steps
    ids = requests.request_id
    _law(1, bool(np.all(np.diff(ids) > 0)), "a request has two fates")
    _law(1, bool(np.all(np.isin(requests.fate, list(Fate)))), "a request has no fate")
    refused = set(ids[requests.fate == Fate.REFUSED].tolist())
    _law(1, refused == set(records.refusals), "a refusal has no reason")
    finished = requests.fate == Fate.FINISHED
    _law(2, bool(np.all(requests.emitted[finished] == requests.output_len[finished])),
         "a finished request lacks tokens")  # fmt: skip
    _law(2, bool(np.all(requests.emitted <= requests.output_len)), "too many tokens")
    yielded = steps.accepted + steps.num_decoding + steps.num_prefilled - steps.cut_tokens
    _law(2, bool(np.all(steps.emitted == yielded)), "emitted != accepted + rounds + prefills - cut")
    same = int(steps.emitted.sum()) == int(requests.emitted.sum())
    _law(2, same, f"steps emitted {steps.emitted.sum()}, requests got {requests.emitted.sum()}")
    for table in (steps, requests):
        _law(3, bool(np.all((table.accepted >= 0) & (table.accepted <= table.drafted))),
             "more accepted than drafted")  # fmt: skip
    _law(3, bool(np.all(steps.draft_in_force <= records.max_draft)), "slots for more than K drafts")
    limit = steps.draft_in_force * steps.num_decoding
    _law(3, bool(np.all(steps.drafted <= limit)), "more than K drafted in a round")
    per_request = (requests.drafted.sum(), requests.accepted.sum(), requests.num_rounds.sum())
    per_step = (steps.drafted.sum(), steps.accepted.sum(), steps.num_decoding.sum())
    _law(3, per_request == per_step, f"requests count {per_request}, steps {per_step}")
    pool = np.asarray(records.blocks_by_replica)[steps.replica]
    _law(4, bool(np.all(steps.kv_blocks_used <= pool)), "more blocks than the pool")


def _prefills_add_up(records: RunRecords) -> None:
    requests, steps = records.requests, records.steps
    _law(17, bool(np.all((requests.cached_tokens >= 0)
                         & (requests.cached_tokens < requests.prompt_len))),
         "a whole prompt is cached")  # fmt: skip
    _law(17, bool(np.all(requests.recomputed_tokens >= 0)), "less than nothing is recomputed")
    finished = requests.fate == Fate.FINISHED
    if np.any((requests.fate == Fate.RUNNING) | (requests.fate == Fate.WAITING)):
        return
    due = requests.prompt_len - requests.cached_tokens + requests.recomputed_tokens
    # The end of a repeated prefill computes the newest token, which was in no KV before.
    again = int(steps.num_prefilled.sum()) - int(finished.sum())
    computed, needed = int(steps.prefill_tokens.sum()), int(due[finished].sum()) + again
    _law(17, computed == needed, f"{computed} tokens were prefilled, {needed} were due")


def _times_in_order(records: RunRecords) -> None:
    requests, steps = records.requests, records.steps
    _law(5, bool(np.all(steps.duration_s >= 0)), "a step takes negative time")
    # Durations are differences of clock readings, so their sums round in the last bits.
    own = np.argsort(steps.replica, kind="stable")
    overlaps = steps.start_s[own][1:] < steps.end_s[own][:-1] * (1 - 1e-12)
    _law(5, not np.any(overlaps & (np.diff(steps.replica[own]) == 0)), "steps overlap")
    for earlier, later in (
        (requests.arrival_s, requests.admission_s),
        (requests.admission_s, requests.first_token_s),
        (requests.first_token_s, requests.landed_s),
        (requests.landed_s, requests.resumed_s),
        (requests.first_token_s, requests.last_token_s),
    ):
        there = ~np.isnan(later)
        _law(6, bool(np.all(earlier[there] <= later[there])),
             "arrival <= admission <= first token <= end is broken")  # fmt: skip
    finished = requests.fate == Fate.FINISHED
    _law(6, not np.any(np.isnan(requests.last_token_s[finished])), "a finished request has no end")


def _little(records: RunRecords) -> None:
    gap = little_gap(records)
    _law(8, gap < 1e-9, f"L T and the sum of sojourns differ by {gap:.1e} of their sum")
