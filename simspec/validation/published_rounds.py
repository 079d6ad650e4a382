"""The published runs that an engine's host times are fitted on, as rounds for the fit.

For eager PyTorch: the older of two Spec-Bench leaderboards (A100 in a server, RTX 3090 in a
desktop, whose host is another machine) and the plain decoding times of the Hugging Face blog on
LayerSkip. For the code of Kangaroo's authors: the bar of Medusa beside Kangaroo's. For vLLM: the
even draft lengths of one series (vllm-project/vllm#20780). For SGLang: the chains of one study
(arXiv 2601.11580, Fig. 2) and the trees of sgl-project/sglang#4247. Everything else of the table
judges (:mod:`simspec.validation.tables.published_speedups`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from simspec.calibration.speculation_overheads import (
    HostTimes,
    Kind,
    MeasuredRound,
    fit_host_times,
)
from simspec.core.errors import CalibrationError
from simspec.hardware.load import load_engine
from simspec.models.names import catalog_name_of
from simspec.validation._read import read_rows, recognise
from simspec.validation.tables._published_runs import Run, deployment_of, is_fitted, run_of
from simspec.validation.tables._published_settings import NoRun, Pairs, number

FREE = {
    "pytorch": ("per_step", "per_draft_step", "per_round", "per_launch"),
    "pytorch_kangaroo": ("per_round",),
    "vllm": ("per_draft_step", "per_round"),
    "sglang": ("per_draft_step", "per_round", "per_tree"),
}
"""Host times fitted per engine. Captured graphs launch nothing, and a plain step of vLLM and SGLang
is known from plain serving."""
MACHINES = {"pytorch_desktop": ("pytorch", "desktop")}
"""Engines fitted as another one on another machine."""
_BLOG = "huggingface/blog layerskip.md"


def fit_engine(table: Path, engine: str) -> HostTimes:
    """Return the host times of an engine, fitted on its part of the table.

    Parameters
    ----------
    table : Path
        ``published_speedups.csv``.
    engine : str
        A key of :data:`FREE`.

    Raises
    ------
    CalibrationError
        No run of the table is meant for that engine's fit.
    """
    if engine not in FREE:
        raise CalibrationError(
            f"no published runs to fit engine {engine!r} on; choices: {', '.join(sorted(FREE))}"
        )
    rows = [
        {str(key): value for key, value in row.items()}
        for row in read_rows(table, recognise(table)[1]).frame.to_dict("records")
    ]
    runs = list(_rounds(rows, engine))
    return fit_host_times(runs, load_engine(engine), FREE[engine])


def _rounds(rows: list[dict[str, Any]], engine: str) -> Iterator[MeasuredRound]:
    pairs = Pairs(rows)
    for row in rows:
        source = str(row["source"])
        if engine == "pytorch" and source.startswith(_BLOG) and row["method"] == "LayerSkip":
            yield from _plain_time(row)
        if not is_fitted(row):
            continue
        run = run_of(row, pairs)
        if isinstance(run, NoRun):
            continue
        fitted_as, machine = MACHINES.get(run.engine, (run.engine, ""))
        if fitted_as == engine:
            yield from _of_run(row, run, engine, machine)


def _of_run(row: Mapping[str, Any], run: Run, engine: str, machine: str) -> Iterator[MeasuredRound]:
    name = f"{row['method']} {row['target_model']} {run.hardware} K={row['draft_len']}"
    if run.batch > 1:
        name += f" B={run.batch}"
    here = replace(run, engine=engine)
    speedup = number(row, "speedup")
    if speedup is not None:
        yield _measured(here, name, "ratio", run.tokens_per_round / speedup, machine)
    elif (rate := number(row, "spec_tok_s")) is not None and run.batch == 1:
        yield _measured(here, name, "round_s", run.tokens_per_round / rate, machine)


def _plain_time(row: Mapping[str, Any]) -> Iterator[MeasuredRound]:
    model, rate = catalog_name_of(str(row["target_model"])), number(row, "baseline_tok_s")
    if model is None or rate is None or number(row, "num_gpus") != 1.0:
        return
    plain = Run(
        model=model,
        hardware="a100_sxm_80gb",
        engine="pytorch",
        dtype="fp16",
        method={"name": "autoregressive"},
        acceptance={},
        batch=1,
        context=700,
        tokens_per_round=1.0,
        family="",
    )
    yield _measured(plain, f"plain {row['target_model']}", "step_s", 1.0 / rate, "")


def _measured(run: Run, name: str, kind: Kind, measured: float, machine: str) -> MeasuredRound:
    built = deployment_of(run)
    return MeasuredRound(
        name=name,
        method=built.method,
        statistics=built.method.statistics(built.acceptance),
        hardware=built.hardware,
        kind=kind,
        measured=measured,
        batch=run.batch,
        context=run.context,
        machine=machine,
    )
