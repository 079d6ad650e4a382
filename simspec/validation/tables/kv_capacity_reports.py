"""KV caches as serving engines report them at start-up: bytes per token, and how many tokens.

A report gives up to three figures to compare:

* ``kv_bytes_per_token``: of one GPU. KV heads are split over the ranks and replicated once there
  are more ranks than heads.
* ``kv_cache_tokens`` in group ``from the utilisation``: what simspec's own memory budget leaves
  of ``utilisation x visible memory``, knowing nothing of the run but its options. The visible
  memory is that of the device's profile, or of the log where its notes state it.
* ``kv_cache_tokens`` in group ``from the log's reserves``: the same sum with the weights,
  activations and other memory that the log itself states, so that what remains to be right is
  the rule: ``utilisation x visible - weights - activations - other``, in whole blocks. Captured
  graphs are taken from what the utilisation leaves free and do not count. Reports that do not
  state their utilisation have none.

Free text of the column ``notes`` is searched for ``visible 79.19 GiB``, ``activation 1.97``,
``non-torch 0.07``, ``max_num_batched_tokens 16384``, ``max_num_seqs 256``. Without the last two
the engine's defaults hold: of vLLM V1 8192 tokens on cards of 70 GiB and more other than the
A100, 2048 elsewhere; of V0 the longest prompt as a whole (vllm/engine/arg_utils.py).

The reserve of the ``vllm`` engine profile is from other logs than these, so no row is ``fitted``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from simspec.core.errors import SimspecError
from simspec.core.units import from_gib
from simspec.hardware.load import hardware_names, load_engine, load_hardware
from simspec.hardware.profile import EngineProfile, Hardware
from simspec.memory.capacity import Logged, MemoryBudget, memory_budget
from simspec.models.arch import Architecture
from simspec.models.counts import kv_bytes_per_token
from simspec.models.hf_config import catalog_names, load_model
from simspec.models.names import catalog_name_of
from simspec.models.stack import Stack
from simspec.validation._base import Comparison, LeftOut, MeasurementTable, unknown
from simspec.validation._names import hardware_of, weight_format_of

COLUMNS = frozenset(
    {"model", "dtype", "kv_dtype", "gpu", "gpu_memory_gb", "tp", "gpu_memory_utilization"}
    | {"max_model_len", "kv_cache_tokens"}
)
DESCRIPTION = "KV caches that engines report at start-up"
NUMBERS = frozenset(
    {"gpu_memory_gb", "tp", "gpu_memory_utilization", "max_model_len", "kv_cache_tokens"}
    | {"kv_bytes_per_token_per_gpu", "weights_gib_per_gpu", "kv_pool_gib_per_gpu", "params_b"}
)

_LANGUAGE_MODELS = {
    "llava-v1.6-mistral-7b-hf": "mistral-7b",
    "Qwen3-VL-30B-A3B-Instruct-FP8": "qwen3-30b-a3b",
}
"""Language models inside multimodal ones; the weights of the towers are not counted."""
_DEFAULT_UTILISATION = 0.9
_LARGE_CARD_GIB = 70.0
_NUMBER = r"([\d.]+)"


@dataclass(frozen=True, slots=True)
class _Run:
    """One report, read."""

    subject: Mapping[str, str | float | int | None]
    arch: Architecture
    target: Stack
    engine_name: str
    utilisation: float
    max_model_len: float
    notes: str
    weights_gib: float
    hardware: Hardware
    has_tower: bool
    """Whether it is a language model inside a multimodal one."""

    def noted(self, pattern: str) -> float | None:
        """Return the number that follows in the notes."""
        found = re.search(pattern, self.notes)
        return None if found is None else float(found[1].rstrip("."))


def compare(table: MeasurementTable) -> Iterator[Comparison | LeftOut]:
    """Yield what every report states about its cache."""
    for index, row in enumerate(table.frame.to_dict("records")):
        line = table.line(index)
        cells = {str(key): _cell(value) for key, value in row.items()}
        try:
            run = _read(cells)
        except _Unknown as error:
            yield LeftOut(line, "unsupported", str(error), cells)
            continue
        yield from _bytes_per_token(run, cells, line)
        if cells["kv_cache_tokens"] is None:
            continue
        yield from _from_utilisation(run, float(cells["kv_cache_tokens"]), line)
        yield from _from_reserves(run, float(cells["kv_cache_tokens"]), line)


class _Unknown(Exception):
    """What simspec does not have, as the reason of a row."""


def _cell(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _read(cells: Mapping[str, Any]) -> _Run:
    published = str(cells["model"] or "")
    name = _LANGUAGE_MODELS.get(published.rpartition("/")[2]) or catalog_name_of(published)
    if name is None:
        raise _Unknown(unknown("architecture", published, catalog_names()))
    formats = []
    for column in ("dtype", "kv_dtype"):
        form = weight_format_of(str(cells[column] or ""))
        if form is None:
            raise _Unknown(f"no data type for {column} {cells[column]!r}")
        formats.append(form)
    tp, share = cells["tp"] or 1.0, cells["gpu_memory_utilization"] or _DEFAULT_UTILISATION
    length = cells["max_model_len"] or 1.0
    if tp % 1 or not 1 <= tp <= 1024 or not 0 < share <= 1 or not 1 <= length <= 1e9:
        raise _Unknown("tp, gpu_memory_utilization or max_model_len is out of range")
    arch = load_model(name)
    target = Stack(
        name="target",
        blocks=arch.blocks,
        hidden_size=arch.hidden_size,
        vocab_size=arch.vocab_size,
        weight_dtype=formats[0],
        kv_dtype=formats[1],
        tp=int(tp),
    )
    notes = str(cells.get("notes") or "")
    visible_gib = _size_gib(notes, "visible|total")
    profile = hardware_of(str(cells["gpu"] or ""))
    if profile is None and visible_gib is None:
        raise _Unknown(unknown("hardware profile", str(cells["gpu"]), hardware_names()))
    # Of a card without a profile only the memory matters here, and the log states it.
    hardware = load_hardware(profile or "h100_sxm")
    if visible_gib is not None:
        hardware = replace(hardware, memory_capacity_bytes=from_gib(visible_gib))
    return _Run(
        subject=cells,
        arch=arch,
        target=target,
        engine_name=str(cells.get("engine") or "vLLM"),
        utilisation=float(share),
        max_model_len=float(cells["max_model_len"] or math.inf),
        notes=notes,
        weights_gib=float(cells.get("weights_gib_per_gpu") or math.nan),
        hardware=hardware,
        has_tower=published.rpartition("/")[2] in _LANGUAGE_MODELS,
    )


def _size_gib(notes: str, name: str) -> float | None:
    """Return a size that the notes state after ``name``; GiB where they give no unit."""
    scales = {"GiB": 1.0, "MiB": 2.0**-10, "GB": 1e9 / 2.0**30, "bytes": 2.0**-30}
    found = re.search(rf"\b(?:{name}) {_NUMBER}(?: (GiB|MiB|GB|bytes))?", notes)
    return None if found is None else float(found[1].rstrip(".")) * scales[found[2] or "GiB"]


def _bytes_per_token(run: _Run, cells: Mapping[str, Any], line: int) -> Iterator[Comparison]:
    measured = cells.get("kv_bytes_per_token_per_gpu")
    if measured is None:
        return
    try:
        predicted = kv_bytes_per_token(run.target.blocks, run.target.kv_dtype, run.target.tp)
    except SimspecError:
        return
    yield Comparison(
        quantity="kv_bytes_per_token",
        measured=float(measured),
        predicted=predicted,
        group="per rank",
        line=line,
        subject=run.subject,
        family="kv_bytes_per_token",
    )


def _from_utilisation(run: _Run, tokens: float, line: int) -> Iterator[Comparison | LeftOut]:
    group = "from the utilisation"
    if not run.engine_name.startswith("vLLM"):
        reason = f"no engine profile that sizes its pool as {run.engine_name}; vllm does as vLLM"
        yield LeftOut(line, "unsupported", reason, run.subject, group)
        return
    if run.has_tower:
        reason = "the weights and activations of its vision tower are not counted"
        yield LeftOut(line, "unsupported", reason, run.subject, group)
        return
    engine = replace(load_engine("vllm"), memory_fraction=run.utilisation)
    try:
        budget = _budget(run, engine, Logged())
    except SimspecError as error:
        yield LeftOut(line, "unsupported", str(error), run.subject, group)
        return
    yield Comparison(
        quantity="kv_cache_tokens",
        measured=tokens,
        predicted=float(budget.kv_capacity_tokens),
        group=group,
        line=line,
        subject=run.subject,
        breakdown=_terms(budget),
        family=group,
    )


def _from_reserves(run: _Run, tokens: float, line: int) -> Iterator[Comparison]:
    """Yield the pool that the engine's own rule gives with the log's own numbers."""
    reserves = _reserves_gib(run)
    if reserves is None or run.subject["gpu_memory_utilization"] is None:
        return
    engine = replace(load_engine("vllm"), memory_fraction=run.utilisation)
    logged = Logged(**{name: from_gib(value) for name, value in reserves.items()})
    try:
        budget = _budget(run, engine, logged)
    except SimspecError:
        return
    yield Comparison(
        quantity="kv_cache_tokens",
        measured=tokens,
        predicted=float(budget.kv_capacity_tokens),
        group="from the log's reserves",
        line=line,
        subject=run.subject,
        breakdown=_terms(budget),
        family="from the log's reserves",
    )


def _terms(budget: MemoryBudget) -> dict[str, float]:
    return {
        "usable_bytes": budget.usable_bytes,
        "weights_bytes": -budget.weights_bytes,
        "activation_bytes": -budget.activation_bytes,
        "reserve_bytes": -budget.reserve_bytes,
    }


def _reserves_gib(run: _Run) -> dict[str, float] | None:
    """Return what the log says is taken, by part; None where it does not say all of it."""
    activation = _size_gib(run.notes, "activation")
    other = _size_gib(run.notes, "non-torch")
    if activation is not None and other is not None:
        known = {"activation_bytes": activation, "reserve_bytes": other}
        return known if math.isnan(run.weights_gib) else {**known, "weights_bytes": run.weights_gib}
    peak = _size_gib(run.notes, "peak non-KV")
    margin = re.search(rf"\+ {_NUMBER} MiB margin", run.notes)
    if peak is not None and margin is not None and not math.isnan(run.weights_gib):
        return {
            "weights_bytes": run.weights_gib,
            "activation_bytes": peak,
            "reserve_bytes": float(margin[1]) / 2.0**10,
        }
    return None


def _budget(run: _Run, engine: EngineProfile, logged: Logged) -> MemoryBudget:
    tokens = run.noted(r"max_num_batched_tokens (\d+)")
    rows = run.noted(r"max_num_seqs (\d+)")
    return memory_budget(
        run.hardware,
        engine,
        arch=run.arch,
        target=run.target,
        max_num_batched_tokens=int(tokens or _default_tokens(run)),
        max_num_seqs=None if rows is None else int(rows),
        logged=logged,
    )


def _default_tokens(run: _Run) -> float:
    """Return the largest step of a run that does not state it."""
    is_v0 = re.search(r"\bV0\b|vLLM 0\.[2-7]\b", run.engine_name) is not None
    if is_v0 and run.max_model_len <= 32_768:
        return run.max_model_len
    is_large = run.hardware.memory_capacity_bytes >= from_gib(_LARGE_CARD_GIB)
    return 8192 if is_large and not is_v0 and "A100" not in str(run.subject["gpu"]) else 2048
