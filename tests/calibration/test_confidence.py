"""Confidence and acceptance fitted together: a known law comes back, and predicts thresholds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from simspec.calibration.acceptance import fit_acceptance
from simspec.calibration.confidence import captured_rounds, fit_beta_curve, on_track_drafts
from simspec.core.errors import CalibrationError
from simspec.decoding._base import ACCEPTANCE_MODELS
from simspec.traces.accepted import AcceptedText, read_accepted
from simspec.traces.io import write_trace
from simspec.traces.schema import Round, TraceHeader
from tests.helpers.command import simspec

LAW: dict[str, Any] = {
    "name": "beta_curve",
    "confidence": {"a": 2.5, "b": 1.2},
    "off_track_confidence": {"a": 1.2, "b": 1.5},
    "autocorrelation": 0.4,
    "slope": 0.8,
    "offsets": [0.6, 0.2, -0.1, -0.3, -0.3],
}
HEADER = TraceHeader(
    model="vicuna-7b", method="kangaroo", device="rtx4090", dtype="bf16", engine="pytorch",
    exit_layer=2, num_speculative_tokens=5, confidence_threshold=0.0,
)  # fmt: skip


def rounds_of(num_texts: int, size: int = 500) -> list[Round]:
    """Return the rounds a decoder would record of texts of the known law, K = 5."""
    process = ACCEPTANCE_MODELS.parse(LAW).at(None)
    rounds = []
    for sequence in range(num_texts):
        tape = process.tape(21, sequence, size)
        position = 0
        while position < size:
            on_track, agreements, confidences = True, [], []
            for i in range(5):
                source = tape.confidence if on_track else tape.off_track_confidence
                confidences.append(float(source[position + i]))
                on_track = on_track and bool(tape.accept[i, position + i])
                agreements.append(on_track)
            accepted = sum(agreements)
            rounds.append(
                Round(sequence, len(rounds), position, 1, 5, accepted, tuple(confidences))
            )
            position += accepted + 1
    return rounds


def texts_from(folder: Path, num_texts: int) -> tuple[AcceptedText, ...]:
    path = folder / "trace.jsonl"
    write_trace(path, HEADER, rounds_of(num_texts))
    return read_accepted(path)


def test_a_known_law_comes_back(tmp_path: Path) -> None:
    """Beta shapes, slope, offsets and autocorrelation from 60,000 text positions.

    Standard errors, from the scatter of 20 such fits: 0.02 for a, 0.01 for b, 0.02 for the slope,
    0.03 for the first offsets; the tolerance is near four of them. The autocorrelation lacks the
    pairs around bonus positions and comes out a little low.
    """
    fields = fit_beta_curve(texts_from(tmp_path, 120))
    assert fields["confidence"]["a"] == pytest.approx(2.5, abs=0.1)
    assert fields["confidence"]["b"] == pytest.approx(1.2, abs=0.05)
    assert fields["off_track_confidence"]["a"] == pytest.approx(1.2, abs=0.05)
    assert fields["off_track_confidence"]["b"] == pytest.approx(1.5, abs=0.06)
    assert fields["slope"] == pytest.approx(0.8, abs=0.08)
    assert fields["offsets"] == pytest.approx(LAW["offsets"], abs=0.15)
    assert fields["autocorrelation"] == pytest.approx(0.4, abs=0.05)


def test_unseen_texts_at_other_thresholds_are_predicted(tmp_path: Path) -> None:
    """Within 3 % at every threshold and draft length, on the half not fitted."""
    fit = fit_acceptance(texts_from(tmp_path, 120))
    assert fit.fields["name"] == "beta_curve"
    assert fit.held_out.shape == (2, 5)
    assert fit.worst_held_out < 0.03
    assert np.abs(fit.at_thresholds).max() < 0.03
    assert "at thresholds 0 to 0.8 within" in fit.source("t")


def test_drafts_are_on_track_until_the_first_rejection() -> None:
    """a + 1 of m drafts, their positions, and the places in the text they follow each other at."""
    rounds = (
        Round(0, 0, 0, 1, 3, 1, (0.9, 0.4, 0.7)),
        Round(0, 1, 2, 1, 3, 3, (0.8, 0.7, 0.6)),
        Round(0, 2, 6, 1, 3, 0, (0.3, 0.2, 0.1)),
    )
    drafts = on_track_drafts([AcceptedText(np.zeros(1, dtype=np.int64), rounds=rounds)])
    assert drafts.confidence.tolist() == [0.9, 0.4, 0.8, 0.7, 0.6, 0.3]
    assert drafts.accepted.tolist() == [True, False, True, True, True, False]
    assert drafts.position.tolist() == [0, 1, 0, 1, 2, 0]
    # The bonus token after the fully accepted round leaves a gap before the last one.
    assert drafts.place.tolist() == [0, 1, 2, 3, 4, 6]


def test_confidences_that_mislead_are_refused() -> None:
    """Acceptance that falls with the confidence is no calibration curve."""
    rng = np.random.default_rng(0)
    confidence = rng.random(2000)
    rounds = tuple(
        Round(0, i, i, 1, 1, int(rng.random() > c), (float(c),)) for i, c in enumerate(confidence)
    )
    with pytest.raises(CalibrationError, match="does not rise with the confidence"):
        fit_beta_curve([AcceptedText(np.zeros(1, dtype=np.int64), rounds=rounds)])


def test_a_trace_without_confidences_has_none_to_fit() -> None:
    """One sentence."""
    with pytest.raises(CalibrationError, match="no drafts with confidences"):
        fit_beta_curve([AcceptedText(np.array([1, 0]))])


def test_rounds_are_cut_short_where_they_were_captured() -> None:
    """Of 0.9 0.4 0.7 (two right) a threshold of 0.5 leaves two drafts, both right; K = 1 one."""
    rounds = (Round(0, 0, 0, 1, 3, 2, (0.9, 0.4, 0.7)), Round(0, 1, 3, 1, 3, 0, (0.2, 0.9, 0.9)))
    texts = [AcceptedText(np.zeros(1, dtype=np.int64), rounds=rounds)]
    assert captured_rounds(texts, 3, 0.0) == (3.0, 2.0)
    assert captured_rounds(texts, 3, 0.5) == (1.5, 2.0)
    assert captured_rounds(texts, 1, 0.5) == (1.0, 1.5)


def test_rounds_without_confidences_give_their_rates(tmp_path: Path) -> None:
    """``per_position``, exactly as captured; clustering cannot be told from such a trace."""
    path = tmp_path / "trace.jsonl"
    bare = [replace(entry, confidences=None) for entry in rounds_of(20)]
    write_trace(path, HEADER, bare)
    texts = read_accepted(path)
    fit = fit_acceptance(texts)
    assert fit.fields["name"] == "per_position"
    accepted = np.array([entry.accepted for entry in bare])
    expected = [(accepted >= i).mean() for i in range(1, 6)]
    assert fit.fields["rates"] == pytest.approx(expected, rel=1e-3)
    assert fit.predicted == pytest.approx(fit.measured, rel=1e-3)
    with pytest.raises(CalibrationError, match="one start per round"):
        fit_acceptance(texts, "two_state")


def test_the_command_fits_a_round_trace(tmp_path: Path) -> None:
    """From the file to YAML that reads back as the same model."""
    path = tmp_path / "trace.jsonl"
    write_trace(path, HEADER, rounds_of(20))
    result = simspec("calibrate", "acceptance", path)
    assert result.returncode == 0, result.stderr
    fields = yaml.safe_load(result.stdout)
    assert fields["name"] == "beta_curve"
    ACCEPTANCE_MODELS.parse(fields).at(2)
    assert result.stderr.count("K = ") == 5
