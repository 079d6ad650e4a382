"""What a device is, in SI units: the frozen form every other floor works with.

The YAML form with milliseconds and GB/s is ``simspec.hardware.schema``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

KvReads = Literal["once_per_pass", "once_per_token"]


@dataclass(frozen=True, slots=True)
class FitError:
    """How uncertain one fit is; nothing where nothing is said.

    :mod:`simspec.hardware.uncertainty` says what becomes of it.
    """

    relative: float = 0.0
    """1 sigma of the logarithm of the fit's times, all of them together: what the form misses."""
    borrowed: float = 0.0
    """1 sigma of the same where the coefficients are another device's, or were not judged."""
    standard_error: tuple[tuple[str, float], ...] = ()
    """1 sigma of coefficients by the name of their field, in its unit."""

    @property
    def of_times(self) -> float:
        """1 sigma of the logarithm of one time, coefficients' own errors not counted."""
        return math.hypot(self.relative, self.borrowed)


NO_ERROR = FitError()


@dataclass(frozen=True, slots=True)
class KernelFit:
    """Roofline coefficients of one kind of kernel at one data type.

    ``time = smooth_max(flop / (peak * flop_efficiency),
    bytes / (bandwidth * bandwidth_efficiency); sharpness) + overhead_s``
    with ``smooth_max(x, y; s) = (x**s + y**s)**(1/s)``; ``sharpness = inf`` is the plain maximum.
    """

    flop_efficiency: float
    bandwidth_efficiency: float
    overhead_s: float
    sharpness: float = float("inf")
    vector_rows: int = 0
    """Most rows that matrix-vector kernels serve; 0: one kernel for any number of rows."""
    vector_flop_efficiency: float = 1.0
    """Share of the peak those reach while they unpack every weight again for each row."""
    vector_sharpness: float = 1.0
    """Exponent of their smooth maximum; 1: unpacking and reading do not overlap."""
    tile_rows: int | tuple[int, ...] = 1
    """Rows that the matrix kernel computes at once: fewer cost as many. Several: the smallest that
    holds all rows, above the last one its multiples."""
    padding_cost: float = 1.0
    """What a row that only fills a tile costs, in rows."""
    depth_s: float = 0.0
    """Matrix products: seconds per input feature, since a tile adds up its products in steps."""
    quantise_s: float = 0.0
    """Matrix products: seconds per activation that is brought into their format first."""
    tile_columns: int = 0
    """Columns of the result that one multiprocessor computes at once; 0: they are not counted."""
    idle_cost: float = 0.0
    """What a multiprocessor without a tile in the last wave costs, in busy ones."""
    wave_s: float = 0.0
    """Matrix products: seconds for each wave of tiles, filling and draining its pipelines."""
    sequence_s: float = 0.0
    """Decode attention: seconds per sequence and KV head, the set-up of a piece of work."""
    token_s: float = 0.0
    """Prefill attention: seconds per prompt token and KV head, whose keys and values are new."""
    error: FitError = NO_ERROR


@dataclass(frozen=True, slots=True)
class KernelSet:
    """The kernels of one engine on a device; None where the device's own stand."""

    gemm: Mapping[str, KernelFit] | None
    decode_attention: Mapping[str, KernelFit] | None
    prefill_attention: Mapping[str, KernelFit] | None
    elementwise: KernelFit | None
    kv_reads: KvReads | None
    calibrated: bool
    efficiencies_of: str
    all_reduce: Mapping[str, AllReduceFit] | None = None
    """Collectives of the engine over the device's link."""


@dataclass(frozen=True, slots=True)
class AllReduceFit:
    """One all-reduce algorithm over one link: seconds from ranks and message size.

    ``latency_s + latency_per_peer_s * (tp - 1) + wire_bytes / bandwidth_bytes_per_s`` where
    ``wire_bytes`` is ``(tp - 1) * S`` for ``one_shot`` and ``2 (tp - 1) / tp * S`` for ``ring``.
    Where ranks share a bridge, each beyond a pair makes the bytes ``sharing_per_rank`` slower.
    """

    latency_s: float
    latency_per_peer_s: float
    bandwidth_bytes_per_s: float
    error: FitError = NO_ERROR
    sharing_per_rank: float = 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """A connection between devices of one node, or between device and host."""

    name: str
    bandwidth_bytes_per_s: float
    """One direction, per device."""
    max_devices: int
    all_reduce: Mapping[str, AllReduceFit] = field(default_factory=dict)
    """By algorithm name (the file name in ``simspec/cost/collectives``)."""


@dataclass(frozen=True, slots=True)
class InterNodeLink:
    """The network between nodes, as one device sees it."""

    name: str
    bandwidth_bytes_per_s: float
    """One direction, per device."""
    latency_s: float
    """Of one message, whatever its size."""


