"""The contract of a memory rule: what an engine's memory fraction is a share of.

Every engine has one number that says how much memory its KV pool may take, and no two mean the
same by it. A rule is a module of ``simspec.memory.pools`` with the members of :class:`PoolRule`;
an engine profile names it in ``memory.rule``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeAlias, cast

from simspec.core.registry import Registry

POOL_RULES = Registry("simspec.memory.pools", "memory rule")

Step: TypeAlias = Literal["share", "weights", "activations", "reserve"]
"""One step of a budget: the knob is applied, or something is subtracted."""


@dataclass(frozen=True, slots=True)
class Account:
    """What a rule divides, in bytes on one rank."""

    capacity_bytes: float
    """Visible to the framework."""
    fraction: float
    """The engine's knob."""
    weights_bytes: float
    """Of the target and of the decoding method, and its buffers of fixed size."""
    activation_bytes: float
    """Peak of the largest step."""
    reserve_bytes: float
    """Outside the framework's allocator: context, communication buffers."""


class PoolRule(Protocol):
    """What a module of ``simspec.memory.pools`` offers."""

    KNOB: ClassVar[str]
    """What the engine calls its fraction."""
    SHARE_OF: ClassVar[str]
    """What the fraction is a share of, in a few words."""
    STEPS: ClassVar[tuple[Step, ...]]
    """The order in which the engine reaches its pool."""

    @staticmethod
    def left_bytes(account: Account) -> float:
        """Return what is left for the KV cache, bytes; negative by what is missing."""
        ...

    @staticmethod
    def usable_bytes(account: Account) -> float:
        """Return what the fraction gives, bytes."""
        ...

    @staticmethod
    def longest_request(pool_tokens: int, max_num_seqs: int) -> int:
        """Return the tokens that one request may hold at most."""
        ...


def pool_rule(name: str) -> PoolRule:
    """Return the rule ``name``.

    Raises
    ------
    ConfigError
        The name is unknown; the message offers the nearest one.
    """
    return cast(PoolRule, POOL_RULES.module(name))
