"""Published runs: how rows are read, what is left out, and how near the closed form comes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from simspec.hardware.load import load_engine
from simspec.validation._base import Comparison, LeftOut, MeasurementTable
from simspec.validation._read import read_rows
from simspec.validation.api import DATA
from simspec.validation.published_rounds import FREE, fit_engine
from simspec.validation.tables import published_speedups
from simspec.validation.tables._published_runs import NoRun, Run, is_fitted, run_of
from simspec.validation.tables._published_settings import Pairs
from tests.helpers.shared import shared

TABLE = DATA / "published_speedups.csv"
LEADERBOARD = "Spec-Bench Leaderboard.md @fd2c1cd (github hemingkx/Spec-Bench; FP16)"
BLANK: dict[str, Any] = dict.fromkeys(published_speedups.COLUMNS)
ROW = {
    **BLANK,
    "method": "EAGLE-2",
    "target_model": "Vicuna-7B-v1.3",
    "hardware": "A100 80GB",
    "num_gpus": 1.0,
    "batch": 1.0,
    "dataset": "Spec-Bench (overall)",
    "mean_tokens_per_step": 4.34,
    "speedup": 2.36,
    "source": LEADERBOARD,
}


def run(pairs: Pairs | None = None, **cells: Any) -> Run | NoRun:
    return run_of({**ROW, **cells}, pairs or Pairs([]))


@pytest.fixture(scope="module")
def judged() -> list[Comparison | LeftOut]:
    return list(published_speedups.compare(read_rows(TABLE, published_speedups)))


@pytest.fixture(scope="module")
def errors(judged: list[Comparison | LeftOut]) -> pd.DataFrame:
    """Return one line per comparison."""
    return pd.DataFrame(
        [
            {
                "family": row.family,
                "quantity": row.quantity,
                "role": row.role,
                "measured": row.measured,
                "predicted": row.predicted,
                "error": row.error,
                "low": (row.interval or (0.0, 0.0))[0],
                "high": (row.interval or (0.0, 0.0))[1],
                **row.subject,
            }
            for row in judged
            if isinstance(row, Comparison)
        ]
    )


def sizes(errors: pd.DataFrame, family: str, quantity: str, role: str = "held_out") -> np.ndarray:
    chosen = errors[
        errors.family.str.startswith(family) & (errors.quantity == quantity) & (errors.role == role)
    ]
    assert len(chosen)
    return np.abs(chosen.error.to_numpy(dtype=float))


# -- rows ----------------------------------------------------------------------------------------


def test_a_row_is_a_deployment_with_its_published_acceptance() -> None:
    """EAGLE-2 on an A100 in eager PyTorch, 59 nodes in 6 levels, 4.34 tokens per round."""
    found = run()
    assert isinstance(found, Run)
    assert (found.model, found.hardware, found.engine) == ("vicuna-7b", "a100_sxm_80gb", "pytorch")
    assert found.method == {
        "name": "eagle",
        "version": 2,
        "num_nodes": 59,
        "num_speculative_tokens": 6,
    } or found.method == {"name": "eagle", "version": 2, "num_nodes": 59}
    assert found.tokens_per_round == 4.34
    assert found.acceptance["tokens_per_round"] == 4.34


def test_a_rate_is_accepted_over_drafted_and_leaves_the_bonus_out() -> None:
    """LayerSkip, 79.45 % of six drafts: 5.767 tokens per round at layer 8."""
    found = run(
        method="LayerSkip",
        target_model="layerskip-llama2-7B",
        draft="exit_layer=8",
        hardware=None,
        draft_len=6.0,
        acceptance_rate=0.7945,
        mean_tokens_per_step=None,
        source="facebookresearch/LayerSkip README.md @ca47447",
    )
    assert isinstance(found, Run)
    assert found.tokens_per_round == pytest.approx(5.767)
    assert found.method["exit_layer"] == 8
    assert any("A100" in text for text in found.assumed)


def test_acceptance_published_apart_is_paired_by_model_method_task_and_k() -> None:
    """arXiv 2601.11580 gives accepted lengths in one place and speedups in another."""
    trace = {
        **BLANK,
        "method": "EAGLE-3",
        "target_model": "Llama-3.1-8B-Instruct",
        "dataset": "GSM8K",
        "draft_len": 3.0,
        "mean_tokens_per_step": 2.391,
        "source": "SpecDecode-Bench/simulator @2fdccbd acceptance traces",
    }
    asked = {
        "method": "EAGLE-3",
        "target_model": "Llama-3.1-8B-Instruct",
        "hardware": "H100 80GB",
        "dataset": "GSM8K",
        "draft_len": 3.0,
        "mean_tokens_per_step": None,
        "source": 'arXiv 2601.11580 "Speculative Decoding: Performance or Illusion?" Fig.1',
    }
    found = run(Pairs([trace]), **asked)
    assert isinstance(found, Run)
    assert found.tokens_per_round == 2.391
    assert found.method["top_k"] == 1
    for other in ({"draft_len": 5.0}, {"dataset": "ShareGPT"}, {"target_model": "Qwen3-8B"}):
        assert isinstance(run(Pairs([trace]), **{**asked, **other}), NoRun)


@pytest.mark.parametrize(
    ("cells", "cause", "reason"),
    [
        ({"source": f"{LEADERBOARD} SUSPECT"}, "suspect", "contradict"),
        ({"method": "REST"}, "unsupported", "no method REST"),
        ({"hardware": None, "source": "somewhere"}, "unsupported", "card is not stated"),
        ({"hardware": "TPU-v4", "source": "somewhere"}, "unsupported", "no hardware profile"),
        ({"target_model": "T5-XXL"}, "unsupported", "no architecture of 'T5-XXL'"),
        ({"mean_tokens_per_step": None}, "unsupported", "no acceptance is published"),
        ({"speedup": None}, "unsupported", "nothing to compare"),
        ({"num_gpus": 4.0}, "unsupported", "spread over the GPUs"),
        ({"source": "a blog"}, "unsupported", "no engine profile"),
        ({"method": "LayerSkip", "draft_len": 6.0}, "unsupported", "settings of LayerSkip"),
    ],
)
def test_what_cannot_be_judged_says_why(cells: dict[str, Any], cause: str, reason: str) -> None:
    found = run(**cells)
    assert isinstance(found, NoRun)
    assert found.cause == cause
    assert reason in found.reason


def test_a_round_cheaper_than_a_step_is_refuted() -> None:
    """2 tokens per round at 2.5 times the speed: a round would take 0.8 steps and contains one."""
    frame = pd.DataFrame([{**ROW, "mean_tokens_per_step": 2.0, "speedup": 2.5}])
    (found,) = published_speedups.compare(MeasurementTable(Path("made.csv"), frame))
    assert isinstance(found, LeftOut)
    assert found.cause == "refuted"
    assert "0.80 plain steps" in found.reason


def test_the_two_quantities_are_one_measurement(judged: list[Comparison | LeftOut]) -> None:
    """speedup x step-cost ratio is the tokens per round, measured and predicted."""
    by_line: dict[int, dict[str, Comparison]] = {}
    for row in judged:
        if isinstance(row, Comparison):
            by_line.setdefault(row.line, {})[row.quantity] = row
    pairs = [found for found in by_line.values() if "speedup" in found]
    assert len(pairs) > 70
    for found in pairs:
        ratio, speedup = found["step_cost_ratio"], found["speedup"]
        tokens = float(ratio.subject["tokens_per_round"] or 0)
        assert ratio.measured * speedup.measured == pytest.approx(tokens)
        assert ratio.predicted * speedup.predicted == pytest.approx(tokens)
        parts = ratio.breakdown
        whole = parts["draft"] + parts["verify"] + parts["host"]
        assert whole / parts["plain_step"] == pytest.approx(ratio.predicted, rel=1e-9)


def test_what_was_fitted_is_never_what_is_judged(judged: list[Comparison | LeftOut]) -> None:
    """The role is that of the fit, and each family that was fitted has a half that judges."""
    compared = [row for row in judged if isinstance(row, Comparison)]
    assert {(is_fitted(row.subject), row.role) for row in compared} == {
        (True, "fitted"),
        (False, "held_out"),
    }
    fitted = {row.family for row in compared if row.role == "fitted"}
    judges = {row.family for row in compared if row.role == "held_out"}
    assert fitted - judges == {"sglang_pr_4247"}
    draft_lens = {
        role: {
            row.subject["draft_len"]
            for row in compared
            if row.family == "vllm_k_series" and row.role == role
        }
        for role in ("fitted", "held_out")
    }
    assert draft_lens == {"fitted": {2.0, 4.0, 6.0}, "held_out": {3.0, 5.0, 7.0}}


# -- errors --------------------------------------------------------------------------------------


def test_vllm_on_an_h100_over_batches(errors: pd.DataFrame) -> None:
    """Batch 1 to 128, four tasks, EAGLE-3 and n-grams (arXiv 2601.11580)."""
    found = sizes(errors, "vllm_h100", "speedup")
    assert len(found) == 30
    assert np.median(found) <= 0.08
    assert np.quantile(found, 0.9) <= 0.15


def test_chains_against_trees_on_an_h100(errors: pd.DataFrame) -> None:
    """With SGLang's trees the whole study (arXiv 2601.11580) stays within 8 and 15 %."""
    trees = sizes(errors, "sglang_h100", "speedup")
    assert len(trees) == 4
    assert np.median(trees) <= 0.13
    study = np.concatenate([trees, sizes(errors, "vllm_h100", "speedup")])
    assert np.median(study) <= 0.08
    assert np.quantile(study, 0.9) <= 0.15


