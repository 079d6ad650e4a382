"""Captures are judged on texts that no fit has seen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from simspec.calibration.captures import judge_captures, mean_errors, read_captures
from simspec.core.errors import CalibrationError, TraceError
from simspec.decoding._base import ACCEPTANCE_MODELS
from simspec.traces.io import write_trace
from simspec.traces.schema import Round, TraceHeader

TRUTH: Mapping[str, Any] = {
    "name": "beta_curve",
    "confidence": {"a": 3.0, "b": 1.2},
    "autocorrelation": 0.3,
    "slope": 1.1,
    "offsets": [0.4],
}


def write_capture(
    folder: Path, *, drafts: int, threshold: float, texts: int = 60, tokens: int = 200
) -> Path:
    """Walk the tapes of a known model as a decoder would: same texts at every setting."""
    process = ACCEPTANCE_MODELS.parse(TRUTH).at(2)
    records = []
    for text in range(texts):
        tape = process.tape(5, text, tokens + 20)
        position, step = 0, 0
        while position < tokens:
            sure, agree = [], []
            for i in range(drafts):
                on_track = all(agree)
                at = position + i
                sure.append((tape.confidence if on_track else tape.off_track_confidence)[at])
                agree.append(bool(tape.accept[min(i, len(tape.accept) - 1), at]))
                if sure[-1] < threshold:
                    break
            a = (*agree, False).index(False)
            records.append(
                Round(text, step, position, 1, len(sure), a, tuple(map(float, sure)), tuple(agree))
            )
            position += a + 1
            step += 1
    header = TraceHeader(
        "m", "layerskip", "cpu", "fp32", "simspec-companion", exit_layer=2,
        num_speculative_tokens=drafts, confidence_threshold=threshold, dataset="d",
    )  # fmt: skip
    path = folder / f"K{drafts}_tau{threshold:g}.jsonl.gz"
    write_trace(path, header, records)
    return path


def test_what_a_model_made_it_predicts(tmp_path: Path) -> None:
    """Fitted at tau 0 and K 6 on half of the texts, other K and tau of the others within noise."""
    for drafts, threshold in ((6, 0.0), (2, 0.0), (4, 0.5), (6, 0.8)):
        write_capture(tmp_path, drafts=drafts, threshold=threshold)
    judged = judge_captures(read_captures(tmp_path))
    assert len(judged) == 4
    assert {row.calibrated_on.name for row in judged} == {"K6_tau0.jsonl.gz"}
    means = mean_errors(judged)
    assert means["beta_curve"][1] < 0.03
    assert means["replay"][1] < 0.07
    for row in judged:
        assert abs(row.errors("beta_curve")[0]) < 0.05
        assert row.num_rounds == sum(
            len(rounds) for text, rounds in row.capture.rounds.items() if text % 2
        )


def test_a_wrong_world_is_noticed(tmp_path: Path) -> None:
    """Captures in which everything is accepted are not what the calibration predicts."""
    write_capture(tmp_path, drafts=6, threshold=0.0)
    rows = [
        Round(text, 0, 0, 1, 3, 3, (0.9,) * 3, (True,) * 3) for text in range(60) for _ in range(9)
    ]
    header = read_captures(tmp_path)[0].header
    other = TraceHeader(
        header.model, header.method, header.device, header.dtype, header.engine, exit_layer=2,
        num_speculative_tokens=3, confidence_threshold=0.0, dataset="d",
    )  # fmt: skip
    write_trace(tmp_path / "all.jsonl.gz", other, rows)
    worst = max(abs(row.errors("beta_curve")[1]) for row in judge_captures(read_captures(tmp_path)))
    assert worst > 0.2


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """No folder, no trace, no capture at threshold 0, too few texts."""
    with pytest.raises(TraceError, match="is no folder"):
        read_captures(tmp_path / "nowhere")
    with pytest.raises(TraceError, match="holds no round trace"):
        read_captures(tmp_path)
    write_capture(tmp_path, drafts=4, threshold=0.5, texts=6)
    with pytest.raises(CalibrationError, match="at confidence_threshold 0"):
        judge_captures(read_captures(tmp_path))
    write_capture(tmp_path, drafts=4, threshold=0.0, texts=3)
    with pytest.raises(CalibrationError, match="3 texts are too few"):
        judge_captures(read_captures(tmp_path))
