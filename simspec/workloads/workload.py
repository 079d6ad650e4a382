"""A workload: arrivals, lengths, how many requests, and what happens to those too long.

Arrivals and lengths have their own random streams, keyed by seed and replication only. Request
``i`` therefore has the same lengths at every load, and a Poisson or gamma process at another
rate is the same process on another clock: loads are compared on common random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
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
    """Most tokens a request may have, prompt and output together; None: no limit here."""

    over_context: _Policy | None = None
    """What happens to longer ones: ``clip`` shortens the prompt to leave room for one token,
    then the output to what is left; ``drop`` leaves the request out. Both are counted."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
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
        if (self.max_context_tokens is None) != (self.over_context is None):
            raise PydanticCustomError(
                "workload_context",
                "max_context_tokens and over_context (clip or drop) go together; give both or "
                "neither",
            )
        return self

    def build(self, seed: int, *, replication: int = 0, base: Path | None = None) -> WorkloadRun:
        """Draw the requests of one replication.

        Parameters
        ----------
        seed : int
            Experiment seed.
        replication : int
            Index of the repetition; each has its own streams.
        base : Path or None
            Folder that relative file names start from.

        Raises
        ------
        ConfigError
            A file is missing, or the context limit leaves no request.
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
        return self._run(arrivals, lengths, sources, files)

    def _run(
        self, arrivals: Arrivals, lengths: Lengths, sources: list[str], files: tuple[Path, ...]
    ) -> WorkloadRun:
        total = arrivals.times_s.size
        num_clipped = num_dropped = 0
        if self.max_context_tokens is not None:
            too_long = lengths.prompt_lens + lengths.output_lens > self.max_context_tokens
            num_long = int(too_long.sum())
            if self.over_context == "clip":
                num_clipped = num_long
                lengths = _clipped(lengths, self.max_context_tokens)
                done = "clipped to"
            else:
                num_dropped = num_long
                arrivals, lengths = _without(too_long, arrivals, lengths)
                done = "left out for exceeding"
            sources.append(
                f"{num_long:,} of {total:,} requests {done} {self.max_context_tokens:,} tokens"
            )
        if num_dropped == total:
            raise ConfigError(
                f"max_context_tokens: no request fits {self.max_context_tokens:,} tokens; "
                "raise it or choose over_context: clip"
            )
        columns = (arrivals.times_s, lengths.prompt_lens, lengths.output_lens)
        return WorkloadRun(
            requests=tuple(map(Request, range(total), *(c.tolist() for c in columns))),
            concurrency=arrivals.concurrency,
            offered_rate_per_s=arrivals.rate_per_s,
            num_clipped=num_clipped,
            num_dropped=num_dropped,
            num_empty=arrivals.num_empty,
            source="; ".join(sources),
            files=files,
        )


def _clipped(lengths: Lengths, max_context_tokens: int) -> Lengths:
    """Return lengths that fit: first the prompt, up to one token below, then the output."""
    prompt_lens = np.minimum(lengths.prompt_lens, max_context_tokens - 1)
    output_lens = np.minimum(lengths.output_lens, max_context_tokens - prompt_lens)
    return Lengths(prompt_lens, output_lens)


def _without(
    left_out: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    arrivals: Arrivals,
    lengths: Lengths,
) -> tuple[Arrivals, Lengths]:
    """Return arrivals and lengths without some requests; the rate falls with their share."""
    keep = ~left_out
    share = float(keep.mean())
    rate_per_s = None if arrivals.rate_per_s is None else arrivals.rate_per_s * share
    return (
        replace(arrivals, times_s=arrivals.times_s[keep], rate_per_s=rate_per_s),
        Lengths(lengths.prompt_lens[keep], lengths.output_lens[keep]),
    )
