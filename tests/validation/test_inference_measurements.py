"""Published speeds of whole models: what a row becomes, what is left out, and how far off it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simspec.validation._base import Comparison, LeftOut
from simspec.validation.api import ValidationResult, validate
from tests.helpers.shared import shared

HEADER = (
    "engine,hardware,num_gpus,tp,model,weight_dtype,kv_dtype,phase,batch_or_concurrency,input_len,"
    "output_len,metric,value,subset,quality,context_depth,notes"
)
STREAM = "llama.cpp,{hardware},{gpus},1,{model},{form},f16,decode,1,0,{tokens},tokens_per_s_total,"
DECODE = STREAM + "{value},{subset},{quality},0,"


def decode(**changes: object) -> str:
    """Return a line of generation by a single stream."""
    fields: dict[str, object] = {
        "hardware": "Apple M1 Max 24-core GPU", "gpus": 1, "model": "llama-2-7b", "form": "q4_0",
        "tokens": 128, "value": 50, "subset": "llamacpp_4167_apple", "quality": "clean",
    }  # fmt: skip
    return DECODE.format(**{**fields, **changes})


def judged(tmp_path: Path, *lines: str) -> list[Comparison | LeftOut]:
    """Return what becomes of the lines of a table, in their order."""
    path = tmp_path / "speeds.csv"
    path.write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    (table,) = validate([path]).tables
    assert table.kind == "inference_measurements"
    return sorted([*table.comparisons, *table.left_out], key=lambda row: row.line)


def test_longer_generations_are_slower(tmp_path: Path) -> None:
    """The context grows from nothing while it is measured, so 8192 tokens come slower than 128."""
    short, long = judged(tmp_path, decode(), decode(tokens=8192))
    assert isinstance(short, Comparison)
    assert isinstance(long, Comparison)
    assert long.predicted < 0.8 * short.predicted
    assert short.quantity == "tokens_per_s"


def test_a_split_by_layers_is_as_fast_as_one_large_card(tmp_path: Path) -> None:
    """Cards that take turns share one stream's work, whatever their number."""
    card = {"hardware": "RTX 3090", "model": "llama-3-70b", "form": "q4_k_m", "value": 16}
    two, six = (
        judged(tmp_path, decode(**card, gpus=n, subset="xiongjiedai_llama3"))[0] for n in (2, 6)
    )
    assert isinstance(two, Comparison)
    assert isinstance(six, Comparison)
    assert two.predicted == six.predicted


def test_old_and_present_llama_cpp_are_two_engines(tmp_path: Path) -> None:
    """Documents of 2024 had no flash attention: long generations were much slower then."""
    old, present = judged(
        tmp_path,
        decode(hardware="Apple M2 Ultra 76-core GPU", tokens=8192),
        decode(hardware="Apple M2 Ultra 76-core GPU", tokens=8192, subset="somebody_2026"),
    )
    assert isinstance(old, Comparison)
    assert isinstance(present, Comparison)
    assert present.predicted > 1.1 * old.predicted


def test_each_row_says_whether_a_fit_has_used_it(tmp_path: Path) -> None:
    """The chip version with the most cores was fitted, the one with fewer judges."""
    smaller, largest = judged(tmp_path, decode(), decode(hardware="Apple M1 Max 32-core GPU"))
    assert isinstance(smaller, Comparison)
    assert isinstance(largest, Comparison)
    assert (smaller.role, largest.role) == ("held_out", "fitted")


@pytest.mark.parametrize(
    ("changes", "cause", "says"),
    [
        ({"quality": "suspect"}, "suspect", "its neighbours contradict it"),
        ({"hardware": "Radeon VII"}, "unsupported", "no hardware profile 'Radeon VII'"),
        ({"model": "gpt-2"}, "unsupported", "no architecture 'gpt-2'"),
        ({"form": "iq2_xs"}, "unsupported", "no data type 'iq2_xs'"),
        # 13.2 GB of F16 weights at 100 tokens/s are 1.3 TB/s on a chip that has 0.4.
        ({"form": "f16", "value": 100}, "refuted", "GB/s"),
    ],
)
def test_what_cannot_be_judged_is_left_out_with_a_reason(
    tmp_path: Path, changes: dict[str, object], cause: str, says: str
) -> None:
    """Unknown names, doubted rows and impossible speeds each end in one sentence."""
    (row,) = judged(tmp_path, decode(**changes))
    assert isinstance(row, LeftOut)
    assert row.cause == cause
    assert says in row.reason


