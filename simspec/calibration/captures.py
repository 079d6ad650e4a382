"""Judge acceptance models on captures: fit on some texts at one setting, predict all others.

A folder of round traces holds the same texts decoded at several (E, K, tau) and batch sizes. Of
each method, exit layer, model and corpus, the capture at threshold 0 with the largest K and the
smallest batch is the one to calibrate on, and of it only every second text. The other texts judge:
their drafted and yielded tokens per round, at every setting that was captured, against what each
model's closed form says. So nothing is judged on a text that any fit has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simspec.calibration.acceptance import fit_lookup, fit_per_position
from simspec.calibration.confidence import fit_beta_curve
from simspec.core.errors import CalibrationError, TraceError
from simspec.decoding._base import ACCEPTANCE_MODELS, AcceptanceProcess
from simspec.decoding.acceptance.replay import process_of
from simspec.traces.accepted import AcceptedText, read_accepted
from simspec.traces.io import read_trace
from simspec.traces.schema import Round, TraceHeader


@dataclass(frozen=True, slots=True)
class Capture:
    """One trace file: a setting and its rounds by text.

    Attributes
    ----------
    path : Path
        The file.
    header : TraceHeader
        What was run.
    batch_size : int
        Texts at once, the most that any round had.
    rounds : mapping of int to list of Round
        By text.
    """

    path: Path
    header: TraceHeader
    batch_size: int
    rounds: Mapping[int, Sequence[Round]]

    @property
    def max_draft(self) -> int:
        """K."""
        return self.header.num_speculative_tokens or 0

    @property
    def threshold(self) -> float:
        """tau."""
        return self.header.confidence_threshold or 0.0

    @property
    def kind(self) -> tuple[object, ...]:
        """What acceptance depends on apart from K and tau."""
        h = self.header
        return h.model, h.dtype, h.method, h.exit_layer, h.dataset, h.temperature


@dataclass(frozen=True, slots=True)
class CaptureErrors:
    """One capture, judged on the texts that no fit has seen.

    Attributes
    ----------
    capture : Capture
        What was measured.
    calibrated_on : Path
        The trace whose other texts were fitted.
    num_rounds : int
        Rounds of the judging texts.
    drafted_per_round, tokens_per_round : float, tokens
        Measured.
    predicted : mapping of str to tuple of float
        By acceptance model: drafted and yielded tokens per round.
    """

    capture: Capture
    calibrated_on: Path
    num_rounds: int
    drafted_per_round: float
    tokens_per_round: float
    predicted: Mapping[str, tuple[float, float]]

    def errors(self, model: str) -> tuple[float, float]:
        """Return the relative errors of a model: drafted, then yielded tokens per round."""
        drafted, tokens = self.predicted[model]
        return drafted / self.drafted_per_round - 1.0, tokens / self.tokens_per_round - 1.0


def read_captures(folder: Path) -> list[Capture]:
    """Read the round traces of a folder that hold rounds with verdicts on each draft.

    Raises
    ------
    TraceError
        There is no folder, or no such trace in it; or a file is damaged.
    """
    if not folder.is_dir():
        raise TraceError(f"{folder}: is no folder; give the one that simspec capture wrote")
    captures = []
    for path in sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")]):
        trace = read_trace(path)
        rounds: dict[int, list[Round]] = {}
        for entry in trace.rounds:
            if entry.agreements is not None:
                rounds.setdefault(entry.sequence_id, []).append(entry)
        if rounds and trace.header.num_speculative_tokens:
            batch = max(entry.batch_size for entry in trace.rounds)
            captures.append(Capture(path, trace.header, batch, rounds))
    if not captures:
        raise TraceError(
            f"{folder}: holds no round trace of chains of drafts; simspec capture writes them"
        )
    return captures


def judge_captures(captures: Sequence[Capture]) -> list[CaptureErrors]:
    """Return every capture beside what the models say that were fitted on other texts.

    Raises
    ------
    CalibrationError
        A kind of capture has none at threshold 0, or fewer than four texts there.
    """
    judged = []
    for kind in dict.fromkeys(capture.kind for capture in captures):
        alike = [capture for capture in captures if capture.kind == kind]
        source = _source(alike)
        seen = sorted(source.rounds)[0::2]
        models = _models(source, seen)
        for capture in alike:
            rows = [r for text, rs in capture.rounds.items() if text not in seen for r in rs]
            if rows:
                judged.append(_judged(capture, source, rows, models))
    return judged


def mean_errors(judged: Sequence[CaptureErrors]) -> dict[str, tuple[float, float]]:
    """Return by model the mean absolute error of drafted and of yielded tokens per round."""
    names = dict.fromkeys(name for row in judged for name in row.predicted)
    return {
        name: _mean_absolute([row.errors(name) for row in judged if name in row.predicted])
        for name in names
    }


def _mean_absolute(errors: Sequence[tuple[float, float]]) -> tuple[float, float]:
    drafted, tokens = np.abs(np.array(errors)).mean(axis=0)
    return float(drafted), float(tokens)


def _source(alike: Sequence[Capture]) -> Capture:
    whole = [capture for capture in alike if capture.threshold == 0.0]
    if not whole:
        raise CalibrationError(
            f"{alike[0].path}: nothing of its kind was captured at confidence_threshold 0, which "
            "is what a fit needs; capture it at 0 too"
        )
    best = max(whole, key=lambda capture: (capture.max_draft, -capture.batch_size))
    if len(best.rounds) < 4:
        raise CalibrationError(
            f"{best.path}: {len(best.rounds)} texts are too few to fit on one half and judge on "
            "the other; give 4"
        )
    return best


def _models(source: Capture, seen: Sequence[int]) -> dict[str, AcceptanceProcess]:
    """Return the models fitted on the texts ``seen`` of a capture, by name."""
    # Texts come in the order in which their first rounds stand in the file.
    texts = [
        text
        for number, text in zip(source.rounds, read_accepted(source.path), strict=True)
        if number in set(seen)
    ]
    fits: dict[str, Callable[[Sequence[AcceptedText]], Mapping[str, Any]]] = {}
    if source.header.method == "prompt_lookup":
        fits["lookup"] = fit_lookup
    elif all(text.confidence is not None for text in texts):
        fits["beta_curve"] = fit_beta_curve
    else:
        fits["per_position"] = fit_per_position
    models: dict[str, AcceptanceProcess] = {
        name: ACCEPTANCE_MODELS.parse(fit(texts)).at(source.header.exit_layer)
        for name, fit in fits.items()
    }
    return {**models, "replay": process_of(texts)}


def _judged(
    capture: Capture,
    source: Capture,
    rounds: Sequence[Round],
    models: Mapping[str, AcceptanceProcess],
) -> CaptureErrors:
    predicted = {}
    for name, process in models.items():
        found = process.statistics(capture.max_draft, capture.threshold)
        predicted[name] = (float(found.drafted_per_round), float(found.tokens_per_round))
    return CaptureErrors(
        capture=capture,
        calibrated_on=source.path,
        num_rounds=len(rounds),
        drafted_per_round=float(np.mean([entry.drafted for entry in rounds])),
        tokens_per_round=1.0 + float(np.mean([entry.accepted for entry in rounds])),
        predicted=predicted,
    )
