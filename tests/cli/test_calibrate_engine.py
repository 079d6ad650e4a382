"""``simspec calibrate engine``: the fragment on stdout, mistakes in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.helpers.shared import REPO_ROOT, shared

HEADER = (
    "hardware,engine,engine_version,model,precision,gemm_quant_mode,moe_quant_mode,tp,pp,"
    "attention_dp,moe_tp,moe_ep,concurrency,input_len,output_len,measured_on,ttft_ms,tpot_ms\n"
)


def simspec(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    command = [sys.executable, "-m", "simspec", "calibrate", "engine", *arguments]
    return subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, check=False)


def test_stdout_is_the_yaml_fragment(tmp_path: Path) -> None:
    """Groups of an engine profile, fitted to two degrees of one model and judged on another."""
    rows = shared("measured/serving_closed_loop.csv").read_text().splitlines(keepends=True)
    kept = [row for row in rows[1:] if row.startswith("h200_sxm,trtllm,,meta-llama/Llama-3.1-70B")]
    table = tmp_path / "runs.csv"
    table.write_text(rows[0] + "".join(kept))
    result = simspec(
        str(table), "trtllm", "--all", "--leave-out", "tp4", "--fix", "per_step_us=335"
    )
    assert result.returncode == 0, result.stderr
    fragment = yaml.safe_load(result.stdout)
    assert {"host", "kernels_in_steps"} <= set(fragment)
    assert fragment["host"]["per_step_us"] == 335
    assert "held out, dense tpot: 14 rows" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vllm", "--fix", "per_step_us"), "is not NAME=VALUE with a number"),
        (("vllm", "--fix", "per_stp_us=1"), "no coefficient 'per_stp_us'"),
        (("sglang",), "no row of engine 'sglang' that simspec can price"),
        (("vllm", "--all"), "cannot support 4 coefficients"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    """Exit code 2 and a sentence that says what to change."""
    table = tmp_path / "runs.csv"
    table.write_text(
        HEADER + "h100_sxm,vllm,1.0,meta-llama/Llama-3.1-8B,,,,1,1,1,1,1,8,1024,1024,,60,8\n"
    )
    result = simspec(str(table), *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
