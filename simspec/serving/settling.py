"""The end of an engine step: tokens reach their clients, drafts' blocks go back, some leave."""

from __future__ import annotations

from collections.abc import Callable

from simspec.serving.cohort import Cohort
from simspec.serving.plan import EngineState, SequenceState, StepPlan
from simspec.serving.recorder import Recorder
from simspec.serving.records import Fate


class Settlement:
    """Ends the steps of one replica.

    Parameters
    ----------
    state : EngineState
        The replica's.
    cohort : Cohort, optional
        The same as the state's, with its sums.
    recorder : Recorder
        Gets the rows of those who leave and the gaps that are not one step long.
    speculates : bool
        Whether rounds draft; it and the cohort may change between two steps.
    on_leave : callable
        Called with each request that has left, once all of a step are gone.
    hands_over : bool
        Whether requests leave with their first token, to be decoded elsewhere.
    """

    def __init__(
        self,
        state: EngineState,
        cohort: Cohort | None,
        recorder: Recorder,
        *,
        speculates: bool,
        on_leave: Callable[[SequenceState], None],
        hands_over: bool = False,
    ) -> None:
        self._state = state
        self.cohort = cohort
        self._recorder = recorder
        self.speculates = speculates
        self._on_leave = on_leave
        self._hands_over = hands_over

    def plain(self, num_sequences: int, start_s: float, now: float) -> tuple[int, ...]:
        """Hand out the tokens of a step that is a round for all; return what the records count."""
        cohort = self.cohort
        assert cohort is not None
        drafted = cohort.num_drafted
        finished, accepted, cut = cohort.advance(start_s, now)
        if finished:
            self._dismiss(finished, now)
        emitted = accepted + num_sequences - cut
        return num_sequences, 0, 0, drafted, accepted, emitted, 0, cut, num_sequences

    def step(self, plan: StepPlan, start_s: float, now: float) -> tuple[int, ...]:
        """Hand out the tokens of a step; return what the records count of it.

        Decoding and prefilling sequences, prompt tokens, drafted, accepted, emitted, prefilled,
        cut, steady gaps.
        """
        cohort = self.cohort
        num_decoding = len(plan.decoding)
        if plan.is_together:
            assert cohort is not None
            drafted = cohort.num_drafted
            finished, accepted, cut = cohort.advance(start_s, now)
            steady = num_decoding
            if plan.resumed:
                # Those who come back were not in this round and will be in the next.
                cohort.dissolve()
        else:
            if cohort is not None and cohort.members:
                # They stall for a step of prompts.
                cohort.dissolve()
            finished = []
            drafted, accepted, cut, steady = self._rounds(plan, start_s, now, finished)
        prefilled = self._prefills(plan, now)
        ended = [s for s in prefilled if self._hands_over or s.emitted == s.output_len]
        finished += ended
        if finished:
            self._dismiss(finished, now)
        if cohort is not None and not plan.resumed:
            self._gather(cohort, plan, prefilled, now)
        emitted = accepted + num_decoding + len(prefilled) - cut
        return (
            num_decoding,
            len(plan.prefilling),
            sum(plan.chunks),
            drafted,
            accepted,
            emitted,
            len(prefilled),
            cut,
            steady,
        )

    def _dismiss(self, finished: list[SequenceState], now: float) -> None:
        gone = set(map(id, finished))
        self._state.running = [s for s in self._state.running if id(s) not in gone]
        for sequence in finished:
            self._state.blocks.free(sequence.request_id)
            if sequence.emitted == sequence.output_len:
                self._recorder.request(sequence, Fate.FINISHED)
            self._recorder.count(-1, now)
        for sequence in finished:
            self._on_leave(sequence)

    def _gather(
        self, cohort: Cohort, plan: StepPlan, prefilled: list[SequenceState], now: float
    ) -> None:
        """Let those join the cohort whose last tokens came out when the others' did."""
        if plan.is_together:
            joining = [s for s in prefilled if s.emitted < s.output_len]
        else:
            joining = [s for s in self._state.running if s.context_len >= s.prefill_target]
            if any(sequence.last_token_s != now for sequence in joining):
                return
            cohort.last_token_s = now
        for sequence in joining:
            cohort.join(sequence)

    def _rounds(
        self, plan: StepPlan, start_s: float, now: float, finished: list[SequenceState]
    ) -> tuple[int, int, int, int]:
        step_s = now - start_s
        block_size = self._state.blocks.block_size_tokens
        speculates = self.speculates
        num_drafted = num_accepted = num_cut = num_steady = 0
        for sequence in plan.decoding:
            position = sequence.emitted
            a = sequence.accepted_at[position]
            position += a + 1
            sequence.context_len += a + 1
            sequence.num_rounds += 1
            if sequence.last_token_s == start_s:
                num_steady += 1
                gap_s = step_s
            else:
                gap_s = now - sequence.last_token_s
                self._recorder.other_gap((gap_s, now))
            sequence.last_token_s = now
            if gap_s > sequence.max_gap_s:  # noqa: PLR1730 (a call per token costs more)
                sequence.max_gap_s = gap_s
            if speculates:
                m = sequence.drafted_at[sequence.emitted]
                num_drafted += m
                num_accepted += a
                sequence.num_drafted += m
                sequence.num_accepted += a
                spare = (sequence.capacity_tokens - sequence.context_len) // block_size
                if spare > 0:
                    self._state.blocks.shrink(sequence.request_id, spare)
                    sequence.capacity_tokens -= spare * block_size
            if position >= sequence.output_len:
                num_cut += position - sequence.output_len
                position = sequence.output_len
                finished.append(sequence)
            sequence.emitted = position
        return num_drafted, num_accepted, num_cut, num_steady

    def _prefills(self, plan: StepPlan, now: float) -> list[SequenceState]:
        """Count the prompt chunks; return those whose prefill is complete, a token each."""
        prefilled = []
        for sequence, chunk in zip(plan.prefilling, plan.chunks, strict=True):
            sequence.context_len += chunk
            if sequence.context_len < sequence.prefill_target:
                continue
            prefilled.append(sequence)
            if sequence.emitted == 0:
                sequence.first_token_s = now
            else:
                gap_s = now - sequence.last_token_s
                self._recorder.other_gap((gap_s, now))
                sequence.max_gap_s = max(sequence.max_gap_s, gap_s)
            sequence.last_token_s = now
            sequence.emitted += 1
        return prefilled
