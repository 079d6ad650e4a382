"""Every packaged profile: loads, has sources, is plausible, and says what the data sheet says."""

from __future__ import annotations

import csv
import re
from functools import cache

import pytest

from simspec.calibration.speed_tables import DEVICES
from simspec.core.registry import Registry
from simspec.cost.forward import CostModel
from simspec.cost.work import Pass, Rows, Stack
from simspec.hardware.load import (
    engine_names,
    hardware_names,
    load_engine,
    load_hardware,
    load_hardware_config,
)
from simspec.hardware.profile import Hardware
from simspec.hardware.schema import EngineKernelsGroup, KernelsGroup
from simspec.models.dtypes import DTYPES
from simspec.models.hf_config import load_model
from tests.helpers.shared import shared

SAME_AS = ("Apple M2 Ultra", "A100 PCIe", "H100 SXM 80GB")
"""Names that measurements use and the table of specifications does not."""
CSV_NAMES = {
    **{
        profile: name
        for name, profile in DEVICES.items()
        if name not in SAME_AS and "not stated" not in name
    },
    "h100_sxm": "H100 SXM5 80GB",
    "rtx_3090_host_staged": "RTX 3090",
    "h200_sxm": "H200 SXM 141GB",
    "a100_pcie": "A100 PCIe 80GB",
    "b200_sxm": "B200 SXM 180GB",
    "b300_sxm": "B300 SXM",
    "gb200": "GB200 (per GPU)",
    "l40s_switched": "L40S",
}
"""Row of the reference table each profile transcribes."""

devices = pytest.mark.parametrize("name", hardware_names())
engines = pytest.mark.parametrize("name", engine_names())


