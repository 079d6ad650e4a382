"""A workload: arrivals, lengths, how many requests, and what happens to those too long.

Arrivals and lengths have their own random streams, keyed by seed and replication only. Request
``i`` therefore has the same lengths at every load, and a Poisson or gamma process at another
rate is the same process on another clock: loads are compared on common random numbers. Priority
classes have a stream of their own, so that giving them changes no time and no length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    model_validator,
)
from pydantic_core import PydanticCustomError

from simspec.core.errors import ConfigError
from simspec.core.rng import stream
from simspec.workloads._base import (
    ARRIVALS,
    LENGTHS,
    Arrivals,
    ArrivalsConfig,
    Lengths,
    LengthsConfig,
)
from simspec.workloads.request import Request

IntArray: TypeAlias = npt.NDArray[np.int64]
_Policy = Literal["clip", "drop"]


@dataclass(frozen=True, slots=True)
class WorkloadRun:
    """The requests of one replication.

    Attributes
    ----------
    requests : tuple of Request
        In order of arrival; ``request_id`` is the position.
    concurrency : int or None
        Requests in flight of a closed loop; None in an open loop.
    offered_rate_per_s : float or None
        Requests per second that reach the server, left-out ones not counted; None in a closed
        loop and for a log that spans no time.
    num_clipped : int
        Requests shortened to the context limit.
    num_dropped : int
        Requests left out because they exceed it.
    num_empty : int
        Logged requests left out because they have no prompt or no output token.
    num_rejected : int
        Lines of a log left out because they are no request.
    rejected : tuple of str
        A sentence for each of the first of them.
    source : str
        One sentence that states where all this comes from, for reports.
    files : tuple of Path
        Data files that were read, for the manifest.
    """

    requests: tuple[Request, ...]
    concurrency: int | None
    offered_rate_per_s: float | None
    num_clipped: int
    num_dropped: int
    num_empty: int
    source: str
    files: tuple[Path, ...]
    num_rejected: int = 0
    rejected: tuple[str, ...] = ()

    def counts(self) -> dict[str, int]:
        """Return what was left out or changed of the source, by reason, for a result."""
        return {
            "requests": len(self.requests),
            "clipped": self.num_clipped,
            "dropped": self.num_dropped,
            "without_tokens": self.num_empty,
            "rejected_lines": self.num_rejected,
        }


class PriorityClass(BaseModel):
    """A share of the requests that is more or less urgent than others."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    priority: int = Field(ge=-1000, le=1000)
    """Smaller is more urgent."""

    weight: float = Field(gt=0, le=1e9)
    """Its share of the requests is this over the sum of all weights."""


def _lengths_or_none(value: Any) -> Any:
    return None if value is None else LENGTHS.parse(value)


