"""The records of a replica while they grow."""

from __future__ import annotations

from simspec.serving.plan import SequenceState, ServingSetup
from simspec.serving.records import (
    NUM_REQUEST_COLUMNS,
    NUM_STEP_COLUMNS,
    Fate,
    ModeFacts,
    RowBuffer,
    RunRecords,
    request_records,
    step_records,
)


class Recorder:
    """Rows of requests and steps, gaps, refusals, and how many are in the system.

    Parameters
    ----------
    setup : ServingSetup
        Its constants go into the records.
    replica : int
        Which replica of a fleet this is.
    """

    def __init__(self, setup: ServingSetup, replica: int = 0) -> None:
        self._setup = setup
        self._replica = replica
        self._request_rows = RowBuffer(NUM_REQUEST_COLUMNS)
        self._step_rows = RowBuffer(NUM_STEP_COLUMNS)
        self._other_gaps = RowBuffer(2)
        self._refusals: dict[int, str] = {}
        self._num_in_system = 0
        self._integral_s = 0.0
        self._integrated_until_s = 0.0
        self.step = self._step_rows.append
        """Add one step: a row in the order of ``StepRecords``, phases last."""
        self.other_gap = self._other_gaps.append
        """Add a gap that is not one step long, and when it ended."""

    def refuse(self, sequence: SequenceState, reason: str) -> None:
        """Add a request that was turned away."""
        self._refusals[sequence.request_id] = reason
        self.request(sequence, Fate.REFUSED)

    def count(self, change: int, now: float) -> None:
        """Change the number in the system."""
        self._integral_s += self._num_in_system * (now - self._integrated_until_s)
        self._integrated_until_s = now
        self._num_in_system += change

    def request(self, sequence: SequenceState, fate: Fate) -> None:
        """Add one request, whose stay is over."""
        self._request_rows.append(
            (
                sequence.request_id,
                fate,
                sequence.prompt_len,
                sequence.output_len,
                sequence.arrival_s,
                sequence.admission_s,
                sequence.first_token_s,
                sequence.last_token_s,
                sequence.queue_s,
                sequence.max_gap_s,
                sequence.emitted,
                sequence.num_preemptions,
                sequence.recomputed_tokens,
                sequence.num_rounds,
                sequence.num_drafted,
                sequence.num_accepted,
                sequence.cached_tokens,
                sequence.num_swapped_tokens,
                sequence.priority,
                sequence.landed_s,
                sequence.resumed_s,
            )
        )

    def close(self, now: float, num_not_arrived: int) -> RunRecords:
        """Return the run, after the rows of those still present.

        Parameters
        ----------
        now : float
            Where the clock was stopped; counts only while somebody is in the system.
        num_not_arrived : int
            Requests of the workload the clock was stopped before.
        """
        setup = self._setup
        end_s = now if self._num_in_system else self._integrated_until_s
        self.count(0, end_s)
        gaps = self._other_gaps.columns()
        return RunRecords(
            requests=request_records(self._request_rows, self._replica),
            steps=step_records(self._step_rows, self._replica),
            other_gaps_s=gaps[0].copy(),
            other_gaps_end_s=gaps[1].copy(),
            refusals=dict(self._refusals),
            end_s=end_s,
            num_not_arrived=num_not_arrived,
            concurrency=setup.concurrency,
            blocks_by_replica=(setup.num_blocks,),
            block_size_tokens=setup.block_size_tokens,
            max_draft=setup.method.max_draft,
            modes=_modes(setup),
            num_in_system_integral_s=self._integral_s,
        )


def _modes(setup: ServingSetup) -> tuple[ModeFacts, ...]:
    if setup.speculation is None:
        return (ModeFacts("fixed", setup.method.max_draft, is_verified=True),)
    return tuple(
        ModeFacts(mode.name, mode.max_draft, mode.is_verified) for mode in setup.speculation.modes
    )
