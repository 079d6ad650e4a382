"""The contract of a decoding method.

One file per method, found by its name. A method says *what work* a round does and *what comes
out of it*; it never says how long that takes (``cost``) nor whether it fits (``memory``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from simspec.core.registry import PluginConfig, Registry
from simspec.cost.work import Pass, Quantity, Rows, Stack
from simspec.decoding.tape import Outcomes, RoundStatistics, Tape

METHODS = Registry("simspec.decoding", "decoding method", other_modules={"tape"})
ACCEPTANCE_MODELS = Registry("simspec.decoding.acceptance", "acceptance model")


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a method adds to the target's memory, per tensor-parallel rank.

    ``reserved_slots`` is the number of KV slots each sequence needs free when a round starts
    (K + 1 for a chain); what is rejected is rolled back at its end.
    """

    extra_weights_bytes: float
    extra_kv_bytes_per_token: float
    reserved_slots: int
    extra_kv_bytes_per_sequence: float = 0.0
    """A KV buffer of fixed size, set aside for every sequence the engine may run."""


@dataclass(frozen=True, slots=True)
class WeightedPass:
    """A pass of the closed form and the probability that it takes place."""

    weight: Quantity
    work: Pass


class AcceptanceProcess(Protocol):
    """Confidence and acceptance of one (method, exit layer, text), as one joint process."""

    def tape(self, seed: int, request_id: int, num_tokens: int) -> Tape:
        """Return the tape of a request; entries ``0..num_tokens-1`` at least."""
        ...

    def statistics(self, max_draft: int, threshold: float) -> RoundStatistics:
        """Return the closed form of chains up to ``max_draft`` that stop below ``threshold``."""
        ...

    def describe(self) -> str:
        """Return one sentence that states every assumption, for reports."""
        ...


class AcceptanceConfig(PluginConfig):
    """Base of every acceptance model's ``Config``."""

    def resolved(self, resolve: Callable[[str], str]) -> Self:
        """Return the model with the files it names passed through ``resolve``."""
        return self

    def at(self, exit_layer: int | None) -> AcceptanceProcess:
        """Return the process for drafts made at ``exit_layer`` (None: the method has none)."""
        raise TypeError(f"{type(self).__module__}.Config must define at()")


class Method(Protocol):
    """A decoding method bound to a target."""

    @property
    def name(self) -> str:
        """The method's file name."""
        ...

    @property
    def max_draft(self) -> int:
        """K; 0 when the method does not speculate."""
        ...

    def stacks(self) -> Mapping[str, Stack]:
        """Return the stacks its passes name; ``"target"`` is always among them."""
        ...

    def footprint(self) -> Footprint:
        """Return the extra memory."""
        ...

    def outcomes(self, tape: Tape) -> Outcomes:
        """Return m and a of the round that starts at each text position."""
        ...

    def statistics(self, acceptance: AcceptanceProcess | None) -> RoundStatistics:
        """Return the closed form of m and a."""
        ...

    def round_passes(
        self,
        context_lens: Sequence[int],
        drafted: Sequence[int],
        accepted: Sequence[int],
        prefill: Rows | None,
    ) -> list[Pass]:
        """Return the passes of one lock-step round.

        Parameters
        ----------
        context_lens : sequence (B,), tokens
            KV entries of each sequence before the round.
        drafted : sequence (B,), tokens
            m of each sequence in this round.
        accepted : sequence (B,), tokens
            a of each sequence in this round: a drafter with a KV of its own has to catch up on
            the last draft when all were accepted.
        prefill : Rows or None
            Prompt chunks that ride along in the same engine step (every layer once).
            With an empty batch the result is one plain prefill pass.
        """
        ...

    def expected_passes(
        self, batch_size: Quantity, context_len: Quantity, statistics: RoundStatistics
    ) -> list[WeightedPass]:
        """Return the passes of one round in expectation over independent sequences.

        Parameters
        ----------
        batch_size : number or array
            B, sequences in lock-step.
        context_len : number or array, tokens
            Mean context before the round; broadcasts against ``batch_size``.
        """
        ...


class MethodConfig(PluginConfig):
    """Base of every decoding method's ``Config``."""

    lossless: ClassVar[bool] = True
    """Whether the output is distributed like the target's own."""
    searches: ClassVar[bool] = False
    """Whether a round may find nothing to draft from; a drafter that computes always drafts."""

    @property
    def acceptance_exit_layer(self) -> int | None:
        """The exit layer the acceptance depends on, None for methods without one."""
        return None

    @property
    def draft_depth(self) -> int | None:
        """How deep a round drafts where ``num_speculative_tokens`` says it; None: fixed shapes."""
        depth: int | None = getattr(self, "num_speculative_tokens", None)
        return depth

    def acceptance_sentence(self, acceptance: AcceptanceProcess) -> str:
        """Return the acceptance's sentence, with what its numbers mean to this method."""
        return acceptance.describe()

    def resolved(self, resolve: Callable[[str], str]) -> Self:
        """Return the method with the files it names passed through ``resolve``.

        A file named in a scenario is looked up beside the scenario; a method that names none is
        itself.
        """
        return self

    def build(self, target: Stack) -> Method:
        """Bind the method to a target.

        Raises
        ------
        ConfigError
            A field contradicts the target, for example ``exit_layer >= L``.
        """
        raise TypeError(f"{type(self).__module__}.Config must define build()")
