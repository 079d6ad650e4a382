"""Plain data between the scenario, the engine and the records."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Protocol

from simspec.core.registry import PluginConfig
from simspec.cost.work import Pass, Quantity
from simspec.decoding._base import AcceptanceProcess, Method
from simspec.hardware.profile import InterNodeLink
from simspec.memory.blocks import BlockPool
from simspec.memory.prefixes import PrefixPool
from simspec.serving.routing._base import RouterConfig
from simspec.serving.speculation._base import Speculation
from simspec.workloads.request import Request


class StepPrice(Protocol):
    """What one engine step costs; ``simspec.cost.forward.StepCost`` is one."""

    @property
    def total_s(self) -> Quantity:
        """Seconds from the start of the step to the start of the next."""
        ...

    @property
    def host_s(self) -> Quantity:
        """Seconds of ``total_s`` the device waits for the host."""
        ...

    @property
    def network_s(self) -> Quantity:
        """Seconds of ``total_s`` spent in collectives."""
        ...

    @property
    def flop(self) -> Quantity:
        """Floating-point operations per rank."""
        ...

    @property
    def bytes(self) -> Quantity:
        """Bytes moved to and from the memory of one rank."""
        ...

    @property
    def by_phase(self) -> Mapping[str, Quantity]:
        """Seconds by phase of the passes."""
        ...


class StepPricer(Protocol):
    """Turns the passes of one engine step into seconds; ``CostModel`` is one."""

    def step(self, passes: Sequence[Pass], num_sequences: int) -> StepPrice:
        """Return the price of one engine step over ``num_sequences`` sequences."""
        ...


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """What one engine step may hold."""

    policy: str | PluginConfig
    """File name in ``simspec/serving/scheduling``, or the settings of one."""
    max_num_seqs: int
    max_num_batched_tokens: int
    chunked_prefill: bool
    preemption: str | PluginConfig = "recompute"
    """File name in ``simspec/serving/preemption``, or the settings of one."""
    ttft_target_s: float | None = None
    """The time to first token that requests are promised, for policies that look at it."""

    @property
    def policy_name(self) -> str:
        """File name of the scheduling policy."""
        return self.policy if isinstance(self.policy, str) else self.policy.name


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Memory of the host that preempted sequences' KV may be copied to, seen from one rank."""

    num_blocks: int
    """KV blocks it holds, of the size of the device's."""
    bytes_per_token: float
    """KV of one token on one rank, draft KV included."""
    bandwidth_bytes_per_s: float
    """Of the link between device and host, one direction; each rank has its own."""

    def copy_s(self, num_tokens: int) -> float:
        """Return the seconds that the KV of so many tokens takes over the link."""
        return num_tokens * self.bytes_per_token / self.bandwidth_bytes_per_s


@dataclass(frozen=True, slots=True)
class PrefillSide:
    """The replicas that compute prompts for those that decode."""

    num_replicas: int
    method: Method
    cost: StepPricer
    num_blocks: int
    limits: SchedulerLimits
    kv_link: InterNodeLink
    """Of each of them."""
    kv_bytes_per_token: float
    """On the busiest device of either side: what a copy takes over the link of one device."""


@dataclass(frozen=True, slots=True)
class ServingSetup:
    """Everything one replication needs; built by ``simspec.scenarios.build``."""

    requests: Sequence[Request]
    concurrency: int | None
    """Closed loop: requests in flight; None: open loop, each request at its ``arrival_s``."""
    method: Method
    acceptance: AcceptanceProcess | None
    seed: int
    cost: StepPricer
    num_blocks: int
    block_size_tokens: int
    limits: SchedulerLimits
    speculation: Speculation | None = None
    """What changes the method's drafts during the run; None: nothing does."""
    max_simulated_s: float | None = None
    """Stop the clock here; what still runs is recorded as ``running`` or ``waiting``."""
    prefix_caching: bool = False
    """Whether the KV of prompts is kept and found again, where requests say their content."""
    host: HostMemory | None = None
    """Where preemption by swap copies to; None: nowhere."""
    step_by_step: bool = False
    """Look at every sequence in every step: the same records, several times slower."""
    num_replicas: int = 1
    """Engines like the one described above, each with its own GPUs, queue and pool."""
    router: RouterConfig | None = None
    """Who gets a request; needed for more than one replica."""
    prefill: PrefillSide | None = None
    """Replicas for prompts alone; None: every replica does both."""


