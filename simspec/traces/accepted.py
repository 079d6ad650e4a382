"""What a round would have accepted, for every position of some texts at which it could start.

Such a record answers every draft length K (cap the number at K) and every order of rounds. Three
kinds of file give it, one JSON object per line, plain or gzip:

* accepted lengths: ``{"accepted": [2, 1, 0, …], "matched": [true, …]}`` for each text, one number
  per position; ``matched`` (optional) says where a lookup drafter found something to draft from;
* the traces of SpecDecode-Bench (github.com/SpecDecode-Bench/simulator): ``acc_eagle.acc_len`` and
  ``acc_ngram.acc_len`` hold tokens *yielded*, one more than accepted; ``drafter`` says which;
* a round trace of simspec (:mod:`simspec.traces.schema`), captured at threshold 0. It has one start
  per round; inside a round that accepted a drafts, position j is taken to accept the a - j that
  follow it, and the position of the target's own token none. That is exact for rounds of the
  captured K and an assumption about shorter ones. Its confidences come along.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simspec.core.errors import TraceError, nearest
from simspec.core.lines import read_lines
from simspec.traces.io import read_trace
from simspec.traces.schema import Round

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MAX_ACCEPTED = 10_000
"""More drafts than this in one round are a mistake in the file."""


@dataclass(frozen=True, slots=True, eq=False)
class AcceptedText:
    """One text.

    Attributes
    ----------
    accepted : array (n,), tokens
        Drafts that a round starting at each position would accept.
    matched : array (n,), bool, or None
        Whether there was anything to draft from; None: unknown, or always.
    confidence, off_track : arrays (n,), 0..1, or None
        Draft confidence at each position while the round is on track and after it was not.
    rounds : tuple of Round
        Of a round trace, its rounds; otherwise empty.
    """

    accepted: Ints
    matched: Bools | None = None
    confidence: Floats | None = None
    off_track: Floats | None = None
    rounds: tuple[Round, ...] = ()


def read_accepted(path: Path, drafter: str | None = None) -> tuple[AcceptedText, ...]:
    """Return the texts of a file of any of the three kinds.

    Parameters
    ----------
    path : Path
        JSON Lines, plain or gzip.
    drafter : str, optional
        Which of several drafters in the file, for example ``eagle`` or ``ngram``.

    Raises
    ------
    TraceError
        Named by file and line: not such a file, or no such drafter in it.
    """
    texts = []
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        data = _object(where, line)
        if data.get("kind") == "header":
            if drafter is not None:
                raise TraceError(f"{where}: a round trace has one drafter; leave drafter out")
            return _of_rounds(path)
        texts.append(_text(where, data, drafter))
    if not texts:
        raise TraceError(f"{path}: the file is empty; one text per line is expected")
    return tuple(texts)


def _object(where: str, line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{where}: not JSON; one object per line is expected") from error
    if not isinstance(data, dict):
        raise TraceError(f"{where}: not an object; one text per line is expected")
    return data


def _text(where: str, data: dict[str, Any], drafter: str | None) -> AcceptedText:
    if "accepted" in data:
        if drafter is not None:
            raise TraceError(f"{where}: accepted lengths have one drafter; leave drafter out")
        return AcceptedText(
            accepted=_counts(where, "accepted", data["accepted"], least=0),
            matched=_flags(where, data.get("matched"), data["accepted"]),
        )
    drafters = [
        key.removeprefix("acc_")
        for key, value in data.items()
        if key.startswith("acc_") and isinstance(value, dict) and "acc_len" in value
    ]
    if not drafters:
        raise TraceError(
            f"{where}: neither 'accepted' nor 'acc_DRAFTER.acc_len' holds accepted lengths; "
            f"keys: {', '.join(map(str, data)) or 'none'}"
        )
    if drafter is None and len(drafters) > 1:
        raise TraceError(f"{where}: several drafters; give drafter: {' or '.join(drafters)}")
    name = drafter or drafters[0]
    if name not in drafters:
        raise TraceError(f"{where}: no drafter {name!r}; {nearest(name, drafters)}")
    yielded = _counts(where, f"acc_{name}.acc_len", data[f"acc_{name}"]["acc_len"], least=1)
    return AcceptedText(accepted=yielded - 1)


def _counts(where: str, key: str, values: Any, *, least: int) -> Ints:
    ok = isinstance(values, list) and all(
        type(v) is int and least <= v <= MAX_ACCEPTED for v in values
    )
    if not ok or not values:
        raise TraceError(
            f"{where}: {key} is not a list of whole numbers from {least} to {MAX_ACCEPTED:,}"
        )
    return np.array(values, dtype=np.int64)


def _flags(where: str, values: Any, accepted: Sequence[int]) -> Bools | None:
    if values is None:
        return None
    ok = isinstance(values, list) and all(type(v) is bool for v in values)
    if not ok or len(values) != len(accepted):
        raise TraceError(f"{where}: matched is not one true or false for each of 'accepted'")
    flags = np.array(values, dtype=np.bool_)
    if np.any(~flags & (np.array(accepted) > 0)):
        raise TraceError(f"{where}: drafts accepted where nothing matched")
    return flags


def _of_rounds(path: Path) -> tuple[AcceptedText, ...]:
    trace = read_trace(path)
    if trace.header.confidence_threshold:
        raise TraceError(
            f"{path}: captured at confidence_threshold {trace.header.confidence_threshold:g}, so "
            "rounds that stopped early do not say what would have been accepted; capture at 0"
        )
    rounds: dict[int, list[Round]] = {}
    for record in trace.rounds:
        rounds.setdefault(record.sequence_id, []).append(record)
    if not rounds:
        raise TraceError(f"{path}: no speculative rounds in this trace")
    return tuple(_text_of_rounds(entries) for entries in rounds.values())


def _text_of_rounds(rounds: Sequence[Round]) -> AcceptedText:
    accepted = np.concatenate([np.arange(entry.accepted, -1, -1) for entry in rounds])
    matched = np.concatenate(
        [np.full(entry.accepted + 1, entry.drafted > 0, dtype=np.bool_) for entry in rounds]
    )
    if any(entry.drafted and entry.confidences is None for entry in rounds):
        return AcceptedText(accepted, None if matched.all() else matched, rounds=tuple(rounds))
    size = accepted.size
    on_track, off_track = np.full(size, np.nan), np.full(size, np.nan)
    position = 0
    for entry in rounds:
        values = np.array(entry.confidences or (), dtype=np.float64)[: size - position]
        on = values[: entry.accepted + 1]
        on_track[position : position + on.size] = on
        off = values[entry.accepted + 1 :]
        first = position + entry.accepted + 1
        off_track[first : first + off.size] = off
        position += entry.accepted + 1
    return AcceptedText(
        accepted,
        None if matched.all() else matched,
        confidence=_filled(on_track, on_track),
        off_track=_filled(off_track, on_track),
        rounds=tuple(rounds),
    )


def _filled(values: Floats, otherwise: Floats) -> Floats:
    """Return ``values`` with gaps filled by the known value before (the first known before it)."""
    known = np.flatnonzero(~np.isnan(values))
    if known.size == 0:
        mean = float(np.nanmean(otherwise)) if np.any(~np.isnan(otherwise)) else 0.0
        return np.full(values.size, mean)
    place = np.clip(np.searchsorted(known, np.arange(values.size), side="right") - 1, 0, None)
    return np.asarray(values[known[place]])
