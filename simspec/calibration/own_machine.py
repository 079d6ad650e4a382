"""From timings taken on this machine to its hardware profile, and how well that predicts steps.

Work is counted as :mod:`simspec.cost.operators` counts it. There is no data sheet: the bandwidth
is the highest rate at which anything moved data, the peak of a data type the highest rate of a
product, and efficiencies are shares of those. Kernels are fitted to half of their shapes and judged
on the other half, like those of published tables (:mod:`simspec.calibration.kernels`).

Whether a verify pass reads the KV cache once or for each of its tokens (``kv_reads``) is asked of
the timings of attention with 1 to 8 new tokens: both counts are fitted, and the one that predicts
held-out shapes better stands in the profile. Whole steps of a stack are never fitted; they say what
the profile is worth (:func:`judged_steps`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simspec.calibration.collectives import fit_all_reduce
from simspec.calibration.fitted import Fitted, yaml_table
from simspec.calibration.kernel_tables import AllReduceRows, KernelRows
from simspec.calibration.kernels import fit_kernel
from simspec.core.errors import CalibrationError
from simspec.core.units import gb, gb_s, tflops, us
from simspec.cost.forward import CostModel
from simspec.cost.work import Pass, Rows, Stack
from simspec.hardware.load import load_engine
from simspec.hardware.profile import Hardware, KvReads
from simspec.models.arch import Block
from simspec.models.dtypes import bytes_per_value
from simspec.traces.samples import Machine, Sample

_ELEMENTWISE = ("norm", "activation", "rope")


@dataclass(frozen=True, slots=True)
class MachineFit:
    """What was fitted to one machine.

    Attributes
    ----------
    bandwidth_bytes_per_s, peak_flop_per_s
        Highest rates measured; the latter by data type.
    gemm, decode_attention, prefill_attention : mapping
        Fits by data type.
    elementwise : Fitted
        Of norms, rotation and activation together.
    kv_reads : str
        How often a verify pass reads the cache.
    kv_reads_error : mapping
        Median held-out error of decode attention under each answer.
    all_reduce : mapping
        By algorithm; empty on one device.
    launch_s : float
        What the host takes to start a kernel.
    noise : float
        Median over all timings of their spread.
    """

    machine: Machine
    bandwidth_bytes_per_s: float
    peak_flop_per_s: Mapping[str, float]
    gemm: Mapping[str, Fitted]
    decode_attention: Mapping[str, Fitted]
    prefill_attention: Mapping[str, Fitted]
    elementwise: Fitted
    kv_reads: KvReads
    kv_reads_error: Mapping[KvReads, float]
    all_reduce: Mapping[str, Fitted]
    launch_s: float
    noise: float
    num_samples: int

    def yaml(self, name: str) -> str:
        """Return the profile as a YAML file."""
        return "\n".join(_yaml_lines(self, name)) + "\n"


def fit_machine(machine: Machine, samples: Sequence[Sample]) -> MachineFit:
    """Fit every kind of kernel to the timings of a machine.

    Raises
    ------
    CalibrationError
        A kind was not timed, or on too few shapes.
    """
    dtypes = sorted({sample.dtype for sample in _of(samples, "gemm")})
    if not dtypes:
        raise CalibrationError("no matrix product was timed; measure again to the end")
    bandwidth = max(_moved(sample) / sample.seconds for sample in samples if _moved(sample))
    peaks = {
        dtype: max(_flop(s) / s.seconds for s in _of(samples, "gemm", dtype)) for dtype in dtypes
    }
    answers: dict[KvReads, dict[str, Fitted]] = {
        reads: {
            dtype: _fit(decode_rows(_of(samples, "decode_attention", dtype), reads),
                        peaks[dtype], bandwidth, f"{dtype} decode attention")
            for dtype in dtypes
        }
        for reads in ("once_per_pass", "once_per_token")
    }  # fmt: skip
    errors = {
        reads: float(np.median([fitted.judged.median for fitted in fits.values()]))
        for reads, fits in answers.items()
    }
    kv_reads = min(errors, key=lambda reads: errors[reads])
    return MachineFit(
        machine=machine,
        bandwidth_bytes_per_s=bandwidth,
        peak_flop_per_s=peaks,
        gemm={d: _fit(gemm_rows(_of(samples, "gemm", d)), peaks[d], bandwidth, f"{d} products")
              for d in dtypes},
        decode_attention=answers[kv_reads],
        prefill_attention={
            d: _fit(prefill_rows(_of(samples, "prefill_attention", d)), peaks[d], bandwidth,
                    f"{d} prefill attention")
            for d in dtypes
        },
        elementwise=fit_kernel(
            elementwise_rows([s for kind in _ELEMENTWISE for s in _of(samples, kind)]),
            max(peaks.values()), bandwidth, what="elementwise kernels", flop_efficiency=1.0,
        ),
        kv_reads=kv_reads,
        kv_reads_error=errors,
        all_reduce=_fit_link(samples),
        launch_s=min((s.seconds for s in _of(samples, "launch")), default=math.nan),
        noise=float(np.median([sample.spread for sample in samples])),
        num_samples=len(samples),
    )  # fmt: skip


def _fit(rows: KernelRows, peak: float, bandwidth: float, what: str) -> Fitted:
    return fit_kernel(rows, peak, bandwidth, what=what)


def _of(samples: Iterable[Sample], kind: str, dtype: str | None = None) -> list[Sample]:
    return [s for s in samples if s.kind == kind and dtype in (None, s.dtype)]


# -- counting ------------------------------------------------------------------------------


def _flop(sample: Sample) -> float:
    shape = sample.shape
    return 2.0 * shape["m"] * shape["n"] * shape["k"]


def _moved(sample: Sample) -> float:
    """Return the bytes that surely came from memory or went there; 0 where a cache may serve."""
    shape, width = sample.shape, bytes_per_value(sample.dtype)
    if sample.kind in {"copy", "read"}:
        return (2.0 if sample.kind == "copy" else 1.0) * shape["num_bytes"]
    if sample.kind == "gemm":
        return width * shape["n"] * shape["k"]
    return 0.0


def gemm_rows(samples: Sequence[Sample]) -> KernelRows:
    """``2 m k n`` FLOP, ``b (k n + m (k + n))`` bytes; rows of one weight matrix are a group."""
    m, n, k = (_sizes(samples, name) for name in ("m", "n", "k"))
    num_bytes = _widths(samples) * (k * n + m * (k + n))
    groups = tuple(f"{s.shape['n']}x{s.shape['k']}" for s in samples)
    return _rows(samples, 2.0 * m * n * k, num_bytes, groups)


def decode_rows(samples: Sequence[Sample], kv_reads: KvReads) -> KernelRows:
    """Attention of ``n`` new tokens of ``B`` sequences over ``c`` cached ones and themselves.

    ``4 h d_h P`` FLOP with ``P = B n (c + (n + 1) / 2)`` pairs; KV bytes of ``B (c + n)`` tokens,
    or of ``P`` where each new token reads them; queries and outputs.
    """
    batch, n, c = (_sizes(samples, name) for name in ("batch", "new_tokens", "context"))
    pairs = batch * n * (c + (n + 1.0) / 2.0)
    read = batch * (c + n) if kv_reads == "once_per_pass" else pairs
    query, kv_bytes = _heads(samples)
    num_bytes = read * kv_bytes + 2.0 * query * _widths(samples) * batch * n
    names = ("batch", "new_tokens", "context", "heads", "kv_heads")
    groups = tuple("x".join(str(s.shape[name]) for name in names) for s in samples)
    return _rows(samples, 4.0 * query * pairs, num_bytes, groups)


def prefill_rows(samples: Sequence[Sample]) -> KernelRows:
    """Causal attention of whole prompts: ``4 h d_h B n (n + 1) / 2`` FLOP, everything once."""
    batch, n = (_sizes(samples, name) for name in ("batch", "tokens"))
    query, kv_bytes = _heads(samples)
    flop = 4.0 * query * batch * n * (n + 1.0) / 2.0
    num_bytes = batch * n * (kv_bytes + 2.0 * query * _widths(samples))
    names = ("batch", "tokens", "heads", "kv_heads")
    groups = tuple("x".join(str(s.shape[name]) for name in names) for s in samples)
    return _rows(samples, flop, num_bytes, groups)


def elementwise_rows(samples: Sequence[Sample]) -> KernelRows:
    """Norm ``4 T d``, activation ``3 T f`` and rotation ``T (2 h + 4 h_kv) d_h`` values."""
    num_bytes = np.array([bytes_per_value(s.dtype) * _values(s) for s in samples])
    groups = tuple(f"{s.kind} {sorted(s.shape.values())}" for s in samples)
    return _rows(samples, np.zeros(len(samples)), num_bytes, groups)


def _values(sample: Sample) -> float:
    shape = sample.shape
    if sample.kind == "norm":
        return shape["width"] * (4.0 * shape["rows"] + 1.0)
    if sample.kind == "activation":
        return 3.0 * shape["rows"] * shape["width"]
    return shape["rows"] * shape["head_dim"] * (2.0 * shape["heads"] + 4.0 * shape["kv_heads"])


def _heads(samples: Sequence[Sample]) -> tuple[np.ndarray, np.ndarray]:
    """Return ``h d_h`` and the KV bytes of one token."""
    head_dim = _sizes(samples, "head_dim")
    kv_bytes = 2.0 * _sizes(samples, "kv_heads") * head_dim * _widths(samples)
    return _sizes(samples, "heads") * head_dim, kv_bytes


def _sizes(samples: Sequence[Sample], name: str) -> np.ndarray:
    return np.array([sample.shape[name] for sample in samples], dtype=np.float64)


def _widths(samples: Sequence[Sample]) -> np.ndarray:
    return np.array([bytes_per_value(sample.dtype) for sample in samples], dtype=np.float64)


def _rows(
    samples: Sequence[Sample], flop: np.ndarray, num_bytes: np.ndarray, groups: tuple[str, ...]
) -> KernelRows:
    seconds = np.array([sample.seconds for sample in samples], dtype=np.float64)
    return KernelRows(flop, num_bytes, seconds, groups, np.zeros(len(samples), dtype=np.bool_))


def _fit_link(samples: Sequence[Sample]) -> Mapping[str, Fitted]:
    taken = _of(samples, "all_reduce")
    if not taken:
        return {}
    rows = AllReduceRows(
        ranks=_sizes(taken, "ranks"),
        message_bytes=_sizes(taken, "num_bytes"),
        measured_s=np.array([sample.seconds for sample in taken]),
        groups=tuple(f"{s.shape['ranks']}x{s.shape['num_bytes']}" for s in taken),
    )
    # Nobody says whether there is a switch: the form that predicts held-out messages better.
    both = [
        fit_all_reduce(rows, has_switch=has_switch, what="all-reduce")
        for has_switch in (False, True)
    ]
    return min(both, key=lambda fits: fits["one_shot"].judged.median)


# -- whole steps ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """A measured step of a stack beside the prediction of a profile."""

    sample: Sample
    predicted_s: float

    @property
    def error(self) -> float:
        """``predicted / measured - 1``."""
        return self.predicted_s / self.sample.seconds - 1.0


def judged_steps(samples: Iterable[Sample], hardware: Hardware) -> list[JudgedStep]:
    """Predict every measured step with the cost model; no engine around the kernels."""
    engine = load_engine("ideal")
    found = []
    for sample in _of(samples, "step"):
        stack = _stack(sample)
        cost = CostModel({"target": stack}, hardware, engine)
        batch, n, context = (sample.shape[k] for k in ("batch", "new_tokens", "context"))
        rows = Rows(
            kind="decode",
            num_sequences=batch,
            num_tokens=batch * n,
            kv_tokens=batch * (context + n),
            attended_tokens=batch * n * (context + (n + 1) / 2),
            logit_rows=batch * n,
        )
        phase: Literal["decode", "verify"] = "decode" if n == 1 else "verify"
        work = Pass("target", 0, len(stack.blocks), phase, (rows,), embeds=True)
        found.append(JudgedStep(sample, float(cost.step([work], batch).total_s)))
    return found


def _stack(sample: Sample) -> Stack:
    shape = sample.shape
    block = Block(
        hidden_size=shape["hidden"],
        num_heads=shape["heads"],
        num_kv_heads=shape["kv_heads"],
        head_dim=shape["head_dim"],
        intermediate_size=shape["ffn"],
    )
    return Stack(
        name="target",
        blocks=(block,) * shape["layers"],
        hidden_size=shape["hidden"],
        vocab_size=shape["vocab"],
        weight_dtype=sample.dtype,
        kv_dtype=sample.dtype,
        tp=1,
        activation_dtype=sample.dtype,
    )


# -- the profile ---------------------------------------------------------------------------


def _yaml_lines(fit: MachineFit, name: str) -> Iterator[str]:
    machine = fit.machine
    bandwidth = f"{gb_s(fit.bandwidth_bytes_per_s):.4g}"
    yield f"name: {name}"
    yield f"description: {_quoted(f'{machine.name}, measured through {machine.software}')}"
    yield "memory:"
    yield f"  capacity_gb: {gb(machine.memory_bytes):.5g}"
    yield f"  bandwidth_gb_s: {bandwidth}"
    yield f"  source: {_quoted(_source(fit, 'the highest rate at which a kernel moved data'))}"
    peaks = ", ".join(f"{d}: {tflops(p):.4g}" for d, p in fit.peak_flop_per_s.items())
    yield "compute:"
    yield f"  dense_peak_tflops: {{{peaks}}}"
    yield f"  source: {_quoted(_source(fit, 'the highest rate of a matrix product'))}"
    yield "kernels:"
    yield "  calibrated: true"
    yield f"  fitted_on: {_quoted(f'{machine.software}, {fit.num_samples} timings')}"
    yield f"  kv_reads: {fit.kv_reads}"
    yield from yaml_table("gemm", fit.gemm, indent=2)
    yield from yaml_table("decode_attention", fit.decode_attention, indent=2)
    yield from yaml_table("prefill_attention", fit.prefill_attention, indent=2)
    yield "  elementwise:"
    _, _, *rest = yaml_table("elementwise", {"all": fit.elementwise}, indent=0)
    yield from (line for line in rest if "flop_efficiency" not in line)
    yield f"  source: {_quoted(_source(fit, _told(fit)))}"
    if fit.all_reduce:
        fastest = max(f.values["bandwidth_gb_s"] for f in fit.all_reduce.values())
        yield "link:"
        yield "  name: measured link"
        yield f"  bandwidth_gb_s: {fastest:.4g}"
        yield f"  max_devices: {machine.num_devices}"
        yield from yaml_table("all_reduce", fit.all_reduce, indent=2)
        yield f"  source: {_quoted(_source(fit, 'all-reduces by NCCL from one process'))}"


def _source(fit: MachineFit, what: str) -> str:
    machine = fit.machine
    threads = f", {machine.num_threads} threads" if machine.num_threads else ""
    quick = " --quick" if machine.is_quick else ""
    return (
        f"Measured by simspec hardware measure{quick} on {machine.name} ({machine.software}, "
        f"{machine.device}{threads}): {what}. The median repeat was {100 * fit.noise:.0f} % longer "
        "than the shortest."
    )


def _told(fit: MachineFit) -> str:
    errors = ", ".join(
        f"{reads} {100 * error:.0f} %" for reads, error in fit.kv_reads_error.items()
    )
    return (
        "kernels as torch runs them one by one, half of the shapes fitted, half judged; "
        f"median error of decode attention if the KV cache is read {errors}; starting a kernel "
        f"takes the host {us(fit.launch_s):.3g} µs"
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "/").replace('"', "'") + '"'