def test_kangaroos_bar(errors: pd.DataFrame) -> None:
    """Every draft step pays the LM head, and a round no more host time than a plain step."""
    assert sizes(errors, "kangaroo", "speedup").max() <= 0.12


def test_the_cost_of_a_round_on_spec_bench(errors: pd.DataFrame) -> None:
    """Batch 1, eager, an A100 and an RTX 3090, 7B to 33B, six methods."""
    found = sizes(errors, "spec_bench", "step_cost_ratio")
    assert len(found) == 21
    assert np.median(found) <= 0.12
    assert found.max() <= 0.2


def test_methods_are_ranked_as_measured(errors: pd.DataFrame) -> None:
    """Spearman's correlation of the speedups of a leaderboard page."""
    bench = errors[errors.family.str.startswith("spec_bench") & (errors.quantity == "speedup")]
    pages = list(bench.groupby(["hardware", "target_model", "source"]))
    assert len(pages) >= 6
    for page, rows in pages:
        rank = rows.measured.corr(rows.predicted, method="spearman")
        assert rank >= 0.85, (page, rank)


def test_draft_lengths_of_one_series(errors: pd.DataFrame) -> None:
    """K = 2 to 7 in vLLM, fitted on the even ones: within 5 %, and K = 3 is the best."""
    series = errors[errors.family == "vllm_k_series"]
    assert sizes(errors, "vllm_k_series", "tpot_ms").shape == (3,)
    tpot = series[series.quantity == "tpot_ms"].set_index("draft_len")
    assert np.abs(tpot.error.to_numpy(dtype=float)).max() <= 0.05
    assert tpot.measured.idxmin() == tpot.predicted.idxmin() == 3


