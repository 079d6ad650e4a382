"""The contract of a speculation policy, and the modes it chooses from.

A mode is one way to decode: the method of the deployment with a draft length (and threshold) of
its own, no drafting at all, or the first layers alone. A policy is asked before every engine step
which mode is in force. It sees the load and the rounds that were verified under it, never the
tapes; what it may conclude from a round about a shorter one is :meth:`ObservedRounds.of`.

A mode in which the drafter sleeps, or deep layers are left out, leaves KV behind that is missing
when drafting resumes: a debt, paid in the first step of the next mode that needs it
(``simspec.serving.speculation._control``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from simspec.core.registry import PluginConfig, Registry
from simspec.cost.work import Stack
from simspec.decoding._base import Method, MethodConfig
from simspec.decoding.tape import RoundStatistics

SPECULATIONS = Registry("simspec.serving.speculation", "speculation policy")


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to decode.

    Attributes
    ----------
    name : str
        In reports.
    method : Method
        Its passes and outcomes.
    depth : int
        Deepest draft position: a is at most this; 0 where nothing is drafted.
    threshold : float
        tau of a method that has one, else 0.
    leaves_debt : bool
        Whether tokens made in it lack KV that drafting needs.
    is_verified : bool
        Whether its tokens are the target's.
    """

    name: str
    method: Method
    depth: int
    threshold: float = 0.0
    leaves_debt: bool = False
    is_verified: bool = True

    @property
    def max_draft(self) -> int:
        """Most tokens drafted in a round: K, of a tree its nodes."""
        return self.method.max_draft

    def shows(self, other: Mode) -> bool:
        """Return whether a round of this mode says what one of ``other`` would have given.

        Drafting as far and stopping no earlier, it has drafted and verified all of it.
        """
        if not other.is_verified or not self.is_verified:
            return False
        is_chain = self.depth == self.max_draft and other.depth == other.max_draft
        covers = self.depth >= other.depth > 0 and self.threshold <= other.threshold
        return other is self or (is_chain and covers)


class ObservedRounds(Protocol):
    """The rounds of a step, as an engine sees them after verification."""

    in_force: int
    """The mode they were drafted in."""
    size: int
    """How many there are; at most a fixed number of a step is shown."""

    def of(self, mode: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return m and a of each round, had it been drafted in ``mode``.

        Only for modes that the one in force shows.
        """
        ...


@dataclass(slots=True)
class Load:
    """What a policy sees before a step."""

    num_running: int = 0
    num_waiting: int = 0
    kv_tokens: int = 0
    """Tokens the blocks in use can hold."""


class SpeculationPolicy(ABC):
    """Chooses the mode of every engine step of one run."""

    observes: ClassVar[bool] = False
    """Whether it wants to be shown rounds and steps."""

    @abstractmethod
    def choose(self, in_force: int, load: Load) -> int:
        """Return the mode of the next step."""

    def see_rounds(self, rounds: ObservedRounds) -> None:  # noqa: B027 (most look at the load alone)
        """Take note of the rounds of a step that drafted, at least one."""

    def see_step(self, prompt_tokens: int, emitted: int) -> None:  # noqa: B027
        """Take note of the prompt tokens a step computed and the tokens that came out of it."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """A policy of a deployment and the modes it has.

    Attributes
    ----------
    config : SpeculationConfig
        Makes a policy for each run.
    modes : tuple of Mode
        The first one drafts as deep as the method of the deployment, in the same passes; it is in
        force before the policy is asked for the first time.
    """

    config: SpeculationConfig
    modes: tuple[Mode, ...]


class SpeculationConfig(PluginConfig):
    """Base of every speculation policy's ``Config``."""

    is_fixed: ClassVar[bool] = False
    """Whether the method stays as it is, so that there is nothing to decide."""

    def modes(self, method: MethodConfig, target: Stack) -> tuple[Mode, ...]:
        """Return the modes of a method bound to a target.

        Raises
        ------
        ConfigError
            The method has no such modes.
        """
        raise TypeError(f"{type(self).__module__}.Config must define modes()")

    def extra_kv_bytes_per_token(self, target: Stack) -> float:
        """Return what must be kept per KV token beside the method's own memory."""
        return 0.0

    def build(self, modes: Sequence[Mode], prices: RoundPrices) -> SpeculationPolicy:
        """Return the policy of one run.

        Parameters
        ----------
        modes : sequence of Mode
            Those of :meth:`modes`.
        prices : RoundPrices
            What rounds cost in the engine it runs in.
        """
        raise TypeError(f"{type(self).__module__}.Config must define build()")


class RoundPrices(Protocol):
    """What rounds cost in the engine, for policies that weigh them."""

    def round_s(
        self, mode: Mode, batch_size: int, context_len: int, statistics: RoundStatistics
    ) -> float:
        """Return the expected seconds of a round of a batch at ``context_len`` tokens each."""
        ...

    def chunk_s(
        self, mode: Mode, context_len: int, rounds: Sequence[tuple[int, int]], chunk_tokens: int
    ) -> float:
        """Return the seconds that prompt chunks add to a step with rounds of given m and a."""
        ...