def test_memory_decides_an_unstated_batch(tmp_path: Path) -> None:
    """An H200 holds more sequences than an H100 beside the same weights, and serves more."""
    line = (
        "TensorRT-LLM,{},1,1,llama-3-8b,fp16,,end_to_end,,128,2048,tokens_per_s_total,9000,"
        "trtllm_ifb_v0.12.0,usable,,"
    )
    small, large = judged(tmp_path, line.format("H100 SXM 80GB"), line.format("H200 SXM 141GB"))
    assert isinstance(small, Comparison)
    assert isinstance(large, Comparison)
    # 85 GB less 16 GB of weights and about 3 GB beside them hold 131,072 bytes a token.
    assert small.breakdown["in_service"] == pytest.approx(66e9 / 131_072 / 2176, rel=0.03)
    assert large.breakdown["in_service"] > 1.8 * small.breakdown["in_service"]
    assert large.predicted > 1.3 * small.predicted


def test_a_static_batch_pays_for_its_prompts(tmp_path: Path) -> None:
    """Throughput is batch times answer over the time of all prompts and all steps."""
    line = (
        "TensorRT-LLM,A100 SXM 80GB,1,1,llama-2-7b,fp16,fp16,end_to_end,16,{},128,"
        "tokens_per_s_total,1000,trtllm_static_v0.9.0,usable,,"
    )
    short, long = judged(tmp_path, line.format(128), line.format(2048))
    for row in (short, long):
        assert isinstance(row, Comparison)
        parts = row.breakdown
        assert row.predicted == pytest.approx(
            16 * 128 / (parts["prefill_s"] + parts["decode_s"]), rel=1e-9
        )
    assert isinstance(long, Comparison)
    assert isinstance(short, Comparison)
    assert long.breakdown["prefill_s"] > 12 * short.breakdown["prefill_s"]


@pytest.fixture(scope="module")
def published() -> ValidationResult:
    """Return the whole reference table, judged."""
    return validate([shared("reference/measured_inference.csv")])


def errors(result: ValidationResult, **fields: str) -> np.ndarray:
    """Return the errors of held-out rows whose columns start as given."""
    return np.array(
        [
            abs(row.error)
            for _, row in result.rows()
            if row.role == "held_out"
            and all(str(row.subject[name]).startswith(text) for name, text in fields.items())
        ]
    )


@pytest.mark.parametrize("hardware", ["Apple", "RTX"])
def test_single_streams_are_met(published: ValidationResult, hardware: str) -> None:
    """Tokens/s of one stream on chips, models and documents that no fit has used, within 12 %."""
    found = errors(published, phase="decode", hardware=hardware, batch_or_concurrency="1.0")
    assert found.size > 40
    assert np.median(found) < 0.12
    assert np.quantile(found, 0.9) < 0.30


@pytest.mark.parametrize(
    ("subset", "most"),
    [
        ("llamacpp_4167_apple", 0.08),
        ("llamacpp_15013_cuda", 0.12),
        ("xiongjiedai_llama3", 0.10),
        ("llamacpp_batched_m2u", 0.15),
    ],
)
def test_documents_are_met(published: ValidationResult, subset: str, most: float) -> None:
    """The held-out part of each llama.cpp document, prompts and batches included."""
    found = errors(published, subset=subset)
    assert found.size
    assert np.median(found) < most


def test_throughput_tables_are_met(published: ValidationResult) -> None:
    """TensorRT-LLM with the batch that memory allows: within 15 %, over PCIe switches too."""
    found = np.array(
        [
            abs(row.error)
            for _, row in published.rows()
            if str(row.subject["subset"]).startswith("trtllm_ifb") and row.role == "held_out"
        ]
    )
    assert found.size > 250
    assert np.median(found) < 0.15
    over_pcie = [
        abs(row.error)
        for _, row in published.rows()
        if row.family == "TensorRT-LLM, throughput over PCIe"
    ]
    assert np.median(over_pcie) < 0.15


def test_servers_of_2024_are_met(published: ValidationResult) -> None:
    """Static batches of vLLM and TensorRT-LLM on H100s, fitted on A100s: within 15 %."""
    for engine in ("vLLM", "TensorRT-LLM"):
        found = errors(published, subset="argonne", engine=engine)
        assert found.size > 100
        assert np.median(found) < 0.15


def test_every_row_is_accounted_for(published: ValidationResult) -> None:
    """Each line is compared once or left out once, with a reason."""
    (table,) = published.tables
    lines = [row.line for row in (*table.comparisons, *table.left_out)]
    assert sorted(lines) == list(range(2, table.num_rows + 2))
    assert all(row.reason for row in table.left_out)
