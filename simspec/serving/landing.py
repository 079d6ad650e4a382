"""Sequences whose prompts another replica has computed: on their way, waiting, taken in.

The first token came out where the prompt was computed. The KV of the prompt is on its way, then it
waits beside the replica until its blocks are free, first come first served and behind nobody but
sequences that were preempted here. One block more is asked for everybody who runs, else the next
rounds would preempt what has just been taken in. A preempted sequence is computed again here.
"""

from __future__ import annotations

from collections import deque

from simspec.serving.plan import EngineState, SequenceState


class Landing:
    """The sequences that a decode replica expects.

    Attributes
    ----------
    expected : dict
        By request: those whose KV is on its way.
    landed : deque
        Those whose KV has arrived and that hold no blocks yet.
    """

    def __init__(self) -> None:
        self.expected: dict[int, SequenceState] = {}
        self.landed: deque[SequenceState] = deque()

    def arrive(self, sequence: SequenceState, now: float) -> None:
        """Note that the KV of an expected sequence is there."""
        del self.expected[sequence.request_id]
        sequence.landed_s = sequence.queued_since_s = now
        self.landed.append(sequence)

    def take_in(self, state: EngineState, max_num_seqs: int, now: float) -> list[SequenceState]:
        """Give blocks to those that have arrived, while sequences and blocks allow.

        Returns
        -------
        list
            Those that decode from the next step on.
        """
        blocks, running = state.blocks, state.running
        taken: list[SequenceState] = []
        while self.landed and not state.waiting and len(running) < max_num_seqs:
            sequence = self.landed[0]
            kept = sequence.prompt_len + sequence.emitted - 1
            needed = blocks.blocks_for(kept)
            if not blocks.can_allocate(needed + len(running)):
                break
            self.landed.popleft()
            if state.cohort is not None and state.cohort.members:
                state.cohort.dissolve()
            blocks.allocate(sequence.request_id, needed)
            sequence.capacity_tokens = needed * blocks.block_size_tokens
            sequence.context_len = sequence.prefill_target = kept
            sequence.queue_s += now - sequence.queued_since_s
            sequence.resumed_s = now
            place = len(running)
            # Unfinished prompts stay behind every decoding sequence.
            while place and running[place - 1].context_len < running[place - 1].prefill_target:
                place -= 1
            running.insert(place, sequence)
            taken.append(sequence)
        return taken