@dataclass(slots=True, eq=False)
class SequenceState:
    """A request inside the engine.

    There are no phases, only tokens to catch up: while ``context_len < prefill_target`` the
    sequence is prefilling; once they are equal its next token comes out, and from then on
    ``context_len = prompt_len + emitted - 1``, because the newest token is not in the KV yet.
    """

    request_id: int
    prompt_len: int
    output_len: int
    arrival_s: float
    prefill_target: int
    """KV tokens to compute before the next token comes out of a prefill."""
    queued_since_s: float
    context_len: int = 0
    """KV tokens computed and kept."""
    capacity_tokens: int = 0
    """KV tokens its blocks can hold."""
    emitted: int = 0
    """Output tokens the client has: the text position at which the next round starts."""
    drafted_at: Sequence[int] = ()
    """m of the round that starts at each text position."""
    accepted_at: Sequence[int] = ()
    """a of the round that starts at each text position."""
    last_token_s: float = nan
    admission_s: float = nan
    first_token_s: float = nan
    landed_s: float = nan
    """When the KV of its prompt had arrived at the replica that decodes it."""
    resumed_s: float = nan
    """When that replica took it in."""
    queue_s: float = 0.0
    """Seconds spent in the waiting queue, after preemptions included."""
    max_gap_s: float = 0.0
    num_preemptions: int = 0
    recomputed_tokens: int = 0
    """KV tokens thrown away by preemptions and not found again in the cache."""
    num_swapped_tokens: int = 0
    """KV tokens copied to the host by preemptions."""
    cached_tokens: int = 0
    """Prompt tokens whose KV was found in the cache."""
    lost_tokens: int = 0
    """While it waits: KV tokens that its preemption threw away."""
    swapped_tokens: int = 0
    """While it waits: KV tokens it has in host memory."""
    priority: int = 0
    """Class; smaller is more urgent."""
    prefix_keys: Sequence[Hashable] = ()
    """Content of the pieces that the prompt begins with, of ``piece_tokens`` tokens each."""
    piece_tokens: int = 0
    tape: object = None
    """What speculation control has read of its tape."""
    whole_tokens: int = 0
    """KV tokens that the drafter and every layer have seen, while a mode leaves some of it out."""
    num_rounds: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    synced_round: int = 0
    """Round of its cohort up to which the numbers above are counted."""


class WaitingQueue(Protocol):
    """The waiting sequences; a ``deque`` is one."""

    def append(self, sequence: SequenceState, /) -> None:
        """Add one that arrives."""
        ...

    def appendleft(self, sequence: SequenceState, /) -> None:
        """Add one that was preempted."""
        ...

    def popleft(self) -> SequenceState:
        """Take out the one that is next."""
        ...

    def __getitem__(self, index: int, /) -> SequenceState: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[SequenceState]: ...


class LazyBatch(Protocol):
    """The decoding sequences where they move together; ``simspec.serving.cohort`` has them."""

    members: list[SequenceState]

    def reserve(self, budget: int) -> bool:
        """Take the slots of everybody's round if ``budget`` and the pool have them."""
        ...

    def dissolve(self) -> None:
        """Bring every member up to date and let it go."""
        ...


def _first_come_first_served() -> WaitingQueue:
    queue: deque[SequenceState] = deque()
    return queue


@dataclass(slots=True, eq=False)
class EngineState:
    """The queues and the block allocator of one replica: all a scheduler may touch."""

    blocks: BlockPool
    waiting: WaitingQueue = field(default_factory=_first_come_first_served)
    """First come, first served, and preempted sequences return to the front, unless the policy
    brings a queue of its own."""
    running: list[SequenceState] = field(default_factory=list)
    """In order of admission."""
    cohort: LazyBatch | None = None
    """Where decoding sequences move together: either all of them are members, or none."""
    prefixes: PrefixPool | None = None
    """The same pool as ``blocks`` if prompts are found again, else None."""
    host: BlockPool | None = None
    """Host memory for swapped sequences, if there is any."""


@dataclass(slots=True, eq=False)
class StepPlan:
    """What one engine step will do; the scheduler's whole answer."""

    decoding: list[SequenceState] = field(default_factory=list)
    """Sequences that take one decode round; their K + 1 slots are reserved."""
    is_together: bool = False
    """Whether ``decoding`` are the members of the cohort, whose states are stale."""
    prefilling: list[SequenceState] = field(default_factory=list)
    """Sequences that compute a prompt chunk."""
    chunks: list[int] = field(default_factory=list)
    """Tokens of each prompt chunk, parallel to ``prefilling``."""
    admitted: list[SequenceState] = field(default_factory=list)
    """Taken from the waiting queue in this step."""
    resumed: list[SequenceState] = field(default_factory=list)
    """Those of ``admitted`` whose KV is copied back; they go on in the next step."""
    preempted: list[SequenceState] = field(default_factory=list)
    """Put back into the waiting queue in this step."""
    copied_tokens: int = 0
    """KV tokens that go to the host or come back from it."""