@cache
def specs() -> dict[str, dict[str, str]]:
    """Return the reference table by chip."""
    with shared("reference/hardware_specs.csv").open(encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


@devices
def test_name_is_the_file_name(name: str) -> None:
    """What a profile calls itself is how it is found."""
    assert load_hardware(name).name == name


@devices
def test_groups_have_sources_one_can_look_up(name: str) -> None:
    """Each group names a document, another profile or what was assumed."""
    device = load_hardware(name)
    groups = {"memory", "compute", "kernels"}
    groups |= {f"kernels.engines.{engine}" for engine in device.kernel_sets}
    optional = ("link", "host_link", "inter_node_link", "power", "price")
    groups |= {group for group in optional if getattr(device, group) is not None}
    assert set(device.sources) == groups
    for group, source in device.sources.items():
        assert re.search(r"github|https?:|arXiv|\.com|\.yaml|MLPerf|PyTorch", source), group


@devices
def test_efficiencies_are_shares(name: str) -> None:
    """No kernel beats the data sheet, none reaches less than a twentieth of it unfitted."""
    for kernels in ("", *load_hardware(name).kernel_sets):
        _check_shares(load_hardware(name).with_kernels(kernels))


def _check_shares(device: Hardware) -> None:
    fits = {**device.gemm, **{f"d {k}": f for k, f in device.decode_attention.items()}}
    fits |= {f"p {k}": f for k, f in device.prefill_attention.items()}
    for fit in [*fits.values(), device.elementwise]:
        # Prompts without flash attention write their scores to memory and back.
        assert 0.03 < fit.flop_efficiency <= 1.0
        assert 0.05 < fit.bandwidth_efficiency <= 1.0
        assert 0.5e-6 <= fit.overhead_s <= 50e-6
        assert fit.sharpness >= 1.0


@devices
def test_kernels_exist_for_what_the_device_computes(name: str) -> None:
    """Sixteen-bit GEMM and attention are there, under names the data types use."""
    device = load_hardware(name)
    rates = {form.compute_dtype for form in DTYPES.values()}
    unpacked = {form.name for form in DTYPES.values()} | {"weight_only"}
    assert set(device.gemm) <= set(device.peak_flop_per_s) | unpacked
    assert set(device.peak_flop_per_s) <= rates
    for fits in (device.gemm, device.decode_attention, device.prefill_attention):
        assert {"bf16", "fp16"} & set(fits)


@devices
def test_links_use_collectives_there_are(name: str) -> None:
    """Every all-reduce names an algorithm with a file, and none is faster than its wire."""
    link = load_hardware(name).link
    if link is None:
        return
    assert link.all_reduce
    assert set(link.all_reduce) <= set(
        Registry("simspec.cost.collectives", "collective algorithm").names()
    )
    for fit in link.all_reduce.values():
        assert fit.bandwidth_bytes_per_s <= link.bandwidth_bytes_per_s


@devices
def test_fits_carry_their_evidence(name: str) -> None:
    """A calibrated profile says on what and when it was fitted and how far it is off."""
    kernels = load_hardware_config(name).kernels
    for group in (kernels, *kernels.engines.values()):
        _check_evidence(group)


def _check_evidence(kernels: KernelsGroup | EngineKernelsGroup) -> None:
    if not kernels.calibrated:
        assert "Not measured" in kernels.source or kernels.efficiencies_of
        assert kernels.efficiencies_of in hardware_names()
        return
    assert kernels.fitted_on is not None
    assert re.match(r"\d{4}-\d{2}-\d{2}", kernels.fitted_on)
    for entry in (kernels.gemm or {}).values():
        assert entry.rows is not None
        assert entry.held_out_error is not None
        assert entry.held_out_error.median < 0.16


@devices
def test_spec_numbers_are_those_of_the_reference_table(name: str) -> None:
    """Memory, bandwidth, peaks, link and power equal the sourced table, cell by cell."""
    row, config = specs()[CSV_NAMES[name]], load_hardware_config(name)
    peaks = config.compute.dense_peak_tflops
    expected = {
        "memory_gb": config.memory.nominal_gb,
        "mem_bw_gb_s": config.memory.bandwidth_gb_s,
        "bf16_dense_tflops": peaks["bf16"],
        "fp8_dense_tflops": peaks.get("fp8"),
        "int8_dense_tops": peaks.get("int8"),
        "fp32_tflops": peaks.get("fp32"),
        "link_gb_s_per_dir": config.link and config.link.bandwidth_gb_s,
        "tdp_w": config.power and config.power.tdp_w,
    }
    for column, value in expected.items():
        if row[column] and value is not None:
            assert value == pytest.approx(float(row[column])), column
    # The table gives no rates of the H100 NVL; its profile says whose they are.
    assert "fp8" not in peaks or row["fp8_dense_tflops"] or not row["bf16_dense_tflops"]


@devices
def test_visible_memory_is_near_the_nominal_one(name: str) -> None:
    """Programs see within 8 % of the gibibytes the product is named after."""
    memory = load_hardware_config(name).memory
    assert memory.nominal_gb is not None
    assert memory.capacity_gb == pytest.approx(memory.nominal_gb * 1.073741824, rel=0.08)


@engines
def test_engines_load_with_sources(name: str) -> None:
    """Each engine profile is complete and says where its numbers come from."""
    engine = load_engine(name)
    assert engine.name == name
    assert set(engine.sources) == {"host", "memory", "scheduler", "uncertainty"}
    assert all(len(source) > 40 for source in engine.sources.values())


def test_ideal_engine_costs_nothing() -> None:
    """The engine for hand checks adds no time and takes no memory."""
    engine = load_engine("ideal")
    assert engine.graph_capture
    assert (
        engine.host_time_per_step_s,
        engine.host_time_per_sequence_s,
        engine.host_time_per_draft_step_s,
        engine.launch_time_s,
        engine.reserve_bytes,
    ) == (0, 0, 0, 0, 0)
    assert engine.memory_fraction == 1.0


# -- whole steps against published numbers -----------------------------------------------------


def decode_step_ms(
    hardware: str, engine: str, model: str, *, batch: int, context: int, tp: int = 1
) -> float:
    """Return the time of one plain decode step in milliseconds."""
    architecture = load_model(model)
    stack = Stack(
        "target", architecture.blocks, architecture.hidden_size, architecture.vocab_size,
        "bf16", "bf16", tp,
    )  # fmt: skip
    cost = CostModel({"target": stack}, load_hardware(hardware), load_engine(engine))
    kv_tokens = batch * (context + 1)
    rows = Rows("decode", batch, batch, kv_tokens, kv_tokens, batch)
    work = Pass("target", 0, architecture.num_layers, "decode", (rows,), embeds=True)
    return 1e3 * float(cost.step([work], batch).total_s)


def test_batch_one_decode_on_an_h100_is_what_users_measure() -> None:
    """Llama-3.1-8B bf16 under vLLM: 7.07 ms (vllm-project/vllm#20780) to 7.2 ms (load sweep).

    The host time per step was chosen from these two, so this checks that the choice and the
    kernel fits still belong together.
    """
    assert decode_step_ms("h100_sxm", "vllm", "llama-3.1-8b", batch=1, context=235) == (
        pytest.approx(7.1, abs=0.15)
    )


@pytest.mark.parametrize(
    ("batch", "context"), [(1, 1000), (16, 1000), (64, 1000), (128, 1000), (64, 4000)]
)
def test_steps_follow_a_published_fit(batch: int, context: int) -> None:
    """Llama-3.1-8B on an H100: 5.886 ms + 0.021 ms/token + 39.3 ns/KV token + 1.2 ms.

    github:SpecDecode-Bench/simulator predictor.py @2fdccbd, which saw other kernels and another
    host; 10 % is what two measurements of this kind differ by.
    """
    published = 5.88590713 + 0.0210103129 * batch + 3.92645679e-5 * batch * context + 1.20683946
    step = decode_step_ms("h100_sxm", "vllm", "llama-3.1-8b", batch=batch, context=context)
    assert step == pytest.approx(published, rel=0.10)


@pytest.mark.parametrize(("tp", "tokens_per_s"), [(1, 93.8), (2, 149.1), (4, 217.2), (8, 276.0)])
def test_tensor_parallel_decode_on_a100_follows_gpt_fast(tp: int, tokens_per_s: float) -> None:
    """Llama-3.1-8B bf16 at batch 1 on 1 to 8 A100 under captured graphs, within 12 %.

    github:pytorch-labs/gpt-fast README.md @32971d3 (cards capped at 330 W). No row of it was
    fitted; the all-reduce latency decides the numbers at 4 and 8.
    """
    step = decode_step_ms("a100_sxm_80gb", "ideal", "llama-3.1-8b", batch=1, context=100, tp=tp)
    assert step == pytest.approx(1e3 / tokens_per_s, rel=0.12)


@pytest.mark.parametrize(
    ("model", "ms"),
    [("llama-3.2-1b", 17.9), ("llama-2-7b", 25.83), ("llama-3.1-8b", 28.87), ("llama-2-13b", 33.2)],
)
def test_eager_pytorch_is_bound_by_launches(model: str, ms: float) -> None:
    """Plain transformers decoding on an A100 (github:huggingface/blog layerskip.md), within 12 %.

    The two host constants were taken from these four numbers.
    """
    step = decode_step_ms("a100_sxm_80gb", "pytorch", model, batch=1, context=500)
    assert step == pytest.approx(ms, rel=0.12)
