"""What an engine step costs, from the sums that its cohort keeps.

A chain method's passes are asked for once for each number of draft steps, with rows still to come,
and priced with the numbers of each step (``simspec.cost.template``). Every other method is asked
in every round, with a list of its sequences.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from simspec.cost.scalar import Numbers
from simspec.cost.template import Columns, StepTemplate, columns, slot_rows
from simspec.cost.work import Pass, Rows
from simspec.decoding._base import Method
from simspec.decoding._chain import ChainMethod, ChainRound, WeightedRows, chain_numbers
from simspec.serving.cohort import Cohort
from simspec.serving.plan import StepPricer

_CLOSING, _VERIFICATION, _GAPS, _PROMPTS, _FIRST_STEP = range(5)
_NOBODY: Numbers = (0, 0, 0, 0, 0)


@runtime_checkable
class TemplatePricer(Protocol):
    """Prices passes whose rows are still to come; ``CostModel`` does."""

    def template(self, passes: list[Pass]) -> StepTemplate:
        """Return the step as a function of the numbers of its rows."""
        ...


class RoundPricer:
    """Prices the steps of one method.

    Parameters
    ----------
    method : Method
        Says the passes.
    cost : StepPricer
        Says their time.
    """

    def __init__(self, method: Method, cost: StepPricer) -> None:
        self._method = method
        self._cost = cost
        self._is_chain = isinstance(method, ChainMethod) and isinstance(cost, TemplatePricer)
        self._templates: dict[tuple[int, bool, bool], StepTemplate | None] = {}
        self.owed: list[Pass] = []
        """Passes that the next step has to run besides."""

    def of_lists(
        self,
        contexts: list[int],
        drafted: list[int],
        accepted: list[int],
        prefill: Rows | None,
        num_sequences: int,
    ) -> Columns:
        """Return the price of a step from c, m and a of each decoding sequence."""
        passes = self._method.round_passes(contexts, drafted, accepted, prefill)
        if self.owed:
            passes, self.owed = [*self.owed, *passes], []
        return columns(self._cost.step(passes, num_sequences))

    def of_cohort(self, cohort: Cohort, prefill: Rows | None, num_sequences: int) -> Columns:
        """Return the price of a step in which a cohort takes the round it has reserved."""
        num_steps, max_draft = cohort.num_steps, cohort.max_draft
        if self._is_chain and (num_steps or not max_draft) and not self.owed:
            key = (num_steps, cohort.num_gaps > 0, prefill is not None)
            if key not in self._templates:
                self._templates[key] = self._template(*key)
            template = self._templates[key]
            if template is not None:
                return template.price(_numbers(cohort, prefill), num_sequences)
        return self.of_lists(
            cohort.contexts(), cohort.drafted(), cohort.accepted(), prefill, num_sequences
        )

    def _template(self, num_steps: int, has_gaps: bool, has_prompts: bool) -> StepTemplate | None:
        assert isinstance(self._method, ChainMethod)
        assert isinstance(self._cost, TemplatePricer)
        chain = ChainRound(
            [[WeightedRows(1.0, slot_rows(_FIRST_STEP + j))] for j in range(num_steps)],
            slot_rows(_CLOSING),
            [WeightedRows(1.0, slot_rows(_VERIFICATION))],
        )
        gaps = [WeightedRows(1.0, slot_rows(_GAPS))] if has_gaps else []
        prompts = slot_rows(_PROMPTS, "prefill") if has_prompts else None
        weighted = list(self._method.chain_passes(chain, gaps, prompts))
        if any(weight != 1.0 for weight, _ in weighted):
            return None
        return self._cost.template([work for _, work in weighted])


def _numbers(cohort: Cohort, prefill: Rows | None) -> list[Numbers]:
    """Return the numbers of a step's rows by slot."""
    if not cohort.max_draft:
        n = cohort.count[0]
        visible = cohort.context[0] + n
        rows = (n, n, visible, visible, n)
        numbers: list[Numbers] = [rows, rows, _NOBODY]
    else:
        numbers = chain_numbers(cohort.count, cohort.context, cohort.num_steps)
        n = cohort.num_gaps
        visible = cohort.gap_context + n
        numbers.insert(_GAPS, (n, n, visible, visible, n))
    prompts = _NOBODY
    if prefill is not None:
        prompts = (
            prefill.num_sequences,
            prefill.num_tokens,
            prefill.kv_tokens,
            prefill.attended_tokens,
            prefill.logit_rows,
        )
    numbers.insert(_PROMPTS, prompts)
    return numbers