@dataclass(frozen=True, slots=True)
class Power:
    """Watts of one device at full load and idle."""

    tdp_w: float
    idle_w: float


@dataclass(frozen=True, slots=True)
class Price:
    """Rent of one device, never shown without its date and source."""

    usd_per_hour: float
    as_of: str
    source: str


@dataclass(frozen=True, slots=True)
class KernelsInSteps:
    """What an engine makes of kernels that were timed alone.

    Plain products are timed for every device, grouped ones are not: what an engine's kernels for
    experts reach is stated relative to the plain products.
    """

    overhead_share: float = 1.0
    """Of every kernel's fixed overhead, what is left in a step: a kernel timed alone pays for its
    ramp-up, which its neighbours in a captured graph hide, and fused ones share."""
    grouped_flop_share: float = 1.0
    """Of the compute rate of a plain product, what a grouped one reaches."""
    grouped_bandwidth_share: float = 1.0
    """Of the memory rate of a plain product, what a grouped one reaches."""
    grouped_overhead_s: float = 0.0
    """Once per grouped product, for sorting and moving its rows, beside the product's own."""
    grouped_padding_rows: float = 0.0
    """Rows that fill the last tile of each expert, on average: computed and thrown away."""
    routing_shape: float = float("inf")
    """Shape of the gamma law of how popular experts are with the texts served; infinite: all
    alike."""
    collective_overhead_s: float = 0.0
    """Once per all-reduce inside a step: ranks that are not timed alone wait for the slowest."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """One accelerator and the links around it."""

    name: str
    description: str
    memory_capacity_bytes: float
    memory_bandwidth_bytes_per_s: float
    peak_flop_per_s: Mapping[str, float]
    """Dense peak by compute data type: ``bf16``, ``fp16``, ``fp8``, ``int8``, ``fp32``, …"""
    gemm: Mapping[str, KernelFit]
    """By weight format, ``weight_only`` (any that is unpacked first) or compute data type."""
    decode_attention: Mapping[str, KernelFit]
    """By KV data type; few query tokens per sequence, split over the KV."""
    prefill_attention: Mapping[str, KernelFit]
    """By KV data type; many query tokens per sequence, causal."""
    elementwise: KernelFit
    kv_reads: KvReads
    link: Link | None
    host_link: Link | None
    power: Power | None
    price: Price | None
    calibrated: bool
    """Whether the efficiencies were fitted on measurements of this very device."""
    sources: Mapping[str, str]
    """Source sentence of each group of the YAML."""
    efficiencies_of: str = ""
    """The profile whose efficiencies stand in where ``calibrated`` is False; empty: unknown."""
    kernel_sets: Mapping[str, KernelSet] = field(default_factory=dict)
    """Kernels of engines that bring their own, by the name engine profiles use."""
    grouped: KernelsInSteps = KernelsInSteps()
    """How products over experts compare with plain ones."""
    multiprocessors: int = 0
    """That share the tiles of a matrix product; 0: not known, and no fit may count them."""
    inter_node_link: InterNodeLink | None = None

    @property
    def uncalibrated_note(self) -> str:
        """What reports say of a profile that was not fitted; empty for one that was."""
        if self.calibrated:
            return ""
        relative = f": efficiencies of {self.efficiencies_of}" if self.efficiencies_of else ""
        return f"uncalibrated{relative}"

    @property
    def calibration(self) -> dict[str, object]:
        """Whether the profile was fitted, and whose efficiencies stand in, as results say it."""
        if self.calibrated or not self.efficiencies_of:
            return {"calibrated": self.calibrated}
        return {"calibrated": False, "efficiencies_of": self.efficiencies_of}

    def with_kernels(self, name: str) -> Hardware:
        """Return the device as an engine with kernels of its own drives it.

        Parameters
        ----------
        name : str
            Kernel set; the device is returned as it is where it has none of that name.
        """
        found = self.kernel_sets.get(name)
        if found is None:
            return self
        return replace(
            self,
            gemm=self.gemm if found.gemm is None else found.gemm,
            decode_attention=found.decode_attention or self.decode_attention,
            prefill_attention=found.prefill_attention or self.prefill_attention,
            elementwise=found.elementwise or self.elementwise,
            kv_reads=found.kv_reads or self.kv_reads,
            link=(
                self.link
                if self.link is None or found.all_reduce is None
                else replace(self.link, all_reduce=found.all_reduce)
            ),
            calibrated=found.calibrated,
            efficiencies_of=found.efficiencies_of,
        )

    def in_steps(self, kernels: KernelsInSteps) -> Hardware:
        """Return the device as its kernels fare inside the steps of an engine.

        Collectives keep their latency, which is a wait for the other ranks, and may wait longer.
        """
        if kernels == KernelsInSteps():
            return self
        share, wait_s = kernels.overhead_share, kernels.collective_overhead_s

        def scaled(fits: Mapping[str, KernelFit]) -> dict[str, KernelFit]:
            return {
                name: replace(fit, overhead_s=fit.overhead_s * share) for name, fit in fits.items()
            }

        elementwise, link = self.elementwise, self.link
        if link is not None and wait_s:
            waits = {
                name: replace(fit, latency_s=fit.latency_s + wait_s)
                for name, fit in link.all_reduce.items()
            }
            link = replace(link, all_reduce=waits)
        return replace(
            self,
            link=link,
            gemm=scaled(self.gemm),
            decode_attention=scaled(self.decode_attention),
            prefill_attention=scaled(self.prefill_attention),
            elementwise=replace(elementwise, overhead_s=elementwise.overhead_s * share),
            kernel_sets={},
            grouped=kernels,
        )


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """What a serving engine adds to the kernels, and its scheduler's defaults."""

    name: str
    description: str
    host_time_per_step_s: float
    """Scheduling, input preparation and sampling once per engine step, not overlapped."""
    host_time_per_sequence_s: float
    """Per sequence in the step."""
    host_time_per_draft_step_s: float
    """Per sequential draft pass inside a round (launch and bookkeeping of the drafter)."""
    launch_time_s: float
    """CPU time to launch one kernel in eager mode."""
    graph_capture: bool
    """True: decode steps replay captured graphs and launches are free."""
    block_size_tokens: int
    memory_fraction: float
    """Share of the memory; ``memory_rule`` says of which part of it."""
    reserve_bytes: float
    """Memory outside the framework (context, libraries), per rank."""
    max_num_seqs: int
    max_num_batched_tokens: int
    chunked_prefill: bool
    sources: Mapping[str, str]
    host_time_per_round_s: float = 0.0
    """Once per step that verifies drafts: rejection sampling and bookkeeping."""
    host_time_per_tree_s: float = 0.0
    """On top of that where the drafts of a sequence branch."""
    host_time_per_lookup_s: float = 0.0
    """Searching one text for an earlier occurrence of its last tokens (prompt lookup)."""
    memory_rule: str = "share_of_total"
    """File name in ``simspec/memory/pools``: what ``memory_fraction`` is a share of."""
    collectives_bytes: Mapping[str, float] = field(default_factory=dict)
    """Communication buffers of each rank beside ``reserve_bytes`` where ranks exchange tensors,
    by the family of the link (the first word of its name)."""
    logit_rows: int | None = None
    """Most rows of logits alive at once; None: one for every sequence."""
    hybrid_kv_cache: bool = False
    """Whether layers with a sliding window free the tokens that have left it."""
    kernels: str = ""
    """Kernel set of the hardware profiles that this engine runs; empty: each device's own."""
    kernels_in_steps: KernelsInSteps = KernelsInSteps()
    """How its kernels fare inside a step."""
    front_end_s: float = 0.0
    """Between a client and the scheduler, both ways: HTTP, tokens to text and back. Steps do not
    wait for it, and the simulation's clock begins at the scheduler."""
    host_time_per_prompt_s: float = 0.0
    """Once per prompt that is computed in a step: its inputs, its blocks, its first token."""
    policy: str = "continuous"
    """File name in ``simspec/serving/scheduling``, unless a scenario says otherwise."""
    prefix_caching: bool = False
    """Whether the KV of prompts is kept for requests that begin alike, unless a scenario says
    otherwise."""
    reserves_output: bool = False
    """Whether a request is admitted only when the KV of its whole answer has room too."""
    model_error: float = 0.0
    """1 sigma of the logarithm of whole steps, beyond the errors of the kernels."""
    mixture_error: float | None = None
    """The same where the model has experts; None: ``model_error``."""
    first_token_error: float | None = None
    """The same of the time to first token in a closed loop; None: as of steps."""
    mixture_first_token_error: float | None = None
    """The same where the model has experts; None: ``first_token_error``."""
    host_error: float = 0.0
    """1 sigma of the logarithm of the host times, where ``model_error`` does not hold theirs."""

    @property
    def verification_costs(self) -> bool:
        """Whether a verification costs the host anything."""
        return self.host_time_per_round_s > 0.0 or self.host_time_per_tree_s > 0.0

    def error_of_steps(self, *, has_experts: bool) -> float:
        """1 sigma of the logarithm of whole steps, beyond the errors of the kernels."""
        if has_experts and self.mixture_error is not None:
            return self.mixture_error
        return self.model_error

    def error_of_first_tokens(self, *, has_experts: bool) -> float:
        """1 sigma of the logarithm of TTFT in a closed loop, beyond the errors of the kernels."""
        if has_experts and self.mixture_first_token_error is not None:
            return self.mixture_first_token_error
        if self.first_token_error is not None:
            return self.first_token_error
        return self.error_of_steps(has_experts=has_experts)