class WorkloadConfig(BaseModel):
    """The ``workload`` section of a scenario."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    arrivals: Annotated[SerializeAsAny[ArrivalsConfig], BeforeValidator(ARRIVALS.parse)]
    """When requests come; ``replay`` also says how long they are and how many."""

    lengths: Annotated[SerializeAsAny[LengthsConfig] | None, BeforeValidator(_lengths_or_none)] = (
        None
    )
    """How long they are."""

    num_requests: int | None = Field(default=None, ge=1, le=10_000_000)
    """How many requests one replication sends."""

    max_context_tokens: int | None = Field(default=None, ge=2, le=100_000_000)
    """Most tokens a request may have, prompt and output together; None: those of the model, where
    ``over_context`` is given, else no limit."""

    over_context: _Policy | None = None
    """What happens to longer ones: ``clip`` shortens the prompt to leave room for one token,
    then the output to what is left; ``drop`` leaves the request out. Both are counted."""

    priority_classes: tuple[PriorityClass, ...] | None = Field(
        default=None, min_length=2, max_length=100
    )
    """Classes that requests belong to at random, by weight; a priority scheduler looks at them.
    None: all are alike."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        classes = self.priority_classes or ()
        if len({one.priority for one in classes}) < len(classes):
            raise PydanticCustomError(
                "workload_classes", "priority_classes: a priority is given twice; add their weights"
            )
        if self.arrivals.brings_lengths:
            for key in ("lengths", "num_requests"):
                if getattr(self, key) is not None:
                    raise PydanticCustomError(
                        "workload_twice",
                        "{arrivals} takes its requests from a file, so '{key}' has no effect; "
                        "remove it (to read less of the file set arrivals.limit)",
                        {"arrivals": self.arrivals.name, "key": key},
                    )
        else:
            for key in ("lengths", "num_requests"):
                if getattr(self, key) is None:
                    raise PydanticCustomError(
                        "workload_incomplete",
                        "'{key}' is missing; {arrivals} arrivals need it",
                        {"arrivals": self.arrivals.name, "key": key},
                    )
        if self.max_context_tokens is not None and self.over_context is None:
            raise PydanticCustomError(
                "workload_context",
                "max_context_tokens needs over_context, which says what happens to longer "
                "requests; add clip or drop",
            )
        return self

    def build(
        self,
        seed: int,
        *,
        replication: int = 0,
        base: Path | None = None,
        model_context_tokens: int | None = None,
    ) -> WorkloadRun:
        """Draw the requests of one replication.

        Parameters
        ----------
        seed : int
            Experiment seed.
        replication : int
            Index of the repetition; each has its own streams.
        base : Path or None
            Folder that relative file names start from.
        model_context_tokens : int or None, tokens
            The model's own limit, for ``over_context`` without ``max_context_tokens``.

        Raises
        ------
        ConfigError
            A file is missing, or the context limit is not known or leaves no request.
        TraceError
            A log cannot be read.
        """
        key = ("workload", replication)
        arrivals = self.arrivals.draw(
            stream(seed, *key, "arrivals"), self.num_requests or 0, base=base
        )
        lengths = arrivals.lengths
        files = arrivals.files
        sources = [self.arrivals.describe()]
        if self.lengths is not None:
            rng = stream(seed, *key, "lengths")
            lengths = self.lengths.draw(rng, arrivals.times_s.size, base=base)
            files += self.lengths.files(base=base)
            sources.append(self.lengths.describe(base=base))
        assert lengths is not None, "the validator lets no workload without lengths through"
        if arrivals.num_empty:
            sources.append(f"{arrivals.num_empty:,} logged requests without tokens left out")
        if arrivals.rejected is not None and arrivals.rejected.count:
            sources.append(
                f"{arrivals.rejected.count:,} lines left out that are no request, the first: "
                f"{arrivals.rejected.sentences[0]}"
            )
        priorities = self._priorities(stream(seed, *key, "priorities"), arrivals.times_s.size)
        limit = self.max_context_tokens or model_context_tokens
        if self.over_context is not None and limit is None:
            raise ConfigError(
                "over_context: nothing says the longest context; give max_context_tokens"
            )
        return self._run(_Drawn(arrivals, lengths, priorities), limit, sources, files)

    def _priorities(self, rng: np.random.Generator, num_requests: int) -> IntArray:
        classes = self.priority_classes
        if classes is None:
            return np.zeros(num_requests, dtype=np.int64)
        ends = np.cumsum([one.weight for one in classes])
        chosen = np.searchsorted(ends, rng.random(num_requests) * ends[-1], side="right")
        priorities: IntArray = np.array([one.priority for one in classes], dtype=np.int64)
        drawn: IntArray = priorities[np.minimum(chosen, len(classes) - 1)]
        return drawn

    def _run(
        self, drawn: _Drawn, limit: int | None, sources: list[str], files: tuple[Path, ...]
    ) -> WorkloadRun:
        total = drawn.priorities.size
        num_clipped = num_dropped = 0
        if self.over_context is not None and limit is not None:
            lengths = drawn.lengths
            too_long = lengths.prompt_lens + lengths.output_lens > limit
            num_long = int(too_long.sum())
            if self.over_context == "clip":
                num_clipped = num_long
                drawn = drawn.clipped(limit)
                done = "clipped to"
            else:
                num_dropped = num_long
                drawn = drawn.without(too_long)
                done = "left out for exceeding"
            sources.append(f"{num_long:,} of {total:,} requests {done} {limit:,} tokens")
        if num_dropped == total:
            raise ConfigError(
                f"max_context_tokens: no request fits {limit:,} tokens; "
                "raise it or choose over_context: clip"
            )
        if self.priority_classes is not None:
            named = ", ".join(f"{c.priority}: {c.weight:g}" for c in self.priority_classes)
            sources.append(f"priority classes by weight ({named})")
        rejected = drawn.arrivals.rejected
        return WorkloadRun(
            requests=tuple(drawn.requests()),
            concurrency=drawn.arrivals.concurrency,
            offered_rate_per_s=drawn.arrivals.rate_per_s,
            num_clipped=num_clipped,
            num_dropped=num_dropped,
            num_empty=drawn.arrivals.num_empty,
            source="; ".join(sources),
            files=files,
            num_rejected=0 if rejected is None else rejected.count,
            rejected=() if rejected is None else tuple(rejected.sentences),
        )


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Requests as columns: their arrivals, lengths and classes."""

    arrivals: Arrivals
    lengths: Lengths
    priorities: IntArray

    def clipped(self, max_context_tokens: int) -> _Drawn:
        """Return requests that fit: first the prompt, up to one token below, then the output."""
        prompt_lens = np.minimum(self.lengths.prompt_lens, max_context_tokens - 1)
        output_lens = np.minimum(self.lengths.output_lens, max_context_tokens - prompt_lens)
        prefixes = self.arrivals.prefixes
        if prefixes is not None:
            prefixes = prefixes.cut_to(prompt_lens)
        return replace(
            self,
            lengths=Lengths(prompt_lens, output_lens),
            arrivals=replace(self.arrivals, prefixes=prefixes),
        )

    def without(self, left_out: npt.NDArray[np.bool_]) -> _Drawn:
        """Return the others; the rate falls with their share."""
        keep, old = ~left_out, self.arrivals
        rate_per_s = None if old.rate_per_s is None else old.rate_per_s * float(keep.mean())
        arrivals = replace(
            old,
            times_s=old.times_s[keep],
            rate_per_s=rate_per_s,
            prefixes=None if old.prefixes is None else old.prefixes.take(keep),
            sessions=None if old.sessions is None else old.sessions.take(keep),
        )
        lengths = Lengths(self.lengths.prompt_lens[keep], self.lengths.output_lens[keep])
        return _Drawn(arrivals, lengths, self.priorities[keep])

    def requests(self) -> Iterator[Request]:
        """Yield them in order."""
        arrivals, size = self.arrivals, self.priorities.size
        prefixes, sessions = arrivals.prefixes, arrivals.sessions
        hashes: Iterable[tuple[int, ...]] = repeat((), size)
        block_tokens = 0
        if prefixes is not None:
            hashes, block_tokens = prefixes.hashes, prefixes.block_tokens
        follows: Iterable[int | None] = repeat(None, size)
        thinks: Iterable[float] = repeat(0.0, size)
        if sessions is not None:
            follows = (before if before >= 0 else None for before in sessions.follows.tolist())
            thinks = sessions.think_s.tolist()
        columns = (arrivals.times_s, self.lengths.prompt_lens, self.lengths.output_lens)
        plain = (column.tolist() for column in columns)
        rows = zip(*plain, hashes, self.priorities.tolist(), follows, thinks, strict=True)
        for i, (at, prompt, output, own, priority, before, think_s) in enumerate(rows):
            own_block = block_tokens if own else 0
            yield Request(i, at, prompt, output, own, own_block, priority, before, think_s)