def test_early_exits_of_layerskip(errors: pd.DataFrame) -> None:
    """Acceptance, exit layer, K and speed together, from the authors' runs and the paper."""
    found = sizes(errors, "layerskip", "speedup")
    assert len(found) == 8
    assert np.median(found) <= 0.08


def test_skipped_layers_of_draft_and_verify(errors: pd.DataFrame) -> None:
    assert sizes(errors, "draft_and_verify", "speedup").max() <= 0.1


def test_what_is_known_to_miss_does_not_grow(errors: pd.DataFrame) -> None:
    """Other code bases than the one the host times are of: EAGLE's and Medusa's."""
    assert sizes(errors, "eagle_paper", "speedup").max() <= 0.22
    assert np.median(sizes(errors, "medusa_logs", "tpot_ms")) <= 0.22


def test_95_per_cent_intervals_hold_what_was_measured(errors: pd.DataFrame) -> None:
    """At least nine tenths of the held-out ratios, and no interval wider than a factor of 2.5."""
    held_out = errors[(errors.role == "held_out") & (errors.quantity == "step_cost_ratio")]
    inside = (held_out.low <= held_out.measured) & (held_out.measured <= held_out.high)
    assert inside.mean() >= 0.9
    assert (held_out.high / held_out.low).max() <= 2.5


# -- the fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", sorted(FREE))
def test_the_profiles_hold_what_the_fit_gives(engine: str) -> None:
    """``simspec calibrate host`` on the packaged table gives the packaged host times."""
    fitted = fit_engine(TABLE, engine).microseconds
    profile = load_engine(engine)
    have = {
        "per_step": profile.host_time_per_step_s,
        "per_draft_step": profile.host_time_per_draft_step_s,
        "per_round": profile.host_time_per_round_s,
        "per_tree": profile.host_time_per_tree_s,
        "per_launch": profile.launch_time_s,
    }
    for name, value in fitted.items():
        assert have[name] * 1e6 == pytest.approx(value, rel=0.03, abs=15.0), name


def test_the_whole_table_is_judged_or_left_out_row_by_row() -> None:
    """Every row once: no row is lost, and the packaged part gives the same predictions."""
    path = shared("reference/published_speedups.csv")
    table = read_rows(path, published_speedups)
    found = list(published_speedups.compare(table))
    assert {row.line for row in found} == {table.line(i) for i in range(len(table.frame))}

    def predictions(rows: Iterator[Comparison | LeftOut]) -> list[float]:
        return sorted(row.predicted for row in rows if isinstance(row, Comparison))

    packaged = published_speedups.compare(read_rows(TABLE, published_speedups))
    assert predictions(iter(found)) == pytest.approx(predictions(packaged))
